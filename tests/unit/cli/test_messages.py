"""Messages in and out of the terminal, against fake brokers that run beside the command."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Iterator
from typing import cast

import pytest

from support.fake_brokers import FakeBroker, FakeCluster
from support.waiting import until
from tallystick import cli
from tallystick.cli.messages import Sending, Template
from tallystick.errors import TallyError, UsageError
from tallystick.rocketmq.client.producer import Producer
from tallystick.rocketmq.client.sending import SendResult, SendStatus
from tallystick.rocketmq.nameserver.server import NameServer
from tallystick.rocketmq.nameserver.settings import NameServerSettings
from tallystick.rocketmq.wire.headers import SendResponse
from tallystick.rocketmq.wire.values import MessageQueue, RequestCode, ResponseCode
from tallystick.runtime.machine import this_machine


class Beside:
    """A loop of its own: commands block the test's thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.cluster: FakeCluster
        self.broker: FakeBroker

    async def _start(self) -> None:
        self.cluster = FakeCluster()
        await self.cluster.start()
        self.broker = await self.cluster.add()

    @contextlib.contextmanager
    def running(self) -> Iterator[Beside]:
        self.thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self.loop).result(20)
        try:
            yield self
        finally:
            asyncio.run_coroutine_threadsafe(self.cluster.stop(), self.loop).result(20)
            self.loop.call_soon_threadsafe(self.loop.stop)
            self.thread.join(20)
            self.loop.close()


@pytest.fixture
def beside(monkeypatch: pytest.MonkeyPatch) -> Iterator[Beside]:
    with Beside().running() as beside:
        monkeypatch.setenv("TALLY_NAMESRV", beside.cluster.address)
        yield beside


