"""What a name server is asked, by request code (``DefaultRequestProcessor``, ``ClientRequestProcessor``).

Any code that is not here gets the original's answer for one that it does not support.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable

import msgspec

from tallystick.errors import RemoteProtocolError, UsageError
from tallystick.rocketmq.nameserver import keys
from tallystick.rocketmq.nameserver.kv import MAX_BYTES, ORDER_TOPICS, KvConfig
from tallystick.rocketmq.nameserver.routes import MAX_NAME_CHARS, Announcement, Routes
from tallystick.rocketmq.nameserver.settings import NameServerSettings
from tallystick.rocketmq.wire import dialect, headers
from tallystick.rocketmq.wire.bodies import (
    BrokerMembers,
    MemberGroup,
    TopicNames,
    TopicTableAnswer,
)
from tallystick.rocketmq.wire.registration import body_crc, decoding
from tallystick.rocketmq.wire.remoting import MAX_FRAME_BYTES, Command
from tallystick.rocketmq.wire.steps import Steps
from tallystick.rocketmq.wire.values import (
    FIRST_STANDARD_JSON_VERSION,
    DataVersion,
    RequestCode,
    ResponseCode,
)
from tallystick.runtime import keyfile
from tallystick.runtime.clock import Clock
from tallystick.runtime.events import Events
from tallystick.runtime.once import Once

CHANGEABLE = frozenset(
    (
        "needWaitForService",
        "waitSecondsForService",
        "orderMessageEnable",
        "returnOrderTopicConfigToBroker",
        "enableTopicList",
        "enableAllTopicList",
    )
)  # settings that only answers depend on

MAX_SETTINGS_BYTES = 16 * 1024  # of a request that changes settings, which is read line by line
MAX_BODY_BYTES = MAX_FRAME_BYTES - 1024  # the header takes some of a frame

STEP_SETS = 50  # broker sets of a list that are written in one step
STEP_NAMES = 10_000

OK, FAILED = ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR
NO_ROUTE = (
    "No topic route info in name server for the topic: {}\n"
    "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
)


class NameRequests:
    """Answers requests, several at a time if some take long; ``link`` tells the connections apart."""

    def __init__(
        self, routes: Routes, config: KvConfig, settings: NameServerSettings, clock: Clock, events: Events
    ) -> None:
        self._routes, self._config, self._settings = routes, config, settings
        self._clock, self._events = clock, events
        self._started = clock.now()
        self._told_refused = Once()  # brokers for which there was no room
        self.refused = 0  # registrations for which there was no room
        self._left_out = False  # the order configuration, of the last registration's answer
        self._answers: dict[int, Callable[[Hashable, Command], Command | Steps[Command]]] = {
            RequestCode.REGISTER_BROKER: self._register,
            RequestCode.UNREGISTER_BROKER: self._unregister,
            RequestCode.BROKER_HEARTBEAT: self._heartbeat,
            RequestCode.QUERY_DATA_VERSION: self._data_version,
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route,
            RequestCode.GET_BROKER_CLUSTER_INFO: self._clusters,
            RequestCode.GET_BROKER_MEMBER_GROUP: self._members,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self._all_topics,
            RequestCode.GET_TOPICS_BY_CLUSTER: self._cluster_topics,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self._system_topics,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self._delete_topic,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self._wipe_write,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self._add_write,
            RequestCode.GET_NAMESRV_CONFIG: self._settings_of,
            RequestCode.UPDATE_NAMESRV_CONFIG: self._update_settings,
            RequestCode.PUT_KV_CONFIG: self._put_kv,
            RequestCode.GET_KV_CONFIG: self._get_kv,
            RequestCode.DELETE_KV_CONFIG: self._delete_kv,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self._list_kv,
        }

    def answer(self, link: Hashable, command: Command) -> Steps[Command]:
        """The answer, in steps of about a millisecond. Never raises for what a peer can send."""
        answer = self._answers.get(command.code)
        if answer is None:
            return command.answer(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {command.code} not supported"
            )
        try:
            made = answer(link, command)
            return made if isinstance(made, Command) else (yield from made)
        except RemoteProtocolError as error:  # a missing header field, or a body that is none
            return command.answer(FAILED, error.message)

    # Itself

    def _settings_of(self, link: Hashable, command: Command) -> Command:
        return command.answer(OK, body=keys.text_of(self._settings).encode())

    def _update_settings(self, link: Hashable, command: Command) -> Command:
        """What a running name server can change it changes; all of it or, if something is refused, nothing."""
        if len(command.body) > MAX_SETTINGS_BYTES:
            remark = f"settings have at most {MAX_SETTINGS_BYTES} bytes"
            return command.answer(ResponseCode.INVALID_PARAMETER, remark)
        try:
            asked = keyfile.parse_properties(bytes(command.body).decode())
            fixed = sorted(asked.keys() - CHANGEABLE)
            if fixed:
                remark = f"{', '.join(fixed)}: read when it starts; change its file and start it again."
                return command.answer(ResponseCode.NO_PERMISSION, remark)
            self._settings = keys.changed(self._settings, asked)
        except (UnicodeDecodeError, UsageError) as error:
            return command.answer(ResponseCode.INVALID_PARAMETER, str(error))
        self._events.emit("settings changed until the next start", **asked)
        return command.answer(OK, "Until the next start: change its file too.")

    # Brokers

    def _register(self, link: Hashable, command: Command) -> Steps[Command]:
        header = headers.RegisterBrokerHeader.of(command)
        body = bytes(command.body)
        if header.body_crc32 and body_crc(body) != header.body_crc32:
            return command.answer(FAILED, "crc32 not match")
        yield
        digest = _digest(header, body)
        is_new = self._routes.data_version(header.cluster_name, header.broker_addr) is None
        now = self._clock.now()
        registered = self._routes.registered_again(header.cluster_name, header.broker_addr, digest, link, now)
        if registered is None:
            announced = yield from self._announced(header, body, command.version, digest)
            registered = yield from self._routes.register(announced, link, self._clock.now())
        if registered is None:
            remark = "register broker failed"
            if is_new and self._routes.is_full(link):
                remark = self._refused(header, f"{remark}: too many brokers are registered, or from one host")
            return command.answer(FAILED, remark)
        if is_new:
            self._events.emit(
                "broker registered", broker=header.broker_name, id=header.broker_id, at=header.broker_addr
            )  # fmt: skip
        if registered.left_out:
            remark = f"{registered.left_out} topics are left out: too many are registered, or from one host"
            return command.answer(FAILED, self._refused(header, remark))
        fields = headers.RegisterBrokerAnswer(registered.ha_address, registered.master_address).to_fields()
        ordered = self._order_topics() if self._settings.return_order_topics else b""
        return command.answer(OK, None, fields, ordered)

    def _announced(
        self, header: headers.RegisterBrokerHeader, body: bytes, version: int, digest: bytes
    ) -> Steps[Announcement]:
        table = TopicTableAnswer(DataVersion(), {})
        if body:
            table = (yield from decoding(body, compressed=header.compressed, version=version)).table
        timeout_ms = header.heartbeat_timeout_millis
        announced = Announcement(
            header.cluster_name,
            header.broker_name,
            header.broker_id,
            header.broker_addr,
            header.ha_server_addr,
            self._settings.broker_timeout_s if timeout_ms is None else timeout_ms / 1000,
            header.enable_acting_master,
            table.version,
            table.topics,
            digest,
        )
        _check_names(announced)
        return announced

    def _refused(self, header: headers.RegisterBrokerHeader, reason: str) -> str:
        """Its remark. A broker says it and tries again; here it is said once for each broker."""
        self.refused += 1
        if self._told_refused.is_new((header.cluster_name, header.broker_name, header.broker_addr)):
            self._events.emit("broker not registered", broker=header.broker_name, at=header.broker_addr, reason=reason)
        return reason

    def _order_topics(self) -> bytes:
        """Left out where it has more than a registration's answer may carry: brokers need its header more."""
        body = self._config.body(ORDER_TOPICS) or b""
        is_too_long, before = len(body) > MAX_BYTES, self._left_out
        self._left_out = is_too_long
        if is_too_long and not before:
            self._events.emit("order configuration not sent to brokers", bytes=len(body), max_bytes=MAX_BYTES)
        return b"" if is_too_long else body

    def _unregister(self, link: Hashable, command: Command) -> Command:
        header = headers.BrokerHeader.of(command)
        self._routes.unregister(header.cluster_name, header.broker_name, header.broker_addr)
        self._events.emit("broker unregistered", broker=header.broker_name, at=header.broker_addr, reason="it said so")
        return command.answer(OK)

    def _heartbeat(self, link: Hashable, command: Command) -> Command:
        header = headers.BrokerHeartbeatHeader.of(command)
        self._routes.heartbeat(header.cluster_name, header.broker_addr, self._clock.now())
        return command.answer(OK)

    def _data_version(self, link: Hashable, command: Command) -> Command:
        header = headers.BrokerHeader.of(command)
        theirs = dialect.read_short(command.body, DataVersion)
        self._routes.heartbeat(header.cluster_name, header.broker_addr, self._clock.now())
        ours = self._routes.data_version(header.cluster_name, header.broker_addr)
        fields = headers.ChangedAnswer(ours != theirs).to_fields()
        return command.answer(OK, None, fields, b"" if ours is None else dialect.write(ours))

    def _members(self, link: Hashable, command: Command) -> Command:
        header = headers.MemberGroupHeader.of(command)
        addresses = self._routes.members(header.broker_name)
        group = MemberGroup(BrokerMembers(header.cluster_name, header.broker_name, addresses))
        return command.answer(OK, "not set any response code", body=dialect.write(group))

    def _wipe_write(self, link: Hashable, command: Command) -> Steps[Command]:
        count = yield from self._routes.set_writeable(headers.BrokerNameHeader.of(command).broker_name, False)
        return command.answer(OK, None, headers.WipeAnswer(count).to_fields())

    def _add_write(self, link: Hashable, command: Command) -> Steps[Command]:
        count = yield from self._routes.set_writeable(headers.BrokerNameHeader.of(command).broker_name, True)
        return command.answer(OK, None, headers.AddWriteAnswer(count).to_fields())

    # Topics

    def _route(self, link: Hashable, command: Command) -> Command:
        header = headers.RouteHeader.of(command)
        settings = self._settings
        if settings.wait_for_service and self._clock.now() - self._started < settings.wait_for_service_s:
            return command.answer(FAILED, "name server not ready")
        route = self._routes.route(header.topic)
        if route is None:
            return command.answer(ResponseCode.TOPIC_NOT_EXIST, NO_ROUTE.format(header.topic))
        if settings.order_message:
            order = self._config.get(ORDER_TOPICS, header.topic)
            route = msgspec.structs.replace(route, order_conf=order)
        quoted = command.version >= FIRST_STANDARD_JSON_VERSION or bool(header.accept_standard_json_only)
        return command.answer(OK, body=dialect.write(route, quoted=quoted))

    def _clusters(self, link: Hashable, command: Command) -> Steps[Command]:
        """``ClusterInfo``, broker set by broker set."""
        sets, size = self._routes.broker_sets(), 0
        for count, (name, brokers) in enumerate(sets.items(), 1):
            size += 3 * len(name) + len(brokers.cluster) + sum(map(len, brokers.addresses.values()))
            if count % STEP_SETS == 0:
                yield
        pieces = []
        for count, (name, brokers) in enumerate(sets.items() if size <= MAX_BODY_BYTES else (), 1):
            pieces.append(b"%s:%s" % (dialect.write(name), dialect.write(brokers)))
            if count % STEP_SETS == 0:
                yield
        clusters = self._routes.clusters()
        text = b'{"brokerAddrTable":{%s},"clusterAddrTable":%s}'
        return _listed(command, size, lambda: text % (b",".join(pieces), dialect.write_strict(clusters)))

    def _all_topics(self, link: Hashable, command: Command) -> Command | Steps[Command]:
        if not self._settings.list_all_topics:
            return command.answer(FAILED, "disable")
        return self._topic_names(command, None)

    def _cluster_topics(self, link: Hashable, command: Command) -> Command | Steps[Command]:
        if not self._settings.list_topics:
            return command.answer(FAILED, "disable")
        return self._topic_names(command, headers.ClusterHeader.of(command).cluster)

    def _topic_names(self, command: Command, cluster: str | None) -> Steps[Command]:
        names = yield from self._routes.topics(cluster)
        size = 0
        for start in range(0, len(names), STEP_NAMES):
            size += sum(map(len, names[start : start + STEP_NAMES]))
            yield
        return _listed(command, size, lambda: dialect.write_strict(TopicNames(names)))

    def _system_topics(self, link: Hashable, command: Command) -> Command:
        """Clusters and broker sets have topics of their names; and the address of some broker."""
        clusters = self._routes.clusters()
        names = list(dict.fromkeys(name for cluster in clusters for name in (cluster, *clusters[cluster])))
        addresses = (held for brokers in self._routes.broker_sets().values() for held in brokers.addresses.values())
        found = TopicNames(names, next(addresses, None))
        return _listed(command, sum(map(len, names)), lambda: dialect.write_strict(found))

    def _delete_topic(self, link: Hashable, command: Command) -> Command:
        topic, cluster = headers.TopicHeader.of(command).topic, command.fields.get("clusterName")
        self._routes.delete_topic(topic, cluster or None)
        self._events.emit("topic removed from routes", topic=topic, cluster=cluster or "all")
        return command.answer(OK)

    # Configuration

    def _put_kv(self, link: Hashable, command: Command) -> Command:
        header = headers.KvHeader.of(command)
        if header.value is None:
            return command.answer(FAILED, "the custom field <value> is null")
        self._config.put(header.namespace, header.key, header.value)
        return command.answer(OK)

    def _get_kv(self, link: Hashable, command: Command) -> Command:
        header = headers.KvHeader.of(command)
        value = self._config.get(header.namespace, header.key)
        if value is None:
            remark = f"No config item, Namespace: {header.namespace} Key: {header.key}"
            return command.answer(ResponseCode.QUERY_NOT_FOUND, remark)
        return command.answer(OK, None, headers.ValueAnswer(value).to_fields())

    def _delete_kv(self, link: Hashable, command: Command) -> Command:
        header = headers.KvHeader.of(command)
        self._config.delete(header.namespace, header.key)
        return command.answer(OK)

    def _list_kv(self, link: Hashable, command: Command) -> Command:
        namespace = headers.NamespaceHeader.of(command).namespace
        body = self._config.body(namespace)
        if body is None:
            return command.answer(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace}")
        return command.answer(OK, body=body)


