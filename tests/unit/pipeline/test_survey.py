from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from tallystick.bookkeeper.metadata.driver import MetadataDriver
from tallystick.bookkeeper.metadata.open import open_driver
from tallystick.bookkeeper.wire import v2
from tallystick.bookkeeper.wire.values import BookieInfo, DigestType, Fragment, LedgerMetadata
from tallystick.errors import MetadataError, NoSuchLedger, Unauthorized, Unavailable
from tallystick.pipeline.options import LedgerOptions
from tallystick.pipeline.plan import Limits, Partition, plan
from tallystick.pipeline.selection import Selection, Span
from tallystick.pipeline.survey import survey_cluster

Store = Callable[..., None]
ENSEMBLE = ("bookie-0", "bookie-1", "bookie-2")


def metadata(write_quorum: int = 2, ack_quorum: int = 2, digest: DigestType = DigestType.CRC32C) -> LedgerMetadata:
    return LedgerMetadata(3, write_quorum, ack_quorum, (Fragment(0, ENSEMBLE),), digest, b"secret")


def wanted(ledgers: str = "all", **changes: Any) -> LedgerOptions:
    return replace(LedgerOptions("memory://"), selection=Selection.parse(ledgers), password=b"secret", **changes)


class Cluster:
    """A metadata service in memory and three scripted bookies."""

    def __init__(self, driver: MetadataDriver, bookies: list[Any], store: Store) -> None:
        self.driver, self.bookies, self._store = driver, bookies, store

    async def ledger(self, found: LedgerMetadata, payloads: list[bytes], lag: int = 1) -> int:
        ledger = (await self.driver.create_ledger(found)).value
        self._store(self.bookies, ledger, found, payloads, lag)
        return ledger


@pytest.fixture
async def cluster(
    start_bookies: Callable[[int], Awaitable[list[Any]]], store: Store, request: pytest.FixtureRequest
) -> AsyncIterator[Cluster]:
    driver = await open_driver(f"memory://{request.node.nodeid.replace('/', '.')}")
    await driver.init_cluster()
    bookies = await start_bookies(3)
    registrations = [await driver.register(bookie.name, BookieInfo.at(*bookie.address)) for bookie in bookies]
    yield Cluster(driver, bookies, store)
    for registration in registrations:
        await registration.close()
    await driver.close()


async def test_a_closed_ledger_is_known_from_its_metadata(cluster: Cluster) -> None:
    ledger = await cluster.ledger(metadata().closed(9, 1234), [])
    found = await survey_cluster(cluster.driver, wanted())
    [extent] = found.extents
    assert (extent.ledger, extent.last, extent.length) == (ledger, 9, 1234)
    assert found.addresses == {bookie.name: bookie.address for bookie in cluster.bookies}
    assert not any(bookie.asked for bookie in cluster.bookies)


@pytest.mark.rule("Q6", "Q11", "Q17")
@pytest.mark.parametrize(("write_quorum", "ack_quorum"), [(3, 2), (2, 2), (3, 3)])
async def test_q17_an_open_ledger_is_read_up_to_its_lac_and_never_fenced(
    cluster: Cluster, write_quorum: int, ack_quorum: int
) -> None:
    await cluster.ledger(metadata(write_quorum, ack_quorum), [b"x" * 10] * 20, lag=4)
    [extent] = (await survey_cluster(cluster.driver, wanted())).extents
    assert (extent.last, extent.length) == (15, 160)
    flags = [request.flags for bookie in cluster.bookies for request in bookie.asked]
    assert flags and not any(flag & v2.Flag.FENCE for flag in flags)


async def test_an_empty_open_ledger_has_nothing_to_read(cluster: Cluster) -> None:
    await cluster.ledger(metadata(), [])
    [extent] = (await survey_cluster(cluster.driver, wanted())).extents
    assert (extent.last, extent.length) == (-1, 0)


async def test_only_wanted_ledgers_are_looked_up(cluster: Cluster) -> None:
    ledgers = [await cluster.ledger(metadata().closed(0, 1), []) for _ in range(5)]
    found = await survey_cluster(cluster.driver, wanted(f"{ledgers[3]},{ledgers[0]}-{ledgers[1]}"))
    assert [extent.ledger for extent in found.extents] == [ledgers[0], ledgers[1], ledgers[3]]


async def test_a_named_ledger_that_is_missing_is_an_error(cluster: Cluster) -> None:
    for text in ("77", "0-5,77"):
        with pytest.raises(NoSuchLedger):
            await survey_cluster(cluster.driver, wanted(text))


async def test_a_range_or_a_filter_may_find_nothing(cluster: Cluster) -> None:
    assert (await survey_cluster(cluster.driver, wanted("70-80"))).extents == ()
    narrowed = replace(wanted(), selection=Selection().with_ledgers([Span(77, 77)]))
    assert (await survey_cluster(cluster.driver, narrowed)).extents == ()


async def test_a_wrong_password_is_refused_before_any_bookie_is_asked(cluster: Cluster) -> None:
    await cluster.ledger(metadata(), [b"x"])
    with pytest.raises(Unauthorized):
        await survey_cluster(cluster.driver, replace(wanted(), password=b"wrong"))
    assert not any(bookie.asked for bookie in cluster.bookies)


async def test_ledgers_may_have_passwords_of_their_own(cluster: Cluster) -> None:
    await cluster.ledger(metadata().closed(0, 1), [])
    other = await cluster.ledger(replace(metadata().closed(0, 1), password=b"other"), [])
    found = await survey_cluster(cluster.driver, replace(wanted(), passwords={other: b"other"}))
    assert len(found.extents) == 2


async def test_no_cluster_is_an_error() -> None:
    driver = await open_driver("memory://nothing-here")
    with pytest.raises(MetadataError):
        await survey_cluster(driver, wanted())
    await driver.close()


@pytest.mark.rule("Q15")
async def test_q15_too_few_answers_about_the_lac_are_an_error_and_not_an_empty_ledger(cluster: Cluster) -> None:
    lost = replace(metadata(), fragments=(Fragment(0, ("gone-1", "gone-2", "gone-3")),))
    await cluster.driver.create_ledger(lost)
    with pytest.raises(Unavailable):
        await survey_cluster(cluster.driver, wanted())


async def test_the_plan_of_a_survey_names_live_bookies_only(cluster: Cluster) -> None:
    found = replace(metadata().closed(5, 60), fragments=(Fragment(0, ("bookie-0", "bookie-1", "gone")),))
    await cluster.driver.create_ledger(found)
    seen = await survey_cluster(cluster.driver, wanted())
    partitions: list[Partition] = plan(seen.extents, Span(), seen.addresses, Limits())
    assert "gone" in partitions[0].ranges[0].bookies and "gone" not in partitions[0].addresses
