"""Runs cut into record batches."""

from __future__ import annotations

import itertools
import random
from array import array
from collections.abc import AsyncGenerator

import pyarrow as pa
import pytest

from tallystick.bookkeeper.ledger.arrow import SCHEMA, Batching, batches_of, schema_of
from tallystick.bookkeeper.ledger.reader import LedgerReader
from tallystick.codec.reads import EntryRun
from tallystick.errors import UsageError
from tallystick.runtime import extras

closed: list[bool] = []


async def generate(runs: list[EntryRun]) -> AsyncGenerator[EntryRun, None]:
    try:
        for run in runs:
            yield run
    finally:
        closed.append(True)


def random_runs(chance: random.Random) -> list[EntryRun]:
    runs = []
    for ledger in range(chance.randint(0, 4)):
        count = chance.randint(1, 40)
        sizes = [chance.choice([0, 1, 10, 100, 5000]) for _ in range(count)]
        data = bytes(chance.getrandbits(8) for _ in range(sum(sizes)))
        ends = list(itertools.accumulate(sizes))
        payloads = [memoryview(data)[end - size : end] for size, end in zip(sizes, ends, strict=True)]
        first = chance.randint(0, 1 << 40)
        lacs = array("q", range(first - 2, first - 2 + count))
        runs.append(EntryRun(ledger, first, lacs, array("q", ends), payloads))
    return runs


async def test_every_row_once_in_order_within_the_limits() -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    chance = random.Random(seed)
    for _ in range(60):
        runs = random_runs(chance)
        batching = Batching(rows=chance.choice([1, 3, 17, 1000]), bytes=chance.choice([1, 150, 6000, 1 << 20]))
        batches = [batch async for batch in batches_of(generate(runs), batching)]
        table = pa.Table.from_batches(batches, schema=SCHEMA)
        table.validate(full=True)
        expected = [
            {"ledger": run.ledger, "entry": run.first + i, "lac": run.lacs[i], "length": run.lengths[i],
             "payload": bytes(run.payloads[i])}
            for run in runs for i in range(len(run))
        ]  # fmt: skip
        assert table.to_pylist() == expected
        sizes = [[len(value) for value in batch["payload"].to_pylist()] for batch in batches]
        for size, following in itertools.zip_longest(sizes, sizes[1:]):
            assert 0 < len(size) <= batching.rows
            assert sum(size) <= batching.bytes or len(size) == 1
            # Cut only where the next row would not have fitted.
            assert not following or len(size) == batching.rows or sum(size) + following[0] > batching.bytes


async def test_leaving_early_closes_the_runs() -> None:
    closed.clear()
    batches = batches_of(generate(random_runs(random.Random(5)) * 3), Batching(rows=1))
    await anext(batches)
    await batches.aclose()
    assert closed == [True]


async def test_chosen_columns() -> None:
    run = EntryRun(7, 0, array("q", [-1]), array("q", [1]), [memoryview(b"a")])
    [batch] = [batch async for batch in batches_of(generate([run]), Batching(("payload", "entry")))]
    assert batch.to_pylist() == [{"payload": b"a", "entry": 0}]
    [empty] = [batch async for batch in batches_of(generate([run]), Batching(()))]
    assert empty.num_columns == 0
    assert schema_of() == SCHEMA


@pytest.mark.parametrize("bad", [{"columns": ["body"]}, {"rows": 0}, {"bytes": 0}, {"bytes": (1 << 30) + 1}])
def test_limits_and_names_are_checked(bad: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        Batching(**bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("missing", ["pyarrow", "numpy"])
def test_what_is_not_installed_is_said_at_once(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    """And once: who installed what the first refusal named met a second one, without a word about what to do."""
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == missing else object())
    with pytest.raises(UsageError, match=f"read_arrow needs {missing}: pip install 'pyarrow>=17' 'numpy>=1.26'"):
        LedgerReader.read_arrow(object.__new__(LedgerReader), 0, 1)
