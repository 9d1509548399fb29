from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from support.announcing import announcement
from support.name_requests import answered, ask, count_steps, registration, server
from support.workers import WorkerAtOnce
from tallystick.codec.steps import finished
from tallystick.rocketmq.nameserver.kv import MAX_BYTES, ORDER_TOPICS, KvConfig
from tallystick.rocketmq.nameserver.requests import STEP_CLUSTERS, NameRequests
from tallystick.rocketmq.nameserver.routes import MAX_NAME_CHARS, RoutesCore
from tallystick.rocketmq.nameserver.settings import NameServerSettings
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.bodies import ClusterInfo, KvTable, TopicNames, TopicTableResponse
from tallystick.rocketmq.wire.name_server_headers import RegisterBrokerHeader
from tallystick.rocketmq.wire.registration import Registration, encode_registration
from tallystick.rocketmq.wire.remoting import Command, encode, request
from tallystick.rocketmq.wire.values import DataVersion, RequestCode, TopicConfig
from tallystick.runtime.clock import SystemClock
from tallystick.runtime.disk import OsDisk
from tallystick.runtime.events import Event, Events


def test_a_registration_without_a_body_has_no_topics() -> None:
    requests = server()
    fields = registration(False).fields | {"bodyCrc32": "0"}
    assert answered(requests, request(RequestCode.REGISTER_BROKER, fields)).code == 0
    assert ask(requests, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="N1").code == 17


def test_a_registration_brings_back_the_ordered_topics() -> None:
    requests = server()
    ask(requests, RequestCode.PUT_KV_CONFIG, namespace=ORDER_TOPICS, key="T1", value="b:4")
    body = bytes(answered(requests, registration(False)).body)
    assert dialect.read_as(body, KvTable).table == {"T1": "b:4"}


