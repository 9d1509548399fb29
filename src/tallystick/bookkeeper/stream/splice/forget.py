"""How an application that is not needed any more leaves the list of its stream: its rows stay, what it is stays not.

The list that lacks it takes none of its commits, so a run that goes on ends with its next one; one that begins again
begins as a new application does.

A list that an owner writes again, or a Pulsar broker, still says how far applications were: who changed it under them
would end them. So such a list is changed where nobody has the stream.
"""

from __future__ import annotations

from tallystick.bookkeeper.metadata.driver import Versioned
from tallystick.bookkeeper.stream.context import StreamContext
from tallystick.bookkeeper.stream.opening import require_ours
from tallystick.bookkeeper.stream.splice.opening import store_list
from tallystick.bookkeeper.stream.splice.record import SinkRecord, applications, is_sink, record_of, without_record
from tallystick.bookkeeper.stream.splice.sweep import sweep
from tallystick.bookkeeper.wire.stream_values import StreamInfo
from tallystick.errors import NotFound


async def forget(context: StreamContext, stream: str, application: str) -> SinkRecord:
    """Take an application out of the list, and delete what its attempts left. Returns how far it was. Raises NotFound,
    StreamOwned if an owner or a broker has the stream, NoSuchStream, Unavailable, MetadataError."""
    forgotten: SinkRecord | None = None  # by a change of which nobody knows whether it was made
    while True:
        stored = await context.catalog.read(stream, synced=True)
        record = record_of(stored.value, application)
        forgotten = record or forgotten
        if record is None or await _store(context, stream, without_record(stored.value, application), stored):
            break
    if forgotten is None:
        raise NotFound(
            "this stream knows no such application: see `tally stream sinks`",
            stream=stream,
            application=application,
            applications=len(applications(stored.value)),
        )
    context.context.events.emit(
        "application forgotten", stream=stream, application=application, query=forgotten.query, batch=forgotten.batch
    )
    await sweep(context, stream)
    return forgotten


async def _store(context: StreamContext, stream: str, info: StreamInfo, before: Versioned[StreamInfo]) -> bool:
    """Do as ``store_list``, while nobody has the stream. Raises StreamOwned."""
    await require_ours(context, stream, before.value)
    if is_sink(before.value):
        return await store_list(context, stream, info, before)
    lease = await context.leases.take(context.catalog.paths.owner(stream), stream=stream)
    try:
        return await store_list(context, stream, info, before)
    finally:
        await context.leases.give_back(lease)
