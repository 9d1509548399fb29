"""Messages in from arguments and lines, and out to the terminal, through the public client."""

from __future__ import annotations

import asyncio
import contextlib
import json as json_format
import sys
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass

import tallystick
from tallystick.admin.brokers import telling_no_brokers
from tallystick.cli import output, times
from tallystick.cli.lines import lines
from tallystick.errors import NotFound, TallyError, UsageError
from tallystick.rocketmq.client.client import RocketMQ
from tallystick.rocketmq.client.producer import Producer
from tallystick.rocketmq.client.received import ReceivedMessage
from tallystick.rocketmq.client.sending import SendResult, SendStatus
from tallystick.rocketmq.client.settings import BrokerClientSettings
from tallystick.rocketmq.wire.values import MessageQueue
from tallystick.runtime.tasks import together

SEND_S = 10.0  # a broker may wait 5 s for its slaves, and 5 s for its disk, and then has something to say
QUEUES_AT_ONCE = 256  # that are asked where they begin and end
SHOWN_QUEUES = 8  # where nothing was read
FOLLOWED_AHEAD = 1000  # messages that wait to be printed

Show = Callable[[ReceivedMessage], None]


@dataclass(frozen=True)
class Template:
    """What all messages of one command share."""

    topic: str
    tags: str | None
    keys: tuple[str, ...]
    properties: Mapping[str, str]
    group: str


@dataclass(frozen=True)
class MessageSelection:
    """Which messages; ``queue`` is broker:number. Where to begin in each queue: at the offset ``first``, at the time
    ``since``, or ``last`` messages before the end; ``count``: how many in all."""

    topic: str
    queue: str | None = None
    first: int | None = None
    since: str | None = None
    last: int | None = None
    count: int | None = None
    tags: str = "*"
    follow: bool = False


async def send(servers: str, template: Template, bodies: Sequence[str], *, quiet: bool, json: bool) -> bool:
    """Send ``bodies``, or the lines of stdin when there are none; whether each is as safe as its broker can make it."""
    settings, sending = BrokerClientSettings(send_timeout_s=SEND_S), Sending(template, quiet=quiet, json=json)
    async with telling_no_brokers(servers), tallystick.topics(servers, settings=settings) as mq:
        producer = mq.producer(template.group)
        with output.progress("messages", is_shown=quiet) as count:
            batches = _batch_of(bodies) if bodies else lines(sys.stdin.fileno(), settings.max_message_bytes)
            try:
                async for some in batches:
                    count(await sending.send(producer, some))
            except BaseException:
                if sending.has_effect:
                    print(sending.summary, file=sys.stderr)
                raise
    print(sending.summary, file=sys.stderr)
    return sending.statuses.keys() <= {SendStatus.SEND_OK}


class Sending:
    """The messages of one command: which are stored, and how safely, and which may be stored or not."""

    def __init__(self, template: Template, *, quiet: bool, json: bool) -> None:
        self.statuses = Counter[SendStatus]()
        self._template, self._quiet, self._json = template, quiet, json
        self._taken = self._doubtful = 0

    @property
    def has_effect(self) -> bool:
        """Whether anything is stored, or may be."""
        return bool(self.statuses or self._doubtful)

    @property
    def summary(self) -> str:
        stored = f"{output.quantity(self.statuses.total(), 'message', 'messages')} sent"
        late = [f"{count} {status.name}" for status, count in self.statuses.items() if status is not SendStatus.SEND_OK]
        doubtful = [f"{self._doubtful} in doubt: stored or not"] if self._doubtful else []
        return ", ".join([stored, *late, *doubtful])

    async def send(self, producer: Producer, bodies: Sequence[bytes]) -> int:
        """Send messages, and wait for all. Returns how many these are. Raises why the first of the others is not sent;
        cancelled it takes note of what is sent, too."""
        template = self._template
        sends = [
            asyncio.ensure_future(
                producer.send(
                    template.topic, body, tags=template.tags, keys=template.keys, properties=template.properties
                )
            )
            for body in bodies
        ]
        try:
            await asyncio.gather(*sends, return_exceptions=True)  # cancelled it cancels each, and waits for all
        finally:
            failures = self._settle(sends)
        for number, error in failures:
            raise self._send_error(error, number)
        return len(sends)

    def _settle(self, sends: Sequence[asyncio.Future[SendResult]]) -> list[tuple[int, BaseException]]:
        """Take note of what came of each. Returns the numbers, from 1, of those that failed, and why."""
        stored_results, failures = list[SendResult](), list[tuple[int, BaseException]]()
        for number, send in enumerate(sends, self._taken + 1):
            if not send.done() or send.cancelled():
                self._doubtful += 1
            elif error := send.exception():
                failures.append((number, error))
                self._doubtful += isinstance(error, TallyError) and error.ambiguous
            else:
                stored_results.append(send.result())
        self._taken += len(sends)
        self.statuses.update(result.status for result in stored_results)
        if not self._quiet:
            _print_places(stored_results, json=self._json)
        return failures

    def _send_error(self, error: BaseException, number: int) -> BaseException:
        """Why message ``number`` was not sent. Once others were, wrong usage is a failure: something was done."""
        if not self.statuses:
            return error
        return TallyError(f"message {number} was not sent: {error}") if isinstance(error, UsageError) else error