def test_messages_go_out_with_what_was_said_and_come_back(
    beside: Beside, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    options = ["--tags", "eu", "--key", "k1", "--key", "k2", "--property", "p=q=r"]
    assert cli.main(["message", "send", "T", "one", "two", "three", *options]) == 0
    printed = capsysbinary.readouterr()
    places = [line.split(":") for line in printed.out.decode().split()]
    assert sorted((int(queue), int(offset)) for _, queue, offset in places) in (
        [(0, 0), (0, 1), (1, 0)],
        [(0, 0), (1, 0), (1, 1)],
    )
    assert printed.err == b"3 messages sent\n"
    assert cli.main(["message", "read", "T"]) == 0
    assert sorted(capsysbinary.readouterr().out.split()) == [b"one", b"three", b"two"]
    assert cli.main(["message", "read", "T", "--json"]) == 0
    rows = [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]
    assert {row["data"] for row in rows} == {"one", "two", "three"}
    assert {row["properties"]["KEYS"] for row in rows} == {"k1 k2"}
    assert {(row["properties"]["TAGS"], row["properties"]["p"]) for row in rows} == {("eu", "q=r")}


def test_a_property_of_the_system_is_wrong_usage_and_nothing_is_sent(
    beside: Beside, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["message", "send", "T", "one", "--property", "RETRY_TOPIC=U"]) == 2
    printed = capsys.readouterr()
    assert "the property RETRY_TOPIC is the system's" in printed.err and printed.out == ""


def test_one_queue_from_an_offset_with_places_and_in_hexadecimal(
    beside: Beside, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    cli.main(["message", "send", "T", *map(str, range(10)), "--quiet"])
    capsysbinary.readouterr()
    assert cli.main(["message", "read", "T", "--queue", "b:1", "--first", "3", "--ids", "--hex"]) == 0
    lines = capsysbinary.readouterr().out.decode().splitlines()
    assert [line.split("\t")[0] for line in lines] == ["b:1:3", "b:1:4"]
    assert all(bytes.fromhex(line.split("\t")[1]).isdigit() for line in lines)
    assert cli.main(["message", "read", "T", "--queue", "b:7"]) == 1
    assert b"has no queue b:7; it has b:0, b:1" in capsysbinary.readouterr().err
    assert cli.main(["message", "read", "T", "--since", "yesterday"]) == 2
    assert b"--since is a time" in capsysbinary.readouterr().err


@pytest.mark.parametrize(
    ("options", "offsets"),
    [
        (["--last", "2"], [3, 4]),
        (["--last", "9"], [0, 1, 2, 3, 4]),
        (["--last", "0"], []),
        (["--count", "2"], [0, 1]),
        (["--first", "1", "--count", "3"], [1, 2, 3]),
        (["--last", "2", "--count", "1", "--follow"], [3]),
    ],
)
def test_the_last_ones_and_so_many(
    beside: Beside, capsys: pytest.CaptureFixture[str], options: list[str], offsets: list[int]
) -> None:
    cli.main(["message", "send", "T", *map(str, range(10)), "--quiet"])
    capsys.readouterr()
    assert cli.main(["message", "read", "T", "--queue", "b:1", "--ids", *options]) == 0
    assert [line.split("\t")[0] for line in capsys.readouterr().out.splitlines()] == [f"b:1:{n}" for n in offsets]


@pytest.mark.parametrize("options", [["--last", "2", "--first", "1"], ["--count", "-1"], ["--last", "-1"]])
def test_where_to_begin_is_said_once_and_numbers_are_no_less_than_0(beside: Beside, options: list[str]) -> None:
    assert cli.main(["message", "read", "T", *options]) == 2


def test_nothing_read_is_told_with_the_ends_of_the_queues(beside: Beside, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["message", "send", "T", "one", "two", "--quiet"]) == 0
    capsys.readouterr()
    assert cli.main(["message", "read", "T", "--first", "100"]) == 0
    assert capsys.readouterr() == ("", "0 messages read; queues end at b:0:1, b:1:1\n")
    assert cli.main(["message", "read", "T", "--first", "0"]) == 0
    assert "0 messages" not in capsys.readouterr().err


def test_a_line_that_is_no_message_among_others_is_named_and_no_usage_error(
    beside: Beside, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["message", "send", "T", "a", "", "b"]) == cli.FAILED
    said = capsys.readouterr().err
    assert said.startswith("2 messages sent\ntally: message 2 was not sent: a message's body has 1 to ")
    assert cli.main(["message", "send", "T", ""]) == cli.WRONG_USAGE


def test_a_message_that_is_stored_but_late_says_so(beside: Beside, capsys: pytest.CaptureFixture[str]) -> None:
    answer = SendResponse(queue_id=0, transaction_id=None, msg_id="F" * 32, queue_offset=4).to_fields()
    beside.broker.react[RequestCode.SEND_MESSAGE_V2] = lambda link, command: command.response(
        ResponseCode.FLUSH_SLAVE_TIMEOUT, None, answer
    )
    assert cli.main(["message", "send", "T", "x"]) == cli.NOT_WELL
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("b:0:4\tFLUSH_SLAVE_TIMEOUT\n", "1 message sent, 1 FLUSH_SLAVE_TIMEOUT\n")
    assert cli.main(["message", "send", "T", "x", "--json"]) == cli.NOT_WELL
    assert json.loads(capsys.readouterr().out)["status"] == "FLUSH_SLAVE_TIMEOUT"


def test_what_was_stored_before_a_failure_is_told(beside: Beside, capsys: pytest.CaptureFixture[str]) -> None:
    store = beside.broker._answers[RequestCode.SEND_MESSAGE_V2]
    beside.broker.react[RequestCode.SEND_MESSAGE_V2] = lambda link, command: (
        command.response(ResponseCode.MESSAGE_ILLEGAL, "not this one")
        if command.body == b"bad"
        else store(link, command)
    )
    assert cli.main(["message", "send", "T", "good", "bad", "good"]) == 1
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 2
    assert "not this one" in printed.err


class HalfAnswered:
    """Stands for a producer whose broker answers every message but those that are slow."""

    def __init__(self) -> None:
        self.sent = 0

    async def send(self, topic: str, body: bytes, **given: object) -> SendResult:
        self.sent += 1
        if body == b"slow":
            await asyncio.Event().wait()
        if body == b"wrong":
            raise UsageError("no such message")
        return SendResult(SendStatus.SEND_OK, "id", "id", MessageQueue(topic, "b", 0), self.sent)


@pytest.mark.parametrize("quiet", [True, False])
async def test_an_interrupt_says_what_is_sent_and_how_many_may_be(
    capsys: pytest.CaptureFixture[str], quiet: bool
) -> None:
    producer, sending = HalfAnswered(), Sending(Template("T", None, (), {}, "g"), quiet=quiet, json=False)
    assert not sending.has_effect
    task = asyncio.create_task(sending.send(cast(Producer, producer), [b"one", b"slow", b"two", b"slow"]))
    await until(lambda: producer.sent == 4)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sending.has_effect and sending.summary == "2 messages sent, 2 in doubt: stored or not"
    assert capsys.readouterr().out == ("" if quiet else "b:0:1\nb:0:3\n")


def test_a_topic_that_is_not_there_is_told_in_one_line(beside: Beside, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["message", "read", "Missing"]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "See `tally topic list`" in said


def test_with_no_broker_registered_no_topic_is_said_to_be_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    settings = NameServerSettings(port=0)
    server = NameServer(settings, this_machine())
    address = "{}:{}".format(*asyncio.run_coroutine_threadsafe(server.start(), loop).result(20))
    monkeypatch.setenv("TALLY_NAMESRV", address)
    try:
        for *command, code in (
            ("message", "send", "T", "x", 1),
            ("message", "read", "T", 1),
            ("topic", "route", "T", 1),
            ("topic", "create", "T", 1),
            ("topic", "list", 0),
            ("ha", "status", 3),
        ):
            assert cli.main([str(word) for word in command]) == code
            told = capsys.readouterr().err
            assert "no broker is registered at " in told and "start one" in told, command
        assert cli.main(["ha", "status", "--expect", "b", "--json"]) == 3
        [row] = map(json.loads, capsys.readouterr().out.splitlines())
        assert (row["broker"], row["in_sync"]) == ("b", False) and "nothing of it is registered" in row["why"]
    finally:
        asyncio.run_coroutine_threadsafe(server.close(), loop).result(20)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(20)
        loop.close()


async def test_messages_are_counted_and_numbered_over_all_that_are_taken_together() -> None:
    producer = cast(Producer, HalfAnswered())
    sending = Sending(Template("T", None, (), {}, "g"), quiet=True, json=False)
    assert [await sending.send(producer, [b"one"] * count) for count in (3, 2)] == [3, 2]
    with pytest.raises(TallyError, match="message 7 was not sent"):
        await sending.send(producer, [b"one", b"wrong", b"one"])
    assert sending.summary == "7 messages sent"


async def test_what_may_be_stored_is_an_effect_though_nothing_is_known_to_be() -> None:
    producer, sending = HalfAnswered(), Sending(Template("T", None, (), {}, "g"), quiet=True, json=False)
    task = asyncio.create_task(sending.send(cast(Producer, producer), [b"slow"]))
    await until(lambda: producer.sent == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sending.has_effect and sending.summary == "0 messages sent, 1 in doubt: stored or not"
