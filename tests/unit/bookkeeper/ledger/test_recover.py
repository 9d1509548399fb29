"""Recovery over sockets: what goes over the wire, what is stored, who wins."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from support.fake_bookie import HANG
from support.small_cluster import SmallCluster
from support.waiting import until
from tallystick.bookkeeper.ledger.reader import LedgerReader
from tallystick.bookkeeper.ledger.writer import LedgerWriter
from tallystick.bookkeeper.wire import v2
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.digest import Digest, EntryHeader, master_key
from tallystick.bookkeeper.wire.v2 import RequestFlag
from tallystick.bookkeeper.wire.values import Fragment, LedgerMetadata, LedgerState
from tallystick.errors import LedgerFenced, RecoveryIncomplete, TallyError, Unauthorized


@pytest.fixture
async def cluster() -> AsyncIterator[SmallCluster]:
    made = await SmallCluster().start(5)
    yield made
    await made.close()


async def left(cluster: SmallCluster, entries: int, *sizes: int, password: bytes = b"") -> LedgerWriter:
    """A ledger whose writer died after so many confirmed entries of three bytes."""
    ensemble, write, ack = sizes or (3, 3, 2)
    writer = await cluster.client().create_ledger(ensemble, write_quorum=write, ack_quorum=ack, password=password)
    for number in range(entries):
        await writer.append(b"%03d" % number)
    writer.abort()
    return writer


def places(cluster: SmallCluster, writer: LedgerWriter, entry: int, *slots: int) -> None:
    """The entry exists on these places alone, as if the others had never got it."""
    for slot, name in enumerate(writer.metadata.ensemble):
        if slot not in slots:
            cluster.bookies[name].entries.pop((writer.id, entry), None)


def reads(cluster: SmallCluster, writer: LedgerWriter) -> dict[str, list[v2.ReadFrame]]:
    return {
        name: [request for request in cluster.bookies[name].requests if isinstance(request, v2.ReadFrame)]
        for name in writer.metadata.ensemble
    }


def on_read(entry: int, code: int) -> Callable[[v2.Request], int | None]:
    return lambda request: code if isinstance(request, v2.ReadFrame) and request.entry == entry else None


def entry_of(request: v2.Request) -> int | None:
    return request.entry if isinstance(request, v2.ReadFrame) else None


@pytest.mark.rule("Q10", "Q16")
async def test_q16_a_recovered_ledger_is_closed_with_its_last_entry_and_length(cluster: SmallCluster) -> None:
    writer = await left(cluster, 20)
    async with cluster.client().open_ledger(writer.id, recover=True) as reader:
        assert (reader.is_closed, reader.last_entry, reader.length) == (True, 19, 60)
        assert [entry.data async for entry in reader.read(17, 19)] == [b"017", b"018", b"019"]
    stored = await cluster.client().ledger_metadata(writer.id)
    assert (stored.state, stored.last_entry, stored.length) == (LedgerState.CLOSED, 19, 60)


@pytest.mark.rule("Q16")
async def test_q16_an_empty_ledger_ends_at_minus_1(cluster: SmallCluster) -> None:
    writer = await cluster.client().create_ledger()
    writer.abort()
    reader = await cluster.client().open_ledger(writer.id, recover=True)
    assert (reader.last_entry, reader.length, reader.is_closed) == (-1, 0, True)


@pytest.mark.rule("Q11", "Q13", "Q14", "P6")
async def test_q14_every_recovery_request_fences_and_reads_wait_for_coverage(cluster: SmallCluster) -> None:
    writer = await left(cluster, 3, password=b"secret")
    for bookie in cluster.bookies.values():
        bookie.requests.clear()
    seen: list[tuple[str, v2.ReadFrame]] = []
    fenced_when_read: list[int] = []
    for name in writer.metadata.ensemble:

        def watch(request: v2.Request, name: str = name) -> None:
            if isinstance(request, v2.ReadFrame):
                seen.append((name, request))
                if request.entry >= 0:
                    fenced_when_read.append(sum(writer.id in b.fenced for b in cluster.bookies.values()))

        cluster.bookies[name].misbehave = watch
    await cluster.client().open_ledger(writer.id, password=b"secret", recover=True)
    first = [request for _, request in seen if request.entry == -1]
    assert [(r.flags, r.master_key) for r in first] == [(RequestFlag.FENCE, master_key(b"secret"))] * 3
    later = [request for _, request in seen if request.entry >= 0]
    assert later and {(r.flags, r.master_key) for r in later} == {
        (RequestFlag.FENCE | RequestFlag.HIGH_PRIORITY, master_key(b"secret"))
    }
    assert min(fenced_when_read) >= 2
    written = [r for b in cluster.bookies.values() for r in b.requests if isinstance(r, v2.AddFrame)]
    assert written and {request.flags for request in written} == {RequestFlag.RECOVERY_ADD | RequestFlag.HIGH_PRIORITY}


@pytest.mark.rule("Q11")
async def test_q11_the_old_writer_can_confirm_nothing_more(cluster: SmallCluster) -> None:
    writer = await cluster.client().create_ledger(3, write_quorum=3, ack_quorum=2)
    await writer.append(b"000")
    reader = await cluster.client().open_ledger(writer.id, recover=True)
    with pytest.raises(LedgerFenced):
        await writer.append(b"001")
    assert reader.last_entry == 0


@pytest.mark.rule("Q14")
async def test_q14_an_entry_on_one_bookie_is_written_back_to_its_write_set(cluster: SmallCluster) -> None:
    writer = await left(cluster, 5)
    places(cluster, writer, 4, 1)
    reader = await cluster.client().open_ledger(writer.id, recover=True)
    # Two "no" may settle the entry before the "yes" comes: nobody was told that it is safe.
    assert reader.last_entry in (3, 4)
    if reader.last_entry == 4:
        await until(lambda: cluster.holders(writer.id, 4) == set(writer.metadata.ensemble))
    for name in writer.metadata.ensemble:
        assert b"003" in cluster.bookies[name].entries[writer.id, 3]


@pytest.mark.rule("Q14", "P1")
async def test_q14_an_acknowledged_entry_survives_whichever_bookie_is_asked_first(cluster: SmallCluster) -> None:
    for slots in ((0, 1), (1, 2), (0, 2)):
        writer = await left(cluster, 5)
        places(cluster, writer, 4, *slots)
        reader = await cluster.client().open_ledger(writer.id, recover=True)
        assert reader.last_entry == 4
        assert len(cluster.holders(writer.id, 4) & set(reader.metadata.ensemble_of(4))) >= 2


@pytest.mark.rule("Q15", "P2")
@pytest.mark.parametrize("code", [HANG, Code.IO_ERROR, Code.UNKNOWN_LEDGER_STATE, Code.TOO_MANY_REQUESTS])
async def test_q15_unknown_is_never_a_no_on_the_wire(cluster: SmallCluster, code: int) -> None:
    writer = await left(cluster, 4)
    unsure = [cluster.bookies[name] for name in writer.metadata.ensemble[:2]]
    for bookie in unsure:
        bookie.misbehave = on_read(4, code)
    client = cluster.client()
    opening = asyncio.ensure_future(client.open_ledger(writer.id, recover=True))
    await until(lambda: opening.done() or all(4 in map(entry_of, bookie.requests) for bookie in unsure))
    for bookie in unsure if code == HANG else ():
        for transport in tuple(bookie.connections):
            transport.abort()
    with pytest.raises(RecoveryIncomplete) as caught:
        await opening
    assert caught.value.retriable and caught.value.entry == 4
    stored = await client.ledger_metadata(writer.id)
    assert (stored.state, stored.fragments) == (LedgerState.IN_RECOVERY, writer.metadata.fragments)
    cluster.bookies[writer.metadata.ensemble[0]].misbehave = None
    reader = await cluster.client().open_ledger(writer.id, recover=True)  # {no, unknown, no}: certain enough
    assert reader.last_entry == 3


@pytest.mark.rule("Q12")
async def test_q12_too_few_fences_fail_the_recovery(cluster: SmallCluster) -> None:
    writer = await left(cluster, 4)
    await cluster.down(*writer.metadata.ensemble[:2])
    with pytest.raises(RecoveryIncomplete, match="fence"):
        await cluster.client().open_ledger(writer.id, recover=True)
    assert all(request.entry == -1 for request in reads(cluster, writer)[writer.metadata.ensemble[2]])
    await cluster.up(*writer.metadata.ensemble[:2])
    reader = await cluster.client().open_ledger(writer.id, recover=True)
    assert reader.last_entry == 3


@pytest.mark.rule("Q12", "Q15")
async def test_q15_bytes_with_a_bad_digest_are_unknown(cluster: SmallCluster) -> None:
    writer = await left(cluster, 4)
    for name in writer.metadata.ensemble[:2]:
        stored = cluster.bookies[name].entries
        stored[writer.id, 3] = stored[writer.id, 3][:-1] + b"?"
    with pytest.raises(RecoveryIncomplete, match="fence"):
        await cluster.client().open_ledger(writer.id, recover=True)


@pytest.mark.rule("Q12", "Q15")
async def test_q15_an_entry_that_says_it_was_confirmed_before_it_was_sent_is_unknown(cluster: SmallCluster) -> None:
    """Its digest is right. Recovery would begin behind its LAC, and look at nothing before that."""
    writer = await left(cluster, 4)
    forged = Digest.of(writer.metadata.digest_type, b"").encode(EntryHeader(writer.id, 3, 3, 12), b"003")
    for name in writer.metadata.ensemble[:2]:
        cluster.bookies[name].entries[writer.id, 3] = forged
    with pytest.raises(RecoveryIncomplete, match="fence"):
        await cluster.client().open_ledger(writer.id, recover=True)


@pytest.mark.rule("Q15")
async def test_q15_a_bookie_without_registration_is_unknown(cluster: SmallCluster) -> None:
    writer = await left(cluster, 2, 2, 2, 1)
    await cluster.down(writer.metadata.ensemble[1])
    with pytest.raises(RecoveryIncomplete):
        await cluster.client().open_ledger(writer.id, recover=True)


@pytest.mark.rule("Q8", "P3", "P7")
async def test_a_dead_bookie_is_replaced_in_the_closing_write_only(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = await left(cluster, 6)
    dead = writer.metadata.ensemble[0]
    await cluster.down(dead)
    writes: list[LedgerState] = []
    client = cluster.client()
    write = client.context.driver.write_ledger

    async def noted(ledger: int, metadata: LedgerMetadata, version: int, **more: Any) -> int:
        writes.append(metadata.state)
        return await write(ledger, metadata, version, **more)

    monkeypatch.setattr(client.context.driver, "write_ledger", noted)
    reader = await client.open_ledger(writer.id, recover=True)
    assert writes == [LedgerState.IN_RECOVERY, LedgerState.CLOSED]
    first, second = reader.metadata.fragments
    assert (first.first, second.first) == (0, 5) and dead not in second.bookies
    assert len(cluster.holders(writer.id, 5) & set(second.bookies)) >= 2
    assert "recovery changed ensemble" in cluster.kinds()


@pytest.mark.rule("Q14")
async def test_q14_a_write_back_without_quorum_stores_nothing(cluster: SmallCluster) -> None:
    writer = await left(cluster, 6, 5, 5, 5)
    cluster.bookies["b0"].misbehave = lambda request: Code.IO_ERROR if isinstance(request, v2.AddFrame) else None
    with pytest.raises(RecoveryIncomplete, match="written back"):
        await cluster.client().open_ledger(writer.id, recover=True)
    assert (await cluster.driver.read_ledger(writer.id)).value.state is LedgerState.IN_RECOVERY


@pytest.mark.rule("Q14", "P9")
async def test_q14_a_bookie_that_failed_a_write_back_is_not_taken_again(cluster: SmallCluster) -> None:
    writer = await left(cluster, 6, 3, 3, 3)
    good = writer.metadata.ensemble[:2]
    for name, bookie in cluster.bookies.items():
        if name not in good:
            bookie.misbehave = lambda request: Code.IO_ERROR if isinstance(request, v2.AddFrame) else None
    async with asyncio.timeout(20):
        with pytest.raises(RecoveryIncomplete, match="written back"):
            await cluster.client().open_ledger(writer.id, recover=True)
    assert cluster.kinds().count("recovery changed ensemble") == len(cluster.bookies) - 3, "once to each spare"


@pytest.mark.rule("Q4", "Q14")
async def test_a_bookie_that_failed_a_write_back_is_left_out_of_new_ledgers_for_a_while(cluster: SmallCluster) -> None:
    writer, client = await left(cluster, 6, 3, 3, 3), cluster.client()
    failed = cluster.bookies[writer.metadata.ensemble[0]]
    failed.misbehave = lambda request: Code.IO_ERROR if isinstance(request, v2.AddFrame) else None
    await client.open_ledger(writer.id, recover=True)
    for _ in range(10):
        assert failed.id not in (await client.create_ledger(3)).metadata.ensemble


@pytest.mark.rule("Q13")
async def test_q13_an_empty_newest_fragment_does_not_reach_back(cluster: SmallCluster) -> None:
    """In the original's bug 2615 recovery read from entry 0 and stored a fragment below an existing one."""
    writer = await left(cluster, 6)
    found = await cluster.driver.read_ledger(writer.id)
    spares = tuple(name for name in cluster.bookies if name not in writer.metadata.ensemble)
    fresh = found.value.with_fragment(6, (*spares, writer.metadata.ensemble[0])[:3])
    await cluster.driver.write_ledger(writer.id, fresh, found.version)
    cluster.bookies[writer.metadata.ensemble[0]].clear()
    reader = await cluster.client().open_ledger(writer.id, recover=True)
    assert (reader.last_entry, reader.length) == (5, 18)
    assert reader.metadata.fragments == fresh.fragments


