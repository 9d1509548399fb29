"""One message or batch on its way: attempt, failure, next attempt.

A core but for its callbacks' wiring: it decides what the response to an attempt means. An attempt without a response,
or with one that says "not now", is followed by another one, at another broker if there is one, while retries and time
are left. The message keeps its unique key, so that a consumer can recognise the copy that such a retry may leave
behind.
"""

from __future__ import annotations

import enum

import msgspec

from tallystick.errors import BrokerError, RemoteProtocolError, TallyError, Unavailable
from tallystick.rocketmq.client.responses import refusal
from tallystick.rocketmq.wire.headers import SendResponse
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import MessageQueue, ResponseCode


class SendStatus(enum.Enum):
    """What a broker said about a message that it has stored."""

    SEND_OK = ResponseCode.SUCCESS
    FLUSH_DISK_TIMEOUT = ResponseCode.FLUSH_DISK_TIMEOUT  # not yet synced to the master's disk
    FLUSH_SLAVE_TIMEOUT = ResponseCode.FLUSH_SLAVE_TIMEOUT  # not yet at a slave
    SLAVE_NOT_AVAILABLE = ResponseCode.SLAVE_NOT_AVAILABLE  # no slave is near enough to wait for


# A struct is made in a tenth of the time of a dataclass, and there is one for each message.
class SendResult(msgspec.Struct, frozen=True, gc=False):
    """The message is stored. ``offset_id`` tells where (of a batch: all of them, by commas), ``message_id`` is ours.

    ``maybe_twice``: an attempt before this one had no response, so the message may be stored a second time.
    """

    status: SendStatus
    message_id: str
    offset_id: str
    queue: MessageQueue
    queue_offset: int
    maybe_twice: bool = False


_STATUS = {int(status.value): status for status in SendStatus}
# What another attempt may cure, as in the original: a broker that starts, stops, is full, or lacks the topic yet.
_RETRIED = frozenset(
    (
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.NO_PERMISSION,
        ResponseCode.TOPIC_NOT_EXIST,
    )
)


class SendingCore(msgspec.Struct):
    """``failure`` is what to raise if no attempt is left: the first that leaves doubt, else the last."""

    message_id: str
    attempts_left: int
    deadline: float = 0.0  # of all attempts
    avoid: str | None = None  # the broker that failed last
    failure: TallyError | None = None

    def responded(self, queue: MessageQueue, result: Command | TallyError, now: float) -> SendResult | None:
        """An attempt ended. Returns its result, or None if it failed: ask ``may_retry``."""
        self.attempts_left -= 1
        if isinstance(result, Command):
            status = _STATUS.get(result.code)
            if status is not None:
                try:
                    return self._result(queue, status, SendResponse.of(result))
                except RemoteProtocolError as error:
                    result = error
            else:
                result = refusal(result, topic=queue.topic, broker=queue.broker)
        if isinstance(result, RemoteProtocolError):
            result.ambiguous = True  # of what it said nothing is known but that it came
        self.avoid = queue.broker
        if self.failure is None or not self.failure.ambiguous:
            self.failure = result
        self.attempts_left = self.attempts_left if _curable(result) and now < self.deadline else 0
        return None

    @property
    def may_retry(self) -> bool:
        return self.attempts_left > 0

    def _result(self, queue: MessageQueue, status: SendStatus, response: SendResponse) -> SendResult:
        twice = self.failure is not None and self.failure.ambiguous
        if response.queue_id != queue.queue_id:
            queue = MessageQueue(queue.topic, queue.broker, response.queue_id)
        return SendResult(status, self.message_id, response.msg_id, queue, response.queue_offset, twice)


def _curable(error: TallyError) -> bool:
    if isinstance(error, BrokerError):
        return error.response_code in _RETRIED
    return isinstance(error, Unavailable)
