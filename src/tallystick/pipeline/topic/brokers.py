"""Pulling from broker sets whose addresses are known: no name server is asked.

Whatever process of a set has the messages will do (H13). That none has them is certain only when each has said so: one
that sent no response may have them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tallystick.codec.pulled import PulledRun, scan_pulled
from tallystick.errors import (
    BrokerError,
    BrokerUnavailable,
    NoSuchMessage,
    RemoteProtocolError,
    TallyError,
    Unavailable,
)
from tallystick.pipeline.columns import BATCH_BYTES
from tallystick.pipeline.gather import first_false
from tallystick.pipeline.key_files import security_here
from tallystick.pipeline.topic.plan import BrokerSets
from tallystick.pipeline.topic.uniform import UniformRun, scan_uniform
from tallystick.rocketmq.client.responses import refusal
from tallystick.rocketmq.client.settings import BrokerClientSettings
from tallystick.rocketmq.client.topic import BrokerChoice
from tallystick.rocketmq.remoting.client import RemotingClient
from tallystick.rocketmq.remoting.security import open_client
from tallystick.rocketmq.wire.headers import PullHeader, PullResponse
from tallystick.rocketmq.wire.remoting import Command, request
from tallystick.rocketmq.wire.values import MASTER_ID, MessageQueue, PullFlag, RequestCode, ResponseCode
from tallystick.runtime.clock import Clock
from tallystick.runtime.events import Events
from tallystick.runtime.log import log_listener
from tallystick.runtime.machine import this_machine

NOTHING_THERE = (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_OFFSET_MOVED)


@dataclass(frozen=True)
class Pulled:
    """Some messages of a queue, with offsets that follow each other, and the bytes of their records."""

    queue: MessageQueue
    run: PulledRun | UniformRun
    size: int

    def column(self, name: str) -> npt.NDArray[Any]:
        """Returns a field of all records: numbers as they are, or bytes."""
        if isinstance(self.run, UniformRun):
            return self.run.column(name)
        values = getattr(self.run, name)
        return np.array(values) if values and isinstance(values[0], int) else np.array(values, object)


def judge(response: Command, queue: MessageQueue, offset: int) -> Pulled:
    """Returns the messages of a pull response, from ``offset`` on, at least one.

    Raises NoSuchMessage when the process does not have the message at ``offset``, or one in the middle of what it gave;
    BrokerUnavailable when it has it and cannot read it now; NoSuchTopic and BrokerError for a refusal;
    RemoteProtocolError for records that are damaged.
    """
    if response.code in NOTHING_THERE:
        raise _nothing_there(response, queue, offset)
    if response.code != ResponseCode.SUCCESS:
        raise refusal(response, queue=queue)
    body = bytes(response.body)
    run = scan_uniform(body) or scan_pulled(body)
    if run.end != len(body) or not body:
        raise RemoteProtocolError("a broker gave records that are damaged", queue=queue, offset=offset)
    pulled = Pulled(queue, run, len(body))
    offsets = pulled.column("queue_offsets")
    good_count = first_false(offsets == np.arange(offset, offset + len(run)))
    if good_count < len(run):
        place, following = offset + good_count, int(offsets[good_count])
        raise NoSuchMessage("the queue has a gap", queue=queue, offset=place, next=following)
    return pulled


def _nothing_there(response: Command, queue: MessageQueue, offset: int) -> NoSuchMessage | BrokerUnavailable:
    """Returns what it means that a process gave no message. One that builds a queue again from its log says how far
    that reaches, and that the reader is to stay: the message is there."""
    limits = PullResponse.of(response)
    first, end, following = limits.min_offset, limits.max_offset, limits.next_begin_offset
    if response.code == ResponseCode.PULL_NOT_FOUND and first <= offset == following < end:
        reason = "the broker has this message, and it cannot be read now: its queue is built again"
        return BrokerUnavailable(reason, queue=queue, offset=offset, first=first, end=end, said=response.remark)
    reason = "the queue does not reach to this offset (any more)"
    behind = {"next": following} if offset < following <= end else {}
    return NoSuchMessage(reason, queue=queue, offset=offset, first=first, end=end, said=response.remark, **behind)


class SetResponse(NamedTuple):
    """``is_sure`` is False if only a slave responded: it may lack what its master has."""

    command: Command
    is_sure: bool


class TopicClient:
    """Used on one running loop; ``close`` it. ``brokers`` may be replaced by those of a newer route."""

    def __init__(self, brokers: BrokerSets, remoting: RemotingClient, clock: Clock) -> None:
        self.brokers, self._remoting, self._clock = brokers, remoting, clock
        self._settings = BrokerClientSettings()
        self._choice = BrokerChoice(self._settings.down_s)

    async def pull(self, queue: MessageQueue, offset: int, count: int) -> Pulled:
        """At most ``count`` messages, at least one: brokers give as many as they see fit.

        Raises Unavailable when a process of the set sends no response, or cannot read the messages now, and no other
        has them; else as ``judge``.
        """
        silence_error: TallyError | None = None
        refusal_error: TallyError | None = None
        unread_error: TallyError | None = None
        own_fields = {"queueOffset": str(offset), "maxMsgNums": str(count)}
        command = request(RequestCode.PULL_MESSAGE, _fields(self.brokers.group, queue) | own_fields)
        for address in self._in_turn(queue.broker, slave_first=self.brokers.slave_first):
            try:
                response = await self._ask(address, command)
            except Unavailable as error:
                silence_error = error
                continue
            try:
                return judge(response, queue, offset)
            except BrokerUnavailable as error:
                unread_error = error
            except (BrokerError, RemoteProtocolError) as error:
                refusal_error = refusal_error or error
        if unread_error is not None:
            raise unread_error
        if refusal_error is not None and silence_error is None:
            raise refusal_error
        reason = "the others do not have it" if refusal_error else "nobody answers"
        raise Unavailable(f"a broker does not answer, and {reason}", queue=queue, offset=offset) from silence_error

    async def ask_set(self, broker: str, command: Command) -> SetResponse:
        """Returns the response of the first process of a broker set that sends one, the master before its slaves.
        Raises BrokerUnavailable."""
        failure: TallyError | None = None
        for address in self._in_turn(broker, slave_first=False):
            try:
                response = await self._ask(address, command)
            except Unavailable as error:
                failure = error
                continue
            return SetResponse(response, address == self.brokers.addresses[broker].get(MASTER_ID))
        raise BrokerUnavailable("no broker of this set answers", broker=broker) from failure

    def _in_turn(self, broker: str, *, slave_first: bool) -> Iterator[str]:
        """The addresses of a set, each once; those that failed just now come last."""
        addresses = dict(self.brokers.addresses.get(broker, {}))
        slaves = sorted(id for id in addresses if id != MASTER_ID)
        preferred = slaves[0] if slaves and slave_first else MASTER_ID
        while address := self._choice.choose(addresses, preferred, self._clock.now()):
            addresses = {id: other for id, other in addresses.items() if other != address}
            yield address

    async def _ask(self, address: str, command: Command) -> Command:
        try:
            response = await self._remoting.ask(address, command, self._settings.request_timeout_s)
        except Unavailable:
            self._choice.failed(address, self._clock.now())
            raise
        self._choice.responded(address)
        return response

    async def close(self) -> None:
        await self._remoting.close()


@lru_cache(maxsize=1024)
def _fields(group: str, queue: MessageQueue) -> dict[str, str]:
    """Returns the fields that all pulls of a queue share, with a place for the others."""
    return PullHeader(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=0,
        max_msg_nums=0,
        sys_flag=int(PullFlag.SUBSCRIPTION),
        commit_offset=0,
        suspend_timeout_millis=0,
        subscription="*",
        sub_version=0,
        expression_type="TAG",
        max_msg_bytes=BATCH_BYTES,
        broker=queue.broker,
    ).to_fields()


@dataclass(frozen=True)
class Brokers:
    """What a worker connects to for topics: the brokers of a plan."""

    sets: BrokerSets

    async def connect(self) -> TopicClient:
        outside = this_machine(Events(log_listener()))
        return TopicClient(self.sets, open_client(outside, security_here(self.sets.security)), outside.clock)
