"""All sends of one loop tick: one append, one wait for disk and slaves, a response each (H9, H10).

Sends with very many messages or bytes, or that give back long ones, are appended before the next ones are looked at.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Protocol

from tallystick.errors import RemoteProtocolError
from tallystick.rocketmq.broker.metrics import BrokerCounts
from tallystick.rocketmq.broker.refusals import OVERLOADED, REJECTED, Refusal
from tallystick.rocketmq.broker.role import Standing
from tallystick.rocketmq.broker.saves import Saves
from tallystick.rocketmq.broker.send_checks import REGION, REGION_NAME, TRACE, CheckedSend, SendChecks
from tallystick.rocketmq.broker.sendback import ExistingCopy, SendBack
from tallystick.rocketmq.broker.sink_checks import RepeatedSend, SinkChecks, SinkSend
from tallystick.rocketmq.ha.acks import Settle, Settled, Ticket
from tallystick.rocketmq.remoting.dispatch import Handler, Reply
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.remoting.refusals import Refusals
from tallystick.rocketmq.store.values import PutRequest, PutResult
from tallystick.rocketmq.wire.headers import SendResponse
from tallystick.rocketmq.wire.message_ids import encode_host
from tallystick.rocketmq.wire.own_headers import SendBackResponse
from tallystick.rocketmq.wire.record import MAX_PROPERTIES_BYTES
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.sink_identity import SinkIdentity
from tallystick.rocketmq.wire.values import Flag, PutStatus, RequestCode, ResponseCode
from tallystick.runtime.events import Events

SENDS = frozenset(
    (
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.SEND_SINK_BATCH,
        RequestCode.CONSUMER_SEND_MSG_BACK,
    )
)
PUT_BYTES = 4 * 1024 * 1024  # of messages, or one message or batch that is longer: one append
PUT_MESSAGES = 2_000  # in one append, or one batch that has more: some 3 us each
MAX_WAITING = 100_000  # responses that wait for disk or slaves; more sends are refused until they are fewer
_PendingSend = tuple[Reply, Command, CheckedSend]
_Check = CheckedSend | SinkSend | ExistingCopy | RepeatedSend | Refusal
# A response; whether its topic is not saved yet; of a message that was given back the physical offset of the copy.
_WaitingResponse = tuple[Reply, Command, bool, int | None]

# An attribute of an enum costs ten times a name, and these are looked at for each message.
_SEND_BACK, _ONE_WAY = int(RequestCode.CONSUMER_SEND_MSG_BACK), int(Flag.ONE_WAY)
_SINK_BATCH = int(RequestCode.SEND_SINK_BATCH)
_OK, _SUCCESS = PutStatus.PUT_OK, int(ResponseCode.SUCCESS)
_CHECKED_FIELDS = {TRACE: "true", REGION: REGION_NAME}


class SendLog(Protocol):
    """The log, as sends use it."""

    @property
    def waits(self) -> bool:
        """Whether the responses to sends wait, unless their messages opt out."""
        ...

    def put(self, put_requests: Sequence[PutRequest], sink: SinkIdentity | None = None) -> list[PutResult]:
        """Append all messages at once; ``sink`` is the identity of the last one, if it is one of a sink."""
        ...

    def wait(self, first_end: int, end: int) -> Settled:
        """Begin to wait until disk and slaves have the sends up to ``end``, the first of which ends at ``first_end``,
        as the settings say."""
        ...


class Sends:
    """Stores messages. ``settled`` is called with the outcome of waits."""

    def __init__(
        self,
        log: SendLog,
        *,
        send_checks: SendChecks,
        send_back: SendBack,
        sink_checks: SinkChecks,
        saves: Saves,
        counts: BrokerCounts,
        events: Events,
        store_host: bytes,
        standing: Standing,
        max_message_bytes: int,
        file_bytes: int,
        refusal: Callable[[], str | None],
        fresh: Container[str],
    ) -> None:
        """No record is longer than ``file_bytes``. ``refusal()`` returns why the log takes no messages, or None.
        ``fresh`` has the topics that are not saved: no message is acknowledged in one that a crash may take away."""
        self._log, self._saves, self._counts = log, saves, counts
        self._send_checks, self._send_back, self._sink_checks = send_checks, send_back, sink_checks
        self._events, self._standing, self._refusal, self._fresh = events, standing, refusal, fresh
        self._refusals = Refusals(events)
        self.handlers: Mapping[int, Handler] = dict.fromkeys(SENDS, self.take)
        self._limits = f"msg body length limit {max_message_bytes}B, msg properties length limit 32KB."
        if file_bytes <= max_message_bytes:
            self._limits += (
                f" A file of the log has {file_bytes}B (mappedFileSizeCommitLog), and each message is in one."
            )
        self._host_digits = store_host.hex().upper()  # with which message ids begin
        self._hosts: dict[Link, bytes] = {}
        self._waiting_responses: dict[Ticket, list[_WaitingResponse]] = {}
        self._waiting_count = 0
        self._pending_sends: list[_PendingSend] = []  # what the next append has
        self._pending_messages = self._pending_bytes = 0

    def take(self, link: Link, command: Command, reply: Reply) -> None:
        """Check a send and note it for the next append; ``put`` is due at the end of the turn."""
        if command.code == _SINK_BATCH:
            self.put()  # it is judged by all that is stored before it
        checked_send = self._check(link, command)
        if isinstance(checked_send, ExistingCopy | RepeatedSend):
            self._wait_for(checked_send, command, reply)
            return
        if isinstance(checked_send, SinkSend):
            self._pending_sends.append((reply, command, checked_send.checked_send))
            self.put(checked_send)
            return
        if not isinstance(checked_send, CheckedSend):
            self._counts.sends_refused += 1
            self._refuse(command, checked_send, reply)
            return
        self._pending_sends.append((reply, command, checked_send))
        messages = checked_send.put_request.messages
        self._pending_messages += len(messages)
        if command.code == _SEND_BACK:  # its message was read from the log
            self._pending_bytes += sum(len(body) + len(properties) for _, body, properties in messages)
        else:
            self._pending_bytes += len(command.body)
        if self._pending_messages >= PUT_MESSAGES or self._pending_bytes >= PUT_BYTES:
            self.put()

    def put(self, sink: SinkSend | None = None) -> None:
        """Append the pending sends, in order; ``sink`` is the last of them, if it is one of a sink."""
        sends, self._pending_sends = self._pending_sends, []
        self._pending_messages = self._pending_bytes = 0
        if not sends:
            return
        try:
            self._put(sends, sink)
        except Exception as error:  # a bug of ours: the peers get a response all the same
            self._events.emit("request failed", reason=repr(error), requests=len(sends))
            for reply, command, _ in sends:
                if reply.due:
                    reply(command.response(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}"))

    def _put(self, sends: Sequence[_PendingSend], sink: SinkSend | None) -> None:
        identity = sink.last if sink is not None else None
        puts = self._log.put([checked_send.put_request for _, _, checked_send in sends], identity)
        waiting_responses: list[_WaitingResponse] = []
        first_end = end = 0
        may_wait, fresh = self._log.waits, self._fresh
        for (reply, command, checked_send), put in zip(sends, puts, strict=True):
            if command.flag & _ONE_WAY:
                continue
            response, is_fresh = self._response_to(command, checked_send, put), checked_send.put_request.topic in fresh
            if may_wait and checked_send.wait and put.status is _OK:
                waiting_responses.append(
                    (reply, response, is_fresh, put.offsets[0] if command.code == _SEND_BACK else None)
                )
                first_end, end = first_end or put.end, put.end
            elif is_fresh:
                self._send_saved(reply, response)
            else:
                reply(response)
        self._count(sends, puts)
        if waiting_responses:
            if sink is not None and sink.first_end is not None:
                first_end = min(first_end, sink.first_end)
            self._wait(first_end, end, waiting_responses)

    def settled(self, settles: Iterable[Settle]) -> None:
        """Waits are over: send their responses."""
        for settle in settles:
            responses = self._waiting_responses.pop(settle.ticket, [])
            self._waiting_count -= len(responses)
            if settle.status is not _OK:
                self._counts.late[settle.status] = self._counts.late.get(settle.status, 0) + len(responses)
            code = settle.status.response_code
            for reply, response, is_fresh, copy in responses:
                if copy is None:
                    response.code = code
                elif settle.status is not _OK:
                    # It is stored: who hears of a failure stores it once more, and so does each of its deliveries.
                    response.remark = settle.status.name
                    response.ext = SendBackResponse(copy, settle.disk_late or None).to_fields()
                if is_fresh:
                    self._send_saved(reply, response)
                else:
                    reply(response)

    def _send_saved(self, reply: Reply, response: Command) -> None:
        """Send the response when the new topic is on the disk, as the message must be; it is an error if the topic
        cannot be saved."""
        self._saves.send(reply, response, self._saves.changes, ResponseCode.FLUSH_DISK_TIMEOUT)

    def closed(self, link: Link) -> None:
        self._hosts.pop(link, None)

    def _check(self, link: Link, command: Command) -> _Check | None:
        if self._standing.is_slave:
            return REJECTED
        if self._waiting_count >= MAX_WAITING:
            return OVERLOADED
        try:
            if command.code == _SEND_BACK:
                return self._send_back.check(command, link.peer)
            host = self._hosts.get(link)
            if host is None:
                address, _, port = link.peer.rpartition(":")
                host = encode_host(address, int(port))
                if link.alive:  # else ``closed`` was called
                    self._hosts[link] = host
            checked_send = self._send_checks.check(command, link.peer, host)
            if command.code == _SINK_BATCH and isinstance(checked_send, CheckedSend):
                return self._sink_checks.check(checked_send)
            return checked_send
        except RemoteProtocolError as error:
            return Refusal(ResponseCode.SYSTEM_ERROR, error.message, checked=False)
        except Exception as error:  # a bug of ours: this one send fails, not those of its tick
            self._events.emit("request failed", peer=link.peer, code=command.code, reason=repr(error))
            return Refusal(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}", checked=False)

    def _wait_for(self, existing: ExistingCopy | RepeatedSend, command: Command, reply: Reply) -> None:
        """Wait for what is stored alone: disk and slaves may have it for long, though they lack later messages."""
        copy = existing.offset if isinstance(existing, ExistingCopy) else None
        fields = existing.fields if isinstance(existing, RepeatedSend) else None
        response, is_fresh = command.response(_SUCCESS, None, fields), existing.topic in self._fresh
        if command.is_one_way:
            return
        if self._log.waits:
            first_end = existing.first_end if isinstance(existing, RepeatedSend) else existing.end
            self._wait(first_end, existing.end, [(reply, response, is_fresh, copy)])
        elif is_fresh:
            self._send_saved(reply, response)
        else:
            reply(response)

    def _wait(self, first_end: int, end: int, waiting_responses: list[_WaitingResponse]) -> None:
        wait = self._log.wait(first_end, end)
        self._waiting_responses[wait.ticket] = waiting_responses
        self._waiting_count += len(waiting_responses)
        self.settled(wait.settles)

    def _count(self, sends: Sequence[_PendingSend], puts: Sequence[PutResult]) -> None:
        messages, sizes = 0, dict[str, int]()
        refused_count = len(puts)
        for (_, _, checked_send), put in zip(sends, puts, strict=True):
            if put.status is _OK:
                topic, offsets = checked_send.put_request.topic, put.offsets
                refused_count -= 1
                messages += len(offsets)
                sizes[topic] = sizes.get(topic, 0) + put.end - offsets[0]
        counts = self._counts
        counts.sends_refused += refused_count
        counts.messages_in += messages
        counts.bytes_in += sum(sizes.values())
        for topic, size in sizes.items():
            counts.bytes_by_topic[topic] = counts.bytes_by_topic.get(topic, 0) + size

    def _response_to(self, command: Command, checked_send: CheckedSend, put: PutResult) -> Command:
        if put.status is not _OK:
            return self._failure(command, put.status)
        if command.code == _SEND_BACK:
            return command.response(_SUCCESS)
        header = SendResponse(
            msg_id=self._ids_of(put.offsets),
            queue_id=checked_send.put_request.queue_id,
            queue_offset=put.queue_offset,
            transaction_id=checked_send.unique_key,
        )
        return command.response(_SUCCESS, None, header.to_fields())

    def _ids_of(self, offsets: Sequence[int]) -> str:
        digits = self._host_digits
        if len(offsets) == 1:
            return f"{digits}{offsets[0]:016X}"
        hex_offsets = struct.pack(f">{len(offsets)}q", *offsets).hex(",", 8).upper()
        return digits + hex_offsets.replace(",", f",{digits}")

    def _failure(self, command: Command, status: PutStatus) -> Command:
        if command.code == _SEND_BACK:
            return command.response(ResponseCode.SYSTEM_ERROR, status.name)
        remark = status.name
        if status in (PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED):
            remark = f"the message is illegal, maybe msg body or properties length not matched. {self._limits}"
            if status is PutStatus.PROPERTIES_SIZE_EXCEEDED:
                remark += f" The properties, with the broker's own, have more than {MAX_PROPERTIES_BYTES} bytes."
        elif status is PutStatus.SERVICE_NOT_AVAILABLE:
            remark = f"service not available now: {self._refusal() or 'the store takes no messages'}"
        elif status is PutStatus.CREATE_MAPPED_FILE_FAILED:
            remark = "create mapped file failed, server is busy or broken."
        return command.response(status.response_code, remark, dict(_CHECKED_FIELDS))

    def _refuse(self, command: Command, refusal: Refusal | None, reply: Reply) -> None:
        """Respond to a send that stores nothing. ``refusal`` is None if there was nothing to store."""
        if command.is_one_way:
            return
        if refusal is None:
            reply(command.response(ResponseCode.SUCCESS))
            return
        response = command.response(refusal.code, refusal.remark, dict(_CHECKED_FIELDS) if refusal.checked else None)
        self._refusals.responded(reply.link.peer, command, response)
        reply(response)
