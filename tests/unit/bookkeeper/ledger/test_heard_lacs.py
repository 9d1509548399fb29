"""What bookies say of LACs beside entries."""

from __future__ import annotations

import gc
import itertools

import pytest

from support.small_cluster import SmallCluster
from tallystick.bookkeeper.ledger.heard_lacs import HeardLacs
from tallystick.errors import NoSuchLedger


def test_the_highest_lac_of_a_ledger_is_kept_for_who_listens() -> None:
    lanes = itertools.count(1)
    lacs = HeardLacs(lanes)
    lacs.note(7, 3, next(lanes))
    first, second = lacs.listen(7, 1), lacs.listen(7, 1)
    assert (first.lac, second.lac) == (-1, -1)
    for lac in (5, 4):
        lacs.note(7, lac, next(lanes))
    lacs.note(8, 9, next(lanes))
    assert (first.lac, second.lac) == (5, 5)


def test_who_is_gone_leaves_nothing() -> None:
    lacs = HeardLacs(itertools.count(1))
    heard = lacs.listen(7, 1)
    lacs.note(7, 3, 9)
    del heard
    gc.collect()
    assert lacs.listen(7, 1).lac == -1


@pytest.mark.rule("P5", "Q6")
def test_p5_a_ledger_that_got_the_id_of_another_hears_nothing_of_that() -> None:
    lanes = itertools.count(1)
    lacs = HeardLacs(lanes)
    former, asked_before = lacs.listen(7, 1), next(lanes)
    lacs.note(7, 20, asked_before)
    present = lacs.listen(7, 2)
    lacs.note(7, 21, asked_before)
    assert (former.lac, present.lac) == (20, -1)
    lacs.note(7, 2, next(lanes))
    assert (former.lac, present.lac) == (20, 2)


@pytest.mark.rule("P5", "Q6")
@pytest.mark.parametrize("is_former_closed", [True, False])
async def test_p5_no_reader_gets_beyond_the_lac_as_an_older_ledger_of_the_id_was_longer(is_former_closed: bool) -> None:
    """It read entries that the writer had not confirmed: the client knew a LAC of the deleted ledger."""
    cluster = await SmallCluster().start(3)
    client = cluster.client(wire="v3")
    async with client.create_ledger(3, ledger_id=7) as writer:
        for number in range(21):
            await writer.append(b"old%d" % number)
        former = await client.open_ledger(7, recover=False)
        await anext(former.read(0, 3))
    assert await former.refresh() == 20
    if is_former_closed:
        await former.close()
    assert former.last_entry == 20, "as long as the handle is kept"
    await cluster.client(2).delete_ledger(7)
    for bookie in cluster.bookies.values():
        bookie.clear()
    successor = await cluster.client(2).create_ledger(3, ledger_id=7)
    for number in range(3):
        await successor.append(b"new%d" % number)
    async with await client.open_ledger(7, recover=False) as reader:
        assert reader.last_entry < 3
    await cluster.close()


@pytest.mark.rule("P5")
async def test_p5_a_reader_does_not_go_on_in_another_ledger_that_has_the_id_now() -> None:
    cluster = await SmallCluster().start(3)
    client = cluster.client()
    writer = await client.create_ledger(3, ledger_id=7)
    await writer.append(b"old")
    reader = await client.open_ledger(7, recover=False)
    await cluster.driver.delete_ledger(7)
    for bookie in cluster.bookies.values():
        bookie.clear()
    await cluster.client(2).create_ledger(3, ledger_id=7)
    with pytest.raises(NoSuchLedger, match="its id is another ledger's now"):
        for _ in range(2):  # the watch may tell of it a moment later
            await reader.refresh()
    await cluster.close()
