"""Reading known ranges from scripted bookies: order, digests, one replica after another, batch reads or none."""

from __future__ import annotations

import asyncio
import random
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from support.links import answering
from tallystick.bookkeeper.ledger.batch_reads import CLOSED_CONNECTIONS
from tallystick.bookkeeper.ledger.fetch import fetch_runs
from tallystick.bookkeeper.ledger.ranges import Range, ranges_of
from tallystick.bookkeeper.ledger.read import Entry, read_entries
from tallystick.bookkeeper.ledger.striping import Striping
from tallystick.bookkeeper.wire import v2
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.digest import Digest
from tallystick.bookkeeper.wire.values import DigestType, Fragment, LedgerMetadata, LedgerState
from tallystick.errors import BookieUnavailable, DigestMismatch, NoSuchEntry, TallyError, Unauthorized, Unavailable

if TYPE_CHECKING:
    from unit.bookkeeper.ledger.conftest import Bench

LEDGER = 5
NAMES = ("b1", "b2", "b3")


def payload(entry: int) -> bytes:
    return f"entry {entry} ".encode() * (entry % 7 + 1)


def store(bench: Bench, ensemble: tuple[str, ...], write_quorum: int, first: int, last: int) -> Range:
    """Put entries where the striping says; the range that reads them."""
    striping = Striping(len(ensemble), write_quorum, write_quorum)
    for entry in range(first, last + 1):
        for slot in striping.slots(entry):
            bench.bookies[ensemble[slot]].entries[LEDGER, entry] = bench.entry(LEDGER, entry, payload(entry))
    return Range(LEDGER, first, last, ensemble, write_quorum, DigestType.CRC32C)


async def collect(client: Any, *ranges: Range) -> list[int]:
    """Ids in the order they came; payloads checked."""
    results: list[int] = []
    async with aclosing(fetch_runs(client, ranges)) as runs:
        async for run in runs:
            assert [bytes(data) for data in run.payloads] == [payload(e) for e in range(run.first, run.last + 1)]
            results += range(run.first, run.last + 1)
    return results


def asked(bookie: Any, kind: type) -> list[Any]:
    return [request for request in bookie.requests if isinstance(request, kind)]


@pytest.mark.rule("Q4", "Q17")
@pytest.mark.parametrize(("size", "quorum"), [(1, 1), (3, 3), (3, 2), (3, 1), (2, 1)])
async def test_q4_q17_every_entry_from_its_write_set_in_order(bench: Bench, size: int, quorum: int) -> None:
    await bench.bookie(*NAMES[:size])
    stored_range = store(bench, NAMES[:size], quorum, 0, 399)
    client = bench.client()
    assert await collect(client, stored_range) == list(range(400))
    for bookie in bench.bookies.values():
        for request in asked(bookie, v2.ReadFrame):
            assert bookie.entries.get((LEDGER, request.entry)), "asked a bookie that does not hold it"


@pytest.mark.rule("Q17")
async def test_q17_unstriped_ranges_are_read_in_few_round_trips(bench: Bench) -> None:
    await bench.bookie(*NAMES)
    stored_range = store(bench, NAMES, 3, 0, 4999)
    assert await collect(bench.client(), stored_range) == list(range(5000))
    requests = [request for bookie in bench.bookies.values() for request in bookie.requests]
    assert all(isinstance(request, v2.BatchReadFrame) for request in requests)
    assert len(requests) < 15


@pytest.mark.parametrize(("quorum", "wire", "mean_bytes", "most"), [
    (3, "v2", 40, 2520), (3, "v2", 1000, 246), (3, "v2", 100_000, 16), (3, "v2", 0, 16), (3, "v3", 40, 16),
    (2, "v2", 40, 16),
])  # fmt: skip
async def test_a_closed_ledger_says_how_many_entries_come_first(
    bench: Bench, quorum: int, wire: str, mean_bytes: int, most: int
) -> None:
    """Where responses are bounded, however long the entries are after all."""
    await bench.bookie(*NAMES)
    stored_range = store(bench, NAMES, quorum, 0, 2999)._replace(mean_bytes=mean_bytes)
    client = bench.client(wire=wire)
    async with aclosing(fetch_runs(client, [stored_range])) as runs:
        async for run in runs:
            assert run.first == 0
            break
    if wire == "v3" or quorum == 2:
        requests = [request for bookie in bench.bookies.values() for request in bookie.requests]
        assert len(requests) + sum(len(bookie.requests_v3) for bookie in bench.bookies.values()) == most
    else:
        assert [request.max_count for request in asked(bench.bookies["b1"], v2.BatchReadFrame)][:1] == [most]


