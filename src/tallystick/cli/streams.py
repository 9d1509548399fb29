"""What the terminal shows of streams, and what is done to whole ones."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tallystick.admin import streams
from tallystick.admin.streams import CursorStatus, StreamOwnership, StreamStatus
from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.bookkeeper.stream.leases import Owning
from tallystick.bookkeeper.stream.settings import UNLIMITED, StreamSettings
from tallystick.bookkeeper.stream.splice.record import SinkRecord, applications, is_sink
from tallystick.bookkeeper.stream.stream import Stream
from tallystick.bookkeeper.wire.stream_values import Position, StreamLedger
from tallystick.bookkeeper.wire.values import LedgerId, LedgerMetadata
from tallystick.cli import output, times
from tallystick.cli.connecting import connect
from tallystick.cli.stream_options import OwnerOptions
from tallystick.cli.stream_places import Place
from tallystick.cli.stream_read import resolve
from tallystick.errors import StreamOwned, UsageError
from tallystick.runtime import arguments


async def create(uri: str, name: str) -> tuple[str, ...]:
    """Returns what was made: nothing if there is one of this name already."""
    async with connect(uri) as bk:
        return (f"stream {name}",) if await streams.create_stream(bk, name) else ()


async def find(uri: str, name: str) -> StreamStatus:
    async with connect(uri) as bk:
        return await streams.stream_status(bk, name)


async def stored(uri: str, name: str) -> dict[str, Any]:
    async with connect(uri) as bk:
        return await streams.stream_metadata(bk, name)


async def find_all(uri: str, prefix: str) -> list[dict[str, Any]]:
    rows = []
    with output.progress("streams") as count:
        async with connect(uri) as bk:
            async for name, ownership in streams.list_streams(bk, prefix):
                rows.append(row(name, ownership))
                count(1)
    return rows


def row(name: str, ownership: StreamOwnership) -> dict[str, Any]:
    """A line of the table. Only what closed ledgers have is known here."""
    info = ownership.info
    return {
        "stream": name,
        "ledgers": len(info.ledgers),
        "closed_entries": sum(ledger.entries for ledger in info.ledgers),
        "closed_bytes": sum(ledger.size for ledger in info.ledgers),
        "owner": ownership.owner,
        "terminated": info.terminated is not None,
    }


def details(status: StreamStatus, *, explain: bool) -> dict[str, Any]:
    """A stream, a line a field."""
    ownership = status.ownership
    info = ownership.info
    return {
        "stream": status.name,
        "owner": ownership.owner,
        "since": since(ownership.lease),
        **({"why": ownership.why} if explain else {}),
        "state": "open" if info.terminated is None else f"terminated at {info.terminated}",
        "entries": status.entries,
        "first": _position(status.first),
        "last": _position(status.last),
        "ledgers": [_ledger(ledger, ownership.newest) for ledger in info.ledgers],
        "cursors": [
            f"{cursor.name}: mark {cursor.state.mark}, {_backlog(cursor)}, owner {cursor.owner}"
            for cursor in status.cursors
        ],
    }


def _ledger(ledger: StreamLedger, newest: LedgerMetadata | None) -> str:
    """``newest`` is the metadata of the newest one, whose end is not in the list before the next owner wrote it."""
    entries, size, end = ledger.entries, ledger.size, "closed"
    if ledger.is_closed:
        end = f"closed {times.shown(ledger.timestamp_ms)}"
    elif newest is not None and newest.is_closed:
        entries, size = newest.last_entry + 1, newest.length
    else:
        return f"{ledger.ledger}: open"
    counts = f"{output.quantity(entries, 'entry', 'entries')}, {output.quantity(size, 'byte', 'bytes')}"
    return f"{ledger.ledger}: {counts}, {end}"


def _backlog(cursor: CursorStatus) -> str:
    return "backlog unknown" if cursor.backlog is None else f"{cursor.backlog} behind"


def since(lease: Owning | None) -> str | None:
    """Returns since when an owner has it, None where nobody says so."""
    since_ms = None if lease is None else lease.since_ms
    return None if since_ms is None else times.shown(since_ms)


def json_details(status: StreamStatus) -> dict[str, Any]:
    """The state of the stream as its owner says it, behind whose it is."""
    ownership = status.ownership
    front = {"stream": status.name, "owner": ownership.owner, "since": since(ownership.lease), "why": ownership.why}
    return {**front, **status.state()}


def _position(position: Any) -> str | None:
    return None if position is None else str(position)


def settings(
    owner: OwnerOptions,
    *,
    keep_s: float | None = None,
    keep_bytes: int | None = None,
    ttl_s: float | None = None,
    backlog_bytes: int | None = None,
) -> StreamSettings:
    """Raises UsageError, by the names that the options have here."""
    owner.require()
    if keep_s is not None:
        arguments.number(keep_s, "--keep-s")
    if keep_bytes is not None:
        arguments.whole(keep_bytes, "--keep-bytes")
    if ttl_s is not None:
        arguments.number(ttl_s, "--ttl-s", above=0)
    if backlog_bytes is not None:
        arguments.whole(backlog_bytes, "--backlog-bytes")
    return StreamSettings(
        ensemble=owner.ensemble,
        write_quorum=owner.write_quorum,
        ack_quorum=owner.ack_quorum,
        retention_s=UNLIMITED if keep_s is None else keep_s,
        retention_bytes=UNLIMITED if keep_bytes is None else keep_bytes,
        ttl_s=UNLIMITED if ttl_s is None else ttl_s,
        backlog_quota_bytes=UNLIMITED if backlog_bytes is None else backlog_bytes,
        backlog_policy="consumer_backlog_eviction",
    )


_SINKS_TRIM = "They trim it with each commit, as the options retentionSeconds and retentionBytes of their queries say"
_SINKS_ROLL = "It has no open ledger: each commit adds ledgers that are closed"
_SINKS_END = "End their queries first; --takeover then ends the stream, and a query that goes on fails"


async def trim(
    uri: str,
    name: str,
    owner: OwnerOptions,
    keep_s: float | None,
    keep_bytes: int | None,
    *,
    ttl_s: float | None = None,
    backlog_bytes: int | None = None,
    explain: bool,
) -> list[LedgerId]:
    """Returns the ledgers that left the stream. They are deleted by then."""
    if keep_s is keep_bytes is ttl_s is backlog_bytes is None:
        raise UsageError("say what to keep: --keep-s 604800 for a week, --keep-bytes N, or --keep-s 0 for nothing")
    chosen = settings(owner, keep_s=keep_s, keep_bytes=keep_bytes, ttl_s=ttl_s, backlog_bytes=backlog_bytes)
    async with connect(uri, explain=explain) as bk, _existing(bk, name, owner, chosen, _SINKS_TRIM) as stream:
        dropped = await stream.trim()
        await bk.stream_context.deletions.done()
        return dropped


async def roll(uri: str, name: str, owner: OwnerOptions, *, explain: bool) -> LedgerId | None:
    """Close the newest ledger, as becoming the owner does. Returns the newest that has entries, None without one."""
    async with connect(uri, explain=explain) as bk, _existing(bk, name, owner, settings(owner), _SINKS_ROLL) as stream:
        last = stream.last_confirmed
    return None if last.ledger < 0 else last.ledger


async def find_sinks(uri: str, name: str) -> list[dict[str, Any]]:
    """Returns a row for each application that wrote a stream exactly once."""
    async with connect(uri) as bk:
        records = applications((await streams.stream_status(bk, name)).ownership.info)
    return [
        {"application": application, "query": record.query, "batch": record.batch, "run": record.run}
        for application, record in sorted(records.items())
    ]


async def forget_sink(uri: str, name: str, application: str, *, explain: bool) -> SinkRecord:
    """Returns how far it was."""
    async with connect(uri, explain=explain) as bk:
        return await bk.forget_sink(name, application)


async def sweep(uri: str, name: str, *, explain: bool) -> list[LedgerId]:
    """Returns the ledgers that are deleted."""
    async with connect(uri, explain=explain) as bk:
        return await bk.sweep_sinks(name)


async def terminate(uri: str, name: str, owner: OwnerOptions, *, explain: bool) -> Position:
    """Returns the last position."""
    async with connect(uri, explain=explain) as bk, _existing(bk, name, owner, settings(owner), _SINKS_END) as stream:
        return await stream.terminate()


@asynccontextmanager
async def _existing(
    bk: BookKeeper, name: str, owner: OwnerOptions, chosen: StreamSettings, of_sinks: str
) -> AsyncIterator[Stream]:
    """Own a stream that exists. Raises NoSuchStream: a wrong name makes none; StreamOwned with ``of_sinks``, what to do
    instead, for one that sinks write."""
    opening = bk.open_stream(name, takeover=owner.takeover, wait_s=owner.wait_s, settings=chosen)
    info = (await streams.stream_ownership(bk, name)).info
    if is_sink(info) and not owner.takeover:
        names = ", ".join(applications(info)) or "none has committed yet"
        raise StreamOwned(f"sinks write this stream, of these applications: {names}. {of_sinks}", stream=name)
    async with opening as stream:
        yield stream


async def delete(uri: str, name: str, *, takeover: bool, explain: bool) -> None:
    async with connect(uri, explain=explain) as bk:
        await bk.delete_stream(name, takeover=takeover)


async def find_cursors(uri: str, name: str) -> list[dict[str, Any]]:
    async with connect(uri) as bk:
        return [cursor_row(cursor) for cursor in await streams.cursor_statuses(bk, name)]


def cursor_row(cursor: CursorStatus) -> dict[str, Any]:
    """A line of the table."""
    return {
        "cursor": cursor.name,
        "mark": str(cursor.state.mark),
        "behind": cursor.backlog,
        "holes": len(cursor.state.acked),
        "owner": cursor.owner,
        "since": since(cursor.lease),
    }


async def create_cursor(uri: str, name: str, cursor: str, place: Place, *, explain: bool) -> Position:
    """Returns the mark of the new cursor. Raises UsageError if there is one of this name."""
    async with connect(uri, explain=explain) as bk:
        is_raw = bool(await streams.newest_is_raw(bk, name))
        if any(cursor == one.name for one in await streams.cursor_statuses(bk, name)):
            raise UsageError("the stream has a cursor of this name; `tally stream seek` moves it", cursor=cursor)
        start = await resolve(bk, name, place, is_raw=is_raw)
        async with bk.cursor(name, cursor, start=start, entry_format="raw" if is_raw else "pulsar") as handle:
            return handle.mark


async def delete_cursor(uri: str, name: str, cursor: str, *, takeover: bool, explain: bool) -> None:
    async with connect(uri, explain=explain) as bk:
        await bk.delete_cursor(name, cursor, takeover=takeover)


async def seek(uri: str, name: str, cursor: str, place: Place, *, takeover: bool, explain: bool) -> Position:
    """Returns where the cursor reads next. Raises NoSuchCursor."""
    async with connect(uri, explain=explain) as bk:
        is_raw = bool(await streams.newest_is_raw(bk, name))
        opening = bk.cursor(name, cursor, create=False, takeover=takeover, entry_format="raw" if is_raw else "pulsar")
        async with opening as handle:
            await handle.seek(await resolve(bk, name, place, is_raw=is_raw))
            return handle.read_position


async def create_for_pulsar(uri: str, name: str, cluster: str | None) -> tuple[str, ...]:
    """Returns the paths of what was made."""
    async with connect(uri) as bk:
        return await bk.create_for_pulsar(name, cluster=cluster)


async def hand_over(uri: str, name: str, *, force: bool, takeover: bool, explain: bool) -> str:
    """Returns what the broker deletes of the stream, in words."""
    async with connect(uri, explain=explain) as bk:
        deletions = await bk.hand_over(name, force=force, takeover=takeover)
        await bk.stream_context.deletions.done()
        return str(deletions)


async def take_back(uri: str, name: str, owner: OwnerOptions, *, explain: bool) -> Position:
    """Returns the last position. The stream is nobody's then."""
    async with (
        connect(uri, explain=explain) as bk,
        bk.take_back(name, takeover=owner.takeover, settings=settings(owner)) as stream,
    ):
        return stream.last_confirmed


def confirm(question: str, what: str, *, yes: bool, **fields: str) -> None:
    """Ask on a terminal, before any event loop runs. ``fields`` name what it is about where that is refused.

    Raises UsageError for a no, and where nobody can be asked.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{what} cannot be undone: give --yes", **fields)
    try:
        answer = input(f"{question} [y/N] ")
    except EOFError:
        answer = ""
    if answer.strip().lower() not in ("y", "yes"):
        raise UsageError("not done", **fields)
