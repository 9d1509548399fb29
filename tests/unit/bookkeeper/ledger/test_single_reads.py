"""Single entries from scripted bookies: many in one request, each checked, one replica after another."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from support.fake_bookie import FakeBookie, Script
from tallystick.bookkeeper.ledger.connection import BookieClient
from tallystick.bookkeeper.ledger.read import Entry
from tallystick.bookkeeper.ledger.single_reads import SingleReads
from tallystick.bookkeeper.wire import v2
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.digest import Digest, EntryHeader
from tallystick.bookkeeper.wire.values import DigestType, Fragment, LedgerMetadata
from tallystick.errors import BookieUnavailable, DigestMismatch, NoSuchEntry, TallyError, Unavailable

if TYPE_CHECKING:
    from unit.bookkeeper.ledger.conftest import Bench

LEDGER, LAST = 5, 99
NAMES = ("b1", "b2", "b3")


def payload(entry: int) -> bytes:
    return f"entry {entry} ".encode() * (entry % 7 + 1)


@cache
def stored(quorum: int = 3, kind: DigestType = DigestType.CRC32C) -> LedgerMetadata:
    """The same each time, as a handle has it: other metadata would have channels of their own."""
    return LedgerMetadata(
        ensemble_size=3, write_quorum=quorum, ack_quorum=1, digest_type=kind, fragments=(Fragment(0, NAMES),)
    )


async def store(bench: Bench, kind: DigestType = DigestType.CRC32C) -> None:
    """Put every entry on every bookie."""
    digest = Digest.of(kind)
    for bookie in await bench.bookie(*NAMES):
        for entry in range(LAST + 1):
            header = EntryHeader(LEDGER, entry, entry - 1, 1000 + entry)
            bookie.entries[LEDGER, entry] = digest.encode(header, payload(entry))


def expected(entry: int) -> Entry:
    return Entry(entry, payload(entry), LEDGER, 1000 + entry, entry - 1)


def asked(bench: Bench, name: str) -> list[int]:
    return [request.entry for request in bench.bookies[name].requests if isinstance(request, v2.ReadFrame)]


def saying(code: Code, entry: bytes = b"") -> Script:
    """Answer each read so."""

    def respond(request: v2.Request) -> bytes:
        assert isinstance(request, v2.ReadFrame)
        return v2.encode_response(request, code, entry)

    return respond


@pytest.fixture(params=["v2", "v3"])
def wire(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.rule("Q4", "Q17")
@pytest.mark.parametrize("kind", DigestType)
async def test_q4_q17_reads_of_one_turn_are_one_ascending_run_a_bookie(
    bench: Bench, kind: DigestType, wire: str
) -> None:
    await store(bench, kind)
    client, metadata = bench.client(wire=wire), stored(2, kind)
    singles = SingleReads(client, LEDGER)
    entries = [77, 3, 50, 4, 99, 0, 51, 7]
    assert await asyncio.gather(*(singles.read(metadata, entry) for entry in entries)) == list(map(expected, entries))
    if wire == "v2":
        assert [asked(bench, name) for name in NAMES] == [[0, 3, 51, 99], [4, 7], [50, 77]]
    counts = client.counts
    assert (counts.reads, counts.read_latencies.count) == (len(entries), len(entries))
    assert counts.read_bytes == sum(len(payload(entry)) for entry in entries)


async def test_nothing_is_left_behind(bench: Bench) -> None:
    await store(bench)
    client = bench.client()
    singles = SingleReads(client, LEDGER)
    for _ in range(2):
        assert await singles.read(stored(), 6) == expected(6)
        outstanding = client._peer("b1", LEDGER).link()._outstanding
        assert (outstanding._lanes, outstanding._with_turn) == ({}, {})


async def test_the_same_entry_is_asked_for_once_at_a_time(bench: Bench) -> None:
    """Responses of version 2 have no other name; the other reader has it in its own way."""
    await store(bench)
    singles, metadata = SingleReads(bench.client(), LEDGER), stored()
    first, second = await asyncio.gather(singles.read(metadata, 6), singles.read(metadata, 6))
    assert (first, second) == (expected(6), None)
    assert asked(bench, "b1") == [6]
    assert await singles.read(metadata, 6) == expected(6)


async def test_one_who_leaves_hinders_nobody(bench: Bench) -> None:
    await store(bench)
    singles = SingleReads(bench.client(), LEDGER)
    reads = [asyncio.ensure_future(singles.read(stored(), entry)) for entry in (0, 3, 6, 9, 12)]
    await asyncio.sleep(0)
    reads[1].cancel()
    assert [await read for read in reads[:1] + reads[2:]] == list(map(expected, (0, 6, 9, 12)))
    assert await singles.read(stored(), 3) == expected(3)
    assert asked(bench, "b1") == [0, 3, 6, 9, 12, 3] and not asked(bench, "b2"), "nobody had to ask elsewhere"


async def test_a_refusal_for_one_who_left_hinders_nobody(bench: Bench) -> None:
    await store(bench)
    b1 = bench.bookies["b1"]
    del b1.entries[LEDGER, 3]
    singles = SingleReads(bench.client(), LEDGER)
    reads = [asyncio.ensure_future(singles.read(stored(), entry)) for entry in (0, 3, 6)]
    await asyncio.sleep(0)
    reads[1].cancel()
    assert [await reads[0], await reads[2]] == [expected(0), expected(6)]
    assert asked(bench, "b1") == [0, 3, 6] and not asked(bench, "b2")


@pytest.mark.rule("Q17")
@pytest.mark.parametrize("fault", ["gone", "damaged", "another", "short", "refused", "closed"])
async def test_q17_the_next_replica_is_asked(bench: Bench, fault: str) -> None:
    await store(bench)
    b1 = bench.bookies["b1"]
    if fault == "gone":
        del b1.entries[LEDGER, 6]
    elif fault == "damaged":
        b1.entries[LEDGER, 6] = b1.entries[LEDGER, 6][:-1] + b"\x00"
    elif fault == "another":
        b1.script = saying(Code.OK, bench.bookies["b2"].entries[LEDGER, 7])
    elif fault == "short":
        b1.script = saying(Code.OK, b"short")
    elif fault == "refused":
        b1.script = saying(Code.IO_ERROR)
    else:
        b1.script = lambda request: b1.CLOSE
    client = bench.client()
    singles = SingleReads(client, LEDGER)
    read = asyncio.gather(*(singles.read(stored(), entry) for entry in (6, 7, 8)))
    assert await read == list(map(expected, (6, 7, 8)))
    assert (client.counts.reads, client.counts.read_errors.total()) == (3, 1)
    assert (client.slow.since("b1") >= 0) == (fault != "gone")
    before = len(asked(bench, "b1"))
    assert await singles.read(stored(), 9) == expected(9)
    assert (len(asked(bench, "b1")) == before) == (fault != "gone"), "it is asked last for a while"


@pytest.mark.rule("Q15", "Q17")
@pytest.mark.parametrize(
    ("faults", "kind"),
    [
        (("no", "no", "no"), NoSuchEntry),
        (("no", "io", "no"), Unavailable),
        (("no", "bad", "no"), DigestMismatch),
        (("closed", "closed", "closed"), BookieUnavailable),
    ],
)
async def test_q15_q17_no_such_entry_only_when_every_replica_says_so(
    bench: Bench, faults: tuple[str, ...], kind: type[TallyError]
) -> None:
    await store(bench)
    for name, fault in zip(NAMES, faults, strict=True):
        bookie = bench.bookies[name]
        scripts = {"no": saying(Code.NO_ENTRY), "io": saying(Code.IO_ERROR), "bad": saying(Code.OK, b"x" * 50)}
        bookie.script = scripts.get(fault, lambda request: FakeBookie.CLOSE)
    with pytest.raises(TallyError, match="entry=6") as raised:
        await SingleReads(bench.client(), LEDGER).read(stored(), 6)
    assert type(raised.value) is kind


async def test_silent_replicas_are_overtaken_and_asked_last(bench: Bench) -> None:
    await store(bench)
    bench.bookies["b1"].script = lambda request: None
    client = bench.client(speculative_read_s=0.5, read_timeout_s=60.0)
    singles, loop = SingleReads(client, LEDGER), asyncio.get_running_loop()
    began = loop.time()
    early = asyncio.ensure_future(singles.read(stored(), 0))
    await asyncio.sleep(0.3)
    late = asyncio.ensure_future(singles.read(stored(), 3))
    assert await early == expected(0)
    assert (round(loop.time() - began, 2), late.done()) == (0.5, False)
    assert await late == expected(3)
    assert (round(loop.time() - began, 2), client.counts.speculative_reads) == (0.8, 2)
    assert asked(bench, "b1") == [0, 3]
    assert await singles.read(stored(), 9) == expected(9)
    assert asked(bench, "b1") == [0, 3]


async def test_a_slow_response_still_counts_when_the_others_fail(bench: Bench) -> None:
    await store(bench)
    b1 = bench.bookies["b1"]
    b1.script = lambda request: None

    def refuse(request: Any) -> bytes:
        if not b1.script:
            return v2.encode_response(request, Code.IO_ERROR)
        b1.script = None
        b1.say(b1.default(request) or b"")  # b1 wakes up when another has been asked
        return v2.encode_response(request, Code.IO_ERROR)

    bench.bookies["b2"].script = bench.bookies["b3"].script = refuse
    singles = SingleReads(bench.client(speculative_read_s=0.1), LEDGER)
    assert await singles.read(stored(), 0) == expected(0)
    assert asked(bench, "b1") == [0]


async def test_a_slow_response_is_heard_though_all_that_came_behind_it_is_there(bench: Bench) -> None:
    await store(bench)
    b1, held = bench.bookies["b1"], list[Any]()

    def keep_the_first(request: Any) -> bytes | None:
        if request.entry == 0:
            held.append(request)
            return None
        return b1.default(request)

    b1.script = keep_the_first
    bench.bookies["b2"].script = bench.bookies["b3"].script = lambda request: None
    singles = SingleReads(bench.client(speculative_read_s=0.5, read_timeout_s=60.0), LEDGER)
    first = asyncio.ensure_future(singles.read(stored(), 0))
    await asyncio.sleep(0.4)
    b1.script, second = lambda request: None, asyncio.ensure_future(singles.read(stored(), 3))
    await asyncio.sleep(0.2)  # the first one asks another bookie, the second one waits
    b1.say(b1.default(v2.ReadFrame(LEDGER, 3)) or b"")
    assert await second == expected(3)
    b1.say(b1.default(held[0]) or b"")
    assert await first == expected(0)


async def test_one_that_timed_out_is_read_elsewhere(bench: Bench) -> None:
    await store(bench)
    bench.bookies["b1"].script = lambda request: None
    client = bench.client(speculative_read_s=60.0, read_timeout_s=0.5)
    assert await SingleReads(client, LEDGER).read(stored(), 0) == expected(0)
    assert client.counts.read_errors["NO_RESPONSE"] == 1


async def test_what_was_not_sent_yet_fails_with_its_connection(bench: Bench) -> None:
    await store(bench)
    client = bench.client()
    singles = SingleReads(client, LEDGER)
    assert await singles.read(stored(), 0) == expected(0)
    read = asyncio.ensure_future(singles.read(stored(), 3))
    await asyncio.sleep(0)
    client._peer("b1", LEDGER).link().end("the test says so")
    again = asyncio.ensure_future(singles.read(stored(), 6))
    assert list(await asyncio.gather(read, again)) == [expected(3), expected(6)]


async def test_new_metadata_count_at_once(bench: Bench) -> None:
    await store(bench)
    singles = SingleReads(bench.client(), LEDGER)
    assert await singles.read(stored(), 6) == expected(6)
    moved = LedgerMetadata(
        ensemble_size=3,
        write_quorum=3,
        ack_quorum=1,
        digest_type=DigestType.CRC32C,
        fragments=(Fragment(0, NAMES), Fragment(6, ("b2", "b3", "b1"))),
    )
    assert list(await asyncio.gather(*(singles.read(moved, entry) for entry in (3, 6)))) == [expected(3), expected(6)]
    assert (asked(bench, "b1"), asked(bench, "b2")) == ([6, 3], [6])


async def test_sticky_reads_begin_at_one_bookie(bench: Bench) -> None:
    await store(bench)
    singles = SingleReads(bench.client(sticky_reads=True), LEDGER)
    for entry in range(5):
        assert await singles.read(stored(), entry) == expected(entry)
    assert asked(bench, NAMES[LEDGER % 3]) == list(range(5))


async def test_a_closed_client_fails_what_is_under_way(bench: Bench) -> None:
    await store(bench)
    for bookie in bench.bookies.values():
        bookie.script = lambda request: None
    client: BookieClient = bench.client()
    read = asyncio.ensure_future(SingleReads(client, LEDGER).read(stored(), 0))
    await asyncio.sleep(0.1)
    await client.close()
    with pytest.raises(BookieUnavailable):
        await read
