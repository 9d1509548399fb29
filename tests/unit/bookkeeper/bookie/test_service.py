"""What a bookie does for a client, whatever it speaks: codes, and the moments from which they are true."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.bookies import OTHER_KEY
from support.stores import KEY, Store, entry_bytes, frame, scanned
from tallystick.bookkeeper.bookie.fences import Fences
from tallystick.bookkeeper.bookie.limits import DiskGuard
from tallystick.bookkeeper.bookie.look import Verdict
from tallystick.bookkeeper.bookie.metrics import Counts
from tallystick.bookkeeper.bookie.recent_adds import RecentAdds
from tallystick.bookkeeper.bookie.service import (
    NOW,
    AddEntryRequest,
    AfterLook,
    ReadBatchRequest,
    ReadEntryRequest,
    Service,
    ServiceResponse,
)
from tallystick.bookkeeper.wire.codes import Code
from tallystick.codec.frames import AddRun


@pytest.fixture
def store() -> Store:
    return Store()


def service_of(
    store: Store, looks: bool = False, *, counts: Counts | None = None, looked_at: list[int] | None = None
) -> Service:
    counts, recent, looked_at = counts or Counts(), RecentAdds(), [] if looked_at is None else looked_at
    fences = Fences(store.storage, counts, recent, 1000, looks=lambda more: looks, tell=lambda: None)
    guard = DiskGuard(0.95)
    return Service(store.storage, guard, fences, counts, recent, looks=lambda: looks, look_at=looked_at.append)


def add(ledger: int, entry: int, key: bytes = KEY) -> AddEntryRequest:
    return AddEntryRequest(ledger, entry, key, entry_bytes(ledger, entry))


@pytest.mark.rule("Q11")
def test_q11_what_was_stored_or_fenced_is_true_with_its_commit_and_all_else_at_once(store: Store) -> None:
    service = service_of(store)
    assert service.add(add(1, 0)) == ServiceResponse(Code.OK, commit=1)
    store.commit()
    assert service.add(add(1, 1)) == ServiceResponse(Code.OK, commit=2)
    assert service.add(add(1, 2, OTHER_KEY)) == ServiceResponse(Code.UNAUTHORIZED)
    assert service.read(ReadEntryRequest(1, 0)) == ServiceResponse(Code.OK, [entry_bytes(1, 0)], NOW)
    assert service.read(ReadEntryRequest(1, 7, KEY)) == ServiceResponse(Code.NO_ENTRY, [], 2)
    assert service.add(add(1, 2)) == ServiceResponse(Code.FENCED)
    store.commit()
    assert service.read(ReadBatchRequest(1, 0, 9, 1 << 20, KEY)) == ServiceResponse(
        Code.OK, [entry_bytes(1, 0), entry_bytes(1, 1)], 2
    )


def test_codes_of_a_run_are_by_place(store: Store) -> None:
    service = service_of(store)
    service.add(add(1, 0))
    frames = [frame(1, 1), frame(1, 2, key=OTHER_KEY), frame(2, 0)]
    stored = service.add_run(*scanned(frames))
    assert (stored.codes, stored.is_ok, list(stored.waiting_places)) == (
        [Code.OK, Code.UNAUTHORIZED, Code.OK],
        False,
        [],
    )
    assert store.has(1, 1) and store.has(2, 0)


def test_what_waits_for_a_look_has_no_code_and_is_asked_again_with_what_was_said(store: Store) -> None:
    service = service_of(store, looks=True)
    assert service.add(add(3, 5)) == AfterLook(3)
    assert service.add(add(3, 5), Verdict.GONE) == ServiceResponse(Code.FENCED)
    assert service.add(add(3, 5), Verdict.ADMIT) == ServiceResponse(Code.OK, commit=1)
    data, run = scanned([frame(4, 0), frame(5, 1), frame(6, 0), frame(5, 2)])
    stored = service.add_run(data, run)
    assert list(stored.waiting_places) == [1, 3] and store.has(4, 0) and store.has(6, 0) and not store.has(5, 1)
    assert service.add_run(data, run, Verdict.REFUSE).codes == [Code.FENCED] * 4
    assert service.add_run(data, run, Verdict.UNKNOWN).is_ok and store.has(5, 1) and store.has(5, 2)


def test_no_add_overtakes_one_of_its_ledger_that_waits_for_a_look(store: Store) -> None:
    service = service_of(store, looks=True)
    data, run = scanned([frame(4, 5), frame(4, 0), frame(5, 0), frame(6, 0), frame(6, 1), frame(4, 6)])
    stored = service.add_run(data, run, behind={5})
    assert list(stored.waiting_places) == [0, 1, 2, 4, 5] and store.has(6, 0)
    write_back = replace(add(4, 5), recovery=True)
    assert service.add(write_back, behind={4}) == AfterLook(4)
    assert isinstance(service.add(write_back, behind={5}), ServiceResponse)
    assert service.add_run(*scanned([frame(6, 1)]), Verdict.ADMIT).is_ok
    store.storage.identities.looked(6, 1, written=True)
    assert service.add_run(*scanned([frame(6, 2)]), behind={5}).is_ok
    assert list(service.add_run(*scanned([frame(6, 3), frame(6, 4)]), behind={6}).waiting_places) == [0, 1]


def test_behind_first_entries_of_one_run_all_their_ledgers_are_looked_at(store: Store) -> None:
    """Else nobody would know them from others that are given their ids later."""
    looked_at: list[int] = []
    service = service_of(store, looks=True, looked_at=looked_at)
    assert service.add_run(*scanned([frame(ledger, 0) for ledger in (4, 5, 6)])).is_ok
    assert looked_at == [4, 5, 6]


def test_behind_an_add_that_is_refused_its_ledger_is_looked_at_too(store: Store) -> None:
    """It was fenced before anybody knew which of the ledgers with its id it is."""
    looked_at: list[int] = []
    service = service_of(store, looks=True, looked_at=looked_at)
    assert store.storage.fence(4, KEY) == Code.OK
    assert service.add(add(4, 0)) == ServiceResponse(Code.FENCED)
    assert looked_at == [4]


def test_adds_that_a_look_refuses_are_counted_as_such(store: Store) -> None:
    counts = Counts()
    service = service_of(store, looks=True, counts=counts)
    data, run = scanned([frame(5, 1), frame(5, 2)])
    assert list(service.add_run(data, run).waiting_places) == [0, 1] and counts.adds == 0
    assert service.add_run(data, run, Verdict.REFUSE).codes == [Code.FENCED] * 2
    assert (counts.adds, counts.adds_failed, counts.add_bytes) == (2, 2, 0)


@pytest.mark.parametrize("before", [b"", bytes(1000)])
def test_of_a_long_read_the_storage_keeps_the_adds_alone(
    store: Store, before: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It keeps them until a checkpoint, in the buffer that it is given: one entry would hold a megabyte."""
    kept: list[int] = []
    add_run = store.storage.add_run

    def counted(data: bytes, run: AddRun) -> list[Code]:
        kept.append(len(data))
        return add_run(data, run)

    monkeypatch.setattr(store.storage, "add_run", counted)
    data, run = scanned([frame(1, 0), frame(1, 1)])
    moved = AddRun(run.keys, run.ledgers, run.entries, [bound + len(before) for bound in run.bounds])
    assert service_of(store).add_run(before + data + bytes(1000), moved).is_ok
    assert kept == [len(data)] and store.has(1, 0) and store.has(1, 1)
