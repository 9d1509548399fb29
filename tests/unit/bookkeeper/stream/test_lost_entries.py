"""Entries of a stream's ledger that an operator gave up: no reader passes over them without a word."""

from __future__ import annotations

import pytest

from support.listed_streams import NAME, ListedStream, pulsar_entry, readers_of
from support.small_cluster import SmallCluster
from tallystick.bookkeeper.ledger import changes
from tallystick.bookkeeper.stream.reader import StreamReader
from tallystick.bookkeeper.wire.lost_runs import with_lost
from tallystick.errors import EntryLost


async def texts(reader: StreamReader, on_corrupt: str = "raise") -> str:
    return b"".join([message.data async for message in reader.read(on_corrupt=on_corrupt)]).decode()


async def test_an_entry_that_was_given_up(cluster: SmallCluster) -> None:
    """Whoever read the metadata before hears of it, too."""
    owner, readers = ListedStream(cluster.client()), readers_of(cluster.client(2))
    await owner.create([pulsar_entry(letter.encode()) for letter in "abcdefgh"])
    reader = await readers.open(NAME)
    assert await texts(reader) == "abcdefgh"
    driver, ledger = cluster.driver, owner.info.ledgers[0].ledger
    versioned = await driver.read_ledger(ledger)
    await changes.replace_bookie(driver, ledger, versioned, lambda newest: with_lost(newest, [(2, 3)]), changes.ALWAYS)
    with pytest.raises(EntryLost) as told:
        await texts(reader)
    assert (told.value.ledger, told.value.entry, told.value.last) == (ledger, 2, 3)
    assert await texts(reader, "skip") == "abefgh"
    assert cluster.kinds().count("entry left out") == 2
    await readers.close()