async def held_up(
    cluster: SmallCluster, writer: LedgerWriter
) -> tuple[asyncio.Future[LedgerReader], Callable[[], None]]:
    """A recovery whose write-backs no bookie has answered yet, and what lets them answer."""
    slow = [cluster.bookies[name] for name in writer.metadata.ensemble]
    for bookie in slow:
        bookie.held = []
    opening = asyncio.ensure_future(cluster.client().open_ledger(writer.id, recover=True))
    await until(lambda: sum(len(bookie.held or []) for bookie in slow) >= 3)

    def go_on() -> None:
        for bookie in slow:
            bookie.release()

    return opening, go_on


@pytest.mark.rule("P3")
async def test_a_ledger_that_a_rival_closed_keeps_the_rivals_end(cluster: SmallCluster) -> None:
    writer = await left(cluster, 4)
    opening, go_on = await held_up(cluster, writer)
    found = await cluster.driver.read_ledger(writer.id)
    await cluster.driver.write_ledger(writer.id, found.value.closed(2, 9), found.version)
    go_on()
    reader = await opening
    assert reader.metadata == found.value.closed(2, 9)


@pytest.mark.rule("P3", "P9")
async def test_ten_recoveries_at_once_agree(cluster: SmallCluster) -> None:
    writer = await left(cluster, 50, 3, 2, 2)
    readers = await asyncio.gather(*(cluster.client(seed).open_ledger(writer.id, recover=True) for seed in range(10)))
    assert {(reader.last_entry, reader.length) for reader in readers} == {(49, 150)}


