"""Messages from arguments and lines into a stream, and what became of each of them."""

from __future__ import annotations

import asyncio
import json as json_format
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from tallystick.admin.streams import newest_is_raw
from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.bookkeeper.stream.settings import StreamSettings
from tallystick.bookkeeper.stream.stream import Stream
from tallystick.bookkeeper.wire.stream_values import EARLIEST, Position
from tallystick.cli import output, times
from tallystick.cli.connecting import connect
from tallystick.cli.lines import lines
from tallystick.cli.options import pairs
from tallystick.cli.stream_formats import unescape
from tallystick.cli.stream_options import OutMessages, OwnerOptions, RollOver
from tallystick.errors import StreamFull, TallyError, UsageError
from tallystick.runtime import arguments

STORED_BEFORE = "stored before"  # of a message whose number is not above its producer's highest: nobody knows where
LONGEST_LINE = 5 << 20  # more than any entry has
PATIENCE_S = 1.0  # somebody who interrupted it, and sees nothing happen, wants to know why


def settings(owner: OwnerOptions, roll_over: RollOver, messages: OutMessages) -> StreamSettings:
    """Raises UsageError, by the names that the options have here."""
    owner.require()
    arguments.whole(roll_over.max_entries, "--max-entries", least=1)
    arguments.whole(roll_over.max_bytes, "--max-bytes", least=1)
    arguments.number(roll_over.max_age_s, "--max-age-s", above=0)
    return StreamSettings(
        ensemble=owner.ensemble,
        write_quorum=owner.write_quorum,
        ack_quorum=owner.ack_quorum,
        max_entries_per_ledger=roll_over.max_entries,
        max_ledger_bytes=roll_over.max_bytes,
        max_ledger_age_s=roll_over.max_age_s,
        entry_format="raw" if messages.raw else "pulsar",
        compression=messages.compression,
    )


@dataclass(frozen=True)
class MessageTemplate:
    """What the messages of one command have beside their payloads."""

    key: str | None
    delimiter: bytes | None
    event_time: int | None
    properties: dict[str, str] | None
    producer: str | None
    sequence: int | None

    @classmethod
    def of(cls, given: OutMessages) -> MessageTemplate:
        """Raises UsageError for options that contradict each other."""
        if given.key is not None and given.key_delimiter is not None:
            raise UsageError("-k gives all messages one key, and -K each its own: give one of them")
        if given.key_delimiter == "":
            raise UsageError("-K needs a text between key and payload, which cannot be empty")
        if (given.producer is None) != (given.sequence is None):
            raise UsageError("--producer and --sequence are given together, or neither is")
        if given.producer == "":
            raise UsageError("--producer needs a name")
        if given.sequence is not None:
            arguments.whole(given.sequence, "--sequence", most=arguments.MAX_INT64)
        properties = pairs("--property", "name=value", given.property_)
        _require_fields(given, properties)
        return cls(
            given.key,
            None if given.key_delimiter is None else unescape(given.key_delimiter, "-K"),
            None if given.event_time is None else times.parse(given.event_time, "--event-time"),
            properties or None,
            given.producer,
            given.sequence,
        )

    def split(self, body: bytes) -> tuple[str | bytes | None, bytes]:
        """Returns key and payload. Raises UsageError for a line without a delimiter."""
        if self.delimiter is None:
            return self.key, body
        key, delimiter, payload = body.partition(self.delimiter)
        if not delimiter:
            raise UsageError("it has no key delimiter", delimiter=output.payload_text(self.delimiter))
        try:
            return key.decode(), payload
        except UnicodeDecodeError:
            return key, payload

    def require_split(self, bodies: Sequence[str]) -> None:
        """Raises UsageError for the first of these messages that has no delimiter: while nothing is done yet."""
        for number, body in enumerate(bodies, 1):
            try:
                self.split(body.encode("utf-8", "surrogateescape"))
            except UsageError as error:
                raise UsageError(f"nothing is appended: message {number}: {error.message}", **error.fields) from error


def _require_fields(given: OutMessages, properties: dict[str, str]) -> None:
    """Raises UsageError where no message could have these: before an owner is asked, or fenced, for nothing."""
    fields = (given.key, given.key_delimiter, given.event_time, given.producer, properties or None)
    if given.raw and any(field is not None for field in fields):
        raise UsageError("raw entries have no key, times, properties, producer or sequence")
    for option, values in (
        ("--key", [given.key or ""]),
        ("--producer", [given.producer or ""]),
        ("--property", [*properties, *properties.values()]),
    ):
        for value in values:
            arguments.text(value, option)


