"""Two message stores, one fed from the other over a real connection."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from support.message_stores import SMALL, Shelf
from support.waiting import until

if TYPE_CHECKING:
    from unit.rocketmq.ha.conftest import House


@pytest.mark.rule("H2", "H8", "H11", "H13")
async def test_h8_a_slaves_store_serves_what_its_master_stored(house: House) -> None:
    mine, theirs = Shelf(), Shelf(dataclasses.replace(SMALL, commit_log_file_bytes=4096), seed=2)
    theirs.store.take_role(slave=True)
    master = await house.master(mine.store, file_bytes=4096)
    slave = house.slave(master.address, theirs.store, copy_whole_log=True)
    bodies = [b"%d" % number * 50 for number in range(200)]
    for at in range(0, 200, 7):
        mine.send(*bodies[at : at + 7])
        master.port.appended(mine.store.end)
    await until(lambda: slave.log.end == mine.store.end)
    assert theirs.log() == mine.log()
    mine.settle()
    theirs.settle()
    assert theirs.bodies() == mine.bodies() == bodies
    await until(lambda: master.port.status()[0].acked == mine.store.end)


async def test_a_slaves_store_goes_on_after_a_restart(house: House) -> None:
    mine, theirs = Shelf(), Shelf(seed=2)
    mine.send(*[b"a" * 100] * 60)
    theirs.store.take_role(slave=True)
    master = await house.master(mine.store, file_bytes=4096)
    slave = house.slave(master.address, theirs.store)
    await until(lambda: slave.log.end == mine.store.end)
    await slave.link.close()
    theirs.settle()
    theirs.store.close()
    mine.send(*[b"b" * 100] * 60)
    again = house.slave(master.address, theirs.open())
    await until(lambda: again.log.end == mine.store.end)
    assert mine.log().endswith(theirs.log())
    assert master.port.status()[0].proven
