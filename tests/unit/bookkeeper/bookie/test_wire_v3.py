"""What a bookie answers in version 3, without sockets: one call a buffer."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

import pytest

from support.bookies import KEY, OTHER_KEY, adds, read
from support.requesters import Asker
from support.room_v3 import GIB, LOOKS, MAX_FRAME, Room, make_room
from support.v3_frames import (
    HIGH,
    RECOVERY,
    adds_v3,
    answers_v3,
    codes_v3,
    entry_body,
    lac_body,
    poll_v3,
    read_v3,
    request_v3,
    write_lac_v3,
)
from tallystick.bookkeeper.bookie.look import Verdict
from tallystick.bookkeeper.bookie.service import AddRunResponse
from tallystick.bookkeeper.bookie.wire_v3 import WireV3, encode_entry_list
from tallystick.bookkeeper.bookie.wires import RUN_BYTES, RUN_LEDGERS, SHORT_BYTES
from tallystick.bookkeeper.wire import v3
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.v3_responses import (
    AddResponse,
    BookieInfoResponse,
    EntryListResponse,
    ReadLacResponse,
    ReadResponse,
    WriteLacResponse,
)
from tallystick.codec.frames import AddRun
from tallystick.errors import StorageError
from tallystick.runtime.disk import Usage


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    made = make_room(tmp_path)
    yield made
    made.storage.close(clean=False)


# Adds and reads.


def test_adds_are_answered_when_they_are_durable(room: Room) -> None:
    served = room.ask(adds_v3(7, range(100), number=300))
    assert not served.at_once
    assert answers_v3(b"".join(served.when_durable)) == [
        AddResponse(300 + entry, Code.OK, 7, entry) for entry in range(100)
    ]
    assert room.storage.staged
    stored = len(adds(7, range(100)))
    assert (room.counts.adds, room.counts.adds_failed, room.counts.add_bytes) == (100, 0, stored)


def test_what_one_version_adds_the_other_reads(room: Room) -> None:
    room.ask(adds_v3(7, range(20)))
    served = room.v2.serve(b"".join(read(7, entry) for entry in range(20)) + adds(7, range(20, 40)))
    assert b"".join(served.at_once)[28:67] == entry_body(7, 0)
    answers = room.answers(b"".join(read_v3(7, entry, number=entry) for entry in range(40)))
    assert [(answer.request_id, answer.entry, bytes(answer.body)) for answer in answers] == [
        (entry, entry, entry_body(7, entry)) for entry in range(40)
    ]


def test_plain_reads_tell_the_lac_that_is_known_and_no_others_do(room: Room) -> None:
    room.ask(adds_v3(7, range(4)))
    for asked in (read_v3(7, 0), read_v3(7, 0) + read_v3(7, 1), read_v3(7, -1), read_v3(7, 3, priority=100)):
        assert {answer.max_lac for answer in room.answers(asked)} == {2}
    assert room.codes(write_lac_v3(7, 3)) == [Code.OK]
    assert [answer.max_lac for answer in room.answers(read_v3(7, 0) + read_v3(7, 9))] == [3, None]
    assert [answer.max_lac for answer in room.answers(read_v3(7, 0, KEY) + read_v3(7, -1, KEY))] == [None, None]


def test_a_call_ends_when_its_time_is_over_whatever_came_with_one_read(room: Room) -> None:
    data, left = b"".join(read_v3(ledger, -1, KEY) for ledger in range(100)), iter(range(9, -1, -1))
    served = room.wire.serve(data, has_time=lambda: next(left) > 0)
    assert len(served.when_durable) == 10 and served.position == len(data) // 10 and not served.need
    rest = room.wire.serve(data[served.position :], has_time=lambda: True)
    assert len(rest.when_durable) == 90


@pytest.mark.parametrize("stored", [True, False])
def test_plain_reads_of_one_socket_read_end_when_the_time_is_over_too(room: Room, stored: bool) -> None:
    if stored:
        room.ask(adds_v3(7, range(100)))
    entries = range(99, -1, -1)  # none is in one run with the next
    data, left = b"".join(read_v3(7, entry, number=entry) for entry in entries), iter([*range(9, -1, -1), 0])
    served = room.wire.serve(data, has_time=lambda: next(left) > 0)
    assert len(served.at_once) == 10 and not served.need
    rest = room.wire.serve(data[served.position :], has_time=lambda: True)
    answers = answers_v3(b"".join(served.at_once + rest.at_once))
    assert [(answer.request_id, answer.entry) for answer in answers] == [(entry, entry) for entry in entries]


def test_plain_reads_of_a_striped_ledger_are_answered_together(room: Room) -> None:
    """A bookie has some of its entries, and each was looked for by itself: ten times what it costs together."""
    entries = [entry for entry in range(90) if entry % 3]
    room.ask(adds_v3(7, entries))
    served = room.wire.serve(b"".join(read_v3(7, entry, number=entry) for entry in entries))
    assert len(served.at_once) == 1
    answers = answers_v3(b"".join(served.at_once))
    assert [(answer.request_id, answer.entry) for answer in answers] == [(entry, entry) for entry in entries]


def test_adds_that_came_together_are_stored_some_at_a_time_while_there_is_time(room: Room) -> None:
    """A read of a megabyte of adds to many ledgers took 60 ms of a turn, whatever time it had."""
    data, left = adds_v3(7, range(8000), b""), iter((1, 0))
    served = room.wire.serve(data, has_time=lambda: next(left) > 0)
    assert 0 < served.position <= 2 * RUN_BYTES < len(data)
    room.ask(data[served.position :])
    assert room.storage.last_entry(7) == 7999


def test_first_adds_of_many_ledgers_are_stored_some_at_a_time(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    stored: list[int] = []
    add_run = room.service.add_run

    def counted(data: bytes, run: AddRun, *, behind: AbstractSet[int]) -> AddRunResponse:
        stored.append(len(run))
        return add_run(data, run, behind=behind)

    monkeypatch.setattr(room.service, "add_run", counted)
    data, left = b"".join(adds_v3(ledger, [0], number=ledger) for ledger in range(3 * RUN_LEDGERS)), iter((1, 0))
    served = room.wire.serve(data, has_time=lambda: next(left) > 0)
    assert served.position < len(data)
    rest = room.wire.serve(data[served.position :])
    answers = answers_v3(b"".join(served.when_durable + rest.when_durable))
    assert answers == [AddResponse(ledger, Code.OK, ledger, 0) for ledger in range(3 * RUN_LEDGERS)]
    assert max(stored) <= RUN_LEDGERS and len(stored) < 10


def test_a_refused_add_is_answered_at_once_and_the_others_when_durable(room: Room) -> None:
    room.ask(adds_v3(1, [0]))
    served = room.ask(adds_v3(1, [1], number=5) + adds_v3(1, [2], key=OTHER_KEY, number=6) + adds_v3(2, [0], number=7))
    assert codes_v3(b"".join(served.at_once)) == [(6, Code.UNAUTHORIZED)]
    assert codes_v3(b"".join(served.when_durable)) == [(5, Code.OK), (7, Code.OK)]
    assert room.counts.adds_failed == 1


def test_ids_that_differ_in_request_and_body_are_a_bad_request(room: Room) -> None:
    for ledger, entry in ((1, 4), (2, 3)):
        differs = request_v3(v3.AddRequest, ledger, entry, KEY, entry_body(1, 3), number=9)
        assert room.answers(differs) == [AddResponse(9, Code.BAD_REQUEST, ledger, entry)]
    assert not room.storage.ledger_ids() and room.counts.adds_failed == 2


@pytest.mark.parametrize("key", [b"", b"12345", KEY + b"x"])
def test_a_key_of_another_length_is_that_of_a_stranger(room: Room, key: bytes) -> None:
    assert room.codes(adds_v3(1, [0], key=key)) == [Code.UNAUTHORIZED]
    assert room.codes(adds_v3(1, [0], key=key, **RECOVERY)) == [Code.UNAUTHORIZED]
    assert room.codes(read_v3(1, -1, key)) == [Code.UNAUTHORIZED]
    assert room.codes(request_v3(v3.ReadRequest, 1, -1, fence=True)) == [Code.UNAUTHORIZED]
    assert not room.storage.ledger_ids()


def test_what_waits_keeps_no_key_that_it_does_not_need(room: Room) -> None:
    long, mib = b"K" * (1024 * 1024), 1024 * 1024
    room.wire = WireV3(room.service, room.wire._lacs, room.wire._holdings, room.v2, max_frame_bytes=2 * mib)
    assert room.codes(adds_v3(1, [0])) == [Code.OK]
    poll = request_v3(v3.ReadRequest, 1, -1, master_key=long, previous_lac=0, timeout_ms=50_000)

    async def held_bytes() -> int:
        room.ask(poll)
        gc.collect()
        assert room.counts.long_polls_waiting == 1
        held, _ = tracemalloc.get_traced_memory()
        room.service.polls.close()
        return held

    tracemalloc.start()
    try:
        assert asyncio.run(held_bytes()) < mib
    finally:
        tracemalloc.stop()
    room.service.looks = lambda: True
    room.storage.identities.note(1, 77)
    room.storage.identities.look_again()
    served = room.ask(poll + request_v3(v3.ReadRequest, 1, -1, master_key=long))
    assert [len(frame) < 100 for frame in served.to_look[1]] == [True, True]
    keyed = (
        adds_v3(1, [1], key=long)
        + read_v3(1, -1, long)
        + request_v3(v3.WriteLacRequest, 1, 0, master_key=long, body=b"")
    )
    assert room.codes(keyed) == [Code.UNAUTHORIZED] * 3, "they need not wait"


def test_a_key_alone_does_not_fence(room: Room) -> None:
    room.ask(adds_v3(1, [0]))
    assert room.codes(request_v3(v3.ReadRequest, 1, 0, KEY)) == [Code.OK]
    assert room.codes(adds_v3(1, [1])) == [Code.OK]


@pytest.mark.rule("Q11")
@pytest.mark.parametrize("ledger", [1, 99], ids=["known ledger", "never seen"])
def test_q11_every_answer_to_a_fencing_read_waits_until_the_fence_is_durable(room: Room, ledger: int) -> None:
    room.ask(adds_v3(1, range(3)))
    for entry in (-1, 0, 5):
        served = room.ask(read_v3(ledger, entry, KEY))
        assert not served.at_once
        assert len(served.when_durable) == 1
    assert room.codes(adds_v3(ledger, [3])) == [Code.FENCED]
    assert room.codes(adds_v3(ledger, [3], **RECOVERY, **HIGH)) == [Code.OK]


@pytest.mark.rule("Q15")
def test_q15_a_disk_error_is_never_a_no(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    room.ask(adds_v3(1, range(3)))

    def broken(*_: object) -> tuple[int, bytes]:
        raise StorageError("the disk does not answer")

    for name in ("read", "read_frames"):
        monkeypatch.setattr(room.storage, name, broken)
    asked = read_v3(1, 0) + read_v3(1, 9) + read_v3(1, -1) + read_v3(1, 0, KEY) + poll_v3(1, -1)
    assert room.codes(asked + request_v3(v3.ReadLacRequest, 1)) == [Code.IO_ERROR] * 6


@pytest.mark.parametrize(
    "request_",
    [
        adds_v3(1, [-5]),
        adds_v3(1, [-0x1000]),
        adds_v3(-7, [0]),
        adds_v3(-7, [0], **RECOVERY),
        adds_v3(1, [-0x2000], **HIGH),
        adds_v3(1, [-1], deferred_sync=True),
        read_v3(-1, 0),
        read_v3(1, -2),
        read_v3(-1, 0, KEY),
        read_v3(1, -2, KEY),
        poll_v3(-1, 0),
        poll_v3(1, -2),
        request_v3(v3.ReadRequest, 1, 0, previous_lac=0),
        write_lac_v3(-1, 0),
        write_lac_v3(1, -2),
        request_v3(v3.ReadLacRequest, -1),
        request_v3(v3.EntryListRequest, -1),
        request_v3(v3.AddRequest, 3, 0, KEY, bytes(10)),
        request_v3(v3.AddRequest, 0, 0, KEY, bytes(16)),
        request_v3(v3.AddRequest, 0, 0, KEY, b""),
    ],
)
def test_bad_ids_and_headless_entries_are_bad_requests_and_leave_nothing(room: Room, request_: bytes) -> None:
    assert room.codes(request_) == [Code.BAD_REQUEST]
    assert not room.storage.staged
    assert not room.storage.ledger_ids()


def test_a_read_only_bookie_takes_recovery_alone_and_only_while_there_is_space(room: Room) -> None:
    room.guard.measured([Usage(total=100 * GIB, free=2 * GIB)])
    high, plain_recovery = adds_v3(1, [1], **HIGH), adds_v3(1, [2], **RECOVERY)
    above_none = adds_v3(1, [3], priority=1)
    assert room.codes(adds_v3(1, [0]) + plain_recovery + high) == [Code.READ_ONLY, Code.READ_ONLY, Code.OK]
    assert room.codes(above_none) == [Code.OK], "all that is above 0 is high, as in the original"
    assert room.codes(read_v3(1, 1) + write_lac_v3(1, 0)) == [Code.OK, Code.READ_ONLY]
    assert room.codes(request_v3(v3.ForceRequest, 1)) == [Code.OK]
    room.guard.measured([Usage(total=100 * GIB, free=GIB - 1)])
    assert room.codes(high) == [Code.READ_ONLY]


# Deferred adds, and forces.


@pytest.mark.rule("Q14")
def test_q14_recovery_defers_nothing(room: Room) -> None:
    served = room.ask(adds_v3(1, [0], deferred_sync=True, **RECOVERY, **HIGH))
    assert not served.at_once and codes_v3(b"".join(served.when_durable)) == [(1, Code.OK)]


# Explicit LAC, long polls, lists, space.


def test_an_explicit_lac_is_durable_before_its_response_and_given_as_it_came(room: Room) -> None:
    room.ask(adds_v3(1, range(2)))
    served = room.ask(write_lac_v3(1, 1, number=8))
    assert not served.at_once
    assert answers_v3(b"".join(served.when_durable)) == [WriteLacResponse(8, Code.OK, 1)]
    (answer,) = room.answers(request_v3(v3.ReadLacRequest, 1, number=9))
    assert answer == ReadLacResponse(9, Code.OK, 1, lac_body(1, 1), entry_body(1, 1))
    assert room.answers(request_v3(v3.ReadLacRequest, 2)) == [ReadLacResponse(1, Code.NO_ENTRY, 2)]
    asked = (
        write_lac_v3(1, 0, OTHER_KEY) + write_lac_v3(2, 0) + request_v3(v3.WriteLacRequest, 1, 5, KEY, lac_body(1, 4))
    )
    assert room.codes(asked) == [Code.UNAUTHORIZED, Code.NO_LEDGER, Code.BAD_REQUEST]


def test_a_long_poll_is_answered_with_the_entry_or_the_lac(room: Room) -> None:
    room.ask(adds_v3(1, range(3)))
    assert room.answers(poll_v3(1, 0, 1000, number=7)) == [ReadResponse(7, Code.OK, 1, 1, entry_body(1, 1), 1)]
    assert room.answers(poll_v3(1, 1)) == [ReadResponse(1, Code.OK, 1, -1, None, 1)]
    assert room.answers(poll_v3(2, 1, 1000)) == [ReadResponse(1, Code.NO_LEDGER, 2, -1)]
    fences = request_v3(v3.ReadRequest, 1, -1, KEY, fence=True, previous_lac=0)
    assert room.answers(fences) == [ReadResponse(1, Code.OK, 1, -1, entry_body(1, 2))]


async def test_a_long_poll_waits_for_the_lac(room: Room) -> None:
    room.ask(adds_v3(1, range(3)))
    served = room.ask(poll_v3(1, 1, 60_000, number=7) + read_v3(1, 0, number=8))
    assert codes_v3(b"".join(served.at_once)) == [(8, Code.OK)], "others pass it"
    room.ask(adds_v3(1, [3]))
    assert not room.came
    await asyncio.sleep(0)
    assert answers_v3(b"".join(room.came)) == [ReadResponse(7, Code.OK, 1, 2, entry_body(1, 2), 2)]


def test_a_list_of_entries_comes_later(room: Room) -> None:
    room.ask(adds_v3(1, [0, 1, 5]))
    served = room.ask(request_v3(v3.EntryListRequest, 1, number=6) + request_v3(v3.EntryListRequest, 2, number=7))
    assert answers_v3(b"".join(served.at_once)) == [EntryListResponse(7, Code.NO_LEDGER, 2)]
    room.worker.do_one()
    (answer,) = answers_v3(b"".join(room.came))
    assert (answer.request_id, answer.code, answer.ledger) == (6, Code.OK, 1)
    assert answer.availability == encode_entry_list(iter([range(2), range(5, 6)]), max_bytes=MAX_FRAME)


def test_a_list_that_fits_no_response_is_not_known(room: Room) -> None:
    triangles = (range(start, start + size) for size in range(1, 10_000) if (start := size * size))
    assert encode_entry_list(triangles, max_bytes=MAX_FRAME) is None


def test_the_room_is_told_as_far_as_it_is_asked_for(room: Room) -> None:
    room.guard.measured([Usage(total=9, free=8), Usage(total=200, free=150)])
    for asked, told in ((0, (None, None)), (1, (200, None)), (2, (None, 150)), (3, (200, 150)), (64, (None, None))):
        assert room.answers(request_v3(v3.BookieInfoRequest, asked, number=5)) == [
            BookieInfoResponse(5, Code.OK, *told)
        ]


# What waits for a look.


def settled(room: Room, frames: list[bytes], verdict: Verdict) -> list[Any]:
    result = room.wire.settle(b"".join(frames), verdict)
    for begin in result.later:
        begin(Asker(), room.came.append)
    return answers_v3(b"".join([*result.at_once, *result.when_durable]))


def test_fences_of_one_buffer_that_wait_for_looks_are_counted(tmp_path: Path) -> None:
    room = make_room(tmp_path, fences=1)
    assert room.codes(read_v3(1, 0, KEY)) == [Code.NO_ENTRY]
    served = room.ask(b"".join(read_v3(ledger, 0, KEY, number=ledger) for ledger in range(2, 12)))
    assert len(served.to_look) == LOOKS
    assert [code for _, code in codes_v3(b"".join(served.when_durable))] == [Code.TOO_MANY_REQUESTS] * (10 - LOOKS)
    (ledger, frames) = next(iter(served.to_look.items()))
    assert settled(room, frames, Verdict.REFUSE) == [ReadResponse(ledger, Code.NO_ENTRY, ledger, 0)]
    room.storage.close(clean=False)


def test_a_first_add_waits_for_a_look_and_keeps_what_it_is(room: Room) -> None:
    room.service.looks = lambda: True
    first = adds_v3(3, [5, 6], number=20)
    deferred = adds_v3(3, [7], number=22, deferred_sync=True)
    served = room.ask(first + deferred + adds_v3(4, [0], number=23))
    assert codes_v3(b"".join(served.when_durable)) == [(23, Code.OK)] and not served.at_once
    assert served.to_look.keys() == {3} and b"".join(served.to_look[3]) == first + deferred
    refused = settled(room, served.to_look[3], Verdict.GONE)
    assert refused == [AddResponse(txn_id, Code.FENCED, 3, txn_id - 15) for txn_id in (20, 21, 22)]
    result = room.wire.settle(b"".join(served.to_look[3]), Verdict.ADMIT)
    assert codes_v3(b"".join(result.when_written)) == [(22, Code.OK)] and not result.at_once
    assert codes_v3(b"".join(result.when_durable)) == [(20, Code.OK), (21, Code.OK)]


def test_what_waited_for_a_look_is_answered_as_far_as_there_is_time_and_no_further_than_a_response_may_be(
    room: Room,
) -> None:
    room.ask(adds_v3(1, [0], b"x" * 20_000))
    for frames in (read_v3(1, -1), request_v3(v3.ReadLacRequest, 1)):
        settled = room.wire.settle(frames * 9, Verdict.ADMIT, has_time=lambda: False)
        assert settled.position == len(frames) and len(answers_v3(b"".join(settled.at_once))) == 1
        settled = room.wire.settle(frames * 9, Verdict.ADMIT, short=True)
        assert settled.position == len(frames) * 4 and SHORT_BYTES <= settled.size < SHORT_BYTES + 21_000
        assert room.wire.settle(frames * 9, Verdict.ADMIT).position == len(frames) * 9


@pytest.mark.rule("Q14")
def test_q14_beyond_the_bound_recovery_is_served_of_a_ledger_that_a_look_found_in_recovery(room: Room) -> None:
    room.service.looks = lambda: True
    room.storage.identities.bound_unmade(2)
    assert room.codes(adds_v3(1, [0]) + adds_v3(2, [0])) == [Code.OK, Code.OK]
    served = room.ask(adds_v3(9, [0], **RECOVERY, **HIGH) + adds_v3(3, [0]))
    assert [answer.code for answer in settled(room, served.to_look[9], Verdict.REFUSE)] == [Code.OK]
    assert [answer.code for answer in settled(room, served.to_look[3], Verdict.GONE)] == [Code.FENCED]


def test_all_that_asks_how_far_a_ledger_goes_waits_for_the_look_and_is_answered_after_it(room: Room) -> None:
    room.ask(adds_v3(1, range(3)))
    room.storage.identities.note(1, 77)
    room.storage.identities.look_again()
    room.service.looks = lambda: True
    asked = [
        read_v3(1, -1, number=1), read_v3(1, -1, KEY, number=2), poll_v3(1, 0, 9, number=3),
        write_lac_v3(1, 1, number=4), request_v3(v3.ReadLacRequest, 1, number=5),
        request_v3(v3.EntryListRequest, 1, number=6), read_v3(1, 0, number=7),
    ]  # fmt: skip
    served = room.ask(b"".join(asked))
    assert served.to_look == {1: asked} and not (served.at_once or served.later or served.when_durable)
    assert {answer.code for answer in settled(room, asked, Verdict.AMISS)} == {Code.IO_ERROR}
    room.storage.identities.looked(1, 77, written=True)
    answers = settled(room, asked, Verdict.ADMIT)
    assert {answer.code for answer in answers} == {Code.OK}
    room.worker.do_one()
    assert sorted([answer.request_id for answer in [*answers, *answers_v3(b"".join(room.came))]]) == list(range(1, 8))


def test_no_lac_is_told_with_an_entry_while_another_ledger_may_begin(room: Room) -> None:
    room.ask(adds_v3(1, range(3)))
    room.storage.identities.note(1, 77)
    assert room.storage.identities.needs_look(1, 0, KEY), "entry 0 came again"
    (plain,) = answers_v3(b"".join(room.ask(read_v3(1, 0, number=7)).at_once))
    assert (plain.request_id, plain.max_lac) == (7, None), "it may be another ledger's"