def test_routes_say_how_a_topic_is_ordered_when_set_to() -> None:
    requests = server(NameServerSettings(order_message=True))
    ask(requests, RequestCode.PUT_KV_CONFIG, namespace=ORDER_TOPICS, key="T1", value="b:4")
    body = bytes(ask(requests, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T1").body)
    assert dialect.read(body)["orderTopicConf"] == "b:4"


def test_no_routes_while_brokers_still_register() -> None:
    response = ask(server(NameServerSettings(wait_for_service=True)), RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T1")
    assert (response.code, response.remark) == (1, "name server not ready")


def test_a_missing_field_is_named() -> None:
    response = ask(server(), RequestCode.GET_ROUTEINFO_BY_TOPIC, other="x")
    assert (response.code, response.remark) == (1, "the custom field <topic> is null")


def test_lists_of_topics() -> None:
    requests = server()

    def names(code: int, **fields: str) -> TopicNames:
        return dialect.read_as(bytes(ask(requests, code, **fields).body), TopicNames)

    assert names(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER).topics == ["T1", "T2"]
    assert names(RequestCode.GET_TOPICS_BY_CLUSTER, cluster="c").topics == ["T1", "T2"]
    assert names(RequestCode.GET_TOPICS_BY_CLUSTER, cluster="none").topics == []
    assert names(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS) == TopicNames(["c", "b"], "b-0:10911")
    ask(requests, RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="T1", clusterName="c")
    ask(requests, RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="T2")
    assert names(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER).topics == []


def test_what_was_not_there_does_not_go() -> None:
    """Whatever name a stranger thought of was a line of the log."""
    told: list[Event] = []
    requests = server(told=told)
    for _ in range(2):
        ask(requests, RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="T1", clusterName="never")
        ask(requests, RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="T1")
        fields = {"brokerName": "b", "brokerAddr": "b-0:10911", "clusterName": "c", "brokerId": "0"}
        ask(requests, RequestCode.UNREGISTER_BROKER, **fields)
        ask(requests, RequestCode.UNREGISTER_BROKER, **fields | {"brokerAddr": "never:1"})
    assert [event.kind for event in told] == ["topic removed from routes", "broker unregistered"]


def test_lists_can_be_disabled() -> None:
    requests = server(NameServerSettings(list_topics=False, list_all_topics=False))
    for code in (RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, RequestCode.GET_TOPICS_BY_CLUSTER):
        assert ask(requests, code, cluster="c").remark == "disable"


def test_write_permission_is_given_back() -> None:
    requests = server()
    assert ask(requests, RequestCode.WIPE_WRITE_PERM_OF_BROKER, brokerName="b").fields == {"wipeTopicCount": "2"}
    assert ask(requests, RequestCode.ADD_WRITE_PERM_OF_BROKER, brokerName="b").fields == {"addTopicCount": "2"}


def test_key_values_go_and_unknown_namespaces_are_not_found() -> None:
    requests = server()
    ask(requests, RequestCode.PUT_KV_CONFIG, namespace="n", key="k", value="v")
    ask(requests, RequestCode.DELETE_KV_CONFIG, namespace="n", key="k")
    assert ask(requests, RequestCode.GET_KV_CONFIG, namespace="n", key="k").code == 22
    assert ask(requests, RequestCode.GET_KVLIST_BY_NAMESPACE, namespace="other").code == 22
    assert ask(requests, RequestCode.PUT_KV_CONFIG, namespace="n", key="k").code == 1


def test_bodies_of_random_bytes_are_answered_with_code_1() -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    requests = server()
    for compressed in (False, True):
        good = registration(compressed)
        for _ in range(200):
            body = bytearray(good.body)
            for _ in range(rng.randrange(1, 5)):
                body[rng.randrange(len(body))] = rng.randrange(256)
            response = answered(requests, request(good.code, good.fields | {"bodyCrc32": "0"}, bytes(body)))
            assert response.code in (0, 1)
    assert ask(requests, RequestCode.QUERY_DATA_VERSION, b"\xff", **good.fields).code == 1
    assert ask(requests, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T1").code == 0


def test_its_settings_are_shown_and_some_change_while_it_runs() -> None:
    requests = server()
    assert b"enableTopicList=true\n" in ask(requests, RequestCode.GET_NAMESRV_CONFIG).body
    done = ask(requests, RequestCode.UPDATE_NAMESRV_CONFIG, b"enableTopicList=false\n")
    assert (done.code, "change its file too" in (done.remark or "")) == (0, True)
    assert b"enableTopicList=false\n" in ask(requests, RequestCode.GET_NAMESRV_CONFIG).body
    assert ask(requests, RequestCode.GET_TOPICS_BY_CLUSTER, cluster="c").remark == "disable"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (b"listenPort=1\nenableTopicList=false", 16),
        (b"waitSecondsForService=x", 29),
        (b"nonsense=1", 16),
        (b"\xff", 29),
    ],
)
def test_settings_that_do_not_change_while_it_runs(text: bytes, code: int) -> None:
    requests = server()
    assert ask(requests, RequestCode.UPDATE_NAMESRV_CONFIG, text).code == code
    assert ask(requests, RequestCode.GET_TOPICS_BY_CLUSTER, cluster="c").code == 0


def test_an_order_configuration_that_is_too_long_is_left_out_of_registrations(tmp_path: Path) -> None:
    (tmp_path / "kv").write_text(f'{{"configTable":{{"{ORDER_TOPICS}":{{"a":"{"x" * 18 * MAX_BYTES}"}}}}}}')
    seen: list[Event] = []
    events = Events(seen.append)
    routes = RoutesCore()
    config = KvConfig(OsDisk(), str(tmp_path / "kv"), WorkerAtOnce)
    requests = NameRequests(routes, config, NameServerSettings(), SystemClock(), events)
    for _ in range(2):
        response = answered(requests, registration(False))
        assert (response.code, len(response.body)) == (0, 0)
    assert [event.kind for event in seen].count("order configuration not sent to brokers") == 1


def test_what_fits_into_the_table_fits_into_the_answer_to_a_registration() -> None:
    requests, number = server(), 0
    while (
        ask(requests, RequestCode.PUT_KV_CONFIG, namespace=ORDER_TOPICS, key=f"k{number}", value="v" * 60_000).code == 0
    ):
        number += 1
    assert len(encode(answered(requests, registration(False)))) > MAX_BYTES - 70_000
    assert number < 20


@pytest.mark.parametrize("named", ["brokerName", "brokerAddr", "clusterName", "haServerAddr"])
def test_names_that_no_broker_has_are_refused_with_the_bound(named: str) -> None:
    good = RegisterBrokerHeader(
        broker_name="n", broker_addr="n:1", cluster_name="c", ha_server_addr="n:2", broker_id=0
    ).to_fields()
    assert named in good
    requests = server()
    for length, code in ((MAX_NAME_CHARS, 0), (MAX_NAME_CHARS + 1, 1)):
        response = ask(requests, RequestCode.REGISTER_BROKER, **good | {named: "x" * length})
        assert response.code == code, response.remark
    assert f"has at most {MAX_NAME_CHARS} characters" in (response.remark or "")


@pytest.mark.parametrize("compressed", [False, True])
def test_a_topic_with_a_name_that_no_broker_has_is_refused_with_its_registration(compressed: bool) -> None:
    requests, command = server(), registration(compressed)
    topics = {name: TopicConfig(name) for name in ("T" * (MAX_NAME_CHARS + 1), "short")}
    body = encode_registration(Registration(TopicTableResponse(DataVersion(), topics)), compressed=compressed)
    command.body, command.fields["bodyCrc32"] = body, "0"
    assert "topicName has at most" in (answered(requests, command).remark or "")
    assert b"short" not in ask(requests, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER).body


def test_lists_that_fit_no_frame_are_refused_and_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[object] = []
    monkeypatch.setattr(dialect, "write", written.append)
    monkeypatch.setattr(dialect, "write_strict", written.append)
    routes = RoutesCore()
    name = "{:0512}".format
    for number in range(9_000):
        one = announcement(0, [name(0), "T2"], cluster=name(number), name=name(number), address=name(number))
        finished(routes.register(one, number // 100, 0))
    finished(routes.register(announcement(0, [name(number) for number in range(33_000)]), "topics", 0))
    requests = NameRequests(routes, KvConfig(OsDisk(), "", WorkerAtOnce), NameServerSettings(), SystemClock(), Events())
    for code in (RequestCode.GET_BROKER_CLUSTER_INFO, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER):
        response = ask(requests, code)
        assert (response.code, bytes(response.body)) == (1, b"")
        assert "bytes of a frame: ask for routes by topic" in (response.remark or "")
    assert not written
    monkeypatch.undo()
    response = ask(requests, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=name(0))
    assert (response.code, bytes(response.body), "bytes of a frame" in (response.remark or "")) == (1, b"", True)


def test_a_list_that_grows_too_long_when_it_is_written_is_refused() -> None:
    routes = RoutesCore()
    finished(routes.register(announcement(0, [f"{number:06}" + "\x01" * 500 for number in range(6_000)]), "topics", 0))
    requests = NameRequests(routes, KvConfig(OsDisk(), "", WorkerAtOnce), NameServerSettings(), SystemClock(), Events())
    assert ask(requests, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER).code == 1


def test_no_step_writes_many_of_the_names_that_brokers_have(monkeypatch: pytest.MonkeyPatch) -> None:
    routes, written = RoutesCore(), [0]
    for number in range(2000):
        one = announcement(0, ["A", "B"], name=f"{number}" + "\u4e2d" * 500, cluster=f"c{number}", address=f"b{number}")
        finished(routes.register(one, number, 0))
    requests = NameRequests(routes, KvConfig(OsDisk(), "", WorkerAtOnce), NameServerSettings(), SystemClock(), Events())
    for name in ("write", "write_strict"):
        write = getattr(dialect, name)

        def counted(value: object, write: Callable[[object], bytes] = write) -> bytes:
            written[-1] += len(text := write(value))
            return text

        monkeypatch.setattr(dialect, name, counted)
    for code in (RequestCode.GET_BROKER_CLUSTER_INFO, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS):
        steps = requests.responders[code]("link", request(code, {}))
        assert not isinstance(steps, Command)
        before = len(written) - 1
        for _ in steps:
            written.append(0)
        assert not any(written[before : before + 2000 // STEP_CLUSTERS]), "they are gathered in steps, too"
    assert max(written) < 1_000_000 < sum(written)


def test_lists_are_made_in_steps_and_written_as_ever() -> None:
    routes = RoutesCore()
    for number in range(120):
        finished(routes.register(announcement(0, ["A", "B", "Ü"], name=f"b{number}"), number, 0))
    finished(routes.register(announcement(0, [f"T{number}" for number in range(1200)]), "topics", 0))
    requests = NameRequests(routes, KvConfig(OsDisk(), "", WorkerAtOnce), NameServerSettings(), SystemClock(), Events())
    info = ClusterInfo(routes.sets.routes(), routes.sets.clusters())
    names = TopicNames(["A", "B", "Ü", *(f"T{number}" for number in range(1200))])
    system = TopicNames(["c", *(f"b{number}" for number in range(120)), "b"], routes.sets.first_address())
    for code, body in (
        (RequestCode.GET_BROKER_CLUSTER_INFO, dialect.write(info)),
        (RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, dialect.write_strict(names)),
        (RequestCode.GET_TOPICS_BY_CLUSTER, dialect.write_strict(names)),
        (RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS, dialect.write_strict(system)),
    ):
        assert count_steps(requests, request(code, {"cluster": "c"})) >= 2
        assert bytes(ask(requests, code, cluster="c").body) == body


def test_a_route_to_many_brokers_is_made_in_steps_and_written_as_ever() -> None:
    routes, count = RoutesCore(), 3 * dialect.STEP_ITEMS + 1
    for number in range(count):
        finished(routes.register(announcement(0, ["A", "Ü"], name=f"b{number}"), number, 0))
    requests = NameRequests(routes, KvConfig(OsDisk(), "", WorkerAtOnce), NameServerSettings(), SystemClock(), Events())
    route = finished(routes.route("Ü"))
    assert route is not None and (len(route.brokers), len(route.queues)) == (count, count)
    for quoted in (False, True):
        command = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "Ü", "acceptStandardJsonOnly": str(quoted)})
        command.version = 0
        assert bytes(answered(requests, command).body) == dialect.write(route, quoted=quoted)
        assert count_steps(requests, command) >= count // dialect.STEP_ITEMS
    steps = routes.route("Ü")
    next(steps)  # what goes meanwhile is not in it without an address
    for number in range(count):
        list(routes.closed(number))
    left = finished(steps)
    assert left is not None and all(one.addresses for one in left.brokers)
    assert finished(routes.route("Ü")) is None
