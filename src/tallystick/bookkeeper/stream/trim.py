"""How the ledgers that nobody needs leave a stream: the list first, with a note of each; then the ledgers.

Every cursor's stored position is read at the moment of trimming. Who makes a cursor meanwhile, or moves one back,
overtakes the change of the list: it is decided again. Who does so later finds what it needs, or that it asked for what
was deleted before.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import replace

from tallystick.bookkeeper.stream.catalog import ChangeOvertaken
from tallystick.bookkeeper.stream.context import StreamContext
from tallystick.bookkeeper.stream.list_front import with_gone
from tallystick.bookkeeper.stream.owned_list import Edit, ListChange, OwnedList
from tallystick.bookkeeper.stream.retention import DEDUPLICATION, trimmable
from tallystick.bookkeeper.stream.settings import StreamSettings
from tallystick.bookkeeper.wire.ledger_runs import changed, find, ids_of
from tallystick.bookkeeper.wire.managed_ledgers import cursor_state_decoding
from tallystick.bookkeeper.wire.stream_values import EARLIEST, NO_LEDGER, CursorState, Position, StreamInfo
from tallystick.bookkeeper.wire.values import LedgerId
from tallystick.errors import NoSuchCursor, NoSuchLedger
from tallystick.runtime.turn_steps import in_turns

Keep = Callable[[Position], Awaitable[None]]
GiveWay = Callable[[], Awaitable[None]]  # lets come first what appends wait for; raises if the work is to end

ATTEMPTS = 5  # to drop ledgers, while cursors are moved back or made
MOST_DROPPED = 500  # ledgers in one change: ZooKeeper takes a megabyte


async def trim_stream(
    context: StreamContext,
    stream: str,
    stored_list: OwnedList,
    settings: StreamSettings,
    *,
    keep: Keep,
    give_way: GiveWay,
) -> list[LedgerId]:
    """Drop what retention does not keep. Returns the ledgers that left the list: they are deleted soon.

    ``keep`` saves before what entries up to a position say and nothing else does. Raises StreamFenced, MetadataError,
    Unavailable, and as ``give_way``.
    """
    dropped: list[LedgerId] = []
    overtaken = 0
    while settings.has_retention and overtaken < ATTEMPTS:
        part = await _droppable(context, stream, stored_list, settings, give_way)
        if not part:
            break
        last = find(stored_list.info.ledgers, part[-1])
        assert last is not None, "it was listed just now"
        await keep(Position(last.ledger, last.entries - 1))
        begun = await stored_list.begin()
        again = await _droppable(context, stream, stored_list, settings, give_way)  # as cursors may have moved
        part = again[: len(part)]
        try:
            await stored_list.change(without(part), begun)
        except ChangeOvertaken:
            overtaken += 1
            continue
        context.deletions.add(stream, part)
        dropped += part
    if dropped:
        context.context.events.emit("stream trimmed", stream=stream, ledgers=len(dropped), last=dropped[-1])
    return dropped


async def _droppable(
    context: StreamContext, stream: str, stored_list: OwnedList, settings: StreamSettings, give_way: GiveWay
) -> list[LedgerId]:
    """Returns the ledgers that can leave the list now, in one change."""
    marks = await cursor_marks(context, stream, give_way)
    now_ms = context.context.clock.wall_ms()
    return trimmable(stored_list.info, marks.values(), settings, now_ms, most=MOST_DROPPED)


async def cursor_marks(context: StreamContext, stream: str, give_way: GiveWay | None = None) -> dict[str, Position]:
    """Returns up to where each durable cursor has acknowledged everything, as it is stored now.

    A stream may have 10,000 of them, whose ledgers may be at a bookie that hangs: for whoever keeps others from their
    work meanwhile there is ``give_way``, before each.
    """
    marks = {}
    for cursor in await context.catalog.cursors(stream):
        if cursor != DEDUPLICATION:
            if give_way is not None:
                await give_way()
            try:
                marks[cursor] = (await stored_state(context, stream, cursor)).mark
            except NoSuchCursor:
                continue  # it was deleted meanwhile
    return marks


async def stored_state(context: StreamContext, stream: str, cursor: str) -> CursorState:
    """Returns what is stored of a cursor, as anybody can read it. Of one whose ledger cannot tell it, what its node
    says. Raises NoSuchCursor, MetadataError, Unavailable."""
    info = (await context.catalog.read_cursor(stream, cursor)).value
    in_node = info.state or CursorState(EARLIEST)
    if info.ledger == NO_LEDGER:
        return in_node
    try:
        async with context.ledgers.open_ledger(info.ledger) as reader:
            if reader.last_entry < 0:
                return in_node
            async for entry in reader.read(reader.last_entry, reader.last_entry):
                where = f"ledger {info.ledger} of cursor {cursor}"
                return await in_turns(cursor_state_decoding(bytes(entry.data), where=where))
    except NoSuchLedger:
        pass
    return in_node


def without(dropped: Collection[LedgerId]) -> Edit:
    """These ledgers leave the list, and are noted."""
    ledgers = frozenset(dropped)

    def edit(info: StreamInfo) -> ListChange:
        gone = tuple(sorted(ids_of(info.ledgers) & ledgers))
        return ListChange(with_gone(info, replace(info, ledgers=changed(info.ledgers, dict.fromkeys(gone)))), gone)

    return edit