class Appending:
    """The messages of one command: which are confirmed, which are not, and which may be stored or not."""

    def __init__(self, stream: str, template: MessageTemplate, noun: str, *, quiet: bool, json: bool) -> None:
        """``noun`` is what one of them is to the user: a message, or a line."""
        self.stream, self.noun = stream, noun
        self._template, self._quiet, self._json = template, quiet, json
        self.taken = self.confirmed = 0
        self._last: Position | None = None
        self._doubtful: list[int] = []  # their numbers, from 1
        self._under_way: list[tuple[int, asyncio.Future[Position]]] = []

    async def append(self, stream: Stream, bodies: Sequence[bytes]) -> int:
        """Append messages, and wait until all are safe. Returns how many these are. Raises why one is not."""
        before = self.confirmed
        for body in bodies:
            try:
                await self._begin(stream, body)
            except UsageError as error:
                await self._settle()
                raise self._refused(error) from error
        await self._settle()
        return self.confirmed - before

    async def _begin(self, stream: Stream, body: bytes) -> None:
        number, template = self.taken, self._template
        self.taken += 1
        key, payload = template.split(body)
        sequence = None if template.sequence is None else template.sequence + number
        while True:
            try:
                future = stream.append_nowait(
                    payload,
                    key=key,
                    event_time=template.event_time,
                    properties=template.properties,
                    producer=template.producer,
                    sequence=sequence,
                )
            except StreamFull:
                await asyncio.wait([self._under_way[0][1]])
                if not self._settled():
                    raise
            else:
                return self._under_way.append((number + 1, future))

    async def _settle(self) -> None:
        """Wait for all that is under way. Raises the first failure."""
        if self._under_way:
            await asyncio.wait([future for _, future in self._under_way])  # which cancels none of them
        self._settled()

    def _settled(self) -> int:
        """Take note of what is done, from the first on. Returns how many these are. Raises the first failure."""
        positions, failure, count = list[Position](), None, 0
        for number, future in self._under_way:
            if not future.done():
                break
            count += 1
            error = future.exception()
            if error is None:
                positions.append(future.result())
            else:
                failure = failure or error
                if isinstance(error, TallyError) and error.ambiguous:
                    self._doubtful.append(number)
        del self._under_way[:count]
        self.confirmed += len(positions)
        self._last = max((position for position in positions if position != EARLIEST), default=self._last)
        self._print(positions)
        if failure is not None:
            raise failure
        return count

    def _print(self, positions: Sequence[Position]) -> None:
        if self._quiet or not positions:
            return
        if self._json:
            rows = (
                {"stream": self.stream, "position": None if position == EARLIEST else str(position)}
                for position in positions
            )
            print("\n".join(map(json_format.dumps, rows)), flush=True)
        else:
            print("\n".join(STORED_BEFORE if one == EARLIEST else str(one) for one in positions), flush=True)

    def _refused(self, error: UsageError) -> TallyError:
        """Return what is wrong with the message that was taken last; how many are stored the line of ``end`` says. Once
        others are stored, wrong usage is a failure."""
        text = f"{self.noun} {self.taken} was not appended: {error.message}"
        return (TallyError if self.confirmed else UsageError)(text, **error.fields)

    def tell_waiting(self) -> None:
        if self._under_way:
            count = output.quantity(len(self._under_way), f"{self.noun} is", f"{self.noun}s are")
            print(f"{count} under way: another interrupt leaves it in doubt whether stored", file=sys.stderr)

    def end(self) -> None:
        """Say what is stored, in one line on stderr, once nothing is under way."""
        unknown = []
        for number, future in self._under_way:
            if not future.done() or future.cancelled():
                unknown.append(number)
                future.add_done_callback(_take_note)  # nobody waits for it, and it has failed when the client is closed
        self._under_way = [one for one in self._under_way if one[0] not in unknown]
        self._doubtful += unknown
        while self._under_way:
            try:
                self._settled()
            except Exception:
                continue  # the first failure is on its way already
        if not self.taken:
            print(f"stream {self.stream}: no {self.noun}s", file=sys.stderr)
            return
        stored = f"{output.quantity(self.confirmed, self.noun, f'{self.noun}s')} stored"
        parts = [stored if self._last is None else f"{stored}, the last at {self._last}"]
        if doubtful := self._doubtful:
            place = f"number {doubtful[0]}" + (f" to {doubtful[-1]}" if len(doubtful) > 1 else "")
            parts.append(f"{len(doubtful)} in doubt ({place}): stored or not")
        if refused := self.taken - self.confirmed - len(doubtful):
            parts.append(f"{refused} not stored")
        print(f"stream {self.stream}: {'; '.join(parts)}", file=sys.stderr)


async def append(
    uri: str,
    name: str,
    bodies: Sequence[str],
    chosen: StreamSettings,
    owner: OwnerOptions,
    messages: OutMessages,
    *,
    quiet: bool,
    json: bool,
    explain: bool,
) -> None:
    """Append ``bodies``, or the lines of stdin when there are none, as the stream's owner."""
    template = MessageTemplate.of(messages)
    template.require_split(bodies)
    async with connect(uri, explain=explain) as bk:
        opening = bk.open_stream(name, takeover=owner.takeover, wait_s=owner.wait_s, settings=chosen)
        if not messages.force:
            await _require_format(bk, name, is_raw=messages.raw)
        appending: Appending | None = None
        try:
            with output.progress("messages", is_shown=quiet) as count:
                async with opening as stream:
                    appending = Appending(
                        stream.name, template, "message" if bodies else "line", quiet=quiet, json=json
                    )
                    batches = _batch_of(bodies) if bodies else lines(sys.stdin.fileno(), LONGEST_LINE)
                    try:
                        async for some in batches:
                            count(await appending.append(stream, some))
                    except asyncio.CancelledError:
                        asyncio.get_running_loop().call_later(PATIENCE_S, appending.tell_waiting)
                        raise
        finally:  # closed by now: what was under way has its outcome
            if appending is not None:
                appending.end()


def _take_note(future: asyncio.Future[Position]) -> None:
    if not future.cancelled():
        future.exception()


async def _require_format(bk: BookKeeper, name: str, *, is_raw: bool) -> None:
    """Raises UsageError where the newest entry is of the other format: no reader could read both."""
    newest = await newest_is_raw(bk, name)
    if newest is None or newest == is_raw:
        return
    if is_raw:
        raise UsageError("the stream has messages in Pulsar's format: leave out --raw, or mix them with --force")
    raise UsageError("the stream has raw entries: give --raw, or mix them with --force")


async def _batch_of(bodies: Sequence[str]) -> AsyncIterator[list[bytes]]:
    yield [body.encode("utf-8", "surrogateescape") for body in bodies]
