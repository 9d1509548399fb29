"""What an operator is shown of restored metadata, and when collections may go on."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from tallystick import cli
from tallystick.admin import cluster
from tallystick.admin.cluster import metadata
from tallystick.admin.reconcile import Confirmation, LackingRun, Reconciliation, _lacking, reconcile
from tallystick.bookkeeper.metadata import restored
from tallystick.bookkeeper.metadata.restored import BookieSurvey, RestoredMetadata, RestoredTree
from tallystick.bookkeeper.metadata.store import Create
from tallystick.errors import MetadataConflict, UsageError

RESTORED = RestoredMetadata(2, 1_700_000_000_000, 70, True, (5,), (60, 61), ("t/n/persistent/s",), ("c",), ("app",))
SURVEY = BookieSurvey(2, 1, ((60, 69),), ((3, 3),), ((7, 8),))


@pytest.fixture
async def uri(tmp_path: Path) -> str:
    uri = f"sqlite://{tmp_path}/metadata.db"
    await cluster.init(uri)
    return uri


async def put_back(uri: str, *bookies: str) -> None:
    async with metadata(uri) as driver:
        await driver.store.change(Create(restored.restored_path(driver.root), restored.encode(RESTORED)))
        for bookie in bookies:
            await driver.write_cookie(bookie, b"", None)


async def report(uri: str, bookie: str, survey: BookieSurvey) -> None:
    async with metadata(uri) as driver:
        await RestoredTree(driver).report(bookie, survey)


async def shown(uri: str, *without: str) -> Reconciliation:
    listed = await reconcile(uri, without=without)
    assert listed is not None
    return listed


def agreed(listed: Reconciliation, who: str = "op@host") -> Confirmation:
    return Confirmation(who, listed.code)


async def test_metadata_that_was_never_restored_needs_nothing(uri: str) -> None:
    assert await reconcile(uri, confirmation=Confirmation("op@host", "00000000")) is None


@pytest.mark.rule("N14")
async def test_each_bookie_is_heard_before_anybody_may_confirm(uri: str) -> None:
    await put_back(uri, "b1", "b2", "b3")
    await report(uri, "b1", SURVEY)
    await report(uri, "b2", BookieSurvey(1, 1, (), (), ()))  # of the restore before
    listed = await shown(uri)
    assert listed.unheard == ("b2", "b3")
    for without in ((), ("b3",)):
        with pytest.raises(UsageError, match=r"have not said.*b2"):
            await reconcile(uri, confirmation=agreed(listed), without=without)
    with pytest.raises(UsageError, match=r"no such bookie.*b9"):
        await reconcile(uri, without=("b9",))
    await report(uri, "b2", SURVEY)
    found = await reconcile(uri, confirmation=agreed(await shown(uri)), without=("b3",))
    assert found is not None and found.restored.confirmed_ms is not None and found.deleted == ((7, 8),)
    assert found.restored.confirmed_by == "op@host"
    assert found.lacking == (LackingRun(3, 3, ("b1", "b2"), False), LackingRun(60, 69, ("b1", "b2"), True))
    again = await reconcile(uri, confirmation=agreed(found, "another@host"))
    assert again is not None and again.restored == found.restored


@pytest.mark.rule("N14")
async def test_what_nobody_was_shown_is_not_confirmed(uri: str) -> None:
    await put_back(uri, "b1", "b2")
    await report(uri, "b1", SURVEY)
    await report(uri, "b2", SURVEY)
    listed = await shown(uri)
    for b2 in (
        replace(SURVEY, missing=((3, 4),)),
        replace(SURVEY, ahead=((60, 70),)),
        replace(SURVEY, deleted=()),
        replace(SURVEY, more=1),
    ):
        await report(uri, "b2", b2)
        await report(uri, "b1", b2)
        with pytest.raises(UsageError, match=f"look at the list again.*{listed.code}"):
            await reconcile(uri, confirmation=agreed(listed))
        assert (await shown(uri)).restored.confirmed_ms is None
    await report(uri, "b1", SURVEY)
    await report(uri, "b2", SURVEY)
    confirmed = await reconcile(uri, confirmation=agreed(listed))
    assert confirmed is not None and confirmed.restored.confirmed_by == "op@host"


async def test_who_looked_before_another_restore_confirms_nothing(uri: str) -> None:
    await put_back(uri)
    async with metadata(uri) as driver:
        tree = RestoredTree(driver)
        held = await tree.read()
        assert held is not None
        await tree.confirm(held.value, held.version, 1, "op")
        with pytest.raises(MetadataConflict, match="look again"):
            await tree.confirm(held.value, held.version, 2, "op")


def test_ledgers_in_a_row_that_the_same_bookies_have_are_one_run() -> None:
    surveys = {
        "b1": BookieSurvey(2, 1, ((10, 19), (30, 30)), ((20, 21),), ()),
        "b2": BookieSurvey(2, 1, ((15, 18),), ((30, 30),), ()),
    }
    assert [*_lacking(surveys)] == [
        LackingRun(10, 14, ("b1",), True),
        LackingRun(15, 18, ("b1", "b2"), True),
        LackingRun(19, 19, ("b1",), True),
        LackingRun(20, 21, ("b1",), False),
        LackingRun(30, 30, ("b1", "b2"), False),
    ]


def test_the_command_shows_it_as_a_table_and_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    uri = f"sqlite://{tmp_path}/metadata.db"
    asyncio.run(cluster.init(uri))
    command = ["cluster", "reconcile", "--uri", uri]
    assert cli.main(command) == 0
    asyncio.run(put_back(uri, "b1"))
    assert cli.main([*command, "--json", "--confirm", "00000000"]) == cli.WRONG_USAGE, "nobody has heard of b1"
    asyncio.run(report(uri, "b1", SURVEY))
    capsys.readouterr()
    assert cli.main(command) == cli.NOT_WELL
    table = capsys.readouterr().out
    assert "3 on b1: deleted when you confirm" in table and "60-69 on b1: kept until" in table
    assert cli.main([*command, "--json"]) == cli.NOT_WELL
    row = json.loads(capsys.readouterr().out)
    assert row["lacking"][1] == {"first": 60, "last": 69, "bookies": ["b1"], "kept": True}
    assert (row["lacking_ledgers"], row["confirmed"], row["streams"]) == (11, None, ["t/n/persistent/s"])
    assert f"--confirm {row['code']} lets them" in table
    assert cli.main([*command, "--confirm", row["code"]]) == 0 and "confirmed" in capsys.readouterr().out
    assert cli.main(["cluster", "status", "--uri", uri]) in (0, cli.NOT_WELL)
    assert "reconciled        yes" in capsys.readouterr().out
