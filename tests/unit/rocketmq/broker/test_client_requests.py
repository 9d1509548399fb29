"""Heartbeats, groups and locks, asked of a real broker."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from support.brokers import Bench, Peer, benched, pull_command
from support.waiting import until
from tallystick.rocketmq.broker import client_requests, locks
from tallystick.rocketmq.broker.client_requests import (
    MAX_FORWARDED_BYTES,
    MAX_LOCK_NAME_BYTES,
    MAX_NAME_CHARS,
    MAX_SUBSCRIPTIONS,
)
from tallystick.rocketmq.broker.clients import EXPIRE_S
from tallystick.rocketmq.remoting.server_requests import MAX_OF_LINK
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.bodies import LockRequest
from tallystick.rocketmq.wire.remoting import Command, encode, request
from tallystick.rocketmq.wire.values import (
    ConsumerGroup,
    GroupConfig,
    Heartbeat,
    MessageQueue,
    ProducerGroup,
    RequestCode,
    Subscription,
)

NOTIFY = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED


async def beat(peer: Peer, client: str, *, group: str = "G", producer: str = "P", **heartbeat: Any) -> Command:
    consumer = ConsumerGroup(group, subscriptions=(Subscription("BenchmarkTest", version=1),))
    body = dialect.write(Heartbeat(client, (ProducerGroup(producer),), (consumer,), **heartbeat))
    return await peer.code(RequestCode.HEART_BEAT, {}, body)


async def ids(peer: Peer, group: str = "G") -> Any:
    answer = await peer.code(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group})
    return dialect.read(bytes(answer.body))["consumerIdList"] if answer.code == 0 else answer.remark


async def test_members_hear_of_each_other(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        broker = await bench.broker()
        one, two = await bench.peer(broker), await bench.peer(broker)
        assert await ids(one) == "no consumer for this group, G"
        answer = await beat(one, "c1")
        assert answer.fields == {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"}
        assert broker.parts.topics.get("%RETRY%G") is not None
        await beat(two, "c2")
        assert await ids(one) == ["c1", "c2"]
        assert [command.code for command in one.pushed] == [NOTIFY, NOTIFY]
        two.writer.close()
        await until(lambda: len(broker.parts.clients.consumer_groups["G"].members) == 1)
        assert await ids(one) == ["c1"]
        assert len(one.pushed) == 3


async def test_a_list_of_members_that_was_asked_for_is_made_anew_when_they_change(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        broker = await bench.broker()
        one, two = await bench.peer(broker), await bench.peer(broker)
        await beat(one, "c1")
        assert await ids(one) == ["c1"]
        await beat(two, "c2")
        assert await ids(one) == ["c1", "c2"], "who comes gets queues"
        await beat(two, "c3")
        assert await ids(one) == ["c1", "c3"], "one connection has one member"
        fields = {"clientID": "c3", "consumerGroup": "G", "producerGroup": "P"}
        assert (await two.code(RequestCode.UNREGISTER_CLIENT, fields)).code == 0
        assert await ids(one) == ["c1"]


async def test_who_leaves_is_gone_at_once(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        peer = await bench.peer(await bench.broker())
        await beat(peer, "c1")
        fields = {"clientID": "c1", "consumerGroup": "G", "producerGroup": "P"}
        assert (await peer.code(RequestCode.UNREGISTER_CLIENT, fields)).code == 0
        assert await ids(peer) == "no consumer for this group, G"


async def test_what_a_heartbeat_leaves_counts_for_its_connection(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        broker = await bench.broker()
        peer = await bench.peer(broker)
        await beat(peer, "c1", producer="P1" * 10_000)
        once = broker._server.memory.kept_bytes
        assert once > 20_000
        await beat(peer, "c1", producer="P1" * 10_000)
        assert broker._server.memory.kept_bytes == once, "the last one counts"
        peer.writer.close()
        await until(lambda: broker._server.memory.kept_bytes == 0)


async def test_what_all_heartbeats_leave_counts_and_not_what_the_last_one_does(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        broker = await bench.broker()
        peer, sizes = await bench.peer(broker), list[int]()
        topics = tuple(Subscription(f"T{number}") for number in range(MAX_SUBSCRIPTIONS))
        for number in range(3):
            body = dialect.write(Heartbeat("c", (), (ConsumerGroup(f"G{number}", subscriptions=topics),)))
            assert (await peer.code(RequestCode.HEART_BEAT, {}, body)).code == 0
            sizes.append(broker._server.memory.kept_bytes)
        assert sizes == [sizes[0], 2 * sizes[0], 3 * sizes[0]]


@pytest.mark.parametrize("where", ["settings", "group"])
async def test_nobody_is_told_where_that_is_off(tmp_path: Path, where: str) -> None:
    async with benched(tmp_path) as bench:
        broker = await bench.broker(bench.settings(notify_ids_changed=where != "settings"))
        if where == "group":
            broker.parts.groups.put(GroupConfig("G", notify_ids_changed=False))
        peer = await bench.peer(broker)
        await beat(peer, "c1")
        assert peer.pushed == []


async def test_the_second_form_of_heartbeats(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        peer = await bench.peer(await bench.broker())
        assert (await beat(peer, "c", fingerprint=5)).fields["IS_SUB_CHANGE"] == "false"
        assert (await beat(peer, "c", fingerprint=6)).fields["IS_SUB_CHANGE"] == "true"


async def test_a_pull_may_leave_its_subscription_to_the_heartbeat(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        peer = await bench.peer(await bench.broker())
        pull = pull_command("BenchmarkTest", flags=0)
        assert (await peer.ask(pull)).code == 24
        await beat(peer, "c")
        assert (await peer.ask(pull)).code == 19


async def test_lists_of_connections(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        peer = await bench.peer(await bench.broker())
        await beat(peer, "c")
        consumers = await peer.code(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "G"})
        table = dialect.read(bytes(consumers.body))
        (connection,) = table["connectionSet"]
        assert (connection["clientId"], connection["language"], connection["version"]) == ("c", "PYTHON", 513)
        assert connection["clientAddr"].startswith("127.0.0.1:")
        assert (table["consumeType"], table["messageModel"]) == ("CONSUME_ACTIVELY", "CLUSTERING")
        assert list(table["subscriptionTable"]) == ["BenchmarkTest"]
        producers = await peer.code(RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "P"})
        assert dialect.read(bytes(producers.body)) == {"connectionSet": [connection]}
        nobody = await peer.code(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "X"})
        assert (nobody.code, nobody.remark) == (206, "the consumer group[X] not online")
        assert (await peer.code(RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "X"})).code == 1


async def test_locks(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        peer = await bench.peer(await bench.broker())
        assert await _lock(peer, "a", 0, 1) == [0, 1]
        assert await _lock(peer, "b", 1, 2) == [2]
        await _lock(peer, "a", 1, code=RequestCode.UNLOCK_BATCH_MQ)
        assert await _lock(peer, "b", 1) == [1]


async def test_a_restarted_master_gives_nobody_a_lock_that_another_client_has(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        first = await bench.broker()
        peer = await bench.peer(first)
        assert await _lock(peer, "a", 0, 1) == [0, 1]
        await first.stop()
        peer = await bench.peer(await bench.broker())
        assert await _lock(peer, "b", 0, 1, 2) == [2]
        assert await _lock(peer, "a", 0, 1) == [0, 1]


async def test_only_queues_that_are_here_are_locked(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        broker = await bench.broker()
        peer = await bench.peer(broker)
        assert await _lock(peer, "a", 0, 5, -1, 1 << 20) == [0, 5]
        assert await _lock(peer, "a", 0, topic="Invented") == []
        assert await _lock(peer, "a", 0, broker="another") == []
        assert await _lock(peer, "b", 0) == []


async def test_what_clients_call_themselves_is_bounded(tmp_path: Path) -> None:
    """Thousands of members are listed in one turn of the loop; and each lock is a line of a file."""
    name, long = "c" * MAX_NAME_CHARS, "c" * (MAX_NAME_CHARS + 1)
    async with benched(tmp_path) as bench:
        peer = await bench.peer(await bench.broker())
        assert (await beat(peer, long)).code == 1
        assert (await beat(peer, name)).code == 0
        assert await ids(peer) == [name]
        most, bell = "c" * MAX_LOCK_NAME_BYTES, "\x07" * (MAX_LOCK_NAME_BYTES // 6 + 1)
        assert await _lock(peer, most, 0, group=most) == [0]
        for name in (f"{most}c", bell, "\N{SNOWMAN}" * (MAX_LOCK_NAME_BYTES // 3 + 1)):
            for lock in (LockRequest(name, "G", []), LockRequest("c", name, [])):
                assert (await peer.code(RequestCode.LOCK_BATCH_MQ, {}, dialect.write(lock))).code == 1


async def test_a_group_of_a_heartbeat_has_so_many_subscriptions_at_most(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        broker = await bench.broker()
        peer = await bench.peer(broker)
        for most, code in ((MAX_SUBSCRIPTIONS, 0), (MAX_SUBSCRIPTIONS + 1, 1)):
            group = ConsumerGroup("G", subscriptions=tuple(Subscription(f"T{number}") for number in range(most)))
            answer = await peer.code(RequestCode.HEART_BEAT, {}, dialect.write(Heartbeat("c", (), (group,))))
            assert answer.code == code
        assert "a group of a heartbeat has at most 500 subscriptions" in str(answer.remark)
        known = broker.parts.clients.consumers("G")
        assert known is not None and len(known.subscriptions) == MAX_SUBSCRIPTIONS


async def test_a_heartbeat_makes_no_more_groups_than_a_client_may_be_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """11,000 names of few letters were a turn of the loop of 60 ms, and 40 ms each time again."""
    monkeypatch.setattr(client_requests, "MAX_GROUPS", 3)
    async with benched(tmp_path) as bench:
        broker = await bench.broker()
        peer = await bench.peer(broker)
        groups = tuple(ConsumerGroup(f"G{number}") for number in range(5))
        assert (await peer.code(RequestCode.HEART_BEAT, {}, dialect.write(Heartbeat("c", (), groups)))).code == 0
        assert [name for name in broker.parts.groups.all if name.startswith("G")] == ["G0", "G1", "G2"]
        assert "%RETRY%G3" not in broker.parts.topics.all


async def test_long_requests_of_clients_are_refused(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        peer = await bench.peer(await bench.broker())
        for code in (RequestCode.HEART_BEAT, RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ):
            answer = await peer.code(code, {}, b" " * (dialect.SHORT_BYTES + 1))
            assert answer.code == 1 and "bytes" in str(answer.remark)


async def test_very_many_queues_are_locked_over_some_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """8,000 of them were a turn of 50 to 70 ms."""
    monkeypatch.setattr(client_requests, "LOCK_AT_ONCE", 3)
    async with benched(tmp_path) as bench:
        broker = await bench.broker()
        peer, at_once, lock = await bench.peer(broker), list[int](), broker.parts.locks.lock

        def counted(group: str, client_id: str, host: str, queues: list[MessageQueue], *rest: Any, **named: Any) -> Any:
            at_once.append(len(queues))
            return lock(group, client_id, host, queues, *rest, **named)

        monkeypatch.setattr(broker.parts.locks, "lock", counted)
        assert await _lock(peer, "a", 2000, 2001, 2002, 0, 1, 3000, 2, 3) == [0, 1, 2, 3]
        assert await _lock(peer, "b", *range(2000, 2004)) == []
        assert at_once == [0, 2, 2, 0, 0]


async def test_strangers_leave_room_for_the_locks_of_members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "MAX_LOCKS", 8)
    async with benched(tmp_path) as bench:
        broker = await bench.broker()
        stranger, member = await bench.peer(broker), await bench.peer(broker)
        await beat(member, "c1")
        assert await _lock(stranger, "s", *range(20), group="Invented") == [0, 1]
        assert await _lock(stranger, "s", *range(20), group="Invented2") == []
        assert await _lock(member, "c1", *range(4)) == [0, 1, 2, 3]
        said = [event.fields for event in bench.told if event.kind == "no locks left"]
        assert [(fields["group"], fields["is_member"]) for fields in said] == [("Invented", False)]


async def _lock(
    peer: Peer,
    client: str,
    *queues: int,
    code: int = RequestCode.LOCK_BATCH_MQ,
    group: str = "G",
    topic: str = "BenchmarkTest",
    broker: str = "b0",
) -> list[int]:
    asked = LockRequest(client, group, [MessageQueue(topic, broker, number) for number in queues])
    answer = await peer.code(code, {}, dialect.write(asked))
    assert answer.code == 0
    return [queue["queueId"] for queue in dialect.read(bytes(answer.body))["lockOKMQSet"]] if answer.body else []


async def test_silent_clients_are_disconnected(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        broker = await bench.broker()
        peer = await bench.peer(broker)
        await beat(peer, "c")
        for link in broker.parts.clients._last_heartbeats:
            broker.parts.clients._last_heartbeats[link] -= EXPIRE_S + 1
        broker._requests._clients._scan()
        assert await peer.ended()
        assert broker.parts.clients.consumers("G") is None
        await _still_serves(bench)


async def _still_serves(bench: Bench) -> None:
    assert (await beat(await bench.peer(bench.brokers[0]), "c")).code == 0


async def test_all_producers(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        peer = await bench.peer(await bench.broker())
        before_ms = time.time_ns() // 1_000_000
        await beat(peer, "c1")
        answer = await peer.code(RequestCode.GET_ALL_PRODUCER_INFO, {})
        [producer] = dialect.read(bytes(answer.body))["data"]["P"]
        assert (producer["clientId"], producer["language"]) == ("c1", "PYTHON")
        assert producer["remoteIP"].startswith("127.0.0.1:")
        assert abs(producer["lastUpdateTimestamp"] - before_ms) < 600_000


async def test_a_consumer_is_asked_how_it_runs(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        broker = await bench.broker()
        consumer, tool = await bench.peer(broker), await bench.peer(broker)
        await beat(consumer, "c1")
        fields = {"consumerGroup": "G", "clientId": "c1", "jstackEnable": "false"}
        opaque = tool.send(request(RequestCode.GET_CONSUMER_RUNNING_INFO, fields))
        while not (asked := [each for each in consumer.pushed if each.code == RequestCode.GET_CONSUMER_RUNNING_INFO]):
            await consumer._read()
        assert asked[0].fields == fields
        consumer.writer.write(encode(asked[0].response(0, None, None, b'{"properties":{}}')))
        answer = await tool.answer(opaque)
        assert (answer.code, answer.body) == (0, b'{"properties":{}}')
        away = await tool.code(RequestCode.GET_CONSUMER_RUNNING_INFO, fields | {"clientId": "c2"})
        assert away.remark == "The Consumer <G> <c2> not online"


async def test_a_consumer_is_not_asked_how_it_runs_where_nobody_waits_for_that(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        broker = await bench.broker()
        consumer, tool = await bench.peer(broker), await bench.peer(broker)
        await beat(consumer, "c1")
        fields = {"consumerGroup": "G", "clientId": "c1"}
        tool.send(request(RequestCode.GET_CONSUMER_RUNNING_INFO, fields, one_way=True))
        await tool.code(RequestCode.GET_BROKER_RUNTIME_INFO)
        await beat(consumer, "c1")
        assert broker._server_requests.in_flight == 0
        assert RequestCode.GET_CONSUMER_RUNNING_INFO not in [each.code for each in consumer.pushed]


async def test_a_consumer_that_does_not_say_how_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_requests, "CALL_S", 0.05)
    async with benched(tmp_path) as bench:
        broker = await bench.broker()
        consumer, tool = await bench.peer(broker), await bench.peer(broker)
        await beat(consumer, "c1")
        fields = {"consumerGroup": "G", "clientId": "c1"}
        assert (await tool.code(RequestCode.GET_CONSUMER_RUNNING_INFO, fields)).code == 207
        monkeypatch.setattr(client_requests, "CALL_S", 60.0)
        opaque = tool.send(request(RequestCode.GET_CONSUMER_RUNNING_INFO, fields))
        await until(lambda: broker._server_requests.in_flight == 1)
        consumer.writer.close()
        assert (await tool.answer(opaque)).code == 207, "it went away"
        assert broker._server_requests.in_flight == 0


async def test_questions_to_a_consumer_are_bounded_in_number_and_size(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        broker = await bench.broker()
        consumer, tool = await bench.peer(broker), await bench.peer(broker)
        await beat(consumer, "c1")
        fields = {"consumerGroup": "G", "clientId": "c1"}
        code = RequestCode.GET_CONSUMER_RUNNING_INFO
        for _ in range(MAX_OF_LINK):
            tool.send(request(code, fields, bytes(8192)))
        busy = await tool.code(code, fields)
        assert (busy.code, busy.remark) == (2, "too many questions to consumers wait")
        assert (await tool.code(code, fields | {"jstackEnable": "x" * MAX_FORWARDED_BYTES})).code == 1
        while len(asked := [each for each in consumer.pushed if each.code == code]) < MAX_OF_LINK:
            await consumer._read()
        assert [each.body for each in asked] == [b""] * MAX_OF_LINK


async def test_members_are_told_of_many_groups_over_many_turns_and_once_of_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_requests, "TELL_EACH_TURN", 10)
    async with benched(tmp_path) as bench:
        broker = await bench.broker()
        peer, other = await bench.peer(broker), await bench.peer(broker)
        names = [f"group-{number}" for number in range(35)]
        groups = tuple(ConsumerGroup(name) for name in names)
        await peer.ask(request(RequestCode.HEART_BEAT, {}, dialect.write(Heartbeat("a", consumers=groups))))
        turns: list[int] = []
        requests = broker._requests._clients
        tell, told = requests._tell_some, list[str]()
        monkeypatch.setattr(
            requests._server_requests, "tell", lambda link, command: told.append(command.fields["consumerGroup"])
        )

        def counted() -> None:
            tell()
            turns.append(len(told))

        monkeypatch.setattr(requests, "_tell_some", counted)
        for client in ("b", "b"):  # the second heartbeat changes nothing
            await other.ask(request(RequestCode.HEART_BEAT, {}, dialect.write(Heartbeat(client, consumers=groups))))
        await until(lambda: len(told) == 2 * len(names))
        assert all(after - before <= 10 for before, after in pairwise([0, *turns])) and len(turns) >= 7
        assert sorted(told) == sorted(names * 2)


async def test_a_heartbeat_does_not_cost_what_others_are_members_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 90 clients in the same 2,000 groups each heartbeat was a turn of 100 ms, and each end of a connection."""
    monkeypatch.setattr(client_requests, "TELL_EACH_TURN", 10**6)
    monkeypatch.setattr(client_requests, "FIND_EACH_TURN", 10)
    async with benched(tmp_path) as bench:
        broker = await bench.broker()
        peers = [await bench.peer(broker) for _ in range(4)]
        names = [f"group-{number}" for number in range(35)]
        requests, found = broker._requests._clients, list[int]()
        tell, told = requests._tell_some, list[str]()
        find = requests._find_members

        def counted() -> None:
            found.append(0)
            tell()

        def counted_find(group: str) -> int:
            known = requests._clients.consumers(group)
            found[-1] += len(known.members) if known is not None else 0
            return find(group)

        monkeypatch.setattr(requests._server_requests, "tell", lambda link, command: told.append(command.body))
        monkeypatch.setattr(requests, "_tell_some", counted)
        monkeypatch.setattr(requests, "_find_members", counted_find)
        for number, peer in enumerate(peers):
            groups = tuple(map(ConsumerGroup, names))
            await peer.ask(
                request(RequestCode.HEART_BEAT, {}, dialect.write(Heartbeat(f"c{number}", consumers=groups)))
            )
            await until(lambda: not requests._changed_groups and not requests._to_tell)
        assert max(found) <= 10 + len(peers) and len(found) > 35
