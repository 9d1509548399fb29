"""Both ports of a broker: who answers what, and what bad input does: a code or the end of its connection, no more."""

from __future__ import annotations

import asyncio
import random
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from support.brokers import TOPIC, Bench, Peer, benched, pull_command, send_command
from support.clocks import ManualClock
from support.waiting import until
from tallystick.errors import CorruptRecord, UsageError
from tallystick.rocketmq.broker.broker import LEAST_FILES, Broker, start_broker
from tallystick.rocketmq.broker.send import SENDS, Sends
from tallystick.rocketmq.broker.server import Requests
from tallystick.rocketmq.remoting import slices
from tallystick.rocketmq.remoting.backlog import TURN_S
from tallystick.rocketmq.remoting.dispatch import Reply, open_gate
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.store.queue_state import read_queue_state
from tallystick.rocketmq.wire.headers import QueueHeader
from tallystick.rocketmq.wire.remoting import Command, encode, request
from tallystick.rocketmq.wire.values import RequestCode, Serialization, TopicConfig
from tallystick.runtime.disk import OsDisk
from tallystick.runtime.events import Events
from tallystick.runtime.machine import this_machine


async def healthy(broker: Broker, bench: Bench) -> None:
    """Whoever came before: a new client is served."""
    peer = await bench.peer(broker)
    end = (await peer.ask(send_command("Fine"))).fields["queueOffset"]
    answer = await peer.ask(pull_command("Fine", offset=int(end)))
    assert (answer.code, answer.fields["nextBeginOffset"]) == (0, str(int(end) + 1))


def frame(header: bytes, body: bytes = b"", kind: int = 0) -> bytes:
    return struct.pack(">II", 4 + len(header) + len(body), kind << 24 | len(header)) + header + body


GARBAGE = {
    "a negative size": struct.pack(">iI", -5, 0),
    "a huge size": struct.pack(">II", 2**31 - 1, 0),
    "a size without a header": struct.pack(">II", 3, 0),
    "a header longer than its frame": struct.pack(">II", 8, 100) + bytes(20),
    "an unknown kind of header": frame(b"{}", kind=7),
    "no JSON": frame(b"{'code':"),
    "a header nested too deeply": frame(b'{"code":1,"extFields":' + b"[" * 5000),
    "a binary header cut short": frame(b"\0\1\2", kind=1),
    "HTTP": b"GET / HTTP/1.1\r\nHost: here\r\n\r\n",
}


@pytest.mark.parametrize("name", sorted(GARBAGE))
@pytest.mark.parametrize("fast", [False, True])
async def test_garbage_ends_its_connection_and_nothing_else(tmp_path: Path, name: str, fast: bool) -> None:
    async with benched(tmp_path) as bench:
        broker = await bench.broker()
        peer = await bench.peer(broker, fast=fast)
        peer.writer.write(GARBAGE[name])
        assert await peer.ended()
        await healthy(broker, bench)


async def test_a_broker_that_may_open_few_files_does_not_start(tmp_path: Path) -> None:
    outside = this_machine(open_files=LEAST_FILES - 1)
    async with benched(tmp_path) as bench:
        with pytest.raises(UsageError, match="1024 open files"):
            await start_broker(bench.settings(), outside)


class SlowSends:
    """Each send takes a third of a turn."""

    def __init__(self) -> None:
        self.clock, self.taken, self.puts = ManualClock(), 0, list[int]()
        self.handlers = dict.fromkeys(SENDS, self.take)

    def take(self, link: Link, command: Command, reply: Reply) -> None:
        self.taken += 1
        self.clock.time += TURN_S / 3

    def put(self) -> None:
        self.puts.append(self.taken)


async def test_sends_for_which_a_turn_has_no_time_wait_for_the_next_one(tmp_path: Path) -> None:
    sends, none = SlowSends(), cast("Any", SimpleNamespace(handlers={}, revoked=None))
    requests = Requests(
        cast("Sends", sends),
        pulls=none,
        clients=none,
        processors=(),
        catch_up=lambda: None,
        saves=none,
        access=cast(
            "Any", SimpleNamespace(requests=none, saver=none, gate=open_gate, when_revoked=lambda revoked: None)
        ),
        clock=sends.clock,
        events=Events(),
    )
    async with benched(tmp_path) as bench:
        broker = await bench.broker()
        await bench.peer(broker)
        await until(lambda: broker._server._main._links)
        link = next(iter(broker._server._main._links))
        requests.received([(link, send_command()) for _ in range(7)])
        assert sends.puts == [3] and not link.ready
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert sends.puts == [3, 6, 7]


