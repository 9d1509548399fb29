"""Two living brokers of one name and id: each registration takes the id from the other, and both are told."""

from __future__ import annotations

import pytest

from support.announcing import announcement
from support.name_requests import answered, registration
from support.workers import WorkerAtOnce
from tallystick.codec.steps import finished
from tallystick.rocketmq.nameserver.kv import KvConfig
from tallystick.rocketmq.nameserver.requests import NameRequests
from tallystick.rocketmq.nameserver.routes import RegistrationOutcome, RoutesCore
from tallystick.rocketmq.nameserver.settings import NameServerSettings
from tallystick.rocketmq.wire.remoting import Command, request
from tallystick.rocketmq.wire.values import RequestCode
from tallystick.runtime.clock import SystemClock
from tallystick.runtime.disk import OsDisk
from tallystick.runtime.events import Event, Events


def come(routes: RoutesCore, address: str, broker_id: int = 0) -> tuple[str | None, bool]:
    """The other one, and whether that begins."""
    told = finished(routes.register(announcement(broker_id, address=address), address, 0))
    assert told is not None
    return told.displaced, told.begins


@pytest.mark.parametrize("broker_id", [0, 1])
def test_two_of_one_id_hear_of_each_other_and_it_begins_once(broker_id: int) -> None:
    routes = RoutesCore()
    assert come(routes, "old:1", broker_id) == (None, False)
    assert come(routes, "new:1", broker_id) == ("old:1", True)
    assert routes.sets.displaced_count == 1
    for _ in range(2):
        assert come(routes, "old:1", broker_id) == ("new:1", False)
        assert come(routes, "new:1", broker_id) == ("old:1", False)
    assert come(routes, "new:1", broker_id) == ("old:1", False), "it goes on, though nothing changes"
    assert routes.sets.displaced_count == 1


@pytest.mark.parametrize("gone", ["old:1", "new:1"])
def test_it_ends_with_one_of_them(gone: str) -> None:
    routes = RoutesCore()
    come(routes, "old:1")
    come(routes, "new:1")
    list(routes.closed(gone))
    for _ in range(2):
        assert come(routes, "new:1" if gone == "old:1" else "old:1") == (None, False)
    assert routes.sets.displaced_count == 0
    assert come(routes, gone)[1], "it begins again"


def test_of_ids_that_nobody_holds_nothing_is_kept() -> None:
    """Whoever was displaced and stayed away was gone through with each broker of the name that went."""
    routes = RoutesCore()
    for number in range(3):
        come(routes, f"stays:{number}", number)
        come(routes, "h:1", number)
    assert routes.sets.displaced_count == 1, "it left the others"
    routes.unregister("c", "b", "h:1")
    assert (routes.sets.displaced_count, routes.sets.broker_counts) == (0, (0, 0))


def test_one_that_comes_back_as_a_slave_or_is_outranked_takes_nothing_from_anyone() -> None:
    for state in (0, 2):
        routes = RoutesCore()
        come(routes, "old:1")
        finished(routes.register(announcement(0, address="new:1", state=state), "new", 0))
        assert routes.sets.displaced_count == 1
        come(routes, "old:1", 0 if state else 1)
        assert routes.sets.displaced_count == 0
        assert routes.sets.members("b")[0] == "new:1"


def test_who_says_the_same_again_hears_of_it_too() -> None:
    routes = RoutesCore()
    come(routes, "old:1")
    announced = announcement(0, address="new:1")
    finished(routes.register(announced, "new:1", 0))
    assert routes.registered_again("c", "new:1", announced.digest, "new:1", 1) is None, "without a digest"
    announced = type(announced)(**{**vars(announced), "digest": b"d"})
    finished(routes.register(announced, "new:1", 1))
    assert routes.registered_again("c", "new:1", b"d", "new:1", 2) == RegistrationOutcome(displaced="old:1")
    list(routes.closed("old:1"))
    assert routes.registered_again("c", "new:1", b"d", "new:1", 3) == RegistrationOutcome()


def test_the_name_server_says_it_once_and_the_answer_each_time() -> None:
    seen: list[Event] = []
    requests = NameRequests(
        RoutesCore(), KvConfig(OsDisk(), "", WorkerAtOnce), NameServerSettings(), SystemClock(), Events(seen.append)
    )

    def answer(address: str) -> Command:
        one = registration(False)
        return answered(requests, request(one.code, one.fields | {"brokerAddr": address}, one.body), address)

    assert dict(answer("old:1").fields) == {}, "an original one has nothing to pass over"
    for _ in range(2):
        assert dict(answer("new:1").fields) == {"tallyDisplaced": "old:1"}
        assert dict(answer("old:1").fields) == {"tallyDisplaced": "new:1"}
    (told,) = [event for event in seen if event.kind == "two brokers of one id"]
    assert told.fields == {"broker": "n", "id": 0, "at": "new:1", "instead_of": "old:1", "peer": "new:1"}
    answered(
        requests,
        request(
            RequestCode.UNREGISTER_BROKER,
            {
                "brokerName": "n",
                "brokerAddr": "old:1",
                "clusterName": "c",
                "brokerId": "0",
            },
        ),
        "old:1",
    )
    assert dict(answer("new:1").fields) == {}