@pytest.mark.rule("Q13")
async def test_q13_a_newest_fragment_that_changed_meanwhile_fails_the_close(cluster: SmallCluster) -> None:
    writer = await left(cluster, 4)
    opening, go_on = await held_up(cluster, writer)
    found = await cluster.driver.read_ledger(writer.id)
    spare = next(name for name in cluster.bookies if name not in writer.metadata.ensemble)
    moved = replace(found.value, fragments=(Fragment(0, (spare, *writer.metadata.ensemble[1:])),))
    await cluster.driver.write_ledger(writer.id, moved, found.version)
    go_on()
    with pytest.raises(RecoveryIncomplete, match="metadata changed"):
        await opening


async def test_a_wrong_password_asks_no_bookie(cluster: SmallCluster) -> None:
    writer = await left(cluster, 1, password=b"right")
    for bookie in cluster.bookies.values():
        bookie.requests.clear()
    for recover in (False, True):
        with pytest.raises(Unauthorized) as caught:
            await cluster.client().open_ledger(writer.id, password=b"wrong", recover=recover)
        assert caught.value.ledger == writer.id
    assert not any(bookie.requests for bookie in cluster.bookies.values())
    assert (await cluster.driver.read_ledger(writer.id)).value.state is LedgerState.OPEN


async def test_a_password_for_a_ledger_without_one_is_told_as_that(cluster: SmallCluster) -> None:
    """ "It needs its password" sent people looking for one, when the cure was to give none."""
    writer = await left(cluster, 1)
    with pytest.raises(Unauthorized, match="has no password, and one is given"):
        await cluster.client().open_ledger(writer.id, password=b"another's")


