"""Entries in from arguments and lines, and out to the terminal, through the public client."""

from __future__ import annotations

import contextlib
import json as json_format
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

import tallystick
from tallystick.admin.bookies import require_joined
from tallystick.bookkeeper.ledger.read import Entry
from tallystick.bookkeeper.ledger.writer import LedgerWriter
from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.bookkeeper.wire.values import BookieId, EntryId, LedgerId
from tallystick.cli import output
from tallystick.cli.connecting import connect
from tallystick.cli.lines import lines
from tallystick.cli.options import Shape, pairs
from tallystick.errors import NoSuchLedger, NotFound, TallyError, UsageError
from tallystick.runtime import arguments
from tallystick.runtime.events import Events

TAIL_ENTRIES = 10  # what `tail` shows of the past, as tail(1) does

Show = Callable[[Entry], None]


@dataclass(frozen=True)
class Ending:
    """How ``append`` ends and what it prints. ``deferred``: entries are durable, all together, at the end."""

    keep_open: bool
    deferred: bool
    quiet: bool
    json: bool


async def _create(bk: BookKeeper, shape: Shape, password: bytes, *, deferred: bool = False) -> LedgerWriter:
    shape.require()
    custom = {name: value.encode() for name, value in pairs("--custom", "name=value", shape.custom).items()}
    return await bk.create_ledger(
        ensemble=shape.ensemble,
        write_quorum=shape.write_quorum,
        ack_quorum=shape.ack_quorum,
        digest=shape.digest,
        password=password,
        custom_metadata=custom,
        ledger_id=shape.id,
        accept_silent_bookies=shape.accept_silent_bookies,
        deferred_sync=deferred,
    )


async def create(uri: str, shape: Shape, password: bytes) -> LedgerId:
    async with connect(uri) as bk:
        return (await _create(bk, shape, password)).id


async def append(
    uri: str, shape: Shape, password: bytes, payloads: Sequence[str], ending: Ending, *, explain: bool
) -> None:
    """Append ``payloads``, or the lines of stdin when there are none, to a new ledger."""
    async with connect(uri, explain=explain) as bk:
        writer = await _create(bk, shape, password, deferred=ending.deferred)
        try:
            with output.progress("entries", is_shown=ending.quiet) as count:
                batches = _batch_of(payloads) if payloads else _lines(writer)
                async for some in batches:
                    ids = await writer.append_batch(some)
                    count(len(ids))
                    if not (ending.quiet or ending.deferred):
                        _print_ids(writer.id, ids, json=ending.json)
            if ending.deferred:
                last = await writer.force()
                if not ending.quiet:
                    _print_ids(writer.id, range(last + 1), json=ending.json)
        except BaseException:
            # What was confirmed stays readable; the first failure is the one to tell of.
            with contextlib.suppress(TallyError):
                await writer.close()
                _print_end(writer, "closed")
            raise
        if not ending.keep_open:
            await writer.close()
        _print_end(writer, "left open" if ending.keep_open else "closed")


def _print_end(writer: LedgerWriter, state: str) -> None:
    print(f"ledger {writer.id} {state}: {_entries(writer.lac)}, {_bytes(writer.length)}", file=sys.stderr)


async def _lines(writer: LedgerWriter) -> AsyncIterator[list[bytes]]:
    """Lines of stdin. Raises TallyError, not UsageError, for one that is too long: a ledger is made by then."""
    try:
        async for some in lines(sys.stdin.fileno(), writer.max_payload_bytes):
            yield some
    except UsageError as error:
        raise TallyError(error.message, **error.fields) from error


async def _batch_of(payloads: Sequence[str]) -> AsyncIterator[list[bytes]]:
    yield [payload.encode("utf-8", "surrogateescape") for payload in payloads]


def _print_ids(ledger: LedgerId, ids: Sequence[EntryId], *, json: bool) -> None:
    if json:
        print("\n".join(json_format.dumps({"ledger": ledger, "entry": entry}) for entry in ids), flush=True)
    else:
        print("\n".join(f"{ledger}:{entry}" for entry in ids), flush=True)


