"""Who comes to the bookies of a cluster, as an operator sees it."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from support.bookies import SMALL, Peer
from support.keyed import OLD_SECRET, SECRET, USER, KeyFiles, show
from tallystick.admin.auth import BookieAuthentication, authentication
from tallystick.bookkeeper.bookie.bookie import start_bookie
from tallystick.bookkeeper.bookie.config import BookieSettings
from tallystick.bookkeeper.bookie.security import SecuritySettings
from tallystick.bookkeeper.metadata.cluster import ClusterMetadata
from tallystick.bookkeeper.metadata.memory import MemoryStore
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.digest_md5 import DigestClient
from tallystick.cli import NOT_WELL, main
from tallystick.cli.auth import _bookie_rows
from tallystick.runtime.machine import this_machine

pytestmark = pytest.mark.real_time


async def test_who_came_to_each_bookie_and_how(tmp_path: Path) -> None:
    keys, uri, folder = KeyFiles.make(tmp_path / "keys"), "memory://who-came", str(tmp_path / "b0")
    driver = ClusterMetadata(MemoryStore("who-came"))
    await driver.init_cluster()
    open_ = SecuritySettings(mechanisms=("sasl",), users_file=keys.users(), allow_anonymous=True)
    with_page: dict[str, Any] = {"http_enabled": True, "http_port": 0}
    settings = BookieSettings(uri, (folder,), (folder,), port=0, bookie_id="b0", security=open_, **with_page)
    silent = str(tmp_path / "b1")
    bookies = [
        await start_bookie(settings, this_machine(), SMALL),
        await start_bookie(BookieSettings(uri, (silent,), (silent,), port=0, bookie_id="b1"), this_machine(), SMALL),
    ]
    try:
        for secret, code in ((SECRET, Code.OK), (OLD_SECRET, Code.OK), ("no", Code.UNAUTHORIZED)):
            peer = Peer(*await asyncio.open_connection(*bookies[0].address))
            assert await show(peer, "sasl", DigestClient(USER, secret, "cnonce")) == code
            await peer.close()
        first, second = await authentication(driver)
        assert (first.bookie, first.mechanisms, first.tls, first.problem) == ("b0", ("sasl",), False, None)
        assert list(first.rows) == [
            {"host": "127.0.0.1", "identity": f"user {USER}", "came": 2, "old secret": 1},
            {"host": "127.0.0.1", "identity": "unknown", "refused": 1},
        ]
        assert (second.mechanisms, second.rows) == ((), ())
        assert "httpServerEnabled" in str(second.problem)
    finally:
        for bookie in bookies:
            await bookie.stop()


async def test_a_page_that_is_reached_from_elsewhere_does_not_say_who_came(tmp_path: Path) -> None:
    folder = str(tmp_path / "b0")
    driver = ClusterMetadata(MemoryStore("page-elsewhere"))
    await driver.init_cluster()
    settings = BookieSettings(
        "memory://page-elsewhere", (folder,), (folder,), port=0, bookie_id="b0",
        http_enabled=True, http_port=0, http_host="0.0.0.0", http_anonymous=True,
    )  # fmt: skip
    bookie = await start_bookie(settings, this_machine(), SMALL)
    try:
        (found,) = await authentication(driver)
        assert "on loopback" in str(found.problem)
    finally:
        await bookie.stop()


def test_a_bookie_that_asks_nobody_is_amiss_though_nobody_came() -> None:
    (row,) = _bookie_rows(BookieAuthentication("b0", (), tls=False))
    assert (row["takes"], row["amiss"]) == ("anybody", "it asks nobody who he is")
    (row,) = _bookie_rows(BookieAuthentication("b0", ("scram-sha-256",), tls=True))
    assert (row["takes"], row["amiss"]) == ("scram-sha-256", "")


def test_the_command_says_what_is_amiss(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    uri = f"sqlite://{tmp_path}/m.db"
    assert main(["cluster", "init", uri]) == 0
    capsys.readouterr()
    assert main(["auth", "status", "--uri", uri]) == 0
    assert "no bookie is registered" in capsys.readouterr().err
    folder = str(tmp_path / "b0")

    async def ask() -> tuple[int | None, bytes]:
        bookie = await start_bookie(
            BookieSettings(uri, (folder,), (folder,), port=0, bookie_id="b0"), this_machine(), SMALL
        )
        try:
            command = [sys.executable, "-m", "tallystick", "auth", "status", "--uri", uri, "--json"]
            process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
            out, _ = await process.communicate()
            return process.returncode, out
        finally:
            await bookie.stop()

    code, out = asyncio.run(ask())
    assert code == NOT_WELL
    (row,) = map(json.loads, out.splitlines())
    assert (row["bookie"], row["takes"], row["tls"], row["came"]) == ("b0", "anybody", False, 0)
    assert "httpServerEnabled" in row["amiss"]
