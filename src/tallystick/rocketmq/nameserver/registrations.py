"""The requests by which brokers register at a name server, with their topics, and unregister."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Mapping

from tallystick.codec.steps import Steps
from tallystick.errors import RemoteProtocolError
from tallystick.rocketmq.nameserver.kv import MAX_BYTES, ORDER_TOPICS, KvConfig
from tallystick.rocketmq.nameserver.live_brokers import Announcement
from tallystick.rocketmq.nameserver.routes import MAX_NAME_CHARS, RoutesCore
from tallystick.rocketmq.nameserver.settings import NameServerSettings
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.wire import dialect, name_server_headers
from tallystick.rocketmq.wire.bodies import TopicTableResponse
from tallystick.rocketmq.wire.own_headers import OwnRegisterBrokerResponse
from tallystick.rocketmq.wire.registration import body_crc, decode_registration
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import DataVersion, RequestCode, ResponseCode
from tallystick.runtime.clock import Clock
from tallystick.runtime.events import Events
from tallystick.runtime.once import Once

OK, FAILED = ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR

Responder = Callable[[Hashable, Command], Command | Steps[Command]]  # from the connection and its request

_DIGEST_BYTES = 256 * 1024  # in one step


def peer_of(link: Hashable) -> str:
    """Returns who sent a request: an event with it is one of a host's lines of the log, and of no other's."""
    return link.peer if isinstance(link, Link) else str(link)


class Registrations:
    """``responses`` has the responders by request code: they raise RemoteProtocolError for a broken request."""

    def __init__(
        self,
        routes: RoutesCore,
        config: KvConfig,
        settings: Callable[[], NameServerSettings],
        clock: Clock,
        events: Events,
    ) -> None:
        self._routes, self._config, self._settings = routes, config, settings
        self._clock, self._events = clock, events
        self._refusals = Once()  # brokers for which there was no room
        self.refused_count = 0  # registrations for which there was no room
        self._left_out = False  # the order configuration, of the last registration's response
        self.responders: Mapping[int, Responder] = {
            RequestCode.REGISTER_BROKER: self._register,
            RequestCode.UNREGISTER_BROKER: self._unregister,
            RequestCode.BROKER_HEARTBEAT: self._heartbeat,
            RequestCode.QUERY_DATA_VERSION: self._data_version,
        }

    def _register(self, link: Hashable, command: Command) -> Steps[Command]:
        header = name_server_headers.RegisterBrokerHeader.of(command)
        body = bytes(command.body)
        if header.body_crc32 and body_crc(body) != header.body_crc32:
            return command.response(FAILED, "crc32 not match")
        yield
        digest = yield from _digest(header, body)
        is_new = self._routes.data_version(header.cluster_name, header.broker_addr) is None
        now = self._clock.now()
        outcome = self._routes.registered_again(header.cluster_name, header.broker_addr, digest, link, now)
        if outcome is None:
            announcement = yield from self._announcement(header, body, command.version, digest)
            outcome = yield from self._routes.register(announcement, link, self._clock.now())
        if outcome is None:
            remark = "register broker failed"
            if self._routes.is_full(link, announcement):
                remark = self._refuse(
                    link, header, f"{remark}: too many brokers are registered, or from one host, or of one name"
                )
            return command.response(FAILED, remark)
        if is_new:
            self._events.emit(
                "broker registered",
                broker=header.broker_name,
                id=header.broker_id,
                at=header.broker_addr,
                peer=peer_of(link),
            )
        if outcome.begins:
            self._events.emit(
                "two brokers of one id",
                broker=header.broker_name,
                id=header.broker_id,
                at=header.broker_addr,
                instead_of=outcome.displaced,
                peer=peer_of(link),
            )
        if outcome.left_out:
            remark = f"{outcome.left_out} topics are left out: too many, or too many queues"
            return command.response(FAILED, self._refuse(link, header, remark))
        header_fields = OwnRegisterBrokerResponse(outcome.ha_address, outcome.master_address, outcome.displaced)
        order_topics = self._order_topics() if self._settings().return_order_topics else b""
        return command.response(OK, None, header_fields.to_fields(), order_topics)

    def _announcement(
        self, header: name_server_headers.RegisterBrokerHeader, body: bytes, version: int, digest: bytes
    ) -> Steps[Announcement]:
        table = TopicTableResponse(DataVersion(), {})
        if body:
            table = (yield from decode_registration(body, compressed=header.compressed, version=version)).table
        timeout_ms = header.heartbeat_timeout_millis
        announcement = Announcement(
            header.cluster_name,
            header.broker_name,
            header.broker_id,
            header.broker_addr,
            header.ha_server_addr,
            self._settings().broker_timeout_s if timeout_ms is None else timeout_ms / 1000,
            header.enable_acting_master,
            table.version,
            table.topics,
            digest,
        )
        _check_names(announcement)
        return announcement

    def _refuse(self, link: Hashable, header: name_server_headers.RegisterBrokerHeader, reason: str) -> str:
        """Count a refusal and log it once for each broker. Returns the remark of the response."""
        self.refused_count += 1
        if self._refusals.is_new((header.cluster_name, header.broker_name, header.broker_addr)):
            self._events.emit(
                "broker not registered",
                broker=header.broker_name,
                at=header.broker_addr,
                reason=reason,
                peer=peer_of(link),
            )
        return reason

    def _order_topics(self) -> bytes:
        """Returns the order configuration; nothing if it is too long for the response, whose header brokers need
        more."""
        body = self._config.body(ORDER_TOPICS) or b""
        is_too_long, before = len(body) > MAX_BYTES, self._left_out
        self._left_out = is_too_long
        if is_too_long and not before:
            self._events.emit("order configuration not sent to brokers", bytes=len(body), max_bytes=MAX_BYTES)
        return b"" if is_too_long else body

    def _unregister(self, link: Hashable, command: Command) -> Command:
        header = name_server_headers.BrokerHeader.of(command)
        was_there = self._routes.data_version(header.cluster_name, header.broker_addr) is not None
        self._routes.unregister(header.cluster_name, header.broker_name, header.broker_addr)
        if was_there:
            self._events.emit(
                "broker unregistered",
                broker=header.broker_name,
                at=header.broker_addr,
                reason="it said so",
                peer=peer_of(link),
            )
        return command.response(OK)

    def _heartbeat(self, link: Hashable, command: Command) -> Command:
        header = name_server_headers.BrokerHeartbeatHeader.of(command)
        self._routes.heartbeat(header.cluster_name, header.broker_addr, self._clock.now())
        return command.response(OK)

    def _data_version(self, link: Hashable, command: Command) -> Command:
        header = name_server_headers.BrokerHeader.of(command)
        broker_version = dialect.read_short(command.body, DataVersion)
        self._routes.heartbeat(header.cluster_name, header.broker_addr, self._clock.now())
        known_version = self._routes.data_version(header.cluster_name, header.broker_addr)
        fields = name_server_headers.DataVersionResponse(known_version != broker_version).to_fields()
        return command.response(OK, None, fields, b"" if known_version is None else dialect.write(known_version))


def _digest(header: name_server_headers.RegisterBrokerHeader, body: bytes) -> Steps[bytes]:
    """Returns a digest by which the same registration, every 30 s, is known in a fiftieth of the time of reading it."""
    digest, view = hashlib.blake2b(repr(header).encode(), digest_size=32), memoryview(body)
    for start in range(0, len(body), _DIGEST_BYTES):
        digest.update(view[start : start + _DIGEST_BYTES])
        yield
    return digest.digest()


def _check_names(announcement: Announcement) -> None:
    """Raises RemoteProtocolError for names that no broker has."""
    texts = {
        "clusterName": announcement.cluster,
        "brokerName": announcement.name,
        "brokerAddr": announcement.address,
        "haServerAddr": announcement.ha_address,
        "topicName": max(announcement.topics, key=len, default=""),
    }
    for name, text in texts.items():
        if len(text) > MAX_NAME_CHARS:
            raise RemoteProtocolError(f"{name} has at most {MAX_NAME_CHARS} characters", chars=len(text))