async def test_a_bookie_with_another_key_ends_recovery(cluster: SmallCluster) -> None:
    writer = await left(cluster, 1)
    for name in writer.metadata.ensemble:
        cluster.bookies[name].rekey(writer.id, b"somebody else's")
    with pytest.raises(Unauthorized):
        await cluster.client().open_ledger(writer.id, recover=True)


@pytest.mark.rule("Q17")
async def test_q17_opening_without_recovery_fences_nothing(cluster: SmallCluster) -> None:
    client = cluster.client()
    writer = await client.create_ledger()
    await writer.append_batch([b"x"] * 3)
    reader = await client.open_ledger(writer.id)
    assert not reader.is_closed and not any(bookie.fenced for bookie in cluster.bookies.values())
    assert await writer.append(b"y") == 3


@pytest.mark.rule("P2", "P5")
async def test_entries_beyond_a_gap_are_dropped(cluster: SmallCluster) -> None:
    writer = await left(cluster, 3)
    digest = Digest.of(writer.metadata.digest_type)
    for name in writer.metadata.ensemble:
        cluster.bookies[name].entries[writer.id, 9] = digest.encode(EntryHeader(writer.id, 9, 1, 99), b"after the gap")
    reader = await cluster.client().open_ledger(writer.id, recover=True)
    assert (reader.last_entry, reader.length) == (2, 9)


