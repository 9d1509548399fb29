"""What is stored of the cursor "billing", and the ledgers there are."""

from __future__ import annotations

from support.cursor_bytes import decode_cursor_state
from support.listed_streams import NAME
from tallystick.bookkeeper.stream.cursor import Cursor
from tallystick.bookkeeper.stream.cursors import Cursors
from tallystick.bookkeeper.wire.stream_values import CursorInfo, CursorState, Position


async def node(cursors: Cursors) -> CursorInfo:
    return (await cursors._context.catalog.read_cursor(NAME, "billing")).value


async def in_ledger(cursors: Cursors, ledger: int) -> list[CursorState]:
    """All states in a cursor ledger, read as anybody may."""
    async with cursors._context.ledgers.open_ledger(ledger) as reader:
        return [decode_cursor_state(entry.data, where="") async for entry in reader]


async def ledgers(cursors: Cursors) -> set[int]:
    """All ledgers but those of the stream, once what is to be deleted is gone."""
    context = cursors._context
    await context.deletions.done()
    listed = {each.ledger for each in (await context.catalog.read(NAME)).value.ledgers}
    return {ledger async for ledger in context.ledgers.ledgers()} - listed


async def notes(cursors: Cursors) -> list[int]:
    """The ledgers that are noted for the stream or the cursor."""
    catalog = cursors._context.catalog
    return [*await catalog.going(NAME), *await catalog.going(NAME, "billing")]


async def acked(cursor: Cursor, *numbers: int) -> None:
    """Acknowledge these messages of the stream, which are in ledgers of ten."""
    await cursor.ack_batch([position(cursor, number) for number in numbers])


def position(cursor: Cursor, number: int) -> Position:
    listed = cursor._list.list.info.ledgers
    return Position(listed[number // 10].ledger, number % 10)
