"""A stream whose owner is the test: it makes ledgers, fills them and lists them, step by step."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

from support.machines import machine
from tallystick.bookkeeper.ledger.writer import LedgerWriter
from tallystick.bookkeeper.metadata.cluster import ClusterMetadata
from tallystick.bookkeeper.metadata.store import Delete
from tallystick.bookkeeper.stream.catalog import StreamCatalog
from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.bookkeeper.stream.names import StreamPaths
from tallystick.bookkeeper.stream.reader import StreamReaders
from tallystick.bookkeeper.wire.compression import Compression
from tallystick.bookkeeper.wire.pulsar_messages import OutMessage, encode_entry
from tallystick.bookkeeper.wire.stream_values import NO_PROPERTIES, Position, StreamInfo, StreamLedger
from tallystick.bookkeeper.wire.streams_pb2 import MessageMetadata

NAME = "tenant/ns/persistent/topic"


def pulsar_entry(
    *data: bytes,
    time_ms: int = 1_000,
    key: str | None = None,
    properties: Mapping[str, str] = NO_PROPERTIES,
    compression: Compression | None = None,
    sequence: int = 0,
) -> bytes:
    """An entry with one message, or a batch of several."""
    messages = [OutMessage(each, key, properties=properties) for each in data]
    return encode_entry(messages, producer="p", sequence=sequence, publish_time_ms=time_ms, compression=compression)


def chunk_entries(
    data: bytes,
    size: int,
    *,
    uuid: str = "u",
    time_ms: int = 1_000,
    stored: bytes | None = None,
    compression: Compression = Compression.NONE,
) -> list[bytes]:
    """The entries of a message whose ``data`` is ``stored`` in chunks of this size."""
    stored = data if stored is None else stored
    parts = [stored[at : at + size] for at in range(0, len(stored), size)]
    entries = []
    for index, part in enumerate(parts):
        metadata = MessageMetadata(
            producer_name="p",
            sequence_id=7,
            publish_time=time_ms,
            uuid=uuid,
            chunk_id=index,
            num_chunks_from_msg=len(parts),
            total_chunk_msg_size=len(stored),
        )
        if compression is not Compression.NONE:
            metadata.compression, metadata.uncompressed_size = compression.value, len(data)
        front = metadata.SerializeToString()
        entries.append(len(front).to_bytes(4, "big") + front + part)
    return entries


def catalog_of(client: BookKeeper) -> StreamCatalog:
    """The catalog of the streams of a client's cluster."""
    driver = client.context.driver
    assert isinstance(driver, ClusterMetadata)
    return StreamCatalog(driver.store, StreamPaths("/ledgers"))


def readers_of(client: BookKeeper) -> StreamReaders:
    """What the readers of a client share; it has no client that closes it."""
    return StreamReaders(client, catalog_of(client), machine().workers)


class ListedStream:
    """See the module. ``writer`` is that of the newest ledger."""

    def __init__(self, client: BookKeeper, name: str = NAME) -> None:
        self.client, self.name = client, name
        self.catalog = catalog_of(client)
        self.info, self.version = StreamInfo(), 0
        self.writer: LedgerWriter | None = None

    async def create(self, *ledgers: list[bytes]) -> ListedStream:
        """Make it, with a closed ledger of these entries for each list, and an open one behind them."""
        await self.catalog.create(self.name)
        for entries in ledgers:
            await self.roll()
            await self.append(*entries)
        await self.roll()
        return self

    async def append(self, *entries: bytes) -> list[Position]:
        """Append entries to the newest ledger. Returns their positions."""
        assert self.writer is not None
        return [Position(self.writer.id, await self.writer.append(data)) for data in entries]

    async def tell_lac(self) -> None:
        """Wait until the idle writer has said how far the newest ledger is confirmed."""
        await asyncio.sleep(0.3)

    async def close_ledger(self) -> None:
        """Close the newest ledger; the list does not say so yet."""
        assert self.writer is not None
        await self.writer.close()

    async def roll(self) -> int:
        """Close the newest ledger and list the next one. Returns its id."""
        ledgers = list(self.info.ledgers)
        if self.writer is not None:
            await self.writer.close()
            metadata = self.writer.metadata
            ledgers[-1] = StreamLedger(self.writer.id, metadata.last_entry + 1, metadata.length, 1_000)
            if not ledgers[-1].entries:  # it leaves the list
                await self.client.delete_ledger(ledgers.pop().ledger)
        self.writer = await self.client.create_ledger(3, write_quorum=3, ack_quorum=2)
        await self.write(replace(self.info, ledgers=(*ledgers, StreamLedger(self.writer.id, has_counts=False))))
        return self.writer.id

    async def trim(self, count: int) -> None:
        """Delete the first ledgers: from the list, then for good."""
        gone = self.info.ledgers[:count]
        await self.write(replace(self.info, ledgers=self.info.ledgers[count:]))
        for each in gone:
            await self.client.delete_ledger(each.ledger)

    async def terminate(self) -> None:
        assert self.writer is not None
        await self.writer.close()
        await self.write(replace(self.info, terminated=Position(self.writer.id, self.writer.metadata.last_entry)))

    async def delete(self) -> None:
        """Delete the ledgers, then the stream."""
        for each in self.info.ledgers:
            await self.client.delete_ledger(each.ledger)
        await self.catalog.store.change(Delete(self.catalog.paths.stream(self.name)))

    async def write(self, info: StreamInfo) -> None:
        """Replace the list."""
        self.version = await self.catalog.write(self.name, info, self.version)
        self.info = info
