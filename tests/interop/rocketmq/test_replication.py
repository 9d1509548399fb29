"""A master of one kind with a slave of the other through everything: the log byte for byte, and what was promised."""

from __future__ import annotations

import pytest

from support.clusters import KINDS, OTHER
from support.pairs import MODES, PairOf
from support.waiting import until


@pytest.mark.rule("H3", "H4", "H5", "H8", "H9", "H10", "H13")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
async def test_a_slave_of_the_other_kind_through_everything(pair_of: PairOf, kind: str, mode: str) -> None:
    pair = await pair_of(kind, mode)
    # Without a slave: stored all the same, and a message that need not be waited for is none to complain about.
    alone = {"async": {"SEND_OK"}, "sync": {"SLAVE_NOT_AVAILABLE" if kind == "tally" else "FLUSH_SLAVE_TIMEOUT"}}
    assert set(await pair.send(40)) == alone[mode]
    assert await pair.send(40, wait="no") == {"SEND_OK": "40"}

    slave = await pair.slave(OTHER[kind])
    await pair.copied(slave)
    for how, sender in (("sync", "java"), ("async", "tally"), ("batch", "java")):
        assert set(await pair.send(200, how, sender)) == {"SEND_OK"}
    await pair.copied(slave)

    slave.kill()
    await pair.send(1500, wait="no")  # more than a file: the slave is in the middle of the log when it comes back
    await pair.house.start(slave)
    await pair.copied(slave)

    assert await pair.send(300) == {"SEND_OK": "300"}
    if mode == "async":
        await pair.copied(slave)
    pair.master.kill()  # synchronous: all that was acknowledged is on the slave at this moment
    await pair.house.name_server.has_lost(pair.master)
    await pair.read_by_all()

    await pair.restart_master()
    await until(pair.takes_messages)
    await pair.copied(slave)
    await pair.read_by_all()
    for broker in (pair.master, slave):
        broker.kill()
        assert broker.check() == []