def _digest(header: headers.RegisterBrokerHeader, body: bytes) -> bytes:
    """A broker says the same every 30 s, mostly: that is recognized in a fiftieth of the time that it takes to read."""
    found = hashlib.blake2b(body, digest_size=32)
    found.update(repr(header).encode())
    return found.digest()


def _check_names(announced: Announcement) -> None:
    """Raises RemoteProtocolError for names that no broker has."""
    texts = {
        "clusterName": announced.cluster,
        "brokerName": announced.name,
        "brokerAddr": announced.address,
        "haServerAddr": announced.ha_address,
        "topicName": max(announced.topics, key=len, default=""),
    }
    for name, text in texts.items():
        if len(text) > MAX_NAME_CHARS:
            raise RemoteProtocolError(f"{name} has at most {MAX_NAME_CHARS} characters", chars=len(text))


def _listed(command: Command, least_bytes: int, write: Callable[[], bytes]) -> Command:
    """The answer with a list of what brokers registered, of at least so many bytes. What fits no frame is not made."""
    body = write() if least_bytes <= MAX_BODY_BYTES else b""
    if max(least_bytes, len(body)) > MAX_BODY_BYTES:
        return command.answer(FAILED, f"more than the {MAX_BODY_BYTES} bytes of a frame: ask for routes by topic")
    return command.answer(OK, body=body)
