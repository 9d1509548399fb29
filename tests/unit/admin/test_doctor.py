"""What ``tally doctor`` says of a machine, and of one that lacks something."""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path

import pytest

from tallystick.admin import doctor
from tallystick.admin.cluster import init
from tallystick.cli import NOT_WELL, main
from tallystick.codec import implementation
from tallystick.errors import StorageError
from tallystick.runtime import extras
from tallystick.runtime.disk import OsDisk, Usage


class Disk(OsDisk):
    """The real one, but for how full it is and whether it can sync."""

    def __init__(self, free: int = 80, *, fails: bool = False) -> None:
        self.free, self.fails = free, fails

    def usage(self, path: str) -> Usage:
        return Usage(total=105, free=self.free, reserved=5)

    def open(self, path: str, *, create: bool = False, direct: bool = False, durable: bool = False):  # type: ignore[no-untyped-def]
        file = super().open(path, create=create, direct=direct, durable=durable)
        if self.fails:
            file.close()
            raise StorageError("cannot write: Input/output error", path=path)
        return file


def java(folder: Path, *lines: str) -> dict[str, str]:
    """A ``java`` that prints its version to stderr, as the real one does."""
    (folder / "bin").mkdir()
    script = folder / "bin" / "java"
    script.write_text("\n".join(["#!/bin/sh", *lines]))
    script.chmod(0o755)
    return {"JAVA_HOME": str(folder)}


def with_spark(monkeypatch: pytest.MonkeyPatch, *, is_there: bool) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: object() if is_there else None)


def test_the_compiled_codec_is_fine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(implementation, "in_use", lambda: "compiled, CRC32C by sse4.2")
    assert doctor.codec() == doctor.Diagnosis("codec", "ok", "compiled, CRC32C by sse4.2")


def test_why_the_codec_is_not_the_compiled_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(implementation, "in_use", lambda: "python")
    monkeypatch.setitem(sys.modules, "tallystick.codec._compiled", None)
    assert doctor.codec().state == "note"
    assert "install a C compiler" in doctor.codec().text
    monkeypatch.setattr(implementation, "load", lambda environment: None)
    assert "unset it" in doctor.codec().text


def test_a_library_that_lacks_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with_spark(monkeypatch, is_there=False)
    for purpose in doctor.LIBRARIES:
        found = doctor.libraries(purpose)
        assert found.state == "note"
        assert "pip install" in found.text
    with_spark(monkeypatch, is_there=True)
    assert {doctor.libraries(purpose).state for purpose in doctor.LIBRARIES} == {"ok"}


@pytest.mark.parametrize(
    ("line", "state", "text"),
    [
        ("echo 'openjdk version \"17.0.15\" 2025-04-15' >&2", "ok", "17, "),
        ("echo 'java version \"1.8.0_292\"' >&2", "amiss", "is 8: Spark needs Java 17"),
        ("echo nonsense", "amiss", "does not say its version"),
    ],
)
def test_the_version_of_java(line: str, state: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_spark(monkeypatch, is_there=True)
    found = doctor.java(java(tmp_path, line))
    assert (found.state, text in found.text) == (state, True)


@pytest.mark.parametrize(("is_there", "state"), [(True, "amiss"), (False, "note")])
def test_without_java_only_spark_is_amiss(
    is_there: bool, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_spark(monkeypatch, is_there=is_there)
    assert doctor.java({"PATH": str(tmp_path)}).state == state
    assert "JAVA_HOME has no bin/java" in doctor.java({"JAVA_HOME": str(tmp_path)}).text


def test_the_disk_is_written_to_and_nothing_is_left(tmp_path: Path) -> None:
    found = doctor.storage(Disk(), str(tmp_path / "not" / "there" / "yet"))
    assert found.text.startswith(f"{tmp_path}: a sync takes")
    assert found.text.partition(";")[0].endswith("0.0 GB free, 20% in use")
    assert found.state != "amiss"
    assert not list(tmp_path.iterdir())


def test_a_disk_that_is_full_or_fails_is_amiss(tmp_path: Path) -> None:
    full = doctor.storage(Disk(free=4), str(tmp_path))
    assert (full.state, "96% in use: a bookie takes no new entries above 95%" in full.text) == ("amiss", True)
    failing = doctor.storage(Disk(fails=True), str(tmp_path))
    assert (failing.state, "Input/output error" in failing.text) == ("amiss", True)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("kind", "state"), [("tmpfs", "note"), ("nfs4", "note"), ("ext4", "ok")])
def test_what_the_folder_lies_on(kind: str, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_file_system", lambda folder: kind)
    assert doctor.storage(Disk(), str(tmp_path)).state == state


def test_few_open_files_are_noted() -> None:
    assert doctor.open_files(1024, 65536).state == "ok"
    assert doctor.open_files(1024, 1024).state == "note"


def test_a_port_that_is_taken_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setitem(doctor.PORTS, "bookie", ("bookiePort", server.getsockname()[1], ()))
        taken = doctor.port("bookie")
        assert taken.state == "note"
        assert taken.text.endswith("it runs already, or set another bookiePort")
    assert doctor.port("bookie").state == "ok"


async def test_the_metadata_are_asked(tmp_path: Path) -> None:
    uri = f"sqlite://{tmp_path}/metadata.db"
    assert (await doctor.metadata(None)).state == "note"
    assert (await doctor.metadata(uri)).state == "amiss"
    instance = await init(uri)
    found = await doctor.metadata(uri)
    assert (found.state, found.text) == (
        "note",
        f"{uri}: cluster {instance}, writable bookies: 0; see tally bookie list",
    )


def test_the_command_says_it_row_by_row_and_fails_where_something_is_amiss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "java", lambda environment: doctor.Diagnosis("java", "ok", "17"))
    monkeypatch.setattr(doctor, "storage", lambda disk, folder: doctor.Diagnosis("disk", "ok", folder))
    monkeypatch.setenv("TALLY_DEV_DIR", str(tmp_path / "none"))
    monkeypatch.delenv("TALLY_URI", raising=False)
    assert main(["doctor", "--json", "--folder", os.path.relpath(tmp_path)]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {row["what"]: row["state"] for row in rows}["metadata"] == "note"
    assert {row["what"]: row["says"] for row in rows}["disk"] == str(tmp_path)
    assert all(row.keys() == {"what", "state", "says"} for row in rows)
    assert main(["doctor", "--uri", f"sqlite://{tmp_path}/metadata.db"]) == NOT_WELL
    assert "there is no cluster here" in capsys.readouterr().out
    assert main(["doctor", "--uri", "nonsense"]) == 2
    assert main(["doctor", "--uri", ""]) == 2
