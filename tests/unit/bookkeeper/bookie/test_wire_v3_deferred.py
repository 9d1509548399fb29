"""Deferred adds of version 3: acknowledged when they are written, durable with a force (Q16)."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from pathlib import Path

import pytest

from support.bookies import OTHER_KEY
from support.room_v3 import Room, make_room
from support.v3_frames import adds_v3, answers_v3, codes_v3, read_v3, request_v3
from tallystick.bookkeeper.bookie.service import AddRunResponse
from tallystick.bookkeeper.wire import v3
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.v3_responses import ForceResponse
from tallystick.codec.frames import AddRun


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    made = make_room(tmp_path)
    yield made
    made.storage.close(clean=False)


def test_a_deferred_add_is_acknowledged_when_it_is_written_and_durable_with_a_force(room: Room) -> None:
    served = room.ask(adds_v3(1, [0], number=3, deferred_sync=True))
    assert codes_v3(b"".join(served.when_written)) == [(3, Code.OK)]
    assert not served.at_once and not served.when_durable
    assert room.storage.staged and served.written_commit == room.storage.newest_commit
    forced = room.ask(request_v3(v3.ForceRequest, 1, number=4))
    assert not forced.at_once and answers_v3(b"".join(forced.when_durable)) == [ForceResponse(4, Code.OK, 1)]
    assert forced.commit == room.storage.newest_commit
    room.storage.commit(room.storage.take())
    assert room.ask(request_v3(v3.ForceRequest, 77)).when_durable, "of any ledger, with the newest commit, done or not"


def test_deferred_adds_of_one_read_are_one_call_of_the_service(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    runs, add_run = list[int](), room.service.add_run

    def counted(data: bytes, run: AddRun, *, behind: AbstractSet[int]) -> AddRunResponse:
        runs.append(len(run))
        return add_run(data, run, behind=behind)

    monkeypatch.setattr(room.service, "add_run", counted)
    deferred = adds_v3(1, range(50), number=3, deferred_sync=True)
    served = room.ask(deferred + adds_v3(1, range(50, 60), number=60) + adds_v3(1, [60], deferred_sync=True))
    assert runs == [50, 10, 1]
    assert len(served.when_written) == 2, "a run has one response for all"
    assert [entry for entry, _ in codes_v3(b"".join(served.when_written))] == [*range(3, 53), 1]
    assert [entry for entry, _ in codes_v3(b"".join(served.when_durable))] == [*range(60, 70)]
    assert not served.at_once and room.codes(read_v3(1, 49)) == [Code.OK]


def test_nothing_else_takes_a_deferred_add_for_durable(room: Room) -> None:
    room.ask(adds_v3(1, [0], deferred_sync=True))
    again = room.ask(adds_v3(1, [0]))
    assert not again.at_once and again.commit == room.storage.newest_commit
    refused = room.ask(adds_v3(1, [1], key=OTHER_KEY, deferred_sync=True))
    assert codes_v3(b"".join(refused.at_once)) == [(1, Code.UNAUTHORIZED)] and not refused.when_written
