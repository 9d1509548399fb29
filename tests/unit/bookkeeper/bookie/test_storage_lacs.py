"""How far a ledger is known to be confirmed: by its explicit LAC, and by the header of its last entry."""

from __future__ import annotations

import pytest

from support.stores import KEY, Store
from tallystick.bookkeeper.bookie.storage import Storage
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.digest import ENTRY_HEADER, master_key
from tallystick.errors import StorageError

OTHER = master_key(b"other")


def lac_body(ledger: int, lac: int, digest: bytes = b"crc!") -> bytes:
    return ledger.to_bytes(8, "big", signed=True) + lac.to_bytes(8, "big", signed=True) + digest


def add(store: Store, ledger: int, entry: int, lac: int) -> None:
    assert store.storage.add(ledger, entry, KEY, ENTRY_HEADER.pack(ledger, entry, lac, 1) + b"x") == Code.OK
    store.commit()


def write(store: Store, ledger: int, lac: int) -> None:
    assert store.storage.write_lac(ledger, KEY, lac_body(ledger, lac)) == Code.OK
    if store.storage.staged:
        store.commit()


def test_the_highest_is_kept_and_the_same_one_again_is_as_durable() -> None:
    store = Store()
    store.fill(5, range(3))
    write(store, 5, 1)
    assert (store.storage.explicit_lac(5), store.storage.known_lac(5)) == (lac_body(5, 1), 1)
    before = store.storage.newest_commit
    assert store.storage.write_lac(5, KEY, lac_body(5, 0)) == Code.OK, "it was confirmed, too"
    assert store.storage.newest_commit == before and not store.storage.staged
    assert (store.storage.explicit_lac(5), store.storage.known_lac(5)) == (lac_body(5, 1), 1)


def test_who_has_no_key_changes_nothing_and_strangers_make_no_ledgers() -> None:
    store = Store()
    store.fill(5, [0])
    for key in (OTHER, KEY[:5], b""):
        assert store.storage.write_lac(5, key, lac_body(5, 0)) == Code.UNAUTHORIZED
    assert store.storage.write_lac(6, KEY, lac_body(6, 0)) == Code.NO_LEDGER
    assert store.storage.ledger_ids() == [5] and not store.storage.staged
    assert store.storage.explicit_lac(5) is None and store.storage.known_lac(5) == -1


def test_keys_of_another_length_are_those_of_a_stranger() -> None:
    store = Store()
    for key in (KEY[:5], b"", KEY + b"x"):
        assert store.storage.add(5, 0, key, ENTRY_HEADER.pack(5, 0, -1, 0)) == Code.UNAUTHORIZED
        assert store.storage.fence(5, key) == Code.UNAUTHORIZED
    assert store.storage.ledger_ids() == []


def test_it_is_noted_of_a_fenced_ledger_too() -> None:
    store = Store()
    store.fill(5, range(3))
    store.storage.fence(5, KEY)
    write(store, 5, 2)
    assert store.storage.known_lac(5) == 2


def reopened(store: Store, how: str) -> Storage:
    if how == "checkpoint":
        store.storage.checkpoint()
        how = "kill"
    storage: Storage = getattr(store, how)()
    return storage


@pytest.mark.parametrize("how", ["kill", "power_loss", "restart", "checkpoint"])
def test_an_explicit_lac_survives(how: str) -> None:
    store = Store()
    store.fill(5, range(3))
    write(store, 5, 1)
    for lac in (3, 7):
        storage = reopened(store, how)
        write(store, 5, lac)
        assert storage.explicit_lac(5) == lac_body(5, lac)
    assert reopened(store, how).explicit_lac(5) == lac_body(5, 7)
    assert store.storage.ledger_ids() == [5]


def test_one_that_was_not_committed_is_lost_with_the_power() -> None:
    store = Store()
    store.fill(5, range(3))
    write(store, 5, 1)
    assert store.storage.write_lac(5, KEY, lac_body(5, 2)) == Code.OK
    assert store.power_loss().known_lac(5) == 1


def test_a_deleted_ledger_has_none_also_when_the_id_is_used_again() -> None:
    store = Store()
    store.fill(5, range(3))
    write(store, 5, 1)
    store.storage.checkpoint()
    assert store.storage.collect([5], [6]) == 1
    assert store.storage.known_lac(5) == -1
    assert store.storage.write_lac(5, KEY, lac_body(5, 2)) == Code.NO_LEDGER
    assert store.kill().explicit_lac(5) is None
    store.storage.checkpoint()
    store.storage.collect([], [5])
    store.fill(5, [0])
    assert store.storage.known_lac(5) == -1 and store.restart().explicit_lac(5) is None


def test_the_header_of_the_last_entry_says_it_wherever_that_is() -> None:
    store = Store()
    assert store.storage.known_lac(5) == -1
    for entry, lac in ((0, -1), (1, 0), (7, 4)):
        add(store, 5, entry, lac)
        assert store.storage.known_lac(5) == lac
        store.storage.checkpoint()
        assert store.storage.known_lac(5) == lac
        assert store.restart().known_lac(5) == lac
    add(store, 5, 3, 2)
    assert store.storage.known_lac(5) == 4
    write(store, 5, 6)
    assert store.storage.known_lac(5) == 6
    add(store, 5, 9, 8)
    assert store.storage.known_lac(5) == 8


def test_where_the_last_entry_cannot_be_read_the_explicit_lac_is_all_that_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = Store()
    add(store, 5, 9, 8)
    write(store, 5, 6)
    store.storage.checkpoint()

    def unreadable(*_: object) -> None:
        raise StorageError("no such sector")

    monkeypatch.setattr(store.storage._logs, "head", unreadable)
    assert store.storage.known_lac(5) == 6