def test_the_mean_size_is_that_of_a_closed_ledger() -> None:
    opened = LedgerMetadata(ensemble_size=3, write_quorum=3, ack_quorum=2, fragments=(Fragment(0, NAMES),))
    closed = replace(opened, state=LedgerState.CLOSED, last_entry=9, length=1005)
    empty = replace(opened, state=LedgerState.CLOSED, last_entry=-1, length=0)
    assert [ranges_of(LEDGER, metadata, 0, 5)[0].mean_bytes for metadata in (opened, closed, empty)] == [0, 100, 0]


async def test_a_read_in_batches_goes_on_at_one_replica(bench: Bench) -> None:
    await bench.bookie(*NAMES)
    stored_range = store(bench, NAMES, 3, 1, 999)
    small = bench.client(read_window_bytes=8192)
    assert await collect(small, stored_range) == list(range(1, 1000))
    b1, b2, b3 = (len(asked(bench.bookies[name], v2.BatchReadFrame)) for name in NAMES)
    assert b2 > 10 and b1 == b3 == 0, "entry 1 is on b2 first"


@pytest.mark.rule("Q17")
@pytest.mark.parametrize("quorum", [3, 2])
async def test_q17_replicas_are_tried_until_one_succeeds(bench: Bench, quorum: int) -> None:
    """One bookie is dead, another has lost some entries and damaged others: whatever one replica has is found."""
    await bench.bookie(*NAMES)
    stored_range = store(bench, NAMES, quorum, 0, 299)
    b1, b2, b3 = (bench.bookies[name] for name in NAMES)
    striping = stored_range.striping
    seed = random.randrange(1 << 32)
    print("seed", seed)
    chance = random.Random(seed)
    for entry in range(300):
        holders = [bench.bookies[NAMES[slot]] for slot in striping.slots(entry)]
        live = [bookie for bookie in holders if bookie is not b1]
        for bookie in live[1:]:  # one good copy stays
            if chance.random() < 0.3:
                del bookie.entries[LEDGER, entry]
            elif chance.random() < 0.3:
                bookie.entries[LEDGER, entry] = bookie.entries[LEDGER, entry][:-1] + b"\x00"
    await b1.stop()
    assert await collect(bench.client(), stored_range) == list(range(300))
    assert b2.requests and b3.requests


async def test_a_dead_bookie_is_asked_last_for_the_rest_of_the_read(bench: Bench) -> None:
    await bench.bookie(*NAMES)
    stored_range = store(bench, NAMES, 2, 0, 999)
    bench.bookies["b1"].script = lambda request: b"x" * 50  # every connection to it ends
    assert await collect(bench.client(), stored_range) == list(range(1000))
    assert bench.bookies["b1"].opened <= 2


@pytest.mark.parametrize("quorum", [1, 3])
async def test_what_is_before_an_entry_that_nobody_has_comes_first(bench: Bench, quorum: int) -> None:
    await bench.bookie(*NAMES)
    stored_range = store(bench, NAMES, quorum, 0, 399)
    for bookie in bench.bookies.values():
        bookie.entries.pop((LEDGER, 250), None)
    entries: list[int] = []
    with pytest.raises(NoSuchEntry, match="entry=250"):
        async for run in fetch_runs(bench.client(), [stored_range]):
            entries += range(run.first, run.last + 1)
    assert entries == list(range(250))


@pytest.mark.rule("Q17")
async def test_q17_no_such_entry_only_when_every_replica_says_so(bench: Bench) -> None:
    await bench.bookie(*NAMES)
    stored_range = store(bench, NAMES, 3, 0, 4)
    one_more = Range(LEDGER, 0, 5, NAMES, 3, DigestType.CRC32C)
    client = bench.client()
    results: list[int] = []
    with pytest.raises(NoSuchEntry) as caught:
        async for run in fetch_runs(client, [stored_range, one_more]):
            results += range(run.first, run.last + 1)
    assert results == [0, 1, 2, 3, 4] * 2
    assert caught.value.entry == 5
    causes = [f"{name}: it does not have the entry" for name in NAMES]
    assert sorted(caught.value.fields["replicas"].split("; ")) == causes
    assert str(caught.value).startswith(f"no replica has this entry (ledger={LEDGER} entry=5 replicas=b")
    assert all(bookie.requests for bookie in bench.bookies.values())


