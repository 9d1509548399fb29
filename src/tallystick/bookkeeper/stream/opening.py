"""How an owner opens a stream (Q19): the order of its steps is what protects the stream.

1. Take the lease: who is alive keeps it, unless it is taken over.
2. Read the list, as of now; make an empty one where there is none.
3. A newest ledger that is open and has no mark of ours may be written by a Pulsar broker: then stop here.
4. Recover the ledgers that are not closed. This fences whoever writes them, and says how many entries they have.
5. Make a new ledger, noted beside it.
6. Compare-and-set the list. Of two owners that came so far one fails here.
7. Delete what was noted before that and is not listed: ledgers of attempts that died between 5 and 6, and those that
   retention dropped.

Follows ``ManagedLedgerImpl.initialize``; the lease, the mark and the notes are ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from tallystick.bookkeeper.ledger.writer import LedgerWriter
from tallystick.bookkeeper.metadata.driver import Versioned
from tallystick.bookkeeper.metadata.store import Version
from tallystick.bookkeeper.stream.context import StreamContext
from tallystick.bookkeeper.stream.leases import Lease
from tallystick.bookkeeper.stream.list_front import with_gone
from tallystick.bookkeeper.stream.marks import make_ledger, owner_in
from tallystick.bookkeeper.stream.owned_list import ListChange, OwnedList, closed
from tallystick.bookkeeper.stream.settings import StreamSettings
from tallystick.bookkeeper.stream.splice.record import applications, as_owned, is_sink
from tallystick.bookkeeper.wire.ledger_runs import changed, find, joined, unusual
from tallystick.bookkeeper.wire.stream_values import EARLIEST, NO_LEDGER, Position, StreamInfo, StreamLedger
from tallystick.bookkeeper.wire.values import LedgerId
from tallystick.errors import NoSuchLedger, NoSuchStream, StreamFenced, StreamOwned


@dataclass
class OpenedStream:
    """What its owner goes on with. ``writer`` is None for a terminated stream; delete the ``dead_ledgers``."""

    lease: Lease
    stored_list: OwnedList
    writer: LedgerWriter | None
    last: Position  # of the newest entry
    dead_ledgers: list[LedgerId]


async def open_owned(
    context: StreamContext,
    stream: str,
    settings: StreamSettings,
    *,
    takeover: bool,
    wait_s: float,
) -> OpenedStream:
    """Become the owner of a stream. Raises StreamOwned, StreamFenced (another owner was faster), RecoveryIncomplete,
    NotEnoughBookies, Unavailable, MetadataError: then the lease is given back."""
    path = context.catalog.paths.owner(stream)
    lease = await context.leases.take(path, takeover=takeover, wait_s=wait_s, stream=stream)
    try:
        return await _open(context, stream, settings, lease, takeover=takeover)
    except BaseException:
        context.leases.give_back_soon(lease)
        raise


async def _open(
    context: StreamContext, stream: str, settings: StreamSettings, lease: Lease, *, takeover: bool
) -> OpenedStream:
    stored = await read_or_create(context, stream)
    require_no_sink(stored.value, stream, takeover=takeover)
    if not takeover:
        await require_ours(context, stream, stored.value)
    lease.before = await _owner_before(context, stored.value, lease)
    ended = await recover_ledgers(context, stream, stored.value)
    if (last := stored.value.terminated) is not None:
        counted = replace(stored.value, ledgers=with_ends(stored.value, ended))  # as Pulsar, not stored so by itself
        stored_list = OwnedList(context.catalog, stream, replace(stored, value=counted))
        dead_ledgers = unlisted(await context.catalog.going(stream), stored.value)  # it gets no more ledgers
        return OpenedStream(lease, stored_list, None, last, dead_ledgers)
    stored_list = OwnedList(context.catalog, stream, stored)
    owner = context.leases.owner
    newest = stored.value.ledgers[-1].ledger if stored.value.ledgers else NO_LEDGER
    writer = await make_ledger(context.ledgers, context.catalog, stream, owner, settings, newest, lease.before)
    try:
        # Whoever noted a ledger by now read a list that this write replaces, and can never list it. What is noted later
        # may be a ledger of the next owner, who is about to.
        noted = await context.catalog.going(stream)
        await stored_list.change(_opened(ended, writer.id, stored.version))
    except BaseException as error:
        writer.abort()  # nobody else would, and its client holds each writer that is open
        if isinstance(error, StreamFenced):
            context.deletions.add(stream, [writer.id])  # no list can have it any more
        raise
    dead_ledgers = unlisted(sorted({*noted, *_dropped(stored.value, stored_list.info)}), stored_list.info)
    context.context.events.emit("stream opened", stream=stream, ledger=writer.id, takeover=takeover)
    before = stored_list.info.ledgers[-2:-1]  # the last one that is closed
    last = Position(before[0].ledger, before[0].entries - 1) if before else EARLIEST
    return OpenedStream(lease, stored_list, writer, last, dead_ledgers)


def unlisted(ledgers: Iterable[LedgerId], info: StreamInfo) -> list[LedgerId]:
    """Returns those that the list does not have."""
    return [ledger for ledger in ledgers if find(info.ledgers, ledger) is None]


def _dropped(before: StreamInfo, after: StreamInfo) -> list[LedgerId]:
    """Returns the ledgers that left the list when it was opened: they are empty."""
    return unlisted([each.ledger for each in unusual(before.ledgers)], after)


async def read_or_create(context: StreamContext, stream: str) -> Versioned[StreamInfo]:
    """Returns the list, as of now."""
    try:
        return await context.catalog.read(stream, synced=True)
    except NoSuchStream:
        return await context.catalog.create(stream)


async def require_ours(context: StreamContext, stream: str, info: StreamInfo) -> None:
    """Raises StreamOwned if a ledger is open that no owner of ours made."""
    for ledger in unclosed(info):
        try:
            metadata = await context.ledgers.ledger_metadata(ledger.ledger)
        except NoSuchLedger:
            continue
        if not metadata.is_closed and owner_in(metadata) is None:
            raise StreamOwned(
                "its newest ledger is open, and no owner of ours made it: a Pulsar broker may write it. Unload the "
                "topic there, or take the stream over (takeover=True) if no broker has it",
                stream=stream,
                ledger=ledger.ledger,
            )


async def _owner_before(context: StreamContext, info: StreamInfo, lease: Lease) -> str:
    """Returns how the owner before lost the stream, for people. Must be asked before the ledgers are recovered."""
    if lease.taken_from is not None:
        return f"{lease.taken_from} had it, and was taken over"
    if not info.ledgers:
        return ""
    newest = info.ledgers[-1].ledger
    try:
        metadata = await context.ledgers.ledger_metadata(newest)
    except NoSuchLedger:
        return f"nobody knows who had it: its newest ledger, {newest}, did not exist"
    owner = owner_in(metadata) or "no owner of ours"
    if metadata.is_closed:
        return f"{owner} had it, closed ledger {newest}, and gave it back"
    return f"{owner} had it, and ended or lost its session before it closed ledger {newest}"


async def recover_ledgers(context: StreamContext, stream: str, info: StreamInfo) -> tuple[StreamLedger, ...]:
    """Fence and close the ledgers that the list does not have as closed. Returns their ends; one that does not exist is
    empty, and has no counts. Raises RecoveryIncomplete, Unavailable, MetadataError."""
    ended = []
    for listed in unclosed(info):
        counts = await _recover(context, stream, listed.ledger)
        entries, size = counts or (0, 0)
        end = closed(listed, StreamLedger(listed.ledger, entries, size, context.context.clock.wall_ms()))
        ended.append(end._replace(has_counts=counts is not None))
    return tuple(ended)


def unclosed(info: StreamInfo) -> list[StreamLedger]:
    """Returns the ledgers that the list does not have as closed."""
    return [ledger for ledger in unusual(info.ledgers) if not ledger.is_closed]


async def _recover(context: StreamContext, stream: str, ledger: LedgerId) -> tuple[int, int] | None:
    """Returns how many entries and bytes the ledger has. Returns None if there is no such ledger, on a second look."""
    for is_second in (False, True):
        try:
            async with context.ledgers.open_ledger(ledger, recover=True) as reader:
                return reader.last_entry + 1, reader.metadata.length
        except NoSuchLedger:
            if not is_second:
                await context.context.driver.sync()
    context.context.events.emit("stream ledger missing", stream=stream, ledger=ledger)
    return None


def _opened(ended: tuple[StreamLedger, ...], ledger: LedgerId, version: Version) -> Callable[[StreamInfo], ListChange]:
    """These ledgers are closed, and stay in the list, which has this ``version``, if they have entries; ``ledger`` is
    the newest."""

    def edit(info: StreamInfo) -> ListChange:
        if info.ledgers and info.ledgers[-1].ledger == ledger:
            return ListChange(info)  # the response was lost
        kept, dropped = with_entries(with_ends(info, ended))
        ledgers = joined(kept, [StreamLedger(ledger, has_counts=False)])
        opened = with_gone(info, replace(info, ledgers=ledgers), ended, version)
        return ListChange(as_owned(opened), dropped, (ledger,))

    return edit


def require_no_sink(info: StreamInfo, stream: str, *, takeover: bool) -> None:
    """Raises StreamOwned if sinks write the stream: an owner may take it over, and ends their commits by that."""
    if is_sink(info) and not takeover:
        names = ", ".join(applications(info)) or "none has committed yet"
        raise StreamOwned(
            f"sinks write this stream, of these applications: {names}. To append to it, and to end their commits, take "
            "it over (takeover=True)",
            stream=stream,
        )


def with_ends(info: StreamInfo, ended: tuple[StreamLedger, ...]) -> Sequence[StreamLedger]:
    """Returns the ledgers of the list, some of them, which were not closed, as they ended."""
    return changed(info.ledgers, {each.ledger: each._replace(has_counts=True) for each in ended})


def with_entries(ledgers: Sequence[StreamLedger]) -> tuple[Sequence[StreamLedger], tuple[LedgerId, ...]]:
    """Returns those that have entries, and the ids of the others."""
    empty = tuple([each.ledger for each in unusual(ledgers) if not each.entries])
    return changed(ledgers, dict.fromkeys(empty)), empty
