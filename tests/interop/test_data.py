"""What one kind of client writes, the other reads back byte for byte, on bookies of either kind."""

from __future__ import annotations

import pytest

from support.clusters import KINDS, OTHER, Cluster
from support.content import content, expected, payload
from support.peers import PeerError
from tallystick.errors import NoSuchLedger, Unauthorized

CUSTOM = ",".join(
    f"{key.hex()}:{value.hex()}" for key, value in ((b"application", b"interop"), (b"bytes", bytes(range(256))))
)
FRAME = 5_242_876  # the longest that an original bookie takes with its own settings
LARGEST = FRAME - 24 - 32 - 4  # less packet header with master key, entry header, CRC32C


async def read_by_both(
    cluster: Cluster, ledger: str, first: int, last: int, password: str = ""
) -> list[dict[str, str]]:
    found = []
    for kind in KINDS:
        client = cluster.clients[kind]
        await client.ask("open", ledger=ledger, password=password)
        found.append(await client.ask("read", ledger=ledger, first=first, last=last))
    return found


async def metadata_by_both(cluster: Cluster, ledger: str) -> list[dict[str, str]]:
    return [await cluster.clients[kind].ask("metadata", ledger=ledger) for kind in KINDS]


@pytest.mark.rule("Q3", "Q4", "Q17")
@pytest.mark.parametrize("quorums", [(3, 2, 2), (3, 3, 2)], ids=["striped", "full"])
@pytest.mark.parametrize("digest", ["crc32", "crc32c", "hmac", "dummy"])
async def test_q17_both_kinds_read_equal_bytes(
    cluster: Cluster, writer_kind: str, digest: str, quorums: tuple[int, int, int]
) -> None:
    e, qw, qa = quorums
    writer, password = cluster.clients[writer_kind], b"open sesame".hex()
    ledger = (await writer.ask("create", e=e, qw=qw, qa=qa, digest=digest, password=password, custom=CUSTOM))["ledger"]
    opened = await metadata_by_both(cluster, ledger)
    assert opened[0] == opened[1]
    assert (opened[0]["state"], opened[0]["digest"], opened[0]["custom"]) == ("OPEN", digest, CUSTOM)

    assert await writer.ask("append", ledger=ledger, count=50, size=333, seed=1) == {"last": "49"}
    assert await writer.ask("read", ledger=ledger, first=0, last=49, by="writer") == expected(1, 0, 49, 333)
    assert await writer.ask("close", ledger=ledger) == {"last": "49", "length": str(50 * 333)}

    assert await read_by_both(cluster, ledger, 0, 49, password) == [expected(1, 0, 49, 333)] * 2
    assert await read_by_both(cluster, ledger, 7, 7, password) == [expected(1, 7, 7, 333)] * 2
    closed = await metadata_by_both(cluster, ledger)
    assert closed[0] == closed[1]
    assert closed[0] == {**opened[0], "state": "CLOSED", "last": "49", "length": str(50 * 333), "ctoken": "0"}


@pytest.mark.rule("Q4")
async def test_q4_both_kinds_stripe_alike(cluster: Cluster, writer_kind: str) -> None:
    writer = cluster.clients[writer_kind]
    ledger = (await writer.ask("create", e=3, qw=2, qa=2))["ledger"]
    await writer.ask("append", ledger=ledger, count=9, size=10, seed=11)
    await writer.ask("close", ledger=ledger)
    ensemble = (await writer.ask("metadata", ledger=ledger))["fragments"].removeprefix("0=").split(",")
    for entry in range(9):
        held = [await cluster.bookie(id).read_code(int(ledger), entry) == 0 for id in ensemble]
        assert held == [slot in (entry % 3, (entry + 1) % 3) for slot in range(3)]


