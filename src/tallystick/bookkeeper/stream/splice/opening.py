"""How an application begins to write a stream: it records its run, and whoever it was before commits no more.

1. Read the list, as of now; make an empty one where there is none.
2. An owner's stream stays an owner's, unless it is to be switched: then take the lease, close what is open, save the
   numbers of its appends.
3. The record must be of the same query: another one has lost its checkpoint.
4. A run that was recorded and is over does not begin again: another one goes on.
5. Compare-and-set the list: sinks write it, and this run of the application goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tallystick.bookkeeper.metadata.driver import Versioned
from tallystick.bookkeeper.stream.catalog import ChangeOvertaken
from tallystick.bookkeeper.stream.context import StreamContext
from tallystick.bookkeeper.stream.list_front import with_gone
from tallystick.bookkeeper.stream.marks import make_ledger
from tallystick.bookkeeper.stream.numbers import save_numbers
from tallystick.bookkeeper.stream.opening import (
    read_or_create,
    recover_ledgers,
    require_ours,
    unlisted,
    with_ends,
    with_entries,
)
from tallystick.bookkeeper.stream.splice.attempt import SinkTicket
from tallystick.bookkeeper.stream.splice.commit_core import require_same_query, require_same_run, require_sink
from tallystick.bookkeeper.stream.splice.list_size import require_short
from tallystick.bookkeeper.stream.splice.record import SinkRecord, as_sink, is_sink, record_of, with_record
from tallystick.bookkeeper.stream.splice.sink import StreamSink
from tallystick.bookkeeper.wire.ledger_runs import joined
from tallystick.bookkeeper.wire.stream_values import EARLIEST, Position, StreamInfo, StreamLedger
from tallystick.bookkeeper.wire.values import LedgerId
from tallystick.errors import MetadataUncertain, StreamFenced


async def open_sink(context: StreamContext, ticket: SinkTicket, *, switch: bool) -> StreamSink:
    """Begin a run of an application, or go on with the one that is recorded. Raises StreamOwned for an owner's stream,
    also while it is open if it is to be switched; StreamFenced for a run that is over; CheckpointLost,
    StreamTerminated, RecoveryIncomplete, Unavailable, MetadataError."""
    stream, application = ticket.stream, ticket.application
    while True:
        stored = await read_or_create(context, stream)
        if switch and stored.value.ledgers and not is_sink(stored.value):
            await _switch(context, ticket)
            continue
        info = as_sink(stored.value) if not stored.value.ledgers else stored.value
        require_sink(info, stream)
        record = record_of(info, application) or SinkRecord(ticket.query, ticket.run)
        require_same_query(record, ticket.query, application, stream)
        if ticket.run in record.before:
            require_same_run(record, ticket.run, application, stream)
        next_info = with_record(info, application, record.begun(ticket.run))
        if record_of(info, application) is None:
            await require_short(context, stream, next_info)
        if next_info == stored.value:
            return StreamSink(context, ticket, record.batch, stored.creation)
        if await store_list(context, stream, next_info, stored):
            context.context.events.emit("sink opened", stream=stream, application=application, run=ticket.run)
            return StreamSink(context, ticket, record.batch, stored.creation)


async def _switch(context: StreamContext, ticket: SinkTicket) -> None:
    """Let sinks write a stream that nobody owns now. Raises StreamOwned if somebody does.

    Behind what the owner wrote comes a ledger without entries. Its id is above all that were drawn by now, so none of a
    lower one is listed from then on: cursors may be behind the owner's newest, though that was empty and is gone.
    """
    stream, clock = ticket.stream, context.context.clock
    lease = await context.leases.take(context.catalog.paths.owner(stream), stream=stream)
    try:
        stored = await context.catalog.read(stream, synced=True)
        if is_sink(stored.value):
            return
        await require_ours(context, stream, stored.value)
        noted = await context.catalog.going(stream)
        recovered = await recover_ledgers(context, stream, stored.value)
        ended = with_ends(stored.value, recovered)
        kept, dropped = with_entries(ended)
        last_id = await _empty_ledger(context, ticket, ended[-1].ledger, lease.before)
        ledgers = joined(kept, [StreamLedger(last_id, 0, 0, clock.wall_ms())])
        info = as_sink(with_gone(stored.value, replace(stored.value, ledgers=ledgers), recovered, stored.version))
        # Those of an owner that died: what sinks trim is not read any more.
        last = Position(kept[-1].ledger, kept[-1].entries - 1) if kept else EARLIEST
        await save_numbers(context, stream, lease, last)
        if await store_list(context, stream, info, stored, noted=dropped, settled=[last_id]):
            context.deletions.add(stream, unlisted([*noted, *dropped], info))
    finally:
        await context.leases.give_back(lease)


async def _empty_ledger(context: StreamContext, ticket: SinkTicket, newest: LedgerId, before: str) -> LedgerId:
    owner, settings = context.leases.owner, ticket.settings
    writer = await make_ledger(context.ledgers, context.catalog, ticket.stream, owner, settings, newest, before)
    await writer.close()
    return writer.id


async def store_list(
    context: StreamContext,
    stream: str,
    info: StreamInfo,
    before: Versioned[StreamInfo],
    *,
    noted: Sequence[LedgerId] = (),
    settled: Sequence[LedgerId] = (),
) -> bool:
    """Replace the list. Returns False if nobody knows whether it was, or others wrote it: read it again."""
    catalog = context.catalog
    begun = await catalog.begin(stream, catalog.change_name())
    if await catalog.creation(stream) != before.creation:
        return False  # another stream of this name
    try:
        await catalog.write(stream, info, before.version, noted=noted, settled=settled, begun=begun)
    except (ChangeOvertaken, MetadataUncertain, StreamFenced):
        return False
    return True
