from __future__ import annotations

import pytest

from support.listed_streams import NAME, ListedStream, pulsar_entry
from support.small_cluster import SmallCluster
from support.stream_partitions import wanted
from tallystick.bookkeeper.wire import v2
from tallystick.bookkeeper.wire.stream_values import Position
from tallystick.errors import NoSuchLedger, NoSuchPosition, NoSuchStream, PositionTrimmed, UsageError
from tallystick.pipeline.stream.survey import StreamSurvey, survey_cluster


def entry(number: int) -> bytes:
    return pulsar_entry(b"%03d" % number, time_ms=1_000_000 + 1000 * number)


def spans_of(found: StreamSurvey) -> list[tuple[int, int, int, int]]:
    return [(span.ledger, span.first, span.last, span.size) for span in found.spans]


def at(position: Position | str) -> str:
    return f'{{"{NAME}": "{position}"}}'


async def test_closed_ledgers_are_known_from_the_metadata(cluster: SmallCluster, owner: ListedStream) -> None:
    await owner.create([entry(0), entry(1)], [entry(2)])
    for bookie in cluster.bookies.values():
        bookie.requests.clear()
    found = await survey_cluster(cluster.client(8), wanted())
    a, b = (listed.ledger for listed in owner.info.ledgers[:2])
    size = len(entry(0))
    assert spans_of(found) == [(a, 0, 1, 2 * size), (b, 0, 0, size)]
    assert set(found.addresses) == {"b0", "b1", "b2"}
    asked = [request for bookie in cluster.bookies.values() for request in bookie.requests]
    assert all(isinstance(request, v2.ReadFrame) and request.flags == 0 for request in asked)  # of the open ledger


@pytest.mark.rule("Q6", "Q18")
async def test_q18_an_open_ledger_is_read_up_to_its_lac(cluster: SmallCluster, owner: ListedStream) -> None:
    await owner.create([entry(0)])
    open_ledger = (await owner.append(entry(1), entry(2), entry(3)))[0].ledger
    found = await survey_cluster(cluster.client(8), wanted())
    assert found.spans[1].ledger == open_ledger and found.spans[1].last in (1, 2)
    await owner.tell_lac()
    assert spans_of(await survey_cluster(cluster.client(8), wanted()))[1] == (open_ledger, 0, 2, 3 * len(entry(0)))
    await owner.append(entry(4))  # nothing is fenced


async def test_the_bytes_between_two_positions_are_the_same_whatever_comes_behind(
    cluster: SmallCluster, owner: ListedStream
) -> None:
    await owner.create([entry(0), entry(1), entry(2)])
    position = (await owner.append(entry(3), entry(4)))[-1]
    await owner.tell_lac()
    first = owner.info.ledgers[0].ledger
    options = wanted(startingOffsets=at(f"{first}:1"), endingOffsets=at(position._replace(entry=2)))
    planned = await survey_cluster(cluster.client(8), options)
    size = len(entry(0))
    assert spans_of(planned) == [(first, 1, 2, 2 * size), (position.ledger, 0, 1, 2 * size)]
    await owner.append(entry(5), b"x" * 100_000)
    await owner.roll()
    assert spans_of(await survey_cluster(cluster.client(8), options)) == spans_of(planned)


async def test_times_are_looked_up(cluster: SmallCluster, owner: ListedStream) -> None:
    await owner.create([entry(0), entry(1)], [entry(2), entry(3)])
    found = await survey_cluster(cluster.client(8), wanted(startingTimestamp="1000900", endingTimestamp="1002001"))
    a, b = (listed.ledger for listed in owner.info.ledgers[:2])
    assert [(span.ledger, span.first, span.last) for span in found.spans] == [(a, 1, 1), (b, 0, 0)]


async def test_a_query_whose_start_is_behind_its_end_has_nothing(cluster: SmallCluster, owner: ListedStream) -> None:
    await owner.create([entry(0), entry(1)], [entry(2)])
    options = wanted(startingOffsets="latest", endingTimestamp="1001000")
    assert (await survey_cluster(cluster.client(8), options)).spans == ()


async def test_what_is_not_there_is_named(cluster: SmallCluster, owner: ListedStream) -> None:
    client = cluster.client(8)
    with pytest.raises(NoSuchStream):
        await survey_cluster(client, wanted())
    with pytest.raises(NoSuchStream, match="no stream matches subscribePattern"):
        await survey_cluster(client, wanted(subscribePattern="tenant/.*"))
    await owner.create([entry(0), entry(1)], [entry(2)])
    first = owner.info.ledgers[0].ledger
    with pytest.raises(NoSuchPosition, match="endingOffsets: the stream does not reach"):
        await survey_cluster(client, wanted(endingOffsets=at(f"{first}:3")))
    with pytest.raises(UsageError, match="starts after its end"):
        await survey_cluster(client, wanted(startingOffsets=at(f"{first}:2"), endingOffsets=at(f"{first}:1")))
    await owner.trim(1)
    with pytest.raises(PositionTrimmed, match="failOnDataLoss=false"):
        await survey_cluster(client, wanted(startingOffsets=at(f"{first}:0")))
    lenient = wanted(startingOffsets=at(f"{first}:0"), failOnDataLoss="false")
    assert [span.ledger for span in (await survey_cluster(client, lenient)).spans] == [owner.info.ledgers[0].ledger]


async def test_a_listed_ledger_that_is_deleted(cluster: SmallCluster, owner: ListedStream) -> None:
    await owner.create([entry(0)], [entry(1)])
    await owner.client.delete_ledger(owner.info.ledgers[0].ledger)
    with pytest.raises(NoSuchLedger, match="a ledger of the stream is deleted"):
        await survey_cluster(cluster.client(8), wanted())


async def test_streams_by_pattern_are_those_whose_whole_name_matches(
    cluster: SmallCluster, owner: ListedStream
) -> None:
    await owner.create([entry(0)])
    other = ListedStream(owner.client, "tenant/ns/persistent/topic-2")
    await other.create([entry(1)])
    found = await survey_cluster(cluster.client(8), wanted(subscribePattern="tenant/ns/persistent/topic"))
    assert {span.stream for span in found.spans} == {NAME}
    found = await survey_cluster(cluster.client(8), wanted(subscribePattern="tenant/.*"))
    assert [span.stream for span in found.spans] == [NAME, other.name]