@pytest.mark.rule("Q17", "Q15")
@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (Code.IO_ERROR, Unavailable),
        (Code.TOO_MANY_REQUESTS, Unavailable),
        (Code.UNKNOWN_LEDGER_STATE, Unavailable),
        (Code.UNAUTHORIZED, Unauthorized),
        ("bad bytes", DigestMismatch),
        ("another entry", DigestMismatch),
        ("dead", BookieUnavailable),
    ],
)
@pytest.mark.parametrize("position", [0, 1, 2])
@pytest.mark.parametrize("quorum", [3, 2])
async def test_q17_any_failure_wins_over_no(
    bench: Bench, answer: Any, error: type[TallyError], position: int, quorum: int
) -> None:
    """{no, no, unknown} to a reader is unknown, whatever the order."""
    await bench.bookie(*NAMES)
    store(bench, NAMES, 3, 0, 1)
    if quorum == 2 and position == 2:
        position = 1
    stored_range = Range(LEDGER, 3, 3, NAMES, quorum, DigestType.CRC32C)
    odd = bench.bookies[NAMES[position]]
    if answer == "dead":
        await odd.stop()
    elif answer == "bad bytes":
        odd.script = answering(Code.OK, b"short")
    elif answer == "another entry":
        odd.script = answering(Code.OK, odd.entries[LEDGER, 1])
    else:
        odd.script = answering(answer)
    with pytest.raises(error) as caught:
        await collect(bench.client(), stored_range)
    fields = caught.value.fields
    assert (fields["ledger"], fields["entry"]) == (LEDGER, 3)
    causes = dict(cause.split(": ", 1) for cause in fields["replicas"].split("; "))
    assert set(causes) == {stored_range.bookies[slot] for slot in stored_range.striping.slots(3)}
    damaged = "bytes that do not match their digest"
    said = {"dead": "cannot be reached", "bad bytes": damaged, "another entry": damaged}
    assert said.get(answer, "it ") in causes[NAMES[position]]


@pytest.mark.parametrize("quorum", [3, 2])
async def test_a_silent_replica_is_overtaken(bench: Bench, quorum: int) -> None:
    await bench.bookie(*NAMES)
    stored_range = store(bench, NAMES, quorum, 0, 1999)
    bench.bookies["b1"].script = lambda request: None
    client = bench.client(speculative_read_s=0.05, read_timeout_s=60.0)
    assert await collect(client, stored_range) == list(range(2000))
    assert len(asked(bench.bookies["b1"], v2.BatchReadFrame)) <= 1  # not asked again
    assert len(asked(bench.bookies["b1"], v2.ReadFrame)) <= 512, "of the pieces under way, and no more"


@pytest.mark.parametrize("quorum", [3, 2])
async def test_a_replica_that_timed_out_is_asked_last_for_the_rest_of_the_read(bench: Bench, quorum: int) -> None:
    """Its time-out may be shorter than the silence after which another one is asked."""
    await bench.bookie(*NAMES)
    stored_range = store(bench, NAMES, quorum, 0, 1999)
    bench.bookies["b1"].script = lambda request: None
    client = bench.client(speculative_read_s=60.0, read_timeout_s=0.1)
    assert await collect(client, stored_range) == list(range(2000))
    assert len(asked(bench.bookies["b1"], v2.BatchReadFrame)) <= 1
    assert len(asked(bench.bookies["b1"], v2.ReadFrame)) <= 512


async def test_a_slow_answer_still_counts_when_the_others_fail(bench: Bench) -> None:
    await bench.bookie("b1", "b2")
    stored_range = store(bench, ("b1", "b2"), 2, 0, 0)
    b1, b2 = bench.bookies["b1"], bench.bookies["b2"]
    b1.script = lambda request: None

    def refuse(request: Any) -> bytes:
        b1.say(b1.default(request) or b"")  # b1 wakes up when b2 has been asked
        return v2.encode_response(request, Code.IO_ERROR)

    b2.script = refuse
    assert await collect(bench.client(speculative_read_s=0.02), stored_range) == [0]