async def read(
    uri: str, ledger: LedgerId, password: bytes, first: EntryId, last: EntryId | None, show: Show, *, explain: bool
) -> None:
    arguments.whole(first, "--first")
    if last is not None:
        arguments.whole(last, "--last")
    async with connect(uri, explain=explain) as bk:
        reader = await bk.open_ledger(ledger, password=password)
        if last is None and first > reader.last_entry:
            so_far = "" if reader.is_closed else " so far: it is open, and no more are known to be confirmed"
            print(f"ledger {ledger} has {_entries(reader.last_entry)} to read{so_far}", file=sys.stderr)
            return
        with output.progress("entries", is_shown=not sys.stdout.isatty()) as count:
            async for entry in reader.read(first, reader.last_entry if last is None else last):
                show(entry)
                count(1)


async def tail(
    uri: str, ledger: LedgerId, password: bytes, first: EntryId | None, show: Show, *, explain: bool
) -> None:
    if first is not None:
        arguments.whole(first, "--first")
    async with connect(uri, explain=explain) as bk:
        reader = await bk.open_ledger(ledger, password=password)
        start = max(0, reader.last_entry + 1 - TAIL_ENTRIES) if first is None else first
        if reader.is_closed and start > reader.last_entry >= 0:
            print(f"ledger {ledger} is closed, and has {_entries(reader.last_entry)}", file=sys.stderr)
        async for entry in reader.follow(start):
            show(entry)
            sys.stdout.flush()


async def stored(uri: str, ledger: LedgerId, bookie: BookieId, *, json: bool) -> None:
    """Print which entries a bookie has, a range of ids a line. Raises NotFound for a bookie that has nothing of it."""
    async with connect(uri) as bk:
        metadata = await bk.ledger_metadata(ledger)  # an id that there is not is told as such
        await require_joined(bk.context.driver, bookie)
        try:
            listed = await bk.context.bookies.entry_list(bookie, ledger)
        except NoSuchLedger as error:
            places = ", ".join(dict.fromkeys(one for fragment in metadata.fragments for one in fragment.bookies))
            raise NotFound(f"{bookie} has nothing of ledger {ledger}, whose bookies are {places}") from error
        for first, last in listed.runs():
            if json:
                output.json_line({"ledger": ledger, "bookie": bookie, "first": first, "last": last})
            else:
                print(f"{first}-{last}" if last > first else first)
        print(f"{bookie} has {_entries(listed.count - 1)} of ledger {ledger}", file=sys.stderr)


async def recover(uri: str, ledger: LedgerId, password: bytes, *, explain: bool, json: bool) -> None:
    """Fence, recover, close. The steps go to stdout here: they are what was asked for."""
    events = Events()
    if explain:
        events = Events(lambda event: output.event_line(event, json=json))
    async with tallystick.connect(uri, events=events) as bk:
        reader = await bk.open_ledger(ledger, password=password, recover=True)
        if json:
            output.json_line(
                {"ledger": ledger, "state": "CLOSED", "last_entry": reader.last_entry, "length": reader.length}
            )
        else:
            print(f"ledger {ledger} is closed: {_entries(reader.last_entry)}, {_bytes(reader.length)}")


def _entries(last: EntryId) -> str:
    return output.quantity(last + 1, "entry", "entries")


def _bytes(number: int) -> str:
    return output.quantity(number, "byte", "bytes")


def printer(*, ids: bool, hex_: bool, json: bool) -> Show:
    """How an entry goes to stdout."""
    if json:
        return lambda entry: output.json_line(
            {"ledger": entry.ledger, "entry": entry.id, **output.payload_json(entry.data, hex_=hex_)}
        )
    show = output.payload_printer(hex_=hex_)
    return lambda entry: show(f"{entry.ledger}:{entry.id}\t" if ids else "", entry.data)
