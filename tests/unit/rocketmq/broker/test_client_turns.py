"""Very many clients, or very much of theirs, at once: a broker takes many turns of its loop for it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import pytest

from support.admin_desk import Caller
from support.brokers import Peer, benched
from support.waiting import until
from tallystick.rocketmq.broker import client_requests, locks, responses
from tallystick.rocketmq.broker.clients import EXPIRE_S
from tallystick.rocketmq.broker.parts import Parts
from tallystick.rocketmq.remoting.dispatch import Reply
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.remoting import Command, encode, request
from tallystick.rocketmq.wire.values import (
    ConsumerGroup,
    Heartbeat,
    Language,
    MessageQueue,
    ProducerGroup,
    RequestCode,
)
from tallystick.runtime.turn_steps import TurnSteps


async def beat(peer: Peer, client: str) -> None:
    body = dialect.write(Heartbeat(client, (), (ConsumerGroup("G"),)))
    assert (await peer.code(RequestCode.HEART_BEAT, {}, body)).code == 0


async def ids(peer: Peer) -> Any:
    answer = await peer.code(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "G"})
    return dialect.read(bytes(answer.body))["consumerIdList"] if answer.code == 0 else answer.remark


async def test_connections_that_end_together_are_forgotten_over_many_turns(tmp_path: Path) -> None:
    """180 of 2,000 groups each were one turn of the loop of 0.4 s."""
    async with benched(tmp_path) as bench:
        broker = await bench.broker()
        clients, requests = broker.parts.clients, broker._requests._clients
        requests._forgetting = TurnSteps(10)
        links = [cast("Link", Caller()) for _ in range(5)]
        for number, link in enumerate(links):
            said = Heartbeat("c", tuple(ProducerGroup(f"P{number}-{one}") for one in range(20)))
            clients.heartbeat_received(
                link, said, [ConsumerGroup(f"G{number}-{one}") for one in range(20)], Language.JAVA, 1, 0.0
            )
        for link in links:
            requests.closed(link)
        assert sum(map(clients.group_count, links)) >= 5 * 40 - 10
        await until(lambda: not any(map(clients.group_count, links)))
        assert not clients.consumer_groups and not clients.producer_groups


async def test_silent_clients_are_disconnected_some_each_turn(tmp_path: Path) -> None:
    """4,000 of them were closed in one turn of 83 ms."""
    async with benched(tmp_path) as bench:
        broker = await bench.broker()
        peers = [await bench.peer(broker) for _ in range(7)]
        for peer in peers:
            await beat(peer, "c")
        heard, requests = broker.parts.clients._last_heartbeats, broker._requests._clients
        links = list(heard)
        for link in links:
            heard[link] -= EXPIRE_S + 1
        requests._closing = TurnSteps(3)
        requests._scan()
        assert [link.alive for link in links] == [False] * 3 + [True] * 4
        heard[links[5]] += EXPIRE_S  # a heartbeat comes
        for peer in [*peers[:5], peers[6]]:
            assert await peer.ended()
        assert await ids(peers[5]) == ["c"]


async def test_locks_that_end_are_forgotten_though_nobody_asks_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with benched(tmp_path) as bench:
        broker = await bench.broker()
        held, requests = broker.parts.locks, broker._requests._clients
        requests._forgetting = TurnSteps(2)
        queues = [MessageQueue("T", "b0", number) for number in range(100)]
        assert held.lock("G", "c", "host", queues, broker.parts.clock.now()) == queues
        monkeypatch.setattr(locks, "LIVE_S", -1.0)
        requests._scan()
        assert len(held) == 100 - 2 * locks._STEP_PRUNED, "some each turn"
        await until(lambda: not len(held))


async def test_ids_of_very_many_members_are_listed_in_slices_and_refused_where_they_fit_no_frame(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """4,800 ids of 1,006 characters that JSON escapes were 28 MB in one step of 75 ms, for each who asked."""
    in_slices, sliced = responses.respond_in_slices, list[str]()

    def counted(parts: Parts, answer: Command, pieces: Iterable[bytes], too_long: str, reply: Reply) -> None:
        sliced.append(too_long)
        in_slices(parts, answer, pieces, too_long, reply)

    monkeypatch.setattr(client_requests, "respond_in_slices", counted)
    async with benched(tmp_path) as bench:
        broker = await bench.broker()
        peer, again = await bench.peer(broker), await bench.peer(broker)
        names = [f"c{number}" + "\1" * 100 for number in range(10)]
        for name in names:
            await beat(await bench.peer(broker), name)
        await beat(again, names[0])
        assert await ids(peer) == names and not sliced, "short ones at once: whoever is in the group asks"
        monkeypatch.setattr(client_requests, "IDS_AT_ONCE_CHARS", 1000)
        assert await ids(peer) == names and not sliced, "nobody came or left"
        await beat(again, "another")  # of a client that is known
        names.append("another")
        assert await ids(peer) == names and sliced == ["the members of group G"]
        monkeypatch.setattr(responses, "MAX_BODY_BYTES", 5000)
        assert await ids(peer) == "more than the 5000 bytes of a frame: the members of group G"


async def test_who_breaks_the_protocol_behind_its_heartbeats_is_no_member(tmp_path: Path) -> None:
    """It was one until the broker's end, had queues that nobody read, and counted for no connection."""
    async with benched(tmp_path) as bench:
        broker = await bench.broker()
        peer = await bench.peer(broker)
        body = dialect.write(Heartbeat("c1", (ProducerGroup("P"),), (ConsumerGroup("G"),)))
        beats = [encode(request(RequestCode.HEART_BEAT, {}, body)) for _ in range(32)]  # more than are cut at once
        peer.writer.write(b"".join(beats) + b"\xff" * 8)
        await until(lambda: broker._server.malformed == 1 and not broker._server.connections)
        clients = broker.parts.clients
        assert (clients.consumer_groups, clients.producer_groups) == ({}, {})
