"""Reading ledgers by their metadata: closed ones, open ones up to the LAC, tails; never a fence."""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest

from support.read_ledgers import Cluster, payload
from support.waiting import until
from tallystick.bookkeeper.ledger.reader import LedgerReader
from tallystick.bookkeeper.metadata.driver import MetadataDriver, Versioned
from tallystick.bookkeeper.metadata.open import open_driver
from tallystick.bookkeeper.wire.digest import Digest, EntryHeader
from tallystick.bookkeeper.wire.values import DigestType, LedgerMetadata
from tallystick.errors import NoSuchEntry, NoSuchLedger, Unauthorized, Unavailable, UsageError

if TYPE_CHECKING:
    from unit.bookkeeper.ledger.conftest import Bench

_names = itertools.count()


@pytest.fixture
async def driver() -> AsyncIterator[MetadataDriver]:
    made = await open_driver(f"memory://reader-{next(_names)}")
    await made.init_cluster()
    yield made
    await made.close()


@pytest.fixture
def cluster(bench: Bench, driver: MetadataDriver) -> Cluster:
    return Cluster(bench, driver)


async def ids(entries: AsyncIterator[Any]) -> list[int]:
    entry_ids = []
    async for entry in entries:
        assert entry.data == payload(entry.id)
        entry_ids.append(entry.id)
    return entry_ids


def no_fences(bench: Bench) -> bool:
    return not any(getattr(request, "flags", 0) for bookie in bench.bookies.values() for request in bookie.requests)


async def test_a_reader_whose_client_is_closed_says_so(cluster: Cluster) -> None:
    await cluster.create(quorum=3)
    cluster.append(0, 4)
    context = cluster.context()
    async with await LedgerReader.open(context, cluster.ledger) as reader:
        tail = reader.follow(0)
        assert (await anext(tail)).id == 0
        await context.bookies.close()
        calls: list[Callable[[], object]] = [
            lambda: reader.read(0, 0), lambda: reader.read_arrow(0, 0), lambda: reader.follow(0),
        ]  # fmt: skip
        for call in calls:
            with pytest.raises(UsageError, match="this reader's client is closed"):
                call()
        for ask in (reader.refresh, lambda: anext(aiter(reader)), lambda: ids(tail)):
            with pytest.raises(UsageError, match="this reader's client is closed"):
                await ask()


