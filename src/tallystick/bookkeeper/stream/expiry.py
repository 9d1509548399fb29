"""How messages expire that no cursor has acknowledged in time, by the choice of the stream's owner (TTL).

1. The owner finds the first message that is not too old.
2. If any durable cursor is before it, the owner writes with the list, by compare-and-set, up to where messages have
   expired.
3. Whoever has a cursor sees the list change, and acknowledges up to there. A cursor that nobody has is moved by the
   owner of the stream, which takes its lease as any other client would: opening a cursor passes what has expired.

Follows ``PersistentMessageExpiryMonitor``; there one broker has a topic and all of its subscriptions.
"""

from __future__ import annotations

from tallystick.bookkeeper.stream.context import StreamContext
from tallystick.bookkeeper.stream.cursors import Cursors
from tallystick.bookkeeper.stream.expired import expired_in, last_before, with_expired
from tallystick.bookkeeper.stream.names import decoded
from tallystick.bookkeeper.stream.owned_list import ListChange, OwnedList
from tallystick.bookkeeper.stream.settings import UNLIMITED, StreamSettings
from tallystick.bookkeeper.stream.trim import GiveWay, cursor_marks
from tallystick.bookkeeper.wire.stream_values import Position
from tallystick.errors import NoSuchCursor, StreamFenced, StreamOwned, TallyError


async def expire_messages(
    context: StreamContext, stream: str, stored_list: OwnedList, settings: StreamSettings, give_way: GiveWay
) -> None:
    """Let messages expire that were published longer ago than the settings say. Raises StreamFenced, MetadataError,
    Unavailable, CorruptEntry, and as ``give_way``."""
    if settings.ttl_s == UNLIMITED:
        return
    before_ms = context.context.clock.wall_ms() - int(settings.ttl_s * 1000)
    if before_ms <= 0:
        return
    async with context.readers.open(stream) as reader:
        first_kept = await reader.position_at(before_ms)
    up_to = last_before(stored_list.info, first_kept)
    await pass_over(context, stream, stored_list, up_to, settings, reason="ttl", give_way=give_way)


async def pass_over(
    context: StreamContext,
    stream: str,
    stored_list: OwnedList,
    up_to: Position,
    settings: StreamSettings,
    *,
    reason: str,
    give_way: GiveWay,
) -> None:
    """Let all messages expire up to this position that a cursor has not acknowledged. Raises StreamFenced,
    MetadataError, Unavailable, and as ``give_way``."""
    behind = [cursor for cursor, mark in (await cursor_marks(context, stream, give_way)).items() if mark < up_to]
    if not behind:
        return
    if up_to > expired_in(stored_list.info):
        await stored_list.change(lambda info: ListChange(with_expired(info, up_to)))
        context.context.events.emit(
            "stream messages expired", stream=stream, up_to=up_to, cursors=len(behind), reason=reason
        )
    cursors = Cursors(context, context.readers)
    for cursor in behind:
        await give_way()
        try:
            async with cursors.open(stream, decoded(cursor), create=False, entry_format=settings.entry_format):
                pass  # which moves it
        except (StreamOwned, StreamFenced, NoSuchCursor):
            continue  # who has it moves it
        except TallyError as error:
            context.context.events.emit("cursor not moved", stream=stream, cursor=cursor, reason=error)
