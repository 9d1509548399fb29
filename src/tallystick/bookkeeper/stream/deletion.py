"""How a stream is deleted: whoever writes it is fenced, and nothing is left that no note tells of.

1. Take the lease, as an owner does.
2. Fence the ledgers that are open.
3. Compare-and-set the list to nothing, some ledgers at a time, with a note of each.
4. Delete the cursors, with notes of their ledgers.
5. Delete the ledgers that are noted, and their notes.
6. Delete the stream's node.

A deletion that ends in between leaves an empty stream, and notes: the next deletion or owner goes on with them. A next
owner that comes in between, by a takeover, may have made a ledger and not listed it yet: that is condemned before it is
deleted, so that the owner cannot list it. What it makes later keeps its note, also without the stream: the owner, who
cannot list it either, deletes it, or the next deletion or owner of that name.
"""

from __future__ import annotations

from tallystick.bookkeeper.ledger.delete import fence_all
from tallystick.bookkeeper.stream.context import StreamContext
from tallystick.bookkeeper.stream.opening import require_ours, unclosed
from tallystick.bookkeeper.stream.owned_list import OwnedList
from tallystick.bookkeeper.stream.trim import MOST_DROPPED, without
from tallystick.bookkeeper.wire.stream_values import NO_LEDGER, StreamInfo
from tallystick.errors import NoSuchCursor, NoSuchLedger, NoSuchStream, StreamFenced, StreamOwned

ATTEMPTS = 5  # to delete all cursors, while others make more


async def delete_stream(context: StreamContext, stream: str, *, takeover: bool) -> None:
    """Delete a stream. Raises NoSuchStream, StreamOwned, StreamFenced, Unavailable, MetadataError: try again."""
    path = context.catalog.paths.owner(stream)
    lease = await context.leases.take(path, takeover=takeover, stream=stream)
    try:
        try:
            stored = await context.catalog.read(stream, synced=True)
        except NoSuchStream:
            if not (noted := await context.catalog.going(stream)):
                raise
            await context.deletions.delete(stream, noted)
            return
        stored_list = OwnedList(context.catalog, stream, stored)
        if not takeover:
            await require_ours(context, stream, stored_list.info)
        await _fence(context, stored_list.info)
        while stored_list.info.ledgers:
            await stored_list.change(without([each.ledger for each in stored_list.info.ledgers[:MOST_DROPPED]]))
        for _ in range(ATTEMPTS):
            await _delete_cursors(context, stream)
            await context.deletions.delete(stream, await context.catalog.going(stream))
            if await context.catalog.delete(stream, stored_list.version):
                break
        else:
            raise StreamOwned("somebody makes cursors of it all the time", stream=stream)
        context.context.events.emit("stream deleted", stream=stream)
    finally:
        await context.leases.give_back(lease)


async def _fence(context: StreamContext, info: StreamInfo) -> None:
    """Refuse whoever writes it: what is acknowledged from now on would be lost."""
    for ledger in unclosed(info):
        try:
            metadata = await context.ledgers.ledger_metadata(ledger.ledger)
        except NoSuchLedger:
            continue
        await fence_all(context.context, ledger.ledger, metadata)


async def _delete_cursors(context: StreamContext, stream: str) -> None:
    for cursor in await context.catalog.cursors(stream):
        for _ in range(ATTEMPTS):
            try:
                node = await context.catalog.read_cursor(stream, cursor)
                noted = () if node.value.ledger == NO_LEDGER else (node.value.ledger,)
                await context.catalog.delete_cursor(stream, cursor, node.version, noted=noted)
                break
            except NoSuchCursor:
                break
            except StreamFenced:  # whoever owns it wrote it just now
                continue
        else:
            raise StreamOwned("its owner writes it all the time", stream=stream, cursor=cursor)