async def test_a_reader_that_is_closed_says_so(cluster: Cluster) -> None:
    await cluster.create(quorum=3)
    cluster.append(0, 4)
    reader = await LedgerReader.open(cluster.context(), cluster.ledger)
    read = reader.read(0, 3)
    assert (await anext(read)).id == 0
    await reader.close()
    assert await ids(read) == [1, 2, 3], "what was under way goes on"
    calls: list[Callable[[], object]] = [
        lambda: reader.read(0, 0), lambda: reader.read_arrow(0, 0), lambda: reader.follow(0),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(UsageError, match="this reader is closed"):
            call()
    for ask in (reader.refresh, lambda: anext(aiter(reader))):
        with pytest.raises(UsageError, match="this reader is closed"):
            await ask()
    await reader.close()


@pytest.mark.rule("Q1", "Q17")
async def test_q17_a_closed_ledger_ends_where_its_metadata_says(cluster: Cluster) -> None:
    await cluster.create(quorum=3)
    cluster.append(0, 49)
    await cluster.close(39)  # entries beyond the end may lie on bookies and are never served
    async with await LedgerReader.open(cluster.context(), cluster.ledger) as reader:
        assert (reader.id, reader.last_entry, reader.is_closed) == (cluster.ledger, 39, True)
        assert reader.length == cluster.total
        assert reader.metadata == cluster.metadata
        assert await ids(reader.read(0, 39)) == list(range(40))
        assert await ids(reader.read(7, 7)) == [7]
        assert await reader.refresh() == 39
        with pytest.raises(NoSuchEntry, match="beyond"):
            reader.read(0, 40)
        for first, last in ((5, 4), (-1, 3)):
            with pytest.raises(UsageError):
                reader.read(first, last)
        [entry] = [entry async for entry in reader.read(3, 3)]
        assert (entry.ledger, entry.lac) == (cluster.ledger, 2)
        assert entry.length == sum(len(payload(e)) for e in range(4))


async def test_an_empty_closed_ledger(cluster: Cluster) -> None:
    await cluster.create()
    await cluster.close(-1)
    async with await LedgerReader.open(cluster.context(), cluster.ledger) as reader:
        assert (reader.last_entry, reader.length) == (-1, 0)
        assert await ids(reader.follow(0)) == []
        with pytest.raises(NoSuchEntry):
            reader.read(0, 0)


async def test_wrong_password_and_no_ledger(cluster: Cluster) -> None:
    await cluster.create(password=b"secret")
    with pytest.raises(Unauthorized):
        await LedgerReader.open(cluster.context(), cluster.ledger)
    with pytest.raises(NoSuchLedger):
        await LedgerReader.open(cluster.context(), 999)
    assert not any(bookie.requests for bookie in cluster.bench.bookies.values())


@pytest.mark.rule("Q6")
async def test_q6_an_open_ledger_is_read_up_to_the_lac_and_never_fenced(cluster: Cluster) -> None:
    await cluster.create()
    async with await LedgerReader.open(cluster.context(), cluster.ledger) as reader:
        assert (reader.last_entry, reader.is_closed, reader.length) == (-1, False, 0)
        cluster.append(0, 9)
        assert reader.last_entry == -1
        assert await reader.refresh() == 8  # one round behind the writer
        assert await ids(reader.read(0, 8)) == list(range(9))
        with pytest.raises(NoSuchEntry):
            reader.read(0, 9)
        cluster.append(10, 19, lac=9)  # pipelined: sent before any of them was confirmed
        assert await reader.refresh() == 9
    assert no_fences(cluster.bench)


@pytest.mark.rule("Q6")
async def test_q6_the_lac_never_moves_back(cluster: Cluster) -> None:
    await cluster.create(quorum=3)
    cluster.append(0, 9)
    async with await LedgerReader.open(cluster.context(), cluster.ledger) as reader:
        assert reader.last_entry == 8
        for bookie in cluster.bench.bookies.values():
            del bookie.entries[cluster.ledger, 9]
        assert await reader.refresh() == 8


@pytest.mark.rule("Q6")
async def test_q6_a_newer_fragment_proves_all_before_it(cluster: Cluster) -> None:
    """The new ensemble may have no entry yet; its fragment starts behind the LAC."""
    await cluster.create()
    cluster.append(0, 9)
    await cluster.bench.bookie("b4", "b5", "b6")
    await cluster.store(cluster.metadata.with_fragment(10, ("b4", "b5", "b6")))
    async with await LedgerReader.open(cluster.context(), cluster.ledger) as reader:
        assert reader.last_entry == 9
        assert await ids(reader.read(0, 9)) == list(range(10))


async def test_no_such_ledger_at_the_bookies_is_an_answer(cluster: Cluster) -> None:
    await cluster.create()
    await cluster.bench.bookies["b2"].stop()
    async with await LedgerReader.open(cluster.context(), cluster.ledger) as reader:
        assert reader.last_entry == -1


async def test_a_reader_follows_an_ensemble_change(cluster: Cluster) -> None:
    await cluster.create()
    cluster.append(0, 9)
    context = cluster.context()
    async with await LedgerReader.open(context, cluster.ledger) as reader:
        await cluster.bench.bookie("b4", "b5")
        for name in ("b2", "b3"):
            await cluster.bench.bookies[name].stop()
        await cluster.store(cluster.metadata.with_fragment(9, ("b1", "b4", "b5")))
        cluster.append(9, 20)
        assert await reader.refresh() == 19
        assert await ids(reader.read(9, 19)) == list(range(9, 20))


async def test_a_read_that_fails_looks_for_newer_metadata(cluster: Cluster) -> None:
    """The entries were moved to other bookies while the reader held the old metadata."""
    await cluster.create(quorum=3)
    cluster.append(0, 9)
    await cluster.close(9)
    context = cluster.context()
    async with await LedgerReader.open(context, cluster.ledger) as reader:
        await cluster.bench.bookie("b4", "b5", "b6")
        for old, new in (("b1", "b4"), ("b2", "b5"), ("b3", "b6")):
            cluster.bench.bookies[new].entries.update(cluster.bench.bookies[old].entries)
            await cluster.bench.bookies[old].stop()
        await cluster.store(cluster.metadata.with_fragment(0, ("b4", "b5", "b6")))
        assert await ids(reader.read(0, 9)) == list(range(10))
        for name in ("b4", "b5", "b6"):
            await cluster.bench.bookies[name].stop()
        with pytest.raises(Unavailable):
            await ids(reader.read(0, 9))


@pytest.mark.rule("Q6", "Q17")
async def test_q6_a_tail_ends_with_the_closed_ledger(cluster: Cluster) -> None:
    await cluster.create()
    cluster.append(0, 4)
    entry_ids: list[int] = []
    async with await LedgerReader.open(cluster.context(), cluster.ledger) as reader:

        async def follow() -> None:
            async for entry in reader.follow(2):
                assert entry.data == payload(entry.id)
                entry_ids.append(entry.id)

        following = asyncio.create_task(follow())
        await until(
            lambda: entry_ids == [2, 3]
        )  # entry 4 is known to be confirmed only when 5 is sent, or at the close
        cluster.append(5, 9)
        await until(lambda: entry_ids == [2, 3, 4, 5, 6, 7, 8])
        await cluster.close(9)
        await following
    assert entry_ids == list(range(2, 10))
    assert no_fences(cluster.bench)


class _SlowReads:
    """A driver whose first read of a ledger is answered after something else happened."""

    def __init__(self, driver: MetadataDriver, meanwhile: Callable[[], Awaitable[None]]) -> None:
        self._driver, self._meanwhile = driver, [meanwhile]

    async def read_ledger(self, ledger: int) -> Versioned[LedgerMetadata]:
        found = await self._driver.read_ledger(ledger)
        if self._meanwhile:
            await self._meanwhile.pop()()
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)