@pytest.mark.rule("Q17")
async def test_q17_any_size_up_to_the_largest_frame(cluster: Cluster, writer_kind: str) -> None:
    writer, sizes = cluster.clients[writer_kind], (0, 1, 31, 100_000, LARGEST)
    ledger = (await writer.ask("create", e=3, qw=3, qa=2))["ledger"]
    for size in sizes:
        await writer.ask("append", ledger=ledger, count=1, size=size, seed=2)
    await writer.ask("close", ledger=ledger)
    wanted = content((entry, payload(2, entry, size)) for entry, size in enumerate(sizes))
    assert await read_by_both(cluster, ledger, 0, len(sizes) - 1) == [wanted] * 2


@pytest.mark.rule("Q17")
async def test_q17_batch_reads_of_the_original(cluster: Cluster, writer_kind: str) -> None:
    writer, reader = cluster.clients[writer_kind], cluster.clients["java"]
    ledger = (await writer.ask("create", e=3, qw=3, qa=2))["ledger"]
    await writer.ask("append", ledger=ledger, count=200, size=1000, seed=3)
    await writer.ask("close", ledger=ledger)
    await reader.ask("open", ledger=ledger)
    by_count = await reader.ask("batch", ledger=ledger, first=5, count=100, bytes=1 << 20)
    assert by_count == expected(3, 5, 104, 1000)
    by_size = await reader.ask("batch", ledger=ledger, first=5, count=100, bytes=10_000)
    # 24 + 8 + 4 bytes around the batch, 4 + 32 + 4 around each payload: the tenth would pass 10,000 bytes.
    assert by_size == expected(3, 5, 13, 1000)


@pytest.mark.rule("Q6")
async def test_q6_an_open_ledger_is_read_up_to_its_lac_without_fencing(cluster: Cluster, writer_kind: str) -> None:
    writer, reader = cluster.clients[writer_kind], cluster.clients[OTHER[writer_kind]]
    ledger = (await writer.ask("create", e=3, qw=2, qa=2))["ledger"]
    for _ in range(3):  # one after another: each entry carries the one before as its LAC
        await writer.ask("append", ledger=ledger, count=1, size=10, seed=4)
    opened = await reader.ask("open", ledger=ledger)
    assert opened["last"] == "1" and opened["closed"] == "no"
    assert await reader.ask("read", ledger=ledger, first=0, last=1) == expected(4, 0, 1, 10)
    assert await writer.ask("append", ledger=ledger, count=1, size=10, seed=4) == {"last": "3"}
    await writer.ask("close", ledger=ledger)


@pytest.mark.rule("Q1", "Q3")
async def test_q3_a_wrong_password_is_refused_by_both(cluster: Cluster, writer_kind: str) -> None:
    writer = cluster.clients[writer_kind]
    ledger = (await writer.ask("create", e=3, qw=2, qa=2, password=b"right".hex()))["ledger"]
    await writer.ask("append", ledger=ledger, count=1, size=10, seed=5)
    for kind in KINDS:
        for recover in ("no", "yes"):
            with pytest.raises(PeerError) as refused:
                await cluster.clients[kind].ask("open", ledger=ledger, password=b"wrong".hex(), recover=recover)
            assert refused.value.code == Unauthorized.code
    await writer.ask("close", ledger=ledger)


@pytest.mark.rule("Q1")
async def test_q1_both_list_and_delete_the_same_ledgers(cluster: Cluster, writer_kind: str) -> None:
    writer, other = cluster.clients[writer_kind], cluster.clients[OTHER[writer_kind]]
    ledger = (await writer.ask("create", e=3, qw=2, qa=2))["ledger"]
    await writer.ask("close", ledger=ledger)
    listed = [(await client.ask("ledgers"))["ledgers"].split(",") for client in (writer, other)]
    assert listed[0] == listed[1] and ledger in listed[0]
    await other.ask("delete", ledger=ledger)
    for client in (writer, other):
        with pytest.raises(PeerError) as gone:
            await client.ask("open", ledger=ledger)
        assert gone.value.code == NoSuchLedger.code
    assert await writer.ask("bookies") == await other.ask("bookies")
