"""The requests to a name server, by code (``DefaultRequestProcessor``, ``ClientRequestProcessor``).

A responder returns the response, or steps of about a millisecond that end in it. A change of the disk has its response
behind that.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from itertools import islice

import msgspec

from tallystick.codec.steps import Steps
from tallystick.errors import BrokerError, RemoteProtocolError, TallyError, UsageError
from tallystick.rocketmq.nameserver.keys import KEYS, SCHEMA
from tallystick.rocketmq.nameserver.kv import ORDER_TOPICS, KvConfig
from tallystick.rocketmq.nameserver.registrations import Registrations, Responder, peer_of
from tallystick.rocketmq.nameserver.routes import RoutesCore
from tallystick.rocketmq.nameserver.settings import NameServerSettings
from tallystick.rocketmq.wire import dialect, headers, name_server_headers
from tallystick.rocketmq.wire.bodies import (
    BrokerMembers,
    MemberGroup,
    TopicNames,
)
from tallystick.rocketmq.wire.remoting import MAX_FRAME_BYTES, Command
from tallystick.rocketmq.wire.values import (
    FIRST_STANDARD_JSON_VERSION,
    BrokerRoute,
    RequestCode,
    ResponseCode,
)
from tallystick.runtime import keyfile
from tallystick.runtime.clock import Clock
from tallystick.runtime.events import Events

CHANGEABLE = frozenset(
    (
        "needWaitForService",
        "waitSecondsForService",
        "orderMessageEnable",
        "returnOrderTopicConfigToBroker",
        "enableTopicList",
        "enableAllTopicList",
    )
)  # settings that only responses depend on

CHANGES = frozenset((RequestCode.PUT_KV_CONFIG, RequestCode.DELETE_KV_CONFIG))  # of what is on the disk
MAX_SETTINGS_BYTES = 16 * 1024  # of a request that changes settings, which is read line by line
MAX_BODY_BYTES = MAX_FRAME_BYTES - 1024  # the header takes some of a frame

STEP_SETS = 50  # broker sets of a list that are written in one step
STEP_CLUSTERS = 500  # whose names are gathered in one step
STEP_SIZES = 10_000  # names of a list that are counted in one step
STEP_NAMES = 500  # that are written: each has up to 1.5 KB

OK, FAILED = ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR
_BY_TOPIC = "ask for routes by topic"
NO_ROUTE = (
    "No topic route info in name server for the topic: {}\n"
    "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
)


class NameRequests:
    """Responds to requests, several at a time if some take long; ``link`` tells the connections apart."""

    def __init__(
        self, routes: RoutesCore, config: KvConfig, settings: NameServerSettings, clock: Clock, events: Events
    ) -> None:
        self._routes, self._config, self._settings = routes, config, settings
        self._clock, self._events = clock, events
        self._started_at = clock.now()
        self.brokers = Registrations(routes, config, lambda: self._settings, clock, events)
        self.responders: Mapping[int, Responder] = {
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
            RequestCode.GET_KV_CONFIG: self._get_kv,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self._list_kv,
        }

    # Itself

    def _settings_of(self, link: Hashable, command: Command) -> Command:
        return command.response(OK, body=SCHEMA.text(self._settings).encode())

    def _update_settings(self, link: Hashable, command: Command) -> Command:
        """Change settings that a running name server can change; all of them or, if one is refused, none."""
        if len(command.body) > MAX_SETTINGS_BYTES:
            remark = f"settings have at most {MAX_SETTINGS_BYTES} bytes"
            return command.response(ResponseCode.INVALID_PARAMETER, remark)
        try:
            changes = keyfile.parse_properties(bytes(command.body).decode())
            fixed = sorted(changes.keys() - CHANGEABLE)
            if fixed:
                remark = f"{', '.join(fixed)}: read when it starts; change its file and start it again."
                return command.response(ResponseCode.NO_PERMISSION, remark)
            self._settings = KEYS.change(self._settings, changes)
        except (UnicodeDecodeError, UsageError) as error:
            return command.response(ResponseCode.INVALID_PARAMETER, str(error))
        self._events.emit("settings changed until the next start", **changes)
        return command.response(OK, "Until the next start: change its file too.")

    # Broker sets

    def _members(self, link: Hashable, command: Command) -> Command:
        header = name_server_headers.MemberGroupHeader.of(command)
        addresses = self._routes.sets.members(header.broker_name)
        group = MemberGroup(BrokerMembers(header.cluster_name, header.broker_name, addresses))
        return command.response(OK, "not set any response code", body=dialect.write(group))

    def _wipe_write(self, link: Hashable, command: Command) -> Steps[Command]:
        count = yield from self._routes.set_writeable(
            name_server_headers.BrokerNameHeader.of(command).broker_name, False
        )
        return command.response(OK, None, name_server_headers.WipeWriteResponse(count).to_fields())

    def _add_write(self, link: Hashable, command: Command) -> Steps[Command]:
        count = yield from self._routes.set_writeable(
            name_server_headers.BrokerNameHeader.of(command).broker_name, True
        )
        return command.response(OK, None, name_server_headers.AddWriteResponse(count).to_fields())

    # Topics

    def _route(self, link: Hashable, command: Command) -> Steps[Command]:
        header = name_server_headers.RouteHeader.of(command)
        settings = self._settings
        if settings.wait_for_service and self._clock.now() - self._started_at < settings.wait_for_service_s:
            return command.response(FAILED, "name server not ready")
        route = yield from self._routes.route(header.topic)
        if route is None:
            return command.response(ResponseCode.TOPIC_NOT_EXIST, NO_ROUTE.format(header.topic))
        if settings.order_message:
            order = self._config.get(ORDER_TOPICS, header.topic)
            route = msgspec.structs.replace(route, order_conf=order)
        quoted = command.version >= FIRST_STANDARD_JSON_VERSION or bool(header.accept_standard_json_only)
        pieces = dialect.write_pieces(route, quoted=quoted)
        return (yield from _response_of_pieces(command, pieces, "too many brokers have it"))

    def _clusters(self, link: Hashable, command: Command) -> Steps[Command]:
        """``ClusterInfo``, broker set by broker set."""
        sets, least = self._routes.sets.routes(), 0
        for count, (name, brokers) in enumerate(sets.items(), 1):
            least += 3 * len(name) + len(brokers.cluster) + sum(map(len, brokers.addresses.values()))
            if count % STEP_SETS == 0:
                yield
        return (yield from _list_response(command, least, _cluster_info(sets, self._routes.sets.clusters())))

    def _all_topics(self, link: Hashable, command: Command) -> Command | Steps[Command]:
        if not self._settings.list_all_topics:
            return command.response(FAILED, "disable")
        return self._topic_names(command, None)

    def _cluster_topics(self, link: Hashable, command: Command) -> Command | Steps[Command]:
        if not self._settings.list_topics:
            return command.response(FAILED, "disable")
        return self._topic_names(command, name_server_headers.ClusterHeader.of(command).cluster)

    def _topic_names(self, command: Command, cluster: str | None) -> Steps[Command]:
        names = yield from self._routes.topics(cluster)
        least = 0
        for start in range(0, len(names), STEP_SIZES):
            least += sum(map(len, names[start : start + STEP_SIZES]))
            yield
        return (yield from _list_response(command, least, _topic_names(names)))

    def _system_topics(self, link: Hashable, command: Command) -> Steps[Command]:
        """Respond with the names of clusters and broker sets, which are topics too, and the address of some broker."""
        names: dict[str, None] = {}
        for count, (cluster, sets) in enumerate(self._routes.sets.clusters().items(), 1):
            names.update(dict.fromkeys((cluster, *sets)))
            if count % STEP_CLUSTERS == 0:
                yield
        pieces = _topic_names(list(names), self._routes.sets.first_address())
        return (yield from _list_response(command, sum(map(len, names)), pieces))

    def _delete_topic(self, link: Hashable, command: Command) -> Command:
        topic, cluster = headers.TopicHeader.of(command).topic, command.fields.get("clusterName")
        if self._routes.delete_topic(topic, cluster or None):
            self._events.emit("topic removed from routes", topic=topic, cluster=cluster or "all", peer=peer_of(link))
        return command.response(OK)

    # Configuration

    def change(self, command: Command, host: str, send: Callable[[Command], None]) -> None:
        """One of ``CHANGES``: ``send`` gets the response when it is on the disk. Never raises for what a peer sends."""

        def done(error: Exception | None) -> None:
            if isinstance(error, BrokerError):
                send(command.response(error.response_code, error.message))
            elif error is not None:
                send(command.response(FAILED, error.message if isinstance(error, TallyError) else repr(error)))
            else:
                send(command.response(OK))

        try:
            header = name_server_headers.KvHeader.of(command)
        except RemoteProtocolError as error:
            done(error)
            return
        if command.code == RequestCode.DELETE_KV_CONFIG:
            self._config.delete(header.namespace, header.key, host, done)
        elif header.value is None:
            send(command.response(FAILED, "the custom field <value> is null"))
        else:
            self._config.put(header.namespace, header.key, header.value, host, done)

    def _get_kv(self, link: Hashable, command: Command) -> Command:
        header = name_server_headers.KvHeader.of(command)
        value = self._config.get(header.namespace, header.key)
        if value is None:
            remark = f"No config item, Namespace: {header.namespace} Key: {header.key}"
            return command.response(ResponseCode.QUERY_NOT_FOUND, remark)
        return command.response(OK, None, name_server_headers.ValueResponse(value).to_fields())

    def _list_kv(self, link: Hashable, command: Command) -> Command:
        namespace = name_server_headers.NamespaceHeader.of(command).namespace
        body = self._config.body(namespace)
        if body is None:
            return command.response(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace}")
        return command.response(OK, body=body)


def _list_response(command: Command, least_bytes: int, pieces: Iterable[bytes]) -> Steps[Command]:
    """Returns a response with a list of what brokers registered, of at least so many bytes; one that fits no frame is
    not made."""
    if least_bytes > MAX_BODY_BYTES:
        return _too_long(command, _BY_TOPIC)
    return (yield from _response_of_pieces(command, pieces, _BY_TOPIC))


def _response_of_pieces(command: Command, pieces: Iterable[bytes], hint: str) -> Steps[Command]:
    """Returns a response with a text of any length, a step for each piece; one that fits no frame is not made."""
    body, size = [], 0
    for piece in pieces:
        body.append(piece)
        size += len(piece)
        if size > MAX_BODY_BYTES:
            return _too_long(command, hint)
        yield
    return command.response(OK, body=b"".join(body))


def _too_long(command: Command, hint: str) -> Command:
    return command.response(FAILED, f"more than the {MAX_BODY_BYTES} bytes of a frame: {hint}")


def _topic_names(names: list[str], address: str | None = None) -> Iterator[bytes]:
    """``TopicNames``."""
    before, _, behind = dialect.write_strict(TopicNames([], address)).partition(b"[]")
    yield before
    yield from _names(names)
    yield behind


def _cluster_info(sets: Mapping[str, BrokerRoute], clusters: Mapping[str, list[str]]) -> Iterator[bytes]:
    """``ClusterInfo``."""
    yield b'{"brokerAddrTable":{'
    items, between = iter(sets.items()), b""
    while some := list(islice(items, STEP_SETS)):
        yield between + b",".join(b"%s:%s" % (dialect.write(name), dialect.write(brokers)) for name, brokers in some)
        between = b","
    yield b'},"clusterAddrTable":{'
    between = b""
    for cluster, names in clusters.items():
        yield b"%s%s:" % (between, dialect.write_strict(cluster))
        yield from _names(names)
        between = b","
    yield b"}}"


def _names(names: list[str]) -> Iterator[bytes]:
    between = b"["
    for start in range(0, len(names), STEP_NAMES):
        yield between + dialect.write_strict(names[start : start + STEP_NAMES])[1:-1]
        between = b","
    yield b"]" if names else b"[]"
