"""A slave of the other kind that comes late, and one that hangs."""

from __future__ import annotations

import pytest

from support.clusters import KINDS, OTHER
from support.pairs import PairOf
from support.waiting import until


@pytest.mark.rule("H4")
@pytest.mark.parametrize("kind", KINDS)
async def test_h4_an_empty_slave_of_the_other_kind_begins_with_the_newest_file(pair_of: PairOf, kind: str) -> None:
    pair = await pair_of(kind, "async")
    await pair.send(2000, "batch")
    slave = await pair.slave(OTHER[kind])
    await pair.copied(slave)
    assert list(slave.log()) == list(pair.master.log())[-1:] != list(pair.master.log())[:1]
    await pair.send(1500, "batch")
    await pair.copied(slave)
    assert len(slave.log()) > 1


@pytest.mark.rule("H9")
@pytest.mark.parametrize("kind", KINDS)
async def test_h9_a_slave_that_hangs_costs_a_time_out_and_no_message(pair_of: PairOf, kind: str) -> None:
    pair = await pair_of(kind, "sync")
    slave = await pair.slave(OTHER[kind])
    await until(pair.takes_messages)
    slave.pause()
    assert await pair.send(20) == {"FLUSH_SLAVE_TIMEOUT": "20"}
    slave.resume()
    await until(pair.takes_messages)
    await pair.copied(slave)
    await pair.read_by_all()