async def test_a_ledger_that_is_closed_before_it_is_watched_has_its_end(cluster: Cluster) -> None:
    await cluster.create()
    cluster.append(0, 9)
    context = cluster.context()
    slow = cast("MetadataDriver", _SlowReads(context.driver, lambda: cluster.close(9)))
    async with asyncio.timeout(10), await LedgerReader.open(replace(context, driver=slow), cluster.ledger) as reader:
        assert reader.is_closed
        assert await ids(reader.follow(0)) == list(range(10))


async def _nothing() -> None:
    """Happens meanwhile."""


async def test_what_is_stored_while_the_metadata_are_read_again_is_read_as_well(cluster: Cluster) -> None:
    await cluster.create()
    cluster.append(0, 9)
    context = cluster.context()

    async def close() -> None:
        await cluster.close(9)
        await asyncio.sleep(0.01)  # whoever watches has heard of it

    slow = _SlowReads(context.driver, close)
    slow._meanwhile.append(_nothing)  # of the first read; the ledger is closed in the second one
    known = replace(context, driver=cast("MetadataDriver", slow))
    async with asyncio.timeout(10), await LedgerReader.open(known, cluster.ledger) as reader:
        assert not reader.is_closed
        await reader.refresh()
        assert reader.is_closed


@pytest.mark.parametrize("last", [-1, 0, 9])
async def test_a_reader_iterates_over_all_that_there_is(cluster: Cluster, last: int) -> None:
    await cluster.create()
    cluster.append(0, last)
    await cluster.close(last)
    async with await LedgerReader.open(cluster.context(), cluster.ledger) as reader:
        assert [entry.id async for entry in reader] == list(range(last + 1))


async def test_a_tail_loses_nothing_to_a_refresh_beside_it(cluster: Cluster) -> None:
    await cluster.create()
    cluster.append(0, 9)
    entry_ids: list[int] = []
    async with await LedgerReader.open(cluster.context(), cluster.ledger) as reader:
        async for entry in reader.follow(0):
            entry_ids.append(entry.id)
            if entry.id == 4:
                cluster.append(10, 19)
                await reader.refresh()
            if entry.id == 12:
                await cluster.close(19)
    assert entry_ids == list(range(20))