@pytest.mark.rule("Q17")
async def test_q17_bookies_without_batch_reads_are_found_out_and_remembered(bench: Bench) -> None:
    await bench.bookie(*NAMES)
    stored_range = store(bench, NAMES, 3, 0, 499)
    for bookie in bench.bookies.values():  # an original before 4.17: closes the connection
        bookie.script = lambda request, bookie=bookie: (
            bookie.CLOSE if isinstance(request, v2.BatchReadFrame) else bookie.default(request)
        )
    client = bench.client()
    assert await collect(client, stored_range) == list(range(500))
    assert await collect(client, stored_range) == list(range(500))
    batch_reads = sum(len(asked(bookie, v2.BatchReadFrame)) for bookie in bench.bookies.values())
    assert 0 < batch_reads <= 3 * CLOSED_CONNECTIONS
    assert await collect(client, stored_range) == list(range(500))
    assert batch_reads == sum(len(asked(bookie, v2.BatchReadFrame)) for bookie in bench.bookies.values())


@pytest.mark.rule("Q17")
async def test_q17_one_reset_during_batch_reads_changes_nothing_for_good(bench: Bench) -> None:
    """Many are in flight over the connection that is reset: all of them are one piece of evidence."""
    await bench.bookie(*NAMES)
    stored_range = store(bench, NAMES, 3, 0, 499)
    client = bench.client(read_window_bytes=4096)
    for round_ in range(CLOSED_CONNECTIONS + 2):
        left = 1

        def reset_once(request: Any, bookie: Any) -> Any:
            nonlocal left
            if isinstance(request, v2.BatchReadFrame) and left:
                left -= 1
                return bookie.CLOSE
            return bookie.default(request)

        for bookie in bench.bookies.values():
            bookie.script = lambda request, bookie=bookie: reset_once(request, bookie)
            bookie.requests.clear()
        assert await collect(client, stored_range) == list(range(500))
        assert not left, round_
        singles = sum(len(asked(bookie, v2.ReadFrame)) for bookie in bench.bookies.values())
        assert singles <= 20, "the rest is read in batches"


async def test_a_short_or_damaged_batch_goes_on_elsewhere(bench: Bench) -> None:
    """A batch answer is good up to its first bad entry; the rest is asked for again, from another replica."""
    await bench.bookie(*NAMES)
    stored_range = store(bench, NAMES, 3, 0, 99)
    for name, entry in (("b1", 10), ("b2", 20), ("b3", 30), ("b1", 40)):
        data = bench.bookies[name].entries[LEDGER, entry]
        bench.bookies[name].entries[LEDGER, entry] = data[:40] + bytes([data[40] ^ 1]) + data[41:]
    assert await collect(bench.client(), stored_range) == list(range(100))


async def test_more_than_was_asked_for_is_not_taken(bench: Bench) -> None:
    [bookie] = await bench.bookie("b1")
    stored_range = store(bench, ("b1",), 1, 0, 99)

    def generous(request: Any) -> bytes | None:
        more = v2.BatchReadFrame(LEDGER, request.first, request.request_id, 1000, 1 << 20)
        return bookie.default(more)

    bookie.script = generous
    client = bench.client()
    assert await collect(client, stored_range) == list(range(100))
    assert await collect(client, Range(LEDGER, 3, 8, ("b1",), 1, DigestType.CRC32C)) == list(range(3, 9))


async def test_entries_of_all_sizes_keep_within_the_answer_limit(bench: Bench) -> None:
    [bookie] = await bench.bookie("b1")
    sizes = [0, 1, 300_000, 5_000_000, 10, 100_000, 0, 4_000_000, *([50] * 300), 1_000_000, *([50] * 30)]
    for entry, size in enumerate(sizes):
        bookie.entries[1, entry] = bench.entry(1, entry, b"z" * size)
    results = []
    stored_range = Range(1, 0, len(sizes) - 1, ("b1",), 1, DigestType.CRC32C)
    async for run in fetch_runs(bench.client(), [stored_range]):
        results += [len(data) for data in run.payloads]
    assert results == sizes
    assert max(request.max_bytes for request in asked(bookie, v2.BatchReadFrame)) <= 5_242_876