@pytest.mark.rule("P1", "P2", "P7")
@pytest.mark.parametrize("seed", range(8))
async def test_random_failures_never_truncate(cluster: SmallCluster, seed: int) -> None:
    print(f"seed={seed}")
    chance = random.Random(seed)
    write = chance.choice([2, 3])
    writer = await left(cluster, chance.randint(1, 30), 3, write, 2)
    acked = writer.lac
    for attempt in range(6):
        for bookie in cluster.bookies.values():
            codes = [None, None, None, Code.IO_ERROR] if attempt < 5 else [None]
            bookie.misbehave = lambda request, codes=codes: chance.choice(codes)
        try:
            reader = await cluster.client(seed).open_ledger(writer.id, recover=True)
        except TallyError as error:
            assert isinstance(error, RecoveryIncomplete)
            continue
        assert reader.last_entry == acked
        for entry in range(acked + 1):
            assert len(cluster.holders(writer.id, entry) & set(reader.metadata.ensemble_of(entry))) >= 2
        return
    raise AssertionError("the last attempt met no failure and must succeed")


@pytest.mark.rule("Q14")
async def test_q14_a_bookie_with_another_key_does_not_stop_recovery_once_the_fence_covers(
    cluster: SmallCluster,
) -> None:
    """It is late with its answer to the fence; then it refuses each read and each write-back."""
    writer = await left(cluster, 3)
    odd = cluster.bookies[writer.metadata.ensemble[1]]
    odd.keys[writer.id] = b"somebody else's key."
    odd.misbehave = lambda request: HANG if isinstance(request, v2.ReadFrame) and request.entry == -1 else None
    reader = await cluster.client(read_timeout_s=0.5).open_ledger(writer.id, recover=True)
    assert [entry.data async for entry in reader.read(0, reader.last_entry)] == [b"000", b"001", b"002"]


@pytest.mark.rule("Q16")
async def test_q16_hung_bookies_of_an_older_fragment_are_asked_at_once_and_the_length_is_a_lower_bound(
    cluster: SmallCluster,
) -> None:
    """The newest fragment is empty, and nobody of the one before answers: one time-out, not one for each bookie."""
    writer = await left(cluster, 3, 2, 2, 2)
    old = writer.metadata.ensemble
    new = tuple(name for name in cluster.bookies if name not in old)[:2]
    found = await cluster.driver.read_ledger(writer.id)
    await cluster.driver.write_ledger(writer.id, found.value.with_fragment(3, new), found.version)
    asked: list[str] = []

    def hang(name: str, request: v2.Request) -> int:
        asked.append(name)
        return HANG

    for name in old:
        cluster.bookies[name].misbehave = partial(hang, name)
    client = cluster.client(read_timeout_s=1.0)
    opened = asyncio.ensure_future(client.open_ledger(writer.id, recover=True))
    await until(lambda: set(asked) == set(old))
    assert not opened.done()
    reader = await opened
    assert (reader.last_entry, reader.length) == (2, 0) and len(asked) == 2
    bound = next(event for event in cluster.events if event.kind == "length is a lower bound")
    assert bound.fields == {"ledger": writer.id, "entry": 2, "length": 0}
    await reader.close()


@pytest.mark.rule("Q16")
async def test_q16_one_answer_of_an_older_fragment_is_the_length(cluster: SmallCluster) -> None:
    writer = await left(cluster, 3, 2, 2, 2)
    old = writer.metadata.ensemble
    new = tuple(name for name in cluster.bookies if name not in old)[:2]
    found = await cluster.driver.read_ledger(writer.id)
    await cluster.driver.write_ledger(writer.id, found.value.with_fragment(3, new), found.version)
    cluster.bookies[old[0]].misbehave = lambda request: HANG
    reader = await cluster.client().open_ledger(writer.id, recover=True)  # the time-out is not waited for
    assert (reader.last_entry, reader.length) == (2, 9)
    assert "length is a lower bound" not in cluster.kinds()
