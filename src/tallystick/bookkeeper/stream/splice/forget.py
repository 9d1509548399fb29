"""How an application that is not needed any more leaves the list of its stream: its rows stay, what it is stays not.

The list that lacks it takes none of its commits, so a run that goes on ends with its next one; one that begins again
begins as a new application does.
"""

from __future__ import annotations

from tallystick.bookkeeper.stream.context import StreamContext
from tallystick.bookkeeper.stream.splice.opening import store_list
from tallystick.bookkeeper.stream.splice.record import SinkRecord, applications, record_of, without_record
from tallystick.bookkeeper.stream.splice.sweep import sweep
from tallystick.errors import NotFound


async def forget(context: StreamContext, stream: str, application: str) -> SinkRecord:
    """Take an application out of the list, and delete what its attempts left. Returns how far it was. Raises NotFound,
    NoSuchStream, Unavailable, MetadataError."""
    forgotten: SinkRecord | None = None  # by a change of which nobody knows whether it was made
    while True:
        stored = await context.catalog.read(stream, synced=True)
        record = record_of(stored.value, application)
        forgotten = record or forgotten
        if record is None or await store_list(context, stream, without_record(stored.value, application), stored):
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
