from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from support.small_cluster import SmallCluster
from tallystick.bookkeeper.ledger.reader import LedgerReader
from tallystick.bookkeeper.metadata.open import open_driver
from tallystick.bookkeeper.metadata.store import Znode
from tallystick.bookkeeper.wire import v2
from tallystick.bookkeeper.wire.values import DigestType, Fragment, LedgerMetadata
from tallystick.errors import MetadataError, NoSuchLedger, Unauthorized, Unavailable
from tallystick.pipeline.cuts import Limits
from tallystick.pipeline.ledger import survey as survey_module
from tallystick.pipeline.ledger.options import LedgerOptions
from tallystick.pipeline.ledger.plan import LedgerPartition, plan
from tallystick.pipeline.ledger.selection import IdSpan, Selection
from tallystick.pipeline.ledger.survey import survey_cluster

Store = Callable[..., None]
ENSEMBLE = ("b0", "b1", "b2")


def metadata(write_quorum: int = 2, ack_quorum: int = 2, digest: DigestType = DigestType.CRC32C) -> LedgerMetadata:
    return LedgerMetadata(3, write_quorum, ack_quorum, (Fragment(0, ENSEMBLE),), digest, b"secret")


def wanted(ledgers: str = "all", **changes: Any) -> LedgerOptions:
    return replace(LedgerOptions("memory://"), selection=Selection.parse(ledgers), password=b"secret", **changes)


def addresses_of(cluster: SmallCluster) -> dict[str, tuple[str, int]]:
    return {name: bookie.listener.address for name, bookie in cluster.bookies.items() if bookie.listener}


async def test_a_closed_ledger_is_known_from_its_metadata(cluster: SmallCluster) -> None:
    ledger = (await cluster.driver.create_ledger(metadata().closed(9, 1234))).value
    found = await survey_cluster(cluster.driver, wanted())
    [extent] = found.extents
    assert (extent.ledger, extent.last, extent.length) == (ledger, 9, 1234)
    assert found.addresses == addresses_of(cluster)
    assert not any(bookie.requests for bookie in cluster.bookies.values())


@pytest.mark.rule("Q6", "Q11", "Q17")
@pytest.mark.parametrize(("write_quorum", "ack_quorum"), [(3, 2), (2, 2), (3, 3)])
async def test_q17_an_open_ledger_is_read_up_to_its_lac_and_never_fenced(
    cluster: SmallCluster, store: Store, write_quorum: int, ack_quorum: int
) -> None:
    ledger = metadata(write_quorum, ack_quorum)
    store((await cluster.driver.create_ledger(ledger)).value, ledger, [b"x" * 10] * 20, lag=4)
    [extent] = (await survey_cluster(cluster.driver, wanted())).extents
    assert (extent.last, extent.length) == (15, 160)
    asked = [request for bookie in cluster.bookies.values() for request in bookie.requests]
    assert asked and all(isinstance(request, v2.ReadFrame) and request.flags == 0 for request in asked)


async def test_an_empty_open_ledger_has_nothing_to_read(cluster: SmallCluster) -> None:
    await cluster.driver.create_ledger(metadata())
    [extent] = (await survey_cluster(cluster.driver, wanted())).extents
    assert (extent.last, extent.length) == (-1, 0)


async def test_only_wanted_ledgers_are_looked_up(cluster: SmallCluster) -> None:
    ledgers = [(await cluster.driver.create_ledger(metadata().closed(0, 1))).value for _ in range(5)]
    found = await survey_cluster(cluster.driver, wanted(f"{ledgers[3]},{ledgers[0]}-{ledgers[1]}"))
    assert [extent.ledger for extent in found.extents] == [ledgers[0], ledgers[1], ledgers[3]]


async def test_a_named_ledger_that_is_missing_is_an_error(cluster: SmallCluster) -> None:
    for text in ("77", "0-5,77"):
        with pytest.raises(NoSuchLedger):
            await survey_cluster(cluster.driver, wanted(text))


async def test_a_range_or_a_filter_may_find_nothing(cluster: SmallCluster) -> None:
    assert (await survey_cluster(cluster.driver, wanted("70-80"))).extents == ()
    narrowed = replace(wanted(), selection=Selection().with_ledgers([IdSpan(77, 77)]))
    assert (await survey_cluster(cluster.driver, narrowed)).extents == ()


async def test_a_wrong_password_is_refused_before_any_bookie_is_asked(cluster: SmallCluster) -> None:
    await cluster.driver.create_ledger(metadata())
    with pytest.raises(Unauthorized, match="options passwordFile and passwords"):
        await survey_cluster(cluster.driver, replace(wanted(), password=b"wrong"))
    assert not any(bookie.requests for bookie in cluster.bookies.values())