async def test_what_is_not_taken_bounds_what_is_asked(bench: Bench) -> None:
    [bookie] = await bench.bookie("b1")
    for entry in range(200):
        bookie.entries[1, entry] = bench.entry(1, entry, b"z" * 10_000)
    client = bench.client(read_window_bytes=200_000)
    async with aclosing(fetch_runs(client, [Range(1, 0, 199, ("b1",), 1, DigestType.CRC32C)])) as runs:
        await anext(runs)
        await anext(runs)
        for _ in range(50):
            await client.read("b1", 1, 0)  # time for anything that is under way
        furthest = max(request.first + request.max_count for request in asked(bookie, v2.BatchReadFrame))
        assert furthest * 10_000 < 600_000
    assert furthest < 200


async def test_leaving_early_leaves_nothing_behind(bench: Bench) -> None:
    await bench.bookie(*NAMES)
    stored_range = store(bench, NAMES, 3, 0, 4999)
    before = len(asyncio.all_tasks())
    async with aclosing(
        fetch_runs(bench.client(read_timeout_s=1000.0, speculative_read_s=1000.0), [stored_range])
    ) as runs:
        await anext(runs)
        for bookie in bench.bookies.values():
            bookie.requests.clear()
            bookie.script = lambda request: None  # what is now asked would never end by itself
        waiting = asyncio.ensure_future(anext(runs))
        for _ in range(10_000):
            if any(bookie.requests for bookie in bench.bookies.values()):
                break
            await asyncio.sleep(0.001)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    assert len(asyncio.all_tasks()) == before


@pytest.mark.rule("Q17")
async def test_q17_a_writer_reads_its_own_ledger_by_fragment(bench: Bench) -> None:
    """``read_entries`` needs no metadata service: the caller's metadata says which bookies have which entries."""
    await bench.bookie("b1", "b2", "b3", "b4")
    store(bench, ("b1", "b2", "b3"), 2, 0, 9)
    store(bench, ("b1", "b4", "b3"), 2, 10, 24)
    metadata = LedgerMetadata(
        3, 2, 2, (Fragment(0, ("b1", "b2", "b3")), Fragment(10, ("b1", "b4", "b3"))), DigestType.CRC32C
    )
    assert [(r.first, r.last, r.bookies[1]) for r in ranges_of(LEDGER, metadata, 3, 20)] == [
        (3, 9, "b2"),
        (10, 20, "b4"),
    ]
    assert [(r.first, r.last) for r in ranges_of(LEDGER, metadata, 3, 5)] == [(3, 5)]
    assert [(r.first, r.last) for r in ranges_of(LEDGER, metadata, 10, 11)] == [(10, 11)]
    entries = [entry async for entry in read_entries(bench.client(), metadata, LEDGER, 3, 20)]
    assert [entry.id for entry in entries] == list(range(3, 21))
    assert entries[0] == Entry(3, payload(3), LEDGER, len(payload(3)), 2)


@pytest.mark.parametrize("kind", list(DigestType))
async def test_all_digests(bench: Bench, kind: DigestType) -> None:
    from tallystick.bookkeeper.wire.digest import EntryHeader

    [bookie] = await bench.bookie("b1")
    digest = Digest.of(kind, b"secret")
    for entry in range(30):
        bookie.entries[1, entry] = digest.encode(EntryHeader(1, entry, entry - 1, entry), b"%d" % entry)
    results = []
    async for run in fetch_runs(bench.client(), [Range(1, 0, 29, ("b1",), 1, kind, b"secret")]):
        results += [bytes(data) for data in run.payloads]
    assert results == [b"%d" % entry for entry in range(30)]
    if kind is DigestType.HMAC:
        with pytest.raises(DigestMismatch):
            await collect(bench.client(), Range(1, 0, 29, ("b1",), 1, kind, b"wrong"))


def test_a_range_does_not_show_the_password() -> None:
    found = Range(7, 3, 8, ("b1",), 1, DigestType.HMAC, b"hidden")
    assert "hidden" not in repr([found]) and "ledger=7" in repr(found)