async def _batch_of(bodies: Sequence[str]) -> AsyncIterator[list[bytes]]:
    yield [body.encode("utf-8", "surrogateescape") for body in bodies]


def _print_places(results: Sequence[SendResult], *, json: bool) -> None:
    for result in results:
        if json:
            place = {"topic": result.queue.topic, "broker": result.queue.broker, "queue": result.queue.queue_id}
            details = {"status": result.status.name, "message_id": result.message_id, "offset_id": result.offset_id}
            print(json_format.dumps({**place, "offset": result.queue_offset, **details}))
        else:
            late = "" if result.status is SendStatus.SEND_OK else f"\t{result.status.name}"
            print(f"{_place(result.queue, result.queue_offset)}{late}")
    sys.stdout.flush()


def _place(queue: MessageQueue, offset: int) -> str:
    return f"{queue.broker}:{queue.queue_id}:{offset}"


async def read(servers: str, selection: MessageSelection, show: Show) -> None:
    """Show the messages that are there now, queue by queue; to follow, show those that come, for ever."""
    async with telling_no_brokers(servers), tallystick.topics(servers) as mq:
        queues = _queues((await mq.topic(selection.topic)).readable, selection)
        limits = await together((_limits(mq, queue, selection) for queue in queues), QUEUES_AT_ONCE)
        stretches = list(zip(queues, limits, strict=True))
        if selection.follow:
            messages = _follow(mq, [(queue, first) for queue, (first, _) in stretches], selection)
        else:
            messages = _stretches(mq, stretches, selection)
        limit = remaining_count = sys.maxsize if selection.count is None else selection.count
        with output.progress("messages", is_shown=not sys.stdout.isatty()) as count:
            async with contextlib.aclosing(messages):
                while remaining_count and (message := await anext(messages, None)) is not None:
                    show(message)
                    if selection.follow:
                        sys.stdout.flush()
                    count(1)
                    remaining_count -= 1
        if remaining_count == limit:
            ends = [_place(queue, end) for queue, (_, end) in stretches]
            more = f", ... ({len(ends)} in all)" if len(ends) > SHOWN_QUEUES else ""
            print(f"0 messages read; queues end at {', '.join(ends[:SHOWN_QUEUES])}{more}", file=sys.stderr)


async def _stretches(
    mq: RocketMQ, stretches: Sequence[tuple[MessageQueue, tuple[int, int]]], selection: MessageSelection
) -> AsyncGenerator[ReceivedMessage, None]:
    for queue, (first, end) in stretches:
        if first < end:
            async with contextlib.aclosing(mq.read(queue, first, end, tags=selection.tags)) as messages:
                async for message in messages:
                    yield message


def _queues(readable: Sequence[MessageQueue], selection: MessageSelection) -> list[MessageQueue]:
    if selection.queue is None:
        return list(readable)
    queues = [queue for queue in readable if selection.queue == f"{queue.broker}:{queue.queue_id}"]
    if not queues:
        names = ", ".join(f"{queue.broker}:{queue.queue_id}" for queue in readable) or "none"
        raise NotFound(f"topic {selection.topic} has no queue {selection.queue}; it has {names}")
    return queues


async def _limits(mq: RocketMQ, queue: MessageQueue, selection: MessageSelection) -> tuple[int, int]:
    """The first offset that is asked for, and the end of the queue."""
    first, end = await mq.queue_limits(queue)
    if selection.since is not None:
        first = await mq.offset_at(queue, times.parse(selection.since, "--since"))
    if selection.last is not None:
        first = max(first, end - selection.last)
    return max(first, selection.first or 0), end


async def _follow(
    mq: RocketMQ, starts: Sequence[tuple[MessageQueue, int]], selection: MessageSelection
) -> AsyncGenerator[ReceivedMessage, None]:
    """Yields the messages of all queues as they come, for ever."""
    arrived = asyncio.Queue[ReceivedMessage | TallyError](FOLLOWED_AHEAD)

    async def pump(queue: MessageQueue, first: int) -> None:
        try:
            async for message in mq.read(queue, first, tags=selection.tags):
                await arrived.put(message)
        except TallyError as error:
            await arrived.put(error)

    pumps = [asyncio.create_task(pump(queue, first)) for queue, first in starts]
    try:
        while True:
            item = await arrived.get()
            if isinstance(item, TallyError):
                raise item
            yield item
    finally:
        for task in pumps:
            task.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)


def printer(*, ids: bool, hex_: bool, json: bool) -> Show:
    """How a message goes to stdout."""
    if json:
        return lambda message: output.json_line(_row(message, hex_))
    show = output.payload_printer(hex_=hex_)
    return lambda message: show(f"{_place(message.queue, message.offset)}\t" if ids else "", message.body)


def _row(message: ReceivedMessage, hex_: bool) -> dict[str, object]:
    return {
        "topic": message.topic,
        "broker": message.queue.broker,
        "queue": message.queue.queue_id,
        "offset": message.offset,
        "message_id": message.message_id,
        "stored_ms": message.store_timestamp,
        "properties": message.record.properties,
        **output.payload_json(message.body, hex_=hex_),
    }
