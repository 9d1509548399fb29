"""Batches against single reads, wherever the entries are."""

from __future__ import annotations

import random

import pytest

from support.stores import KEY, Store, entry_bytes
from tallystick.bookkeeper.bookie.storage import Storage
from tallystick.bookkeeper.wire.codes import Code


def slow_batch(storage: Storage, first: int, max_count: int, max_bytes: int) -> tuple[int, list[bytes]]:
    """One entry after another."""
    entries: list[bytes] = []
    size = 36
    while not entries or (size < max_bytes and len(entries) != max_count):
        code, data = storage.read(5, first + len(entries))
        size += 4 + len(data)
        if code != Code.OK or (entries and size > max_bytes):
            return (Code.OK, entries) if entries else (code, [])
        entries.append(data)
    return Code.OK, entries


def test_batches_are_what_single_reads_give() -> None:
    """From memory, from several logs, with overwritten entries and gaps, of one size and of many."""
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    for _ in range(12):
        store = Store()
        top = 0
        for _ in range(rng.randint(1, 6)):
            alike = rng.choice([None, None, b"x" * rng.randint(0, 300)])
            first = max(0, top - rng.choice([0, 0, 0, 5]) + rng.choice([0, 0, 2]))
            top = first + rng.randint(1, 90)
            for entry in range(first, top):
                payload = rng.randbytes(rng.choice([0, 10, 500])) if alike is None else alike
                body = entry_bytes(5, entry, payload)
                store.storage.add(5, entry, KEY, body, recovery=True)
            store.commit()
            if rng.random() < 0.6:
                store.storage.checkpoint()
        for _ in range(60):
            limit = rng.choice([-1, 0, 60, 700, 5000, 1 << 20])
            asked = rng.randint(-2, top), rng.choice([0, -1, 1, 3, 40, 1000]), limit
            assert store.storage.batch(5, *asked) == slow_batch(store.storage, *asked), asked


@pytest.mark.parametrize(("order", "is_in_logs", "most"), [(1, True, 8192), (1, False, 8 * 257), (-1, False, 257)])
def test_q17_a_batch_is_shorter_than_asked_where_it_would_take_long(order: int, is_in_logs: bool, most: int) -> None:
    """90,000 entries that came out of order were 1.6 s of the loop."""
    store = Store()
    for entry in range(10_000)[::order]:
        store.storage.add(5, entry, KEY, entry_bytes(5, entry, b""))
    store.commit()
    if is_in_logs:
        store.storage.checkpoint()
    code, entries = store.storage.batch(5, 0, 90_000, 5 << 20)
    assert (code, entries) == (Code.OK, [store.storage.read(5, entry)[1] for entry in range(most)])
    assert store.storage.batch(5, most, 3, 5 << 20)[1] == [store.storage.read(5, most + at)[1] for at in range(3)]
