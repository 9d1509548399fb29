"""A ledger in limbo: what is stored is served, and nothing is denied (Q15)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support.bookies import KEY, adds, codes, read
from support.room_v3 import Room, make_room
from support.stores import KEY as STORE_KEY
from support.stores import Store
from support.v3_frames import adds_v3, answers_v3, lac_body, poll_v3, read_v3, request_v3, write_lac_v3
from tallystick.bookkeeper.bookie.limbo import LimboLedgers
from tallystick.bookkeeper.bookie.limbo_bookie import LimboBookie
from tallystick.bookkeeper.bookie.look import Verdict
from tallystick.bookkeeper.bookie.state import UNKNOWN
from tallystick.bookkeeper.wire import v2, v3
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.v2 import RequestFlag

LIMBO, SOUND, NEW = 7, 8, 9
UNKNOWN_STATE = Code.UNKNOWN_LEDGER_STATE


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    """Entries 0 to 2 of a ledger in limbo, and of one that is not. Of another one in limbo there is nothing."""
    made = make_room(tmp_path)
    for ledger in (LIMBO, SOUND):
        made.codes(adds_v3(ledger, range(3)))
        made.codes(write_lac_v3(ledger, 1))
    made.storage.enter_limbo(LIMBO, KEY, 5)
    made.storage.enter_limbo(NEW, None, UNKNOWN)
    made.came.clear()
    yield made
    made.storage.close(clean=False)


def v2_codes(room: Room, data: bytes) -> list[int]:
    served = room.v2.serve(data)
    assert served.refusal is None and served.position == len(data)
    return [code for _, code, _, _ in codes(b"".join([*served.at_once, *served.when_durable]))]


@pytest.mark.rule("Q15")
@pytest.mark.parametrize("key", [None, KEY])
def test_q15_entries_are_served_and_no_other_is_denied(room: Room, key: bytes | None) -> None:
    wanted = [0, 2, 3, -1]
    assert [room.codes(read_v3(LIMBO, entry, key)) for entry in wanted] == [
        [Code.OK], [Code.OK], [UNKNOWN_STATE], [UNKNOWN_STATE]
    ]  # fmt: skip
    assert [v2_codes(room, read(LIMBO, entry, key)) for entry in wanted] == [
        [Code.OK], [Code.OK], [Code.IO_ERROR], [Code.IO_ERROR]
    ]  # fmt: skip
    assert room.codes(read_v3(SOUND, 3)) == [Code.NO_ENTRY], "others say no, as ever"
    assert v2_codes(room, read(SOUND, 3)) == [Code.NO_ENTRY]


@pytest.mark.rule("Q15")
def test_q15_a_ledger_of_which_nothing_is_here_is_not_denied(room: Room) -> None:
    assert room.codes(read_v3(NEW, 0)) == [UNKNOWN_STATE]
    assert v2_codes(room, read(NEW, 0) + read(NEW, -1)) == [Code.IO_ERROR] * 2
    assert room.codes(write_lac_v3(NEW, 0)) == [UNKNOWN_STATE]
    assert room.codes(read_v3(NEW, 0, KEY)) == [UNKNOWN_STATE], "it is fenced by this, and says nothing else"
    assert room.storage.is_fenced(NEW)


@pytest.mark.rule("Q15")
def test_q15_a_batch_ends_where_the_bookie_knows_nothing(room: Room) -> None:
    batches = [v2.BatchReadFrame(LIMBO, first, 1, 10, 4096).encode() for first in (1, 3, -1)]
    answers = [v2.decode_response(b"".join(room.v2.serve(batch).at_once)[4:]) for batch in batches]
    found = [(answer.code, len(answer.entries)) for answer in answers if isinstance(answer, v2.BatchReadResponse)]
    assert found == [(Code.OK, 2), (Code.IO_ERROR, 0), (Code.IO_ERROR, 0)]


@pytest.mark.rule("Q15")
def test_q15_how_far_the_ledger_goes_is_unknown(room: Room) -> None:
    lac, entry_list, force = v3.ReadLacRequest, v3.EntryListRequest, v3.ForceRequest
    for operation in (lac, entry_list, force):
        assert room.codes(request_v3(operation, LIMBO)) == [UNKNOWN_STATE], operation
    assert not room.came, "nobody waits for a list"
    assert room.codes(request_v3(lac, SOUND) + request_v3(force, SOUND)) == [Code.OK] * 2
    [answer] = room.answers(poll_v3(LIMBO, 0, 60_000))
    assert (answer.code, answer.entry, answer.max_lac) == (Code.OK, 1, 1), "what is confirmed, and here, is told"
    assert room.codes(poll_v3(LIMBO, 1, 60_000)) == [UNKNOWN_STATE], "nothing is waited for"
    assert (room.counts.forces, room.counts.forces_failed) == (2, 1)


@pytest.mark.rule("Q11")
@pytest.mark.parametrize("ledger", [LIMBO, NEW])
def test_q11_ordinary_adds_are_refused_and_those_of_recovery_pass(room: Room, ledger: int) -> None:
    assert v2_codes(room, adds(ledger, range(3, 6))) == [Code.IO_ERROR] * 3
    assert room.codes(adds_v3(ledger, [3])) == [Code.IO_ERROR]
    both = adds(ledger, [3, 4]) + adds(SOUND, [3])
    assert sorted(v2_codes(room, both)) == [Code.OK, Code.IO_ERROR, Code.IO_ERROR], "others of the run are stored"
    assert v2_codes(room, adds(ledger, [3], flags=RequestFlag.RECOVERY_ADD)) == [Code.OK]
    assert room.codes(adds_v3(ledger, [4], recovery=True)) == [Code.OK]
    assert room.codes(read_v3(ledger, 4)) == [Code.OK]
    assert room.codes(write_lac_v3(ledger, 3)) == [Code.OK]


@pytest.mark.parametrize("verdict", [Verdict.ADMIT, Verdict.REFUSE, Verdict.GONE, Verdict.UNKNOWN])
def test_a_look_changes_nothing_of_that(room: Room, verdict: Verdict) -> None:
    assert [code for _, code, _, _ in codes(b"".join(room.v2.settle(adds(LIMBO, [3]), verdict).at_once))] == [
        Code.IO_ERROR
    ]
    for request in (read_v3(NEW, 0), request_v3(v3.ReadLacRequest, NEW)):
        [answer] = answers_v3(b"".join(room.wire.settle(request, verdict).at_once))
        assert answer.code == UNKNOWN_STATE


def test_a_ledger_that_was_filled_says_no_again(room: Room) -> None:
    room.storage.filled([LIMBO, NEW, SOUND])
    assert room.codes(read_v3(LIMBO, 3) + read_v3(NEW, 3)) == [Code.NO_ENTRY, Code.NO_LEDGER]
    assert v2_codes(room, adds(LIMBO, [3])) == [Code.FENCED], "its fence stays"


@pytest.mark.rule("Q15")
@pytest.mark.parametrize("reopen", [Store.kill, Store.power_loss, Store.restart])
def test_q15_limbo_and_its_end_outlive_crashes(reopen: object) -> None:
    assert callable(reopen)
    store = Store()
    store.fill(1, [0])
    for ledger in (1, 2, 3, 4):
        store.storage.enter_limbo(ledger, STORE_KEY, 10 + ledger)
    store.storage.checkpoint()
    reopen(store)
    assert list(store.storage.limbo) == [1, 2, 3, 4]
    assert all(store.storage.is_fenced(ledger) for ledger in (1, 2, 3, 4))
    assert [identity.creation for each in (1, 4) if (identity := store.storage.identities.identity(each))] == [11, 14]
    store.storage.filled([2])
    store.commit()
    reopen(store)
    assert list(store.storage.limbo) == [1, 3, 4] and store.storage.stats().ledgers_in_limbo == 3
    store.storage.filled([3])
    store.commit()
    store.storage.checkpoint()
    reopen(store)
    assert list(store.storage.limbo) == [1, 4]


@pytest.mark.rule("Q15")
def test_q15_who_has_the_id_of_a_deleted_ledger_may_be_in_limbo_too() -> None:
    """The ledger that is here is deleted; that of the metadata, in whose ensemble this bookie is, has its id."""
    store = Store()
    store.fill(5, [0])
    store.storage.enter_limbo(5, STORE_KEY, 3)
    store.storage.collect([5], [])
    store.restart()
    assert 5 in store.storage.deleted_ids() and 5 in store.storage.limbo
    store.storage.filled([5])
    store.commit()
    store.kill()
    assert 5 not in store.storage.limbo, "a replay knows it, though records of deleted ledgers are skipped"


def test_a_lac_beyond_what_is_here_is_no_answer(room: Room) -> None:
    room.storage.write_lac(LIMBO, KEY, lac_body(LIMBO, 9))
    assert room.codes(poll_v3(LIMBO, 7)) == [UNKNOWN_STATE]


def test_what_is_in_no_limbo_or_lacks_more_by_now_does_not_leave_it_and_what_leaves_is_written() -> None:
    limbo, filled, flushes = LimboLedgers([1, 2]), list[int](), list[bool]()
    bookie: Any = object.__new__(LimboBookie)
    bookie._storage = SimpleNamespace(limbo=limbo, filled=filled.extend)
    bookie._committer = SimpleNamespace(flush=lambda: flushes.append(True))
    bookie._changed = lambda: None
    stays = {ledger: bookie.stay(ledger) for ledger in (1, 2, 3)}
    limbo.enter([2])
    assert bookie.leave(stays) == filled == [1] and flushes == [True]