async def test_a_tail_may_start_beyond_the_end(cluster: Cluster) -> None:
    await cluster.create()
    async with await LedgerReader.open(cluster.context(), cluster.ledger) as reader:
        with pytest.raises(UsageError):
            await ids(reader.follow(-1))
        async with aclosing(reader.follow(3)) as entries:
            first = asyncio.ensure_future(anext(entries))
            cluster.append(0, 5)
            assert (await first).id == 3


@pytest.mark.rule("Q17")
@pytest.mark.parametrize("quorum", [2, 3])
async def test_q17_arrow_batches_have_every_entry_once(cluster: Cluster, quorum: int) -> None:
    await cluster.create(quorum=quorum)
    cluster.append(0, 999)
    await cluster.close(999)
    async with await LedgerReader.open(cluster.context(), cluster.ledger) as reader:
        rows, size = 64, 2000
        batches = [batch async for batch in reader.read_arrow(3, 990, batch_rows=rows, batch_bytes=size)]
        table = pa.Table.from_batches(batches)
        table.validate(full=True)
        assert table.schema.names == ["ledger", "entry", "lac", "length", "payload"]
        assert table["entry"].to_pylist() == list(range(3, 991))
        assert table["payload"].to_pylist() == [payload(entry) for entry in range(3, 991)]
        assert table["lac"].to_pylist() == list(range(2, 990))
        assert set(table["ledger"].to_pylist()) == {cluster.ledger}
        lengths = [0, *itertools.accumulate(len(payload(entry)) for entry in range(1000))]
        assert table["length"].to_pylist() == lengths[4:992]
        for batch in batches:
            assert batch.num_rows <= rows
            assert sum(map(len, batch["payload"].to_pylist())) <= size
        # Cut as late as the limits allow: the next row would not have fitted.
        for batch, following in itertools.pairwise(batches):
            used = sum(map(len, batch["payload"].to_pylist()))
            assert batch.num_rows == rows or used + len(following["payload"][0].as_py()) > size


async def test_arrow_columns_limits_and_long_entries(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    await cluster.create()
    cluster.append(0, 20)
    await cluster.close(20)
    async with await LedgerReader.open(cluster.context(), cluster.ledger) as reader:
        with (
            monkeypatch.context() as without,
            pytest.raises(UsageError, match=r"pip install 'pyarrow>=17' 'numpy>=1.26'$"),
        ):
            without.setitem(sys.modules, "pyarrow", None)
            reader.read_arrow(0, 20)
        [batch] = [batch async for batch in reader.read_arrow(0, 20, columns=["payload", "entry"])]
        assert batch.schema.names == ["payload", "entry"]
        assert batch.num_rows == 21
        [counted] = [batch async for batch in reader.read_arrow(0, 20, columns=[])]
        assert counted.num_columns == 0
        tiny = [batch async for batch in reader.read_arrow(0, 20, batch_bytes=1)]
        assert [row for batch in tiny for row in batch["entry"].to_pylist()] == list(range(21))
        for arguments in ({"columns": ["body"]}, {"batch_rows": 0}, {"batch_bytes": 0}, {"batch_bytes": 1 << 40}):
            with pytest.raises(UsageError):
                reader.read_arrow(0, 20, **arguments)
        with pytest.raises(NoSuchEntry):
            reader.read_arrow(0, 21)


@pytest.mark.parametrize("kind", [DigestType.CRC32, DigestType.HMAC])
async def test_a_format_1_ledger_is_read_with_the_callers_password_and_digest(
    cluster: Cluster, kind: DigestType
) -> None:
    """Its metadata has neither: nothing to compare with, and whoever opens it must say what its writer used."""
    await cluster.create(has_password=False)
    digest = Digest.of(kind, b"mine")
    for entry, bookie in itertools.product(range(4), cluster.bench.bookies.values()):
        header = EntryHeader(cluster.ledger, entry, entry - 1, 0)
        bookie.entries[cluster.ledger, entry] = digest.encode(header, payload(entry))
    await cluster.close(3)
    async with await LedgerReader.open(cluster.context(), cluster.ledger, password=b"mine", digest=kind) as reader:
        assert (reader.metadata.password, reader.metadata.digest_type) == (b"mine", kind)
        assert await ids(reader.read(0, 3)) == [0, 1, 2, 3]
