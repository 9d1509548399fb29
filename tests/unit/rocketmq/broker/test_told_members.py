"""What a broker does of itself for its clients, over many turns of the loop: members told, silent ones looked for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import pytest

from support.admin_desk import Caller, Desk
from tallystick.rocketmq.broker import client_requests, locks
from tallystick.rocketmq.broker.client_requests import SCAN_S, ClientRequests
from tallystick.rocketmq.broker.clients import EXPIRE_S
from tallystick.rocketmq.remoting.backlog import FULL_S
from tallystick.rocketmq.remoting.dispatch import Reply
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.remoting.server_requests import ServerRequests
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.bodies import LockRequest, LockResponse
from tallystick.rocketmq.wire.remoting import Command, request
from tallystick.rocketmq.wire.values import (
    ConsumerGroup,
    Heartbeat,
    MessageQueue,
    ProducerGroup,
    RequestCode,
    TopicConfig,
)
from tallystick.testing import virtual_time


@dataclass(eq=False)
class Member(Caller):
    """A connection of a client."""

    takes: bool = True  # what it is sent
    looks: int = 0  # how often it was asked whether it does
    kept_bytes: int = 0

    @property
    def full(self) -> bool:
        self.looks += 1
        assert self.looks < 1000, "who looks without a pause would never end"
        return not self.takes

    def keep(self, size: int) -> None:
        self.kept_bytes += size

    def abort(self, reason: str) -> None:
        self.alive = False

    def told_groups(self) -> list[str]:
        """Of whose changes it was told since the last call."""
        groups = [command.fields["consumerGroup"] for command in self.sent]
        self.sent.clear()
        return groups


class ClientsCore:
    """The requests of a broker's clients, without the broker."""

    def __init__(self) -> None:
        self.desk = Desk()
        self.desk.tables.topics.put(TopicConfig("T", 20, 20))
        parts = replace(self.desk.parts, locks_saved=lambda change, done: done(None))
        self.requests = ClientRequests(parts, ServerRequests())

    def heartbeat(self, member: Member, *groups: str, producers: Sequence[str] = ()) -> None:
        consumers = tuple(map(ConsumerGroup, groups))
        heartbeat = Heartbeat(f"client {id(member)}", tuple(map(ProducerGroup, producers)), consumers)
        self._ask(member, RequestCode.HEART_BEAT, dialect.write(heartbeat))

    def lock(self, member: Member, *queues: int, code: int = RequestCode.LOCK_BATCH_MQ) -> list[int]:
        asked = LockRequest("a", "Invented", [MessageQueue("T", "b0", number) for number in queues])
        response = self._ask(member, code, dialect.write(asked))
        locked = dialect.read_as(bytes(response.body), LockResponse).queues if response.body else []
        return [queue.queue_id for queue in locked]

    def _ask(self, member: Member, code: int, body: bytes) -> Command:
        responses: list[Command] = []
        reply = cast("Reply", responses.append)
        response = self.requests.handlers[code](cast("Link", member), request(code, {}, body), reply)
        responses += [response] if response is not None else []
        return responses[0]


async def a_moment() -> None:
    """As long as a broker takes to look again at members that take nothing."""
    await asyncio.sleep(2 * FULL_S)


@virtual_time
async def test_a_member_that_took_nothing_for_long_hears_of_all_that_changed_meanwhile() -> None:
    """More of its groups than one turn tells of."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client_requests, "TELL_EACH_TURN", 3)
        clients, slow, other = ClientsCore(), Member(), Member()
        names = [f"group-{number}" for number in range(10)]
        clients.heartbeat(slow, *names)
        await a_moment()
        assert sorted(slow.told_groups()) == names
        slow.takes = False
        clients.heartbeat(other, *names)
        await a_moment()
        assert (slow.told_groups(), sorted(other.told_groups())) == ([], names)
        slow.takes = True
        await a_moment()
        assert sorted(slow.told_groups()) == names


@virtual_time
async def test_a_member_that_takes_nothing_hears_later_of_each_group_that_changed() -> None:
    """Also of one that was found to have changed in the turn in which the member was found to take nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client_requests, "TELL_EACH_TURN", 1)
        clients, other, slow, third = ClientsCore(), Member(), Member(), Member()
        clients.heartbeat(other, "B")
        clients.heartbeat(slow, "A", "B")
        await a_moment()
        slow.told_groups()
        slow.takes = False
        clients.heartbeat(third, "A", "B")
        await a_moment()
        assert (slow.told_groups(), sorted(third.told_groups())) == ([], ["A", "B"])
        slow.takes = True
        await a_moment()
        assert sorted(slow.told_groups()) == ["A", "B"]


@virtual_time
async def test_a_member_that_takes_nothing_is_looked_at_now_and_then() -> None:
    """A broker was busy with nothing else as long as one of them had something to hear."""
    clients, slow, other = ClientsCore(), Member(takes=False), Member()
    clients.heartbeat(slow, "A")
    clients.heartbeat(other, "A")
    await asyncio.sleep(20 * FULL_S)
    assert 10 < slow.looks < 50
    assert other.told_groups() == ["A"]
    slow.takes = True
    await a_moment()
    assert slow.told_groups() == ["A"]


@virtual_time
async def test_what_a_connection_is_said_to_keep_is_what_it_is_a_member_of() -> None:
    clients, one, other = ClientsCore(), Member(), Member()
    clients.heartbeat(other, "A", producers=["short"])
    clients.heartbeat(one, "A", producers=["long" * 1000])
    assert one.kept_bytes > other.kept_bytes
    for _ in range(3):
        clients.heartbeat(one, "A", producers=["short"])
    assert one.kept_bytes > other.kept_bytes + len("long" * 1000), "it is a producer of the long name for a while"
    clients.desk.clock.ms += round(EXPIRE_S * 1000) + 1
    clients.heartbeat(one, "A", producers=["short"])
    assert one.kept_bytes == other.kept_bytes


@virtual_time
async def test_silent_clients_are_looked_for_again_and_again() -> None:
    clients, member = ClientsCore(), Member()
    clients.requests.start()
    await asyncio.sleep(2.5 * SCAN_S)
    clients.heartbeat(member, "A")
    await asyncio.sleep(SCAN_S)
    assert member.alive
    clients.desk.clock.ms += round(EXPIRE_S * 1000) + 1
    await asyncio.sleep(SCAN_S)
    assert not member.alive
    clients.requests.close()


@virtual_time
async def test_that_no_locks_are_left_is_told_each_time_that_begins() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(locks, "MAX_LOCKS", 8)  # of which those who are in no group get two
        clients, stranger = ClientsCore(), Member()

        def told() -> int:
            return [event.kind for event in clients.desk.shelf.events].count("no locks left")

        assert (clients.lock(stranger, 0, 1), told()) == ([0, 1], 0)
        for _ in range(2):
            assert (clients.lock(stranger, 2), told()) == ([], 1)
        clients.lock(stranger, 0, 1, code=RequestCode.UNLOCK_BATCH_MQ)
        assert (clients.lock(stranger, 0), told()) == ([0], 1)
        assert (clients.lock(stranger, 1, 2), told()) == ([1], 2)