async def test_ledgers_may_have_passwords_of_their_own(cluster: SmallCluster) -> None:
    await cluster.driver.create_ledger(metadata().closed(0, 1))
    other = (await cluster.driver.create_ledger(replace(metadata().closed(0, 1), password=b"other"))).value
    found = await survey_cluster(cluster.driver, replace(wanted(), passwords={other: b"other"}))
    assert len(found.extents) == 2


async def test_no_cluster_is_an_error() -> None:
    driver = await open_driver("memory://nothing-here")
    with pytest.raises(MetadataError):
        await survey_cluster(driver, wanted())
    await driver.close()


@pytest.mark.rule("Q15")
async def test_q15_too_few_answers_about_the_lac_are_an_error_and_not_an_empty_ledger(cluster: SmallCluster) -> None:
    lost = replace(metadata(), fragments=(Fragment(0, ("gone-1", "gone-2", "gone-3")),))
    await cluster.driver.create_ledger(lost)
    with pytest.raises(Unavailable):
        await survey_cluster(cluster.driver, wanted())


async def test_the_plan_of_a_survey_names_live_bookies_only(cluster: SmallCluster) -> None:
    found = replace(metadata().closed(5, 60), fragments=(Fragment(0, ("b0", "b1", "gone")),))
    await cluster.driver.create_ledger(found)
    seen = await survey_cluster(cluster.driver, wanted())
    partitions: list[LedgerPartition] = plan(seen.extents, IdSpan(), seen.addresses, Limits())
    assert "gone" in partitions[0].ranges[0].bookies and "gone" not in partitions[0].addresses


async def test_a_survey_reads_metadata_together_and_in_order(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(survey_module, "TOGETHER", 3)
    made = [(await cluster.driver.create_ledger(metadata().closed(0, 1))).value for _ in range(4)]
    made.append((await cluster.driver.create_ledger(metadata())).value)
    made += [(await cluster.driver.create_ledger(metadata().closed(0, 1))).value for _ in range(3)]
    asked: list[list[int]] = []
    read = cluster.driver.read_ledgers

    async def counted(ledgers: Sequence[int]) -> Mapping[int, Znode]:
        asked.append(list(ledgers))
        return await read(ledgers)

    monkeypatch.setattr(cluster.driver, "read_ledgers", counted)
    found = await survey_cluster(cluster.driver, wanted())
    assert [extent.ledger for extent in found.extents] == made
    assert asked == [made[:3], made[3:6], made[6:]]


async def test_a_ledger_that_goes_during_the_survey_is_missed_only_if_it_was_named(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [(await cluster.driver.create_ledger(metadata().closed(0, 1))).value for _ in range(2)]
    read = cluster.driver.read_ledgers

    async def late(ledgers: Sequence[int]) -> Mapping[int, Znode]:
        return await read(ledgers[1:])

    monkeypatch.setattr(cluster.driver, "read_ledgers", late)
    assert [extent.ledger for extent in (await survey_cluster(cluster.driver, wanted())).extents] == made[1:]
    with pytest.raises(NoSuchLedger):
        await survey_cluster(cluster.driver, wanted(f"{made[0]},{made[1]}"))


async def test_an_open_ledger_that_goes_while_its_end_is_asked_for_is_missed_only_if_it_was_named(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = (await cluster.driver.create_ledger(metadata())).value

    async def gone(reader: LedgerReader) -> None:
        raise NoSuchLedger(ledger=reader.id)

    monkeypatch.setattr(LedgerReader, "refresh", gone)
    assert (await survey_cluster(cluster.driver, wanted())).extents == ()
    with pytest.raises(NoSuchLedger):
        await survey_cluster(cluster.driver, wanted(f"{ledger}"))


async def test_a_long_survey_says_how_far_it_is(cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey_module, "TOGETHER", 2)
    for _ in range(5):
        await cluster.driver.create_ledger(metadata().closed(0, 1))
    reports: list[tuple[int, int]] = []
    await survey_cluster(cluster.driver, wanted(), lambda count, total: reports.append((count, total)))
    assert reports == [], "a short one says nothing"
    monkeypatch.setattr(survey_module, "PROGRESS_S", 0.0)
    await survey_cluster(cluster.driver, wanted(), lambda count, total: reports.append((count, total)))
    assert reports == [(2, 5), (4, 5)]


async def test_a_survey_is_described_by_its_size(cluster: SmallCluster) -> None:
    await cluster.driver.create_ledger(metadata().closed(0, 1))
    assert repr(await survey_cluster(cluster.driver, wanted())) == f"Survey(1 ledgers, {len(cluster.bookies)} bookies)"
