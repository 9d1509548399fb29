"""Racks from a file, from Pulsar's node, from a script, and what counts when several know a bookie."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from support.clocks import ManualClock
from support.waiting import until
from tallystick.bookkeeper.ledger import racks
from tallystick.bookkeeper.ledger.locations import Locations
from tallystick.bookkeeper.ledger.racks import PulsarRacks, RackFile, Racks, RackScript, rack_sources
from tallystick.bookkeeper.ledger.settings import ClientSettings
from tallystick.bookkeeper.metadata.driver import RegisteredBookies
from tallystick.bookkeeper.metadata.memory import MemoryStore
from tallystick.bookkeeper.metadata.store import Create, Update
from tallystick.bookkeeper.wire.values import BookieId, BookieInfo
from tallystick.errors import MetadataError, UsageError
from tallystick.runtime.events import Event, Events

HOSTS = {"b1": "h1", "b2": "h2", "10.0.0.1:3181": "10.0.0.1"}


@pytest.mark.real_time
async def test_a_file_has_bookies_and_patterns_and_the_first_that_fits_counts(tmp_path: Path) -> None:
    file = tmp_path / "racks"
    file.write_text("# ours\nb1 = /r1  # the old one\nb*=r2\n\n10.0.0.1:*=/east/r3\n")
    assert await RackFile(str(file)).racks({**HOSTS, "c": "h"}) == {
        "b1": "/r1",
        "b2": "r2",
        "10.0.0.1:3181": "/east/r3",
    }


@pytest.mark.real_time
async def test_a_long_file_of_many_bookies_is_read_beside_the_loop(tmp_path: Path) -> None:
    hosts = {f"b{number}": "h" for number in range(2000)}
    file = tmp_path / "racks"
    file.write_text("".join(f"{bookie}=r{bookie}\n" for bookie in [*hosts, *(f"x{number}*" for number in range(999))]))
    longest, before, began = 0.0, time.thread_time(), time.process_time()  # of work: others work on this machine, too
    reading = asyncio.create_task(RackFile(str(file)).racks(hosts))
    while not reading.done():
        await asyncio.sleep(0)
        longest, before = max(longest, time.thread_time() - before), time.thread_time()
    assert await reading == {bookie: f"r{bookie}" for bookie in hosts}
    assert longest < (time.process_time() - began) / 2, "others have their turns meanwhile"
    file.write_text("b7=first\nb7=second\n" + "x*=r\n" * (racks.MOST_PATTERNS - 1) + "b*=last\n")
    assert (await RackFile(str(file)).racks(hosts))["b7"] == "first"
    with file.open("a") as lines:
        lines.write("y?=r\n")
    with pytest.raises(UsageError, match=r"too many patterns.*line=1003"):
        await RackFile(str(file)).racks(hosts)


@pytest.mark.real_time
@pytest.mark.parametrize("text", ["b1\n", "=r\n", "b1=\n"])
async def test_a_file_that_is_not_of_racks_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "racks"
    file.write_text(text)
    with pytest.raises(UsageError, match="line=1"):
        await RackFile(str(file)).racks(HOSTS)
    with pytest.raises(UsageError, match="cannot be read"):
        await RackFile(str(tmp_path / "none")).racks(HOSTS)
    file.write_text("#" * (racks.MOST_BYTES + 1))
    with pytest.raises(UsageError, match="too long"):
        await RackFile(str(file)).racks(HOSTS)


async def test_pulsars_node_has_groups_of_addresses() -> None:
    store = MemoryStore("racks of pulsar")
    source = PulsarRacks(store)
    assert await source.racks(HOSTS) == {}
    groups = {
        "default": {"b1": {"rack": "/r1", "hostname": "x"}, "10.0.0.1:3181": {"rack": "r2"}},
        "other": {"h2:3181": {"rack": "/r3", "hostname": None}, "h9:1": {"rack": "/"}, "h8:1": {}},
    }
    await store.change(Create("/bookies", json.dumps(groups).encode()))
    more = {**HOSTS, "b9": "h9"}
    assert await source.racks(more) == {"b1": "/r1", "b2": "/r3", "10.0.0.1:3181": "r2"}
    for version, damaged in enumerate([b"{", b"[]", b'{"g": 1}', b'{"g": {"b": 2}}']):
        await store.change(Update("/bookies", damaged, version))
        with pytest.raises(MetadataError, match="racks in the metadata are damaged"):
            await source.racks(HOSTS)
    await store.close()


@pytest.mark.real_time
async def test_a_script_is_given_hosts_once_and_ended_when_it_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, calls = tmp_path / "script", tmp_path / "calls"
    script.write_text(f'#!/bin/sh\necho "$@" >> {calls}\nfor host; do echo /r-$host; sleep 0.01; done\n')
    script.chmod(0o755)
    source = RackScript(str(script))
    assert (await source.racks(HOSTS))["b2"] == "/r-h2"
    assert (await source.racks({**HOSTS, "b3": "h3"}))["b3"] == "/r-h3"
    assert calls.read_text() == "h1 h2 10.0.0.1\nh3\n"
    script.write_text("#!/bin/sh\necho /r1\n")
    with pytest.raises(UsageError, match="no rack for each host"):
        await RackScript(str(script)).racks(HOSTS)
    script.write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr(racks, "SCRIPT_S", 0.1)
    with pytest.raises(UsageError, match="took too long"):
        await RackScript(str(script)).racks(HOSTS)
    with pytest.raises(UsageError, match="cannot be run"):
        await RackScript(str(tmp_path / "none")).racks(HOSTS)


@pytest.mark.real_time
@pytest.mark.parametrize("work", ["sleep 60", "yes"])
async def test_nothing_is_left_of_a_script_that_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: str
) -> None:
    """Its process and its pipe stayed until the garbage of whoever came later was collected."""
    monkeypatch.setattr(racks, "MOST_BYTES", 100_000)
    monkeypatch.setattr(racks, "SCRIPT_S", 2.0)
    script, pid = tmp_path / "script", tmp_path / "pid"
    script.write_text(f"#!/bin/sh\necho $$ > {pid}\nexec {work}\n")
    script.chmod(0o755)
    with pytest.raises(UsageError):
        await RackScript(str(script)).racks(HOSTS)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
    gc.collect()


class Source:
    """Says what it has, or fails."""

    def __init__(self, by_bookie: Mapping[BookieId, str]) -> None:
        self.by_bookie: Mapping[BookieId, str] | None = by_bookie
        self.calls = 0

    async def racks(self, hosts: Mapping[BookieId, str]) -> Mapping[BookieId, str]:
        self.calls += 1
        if self.by_bookie is None:
            raise UsageError("it fails")
        return {bookie: rack for bookie, rack in self.by_bookie.items() if bookie in hosts}


async def test_the_registration_counts_then_the_first_source_that_knows_and_a_failure_changes_nothing() -> None:
    clock, events = ManualClock(), list[Event]()
    first, second = Source({"a": "/r1"}), Source({"a": "/r9", "b": "r2", "c": "/r9"})
    known = Racks([first, second], clock, Events(events.append))
    locations = Locations(known)
    endpoints = BookieInfo.at("h", 1).endpoints
    bookies = RegisteredBookies(
        {"a": BookieInfo(endpoints), "b": BookieInfo(endpoints), "c": BookieInfo(endpoints, {"rack": "/r3"})},
        {"d": BookieInfo(endpoints)},
    )

    def by_name() -> dict[BookieId, str]:
        return {bookie: one.rack for bookie, one in locations.of(bookies).by_bookie.items()}

    await locations.refresh(bookies)
    assert by_name() == {"a": "/r1", "b": "/r2", "c": "/r3", "d": "/default-rack"}
    await locations.refresh(bookies)
    assert first.calls == 1
    clock.time = racks.REFRESH_S
    first.by_bookie, second.by_bookie = None, {"b": "/r4"}
    await locations.refresh(bookies)
    await until(lambda: known._task is None)
    await locations.refresh(bookies)
    assert by_name() == {"a": "/r1", "b": "/r4", "c": "/r3", "d": "/default-rack"}
    clock.time *= 2
    await locations.refresh(bookies)
    await until(lambda: known._task is None)
    assert [event.fields["reason"] for event in events] == ["it fails"]
    await known.close()


def test_the_settings_name_the_sources() -> None:
    store = MemoryStore("sources")
    settings = ClientSettings(rack_file="f", pulsar_racks=True, rack_script="s")
    assert [type(source) for source in rack_sources(settings, store)] == [RackFile, PulsarRacks, RackScript]
    assert rack_sources(ClientSettings(), store) == []
