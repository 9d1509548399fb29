"""How far an open ledger may be read: the LAC in entries, and the explicit one (facts 5.8, 5.10, 9.2-34)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from support.small_cluster import SmallCluster
from tallystick.bookkeeper.ledger.owners import Waiter
from tallystick.bookkeeper.wire import v2, v3
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.digest import Digest, EntryHeader
from tallystick.bookkeeper.wire.v3_responses import ReadLacResponse, encode_response
from tallystick.bookkeeper.wire.values import DigestType
from tallystick.errors import Unavailable


@pytest.fixture
async def cluster() -> AsyncIterator[SmallCluster]:
    made = await SmallCluster().start(3)
    yield made
    await made.close()


@pytest.mark.parametrize(("interval_s", "wire", "last"), [(0.0, "auto", 3), (0.1, "auto", 4), (0.1, "v2", 3)])
async def test_q6_the_explicit_lac_counts_where_it_is_told_and_asked_for(
    cluster: SmallCluster, interval_s: float, wire: str, last: int
) -> None:
    """Facts 9.2-34: an interval of 0 leaves readers one entry behind."""
    writer = await cluster.client(1, explicit_lac_interval_s=interval_s).create_ledger(3)
    for _ in range(5):
        await writer.append(b"x")
    await asyncio.sleep(0.5)
    async with await cluster.client(2, wire=wire).open_ledger(writer.id) as reader:
        assert reader.last_entry == last


@pytest.mark.rule("Q6", "Q15")
@pytest.mark.parametrize("wire", ["auto", "v2", "v3"])
@pytest.mark.parametrize("trouble", ["dead", "error", "bad digest", "short", "silent"])
async def test_q6_the_lac_needs_answers_from_enough_bookies(cluster: SmallCluster, trouble: str, wire: str) -> None:
    """E=3, Qw=Qa=2: one unknown is enough to go on, two are not; an answer with a bad digest is an unknown."""
    writer = await cluster.client(1, explicit_lac_interval_s=0.0).create_ledger(3)
    for _ in range(10):
        await writer.append(b"x")
    # Only silence waits for its time-out, and that counts while the loop runs: it takes four beats at least.
    client = cluster.client(2, read_timeout_s=1.0 if trouble == "silent" else 30.0, wire=wire)
    entry = Digest.of(DigestType.CRC32C).encode(EntryHeader(writer.id, 99, 98, 100), b"x")
    code, body = {
        "error": (Code.IO_ERROR, b""), "bad digest": (Code.OK, entry[:-1] + b"y"), "short": (Code.OK, b"abc")
    }.get(trouble, (Code.OK, b""))  # fmt: skip

    def answer(request: v2.Request) -> bytes | None:
        assert isinstance(request, v2.ReadFrame)
        return None if trouble == "silent" else v2.encode_response(request, code, body)

    def answer_v3(request: v3.Request) -> bytes | None:
        response = ReadLacResponse(request.header.request_id, code, writer.id, None, body)
        return None if trouble == "silent" else encode_response(response)

    async def break_it(name: str) -> None:
        if trouble == "dead":
            await cluster.down(name)
        cluster.bookies[name].script, cluster.bookies[name].script_v3 = answer, answer_v3

    await break_it("b1")
    async with await client.open_ledger(writer.id) as reader:
        assert reader.last_entry >= 7  # whichever bookies answered
        await break_it("b2")
        with pytest.raises(Unavailable):
            await reader.refresh()
    with pytest.raises(Unavailable):
        await client.open_ledger(writer.id)


async def test_q15_an_explicit_lac_with_a_bad_digest_is_unknown(cluster: SmallCluster) -> None:
    writer = await cluster.client().create_ledger(3)
    await writer.append(b"x")

    def lie(request: v3.Request) -> bytes:
        body = writer.id.to_bytes(8, "big") + (1000).to_bytes(8, "big") + bytes(4)
        return encode_response(ReadLacResponse(request.header.request_id, Code.OK, writer.id, body))

    cluster.bookies["b0"].script_v3 = lie
    async with await cluster.client(2).open_ledger(writer.id) as reader:
        assert reader.last_entry <= 0
        cluster.bookies["b1"].script_v3 = lie
        with pytest.raises(Unavailable):
            await reader.refresh()


async def test_bookies_without_version_3_are_asked_by_version_2(cluster: SmallCluster) -> None:
    writer = await cluster.client().create_ledger(3)
    for _ in range(5):
        await writer.append(b"x")
    for bookie in cluster.bookies.values():
        bookie.speaks_v3 = False
    async with await cluster.client(2).open_ledger(writer.id) as reader:
        opened = [bookie.opened for bookie in cluster.bookies.values()]
        for _ in range(3):
            assert await reader.refresh() == 3
        assert [bookie.opened for bookie in cluster.bookies.values()] == opened  # it is remembered


async def test_a_bookie_that_fails_by_version_2_too_is_not_asked_again_and_again(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests fail at once while a connection is not tried again: the loop went round in them for seconds."""
    client = cluster.client()
    writer = await client.create_ledger(3)
    await writer.append(b"x")
    for bookie in cluster.bookies.values():
        bookie.speaks_v3 = False
    asked = list[str]()
    async with await client.open_ledger(writer.id) as reader:
        for name in cluster.bookies:
            await cluster.down(name)
        bookies = client.context.bookies
        ask_read = bookies.ask_read

        def ask(bookie: str, ledger: int, entry: int) -> Waiter:
            asked.append(bookie)
            return ask_read(bookie, ledger, entry)

        monkeypatch.setattr(bookies, "ask_read", ask)
        with pytest.raises(Unavailable):
            await reader.refresh()
    assert sorted(asked) == sorted(cluster.bookies)