async def test_the_statistics_of_an_asker_that_is_gone_are_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices, "SLICE_S", 0.0)
    async with benched(tmp_path) as bench:
        broker = await bench.broker()
        peer, looked = await bench.peer(broker), list[int]()
        queues = 5000
        broker.parts.topics.put(TopicConfig("T", queues, queues))
        ranges = broker.parts.store.queue_range

        def counted(topic: str, queue_id: int) -> tuple[int, int]:
            looked.append(queue_id)
            return ranges(topic, queue_id)

        monkeypatch.setattr(broker.parts.store, "queue_range", counted)
        peer.send(request(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "T"}))
        await until(lambda: bool(looked), pause=0)
        peer.writer.transport.abort()
        await until(lambda: broker._server.connections == 0, pause=0)
        seen = len(looked)
        await (await bench.peer(broker)).ask(request(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "T0"}))
        assert len(looked) <= seen + 1 < queues


async def test_a_deletion_that_wants_no_answer_is_durable_too(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        broker = await bench.broker()
        peer = await bench.peer(broker)
        await peer.ask(send_command())
        peer.send(request(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": TOPIC}, one_way=True))
        folder = broker.settings.store_dir
        await until(lambda: TOPIC in read_queue_state(OsDisk(), folder).deletions)
        assert broker.parts.topics.get(TOPIC) is None


async def test_a_request_that_wants_no_answer_gets_none_whenever_that_would_be_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices, "SLICE_S", 0.0)
    async with benched(tmp_path) as bench:
        broker = await bench.broker()
        peer, looked = await bench.peer(broker), list[int]()
        await peer.ask(send_command())
        broker.parts.topics.put(TopicConfig("Wide", 5000, 5000))
        ranges = broker.parts.store.queue_range

        def counted(topic: str, queue_id: int) -> tuple[int, int]:
            looked.append(queue_id)
            return ranges(topic, queue_id)

        monkeypatch.setattr(broker.parts.store, "queue_range", counted)
        peer.order.clear()
        peer.send(request(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "Wide"}, one_way=True))
        peer.send(request(RequestCode.GET_TOPIC_STATS_INFO, {"topic": TOPIC}, one_way=True))
        peer.send(request(RequestCode.GET_BROKER_RUNTIME_INFO, {}, one_way=True))
        for _ in range(2):  # the second changes no table that would have to be saved first
            peer.send(request(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": TOPIC}, one_way=True))
        await until(lambda: TOPIC in read_queue_state(OsDisk(), broker.settings.store_dir).deletions)
        await until(lambda: not broker.parts.deletions.pending_count)
        answer = await peer.ask(request(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "T0"}))
        assert peer.order == [answer]
        assert len(looked) < 10, "statistics that nobody waits for are not made"


async def test_random_bytes(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    chance = random.Random(seed)
    async with benched(tmp_path) as bench:
        broker = await bench.broker()
        whole = encode(send_command("Fine"))
        for _ in range(60):
            peer = await bench.peer(broker)
            damaged = bytearray(whole)
            for _ in range(chance.randrange(1, 6)):
                damaged[chance.randrange(len(damaged))] = chance.randrange(256)
            peer.writer.write(bytes(damaged) if chance.random() < 0.7 else chance.randbytes(chance.randrange(200)))
            peer.writer.write_eof()
            assert await peer.ended()
        await healthy(broker, bench)


BAD_REQUESTS = {
    "an unknown code": (request(7777), 3),
    "a pull without fields": (request(RequestCode.PULL_MESSAGE, {}), 1),
    "a pull with a word for a number": (request(11, pull_command().fields | {"queueId": "x"}), 1),
    "a pull with a number that is too long": (request(11, pull_command().fields | {"queueOffset": "9" * 40}), 1),
    "a heartbeat without a body": (request(RequestCode.HEART_BEAT), 1),
    "a heartbeat that is none": (request(RequestCode.HEART_BEAT, None, b"[1,2"), 1),
    "a heartbeat nested too deeply": (request(RequestCode.HEART_BEAT, None, b"[" * 100_000), 1),
    "a heartbeat of too many values": (request(RequestCode.HEART_BEAT, None, b"[" + b"1," * 2_000_000 + b"1]"), 1),
    "a lock of nothing": (request(RequestCode.LOCK_BATCH_MQ, None, b"{}"), 1),
    "a leave without a client": (request(RequestCode.UNREGISTER_CLIENT, {}), 1),
    "a topic that is a path": (send_command("../../../etc/passwd"), 29),
    "a topic of slashes": (send_command("a/b"), 29),
    "a topic that is too long": (send_command("x" * 3000), 29),
    "a message that is too long": (send_command("Fine", bytes(4 * 1024 * 1024 + 1)), 13),
    "properties that are too long": (send_command("Fine", properties=f"a\x01{'x' * 32767}\x02"), 13),
    "a batch that is none": (send_command("Fine", b"\xff" * 100, batch=True), 1),
    "a batch that lies": (send_command("Fine", struct.pack(">5i", 1 << 30, 0, 0, 0, 1 << 30), batch=True), 1),
    "a queue below any": (pull_command("BenchmarkTest", queue_id=-1), 29),
    "a group that is a path": (pull_command("BenchmarkTest", group="../x"), 26),
}


@pytest.mark.parametrize("name", sorted(BAD_REQUESTS))
async def test_a_bad_request_gets_its_code_and_its_connection_goes_on(tmp_path: Path, name: str) -> None:
    asked, code = BAD_REQUESTS[name]
    async with benched(tmp_path) as bench:
        broker = await bench.broker()
        peer = await bench.peer(broker)
        answer = await peer.ask(asked)
        assert (answer.code, bool(answer.remark)) == (code, True)
        assert (await peer.ask(send_command("Fine"))).code == 0
        await healthy(broker, bench)
        assert not [event for event in bench.told if event.kind == "request failed"]
        assert not (tmp_path / "etc").exists()


async def test_offsets_out_of_this_world_are_answered(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        peer = await bench.peer(await bench.broker())
        await peer.ask(send_command("Fine"))
        for offset in (-1, -(2**63), 2**63 - 1):
            assert (await peer.ask(pull_command("Fine", offset=offset, count=-5))).code == 21
        assert (await peer.ask(pull_command("Fine", count=2**31 - 1, max_msg_bytes=-1))).code == 0


async def test_binary_headers_and_requests_of_one_read(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        peer = await bench.peer(await bench.broker())
        opaques = [peer.send(_mixed(number)) for number in range(30)]
        answers = [await peer.answer(opaque) for opaque in opaques]
        assert [answer.code for answer in answers] == [0] * 30
        offsets = [int(answer.fields["queueOffset"]) for answer in answers[::2]]
        assert offsets == sorted(offsets)


def _mixed(number: int) -> Command:
    if number % 2:
        return request(RequestCode.GET_MIN_OFFSET, QueueHeader(topic="BenchmarkTest", queue_id=0).to_fields())
    command = send_command("BenchmarkTest")
    command.serialization = Serialization.BINARY if number % 4 else Serialization.JSON
    return command


async def test_the_second_port_serves_all_but_pulls(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        broker = await bench.broker()
        assert broker.fast_address[1] == broker.address[1] - 2
        fast: Peer = await bench.peer(broker, fast=True)
        assert (await fast.ask(send_command("Fine"))).code == 0
        for code in (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE):
            answer = await fast.ask(pull_command("Fine", code=code))
            assert (answer.code, answer.remark) == (3, f" request type {int(code)} not supported")
        assert (
            await (await bench.peer(broker)).ask(pull_command("Fine", code=RequestCode.LITE_PULL_MESSAGE))
        ).code == 0


@pytest.mark.parametrize("error", [ZeroDivisionError, CorruptRecord])
async def test_a_bug_of_ours_or_the_disk_fails_one_request(tmp_path: Path, error: type[Exception]) -> None:
    async with benched(tmp_path) as bench:
        broker = await bench.broker()
        peer = await bench.peer(broker)
        await peer.ask(pull_command("BenchmarkTest"))  # makes the group, and later ones are read at once

        def broken(*_: object, **__: object) -> None:
            raise error("ours")

        broker.parts.store.get = broken  # type: ignore[method-assign,assignment]
        failed = peer.send(pull_command("BenchmarkTest"))
        fine = peer.send(send_command("Fine"))
        answer = await peer.answer(failed)
        assert (answer.code, answer.remark) == (1, f"{error.__name__}: ours")
        assert (await peer.answer(fine)).code == 0
        assert [event.fields["code"] for event in bench.told if event.kind == "request failed"] == [11]


async def test_a_bug_in_a_pull_that_waited_does_not_fail_the_send_that_woke_it(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        broker = await bench.broker()
        peer = await bench.peer(broker)
        await peer.ask(send_command("Fine"))
        waiting = peer.send(pull_command("Fine", offset=1, flags=6, suspend_ms=60_000))
        await until(lambda: broker._pulls.held_count == 1)
        broker.parts.store.get = None  # type: ignore[method-assign,assignment]
        assert (await peer.ask(send_command("Fine"))).code == 0
        assert (await peer.answer(waiting)).code == 1


async def test_refused_requests_are_said_once(tmp_path: Path) -> None:
    """A client that is refused again and again was told so, and the operator nothing."""
    async with benched(tmp_path) as bench:
        peer = await bench.peer(await bench.broker())
        for _ in range(3):
            await peer.ask(request(RequestCode.HEART_BEAT, None, b"[1,2"))
            await peer.ask(request(11, pull_command().fields | {"queueOffset": "x"}))
            await peer.ask(pull_command("Nope", queue_id=99, count=1))
            await peer.ask(send_command("a/b"))
        said = [event.fields["code"] for event in bench.told if event.kind == "request refused"]
        assert said == [RequestCode.HEART_BEAT, RequestCode.PULL_MESSAGE, RequestCode.SEND_MESSAGE_V2]
