"""An id that is used again with another password, or named by a stranger who knows none."""

from __future__ import annotations

import pytest

from support.bookies import OTHER_KEY, Peer, adds, read, talking
from support.waiting import until
from support.watched import METADATA, Watched, answers
from tallystick.bookkeeper.bookie.bookie import Bookie
from tallystick.bookkeeper.wire.codes import Code


@pytest.fixture
def looks() -> bool:
    return True


async def test_a_first_entry_with_another_key_is_looked_at_and_nobody_else_waits_for_that(
    bookie: Bookie, peer: Peer, driver: Watched
) -> None:
    """Anybody can send one, and reads of the ledger's end waited: they were answered in one turn of the loop."""
    await driver.create_ledger(METADATA, 7)
    assert {await peer.code(adds(7, [entry], b"old")) for entry in range(2)} == {Code.OK}
    await until(lambda: not bookie.storage.identities.needs_comparison(7))
    driver.gate.clear()
    async with talking(bookie) as stranger, talking(bookie) as reader:
        stranger.writer.write(adds(7, range(2), b"new", OTHER_KEY))
        looked_up = len(driver.looked_up)
        await until(lambda: len(driver.looked_up) > looked_up)
        assert await reader.code(read(7, -1)) == Code.OK
        stranger.writer.write(read(7, -1, OTHER_KEY))
        driver.gate.set()
        expected = [(Code.UNAUTHORIZED, 7, entry) for entry in (-1, 0, 1)]
        assert await answers(stranger, 3) == expected, "the ledger is the old one"
        await driver.delete_ledger(7)
        await driver.create_ledger(METADATA, 7)
        stranger.writer.write(adds(7, range(3), b"new", OTHER_KEY))
        assert await answers(stranger, 3) == [(Code.OK, 7, entry) for entry in range(3)]
    assert [await peer.code(read(7, entry)) for entry in range(4)] == [Code.OK] * 3 + [Code.NO_ENTRY]
