"""Tasks relay entries to the driver, which owns the stream: what is stored, and what either side is told."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import socket
import struct
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from support.small_cluster import SmallCluster
from support.streams import NAME, RAW, ledgers, notes, payloads
from support.waiting import until
from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.bookkeeper.stream.settings import StreamSettings
from tallystick.bookkeeper.stream.stream import Stream
from tallystick.bookkeeper.wire.pulsar_messages import OutMessage
from tallystick.bookkeeper.wire.stream_values import Position
from tallystick.errors import StreamFenced, StreamOwned, Unavailable, UsageError
from tallystick.pipeline.driver_port import DriverPort
from tallystick.pipeline.stream import relay_appends, relay_driver, relay_task, repeatable_sink
from tallystick.pipeline.stream.relay import AT_ONCE, LONGEST_FRAME, RelayRequest, decode_request, encode_frame
from tallystick.pipeline.stream.relay_driver import RelayPort, StreamOwners
from tallystick.pipeline.stream.relay_task import EntryMaker, Relay
from tallystick.pipeline.stream.repeatable_sink import RepeatableFollowingWriter
from tallystick.pipeline.stream.sink_options import SinkOptions
from tallystick.pipeline.worker import leave_out_imports

TOKEN = "t" * 32


def request(**other: Any) -> RelayRequest:
    fields: dict[str, Any] = {"settings": RAW, "switch": False, "idle_s": 60.0, **other}
    return RelayRequest(TOKEN, "memory://unused", NAME, **fields)


class Driver:
    """A driver of the test's loop; tasks are in threads."""

    def __init__(self, cluster: SmallCluster, port: DriverPort) -> None:
        self.cluster, self.port = cluster, port
        self.owners = StreamOwners(self._connect)
        self.opened = 0

    async def _connect(self, uri: str) -> BookKeeper:
        self.opened += 1
        return self.cluster.client(self.opened)

    async def relay(self, *frames: list[bytes], **fields: Any) -> int:
        def run() -> int:
            with Relay(self.port, request(**fields)) as relay:
                for entries in frames:
                    relay.send(entries)
                return relay.finish()

        return await asyncio.to_thread(run)


@pytest.fixture
async def driver(cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Driver]:
    monkeypatch.setattr(relay_driver, "_WAIT_S", 0.2)
    listener = socket.create_server(("127.0.0.1", 0))
    made = Driver(cluster, DriverPort("127.0.0.1", listener.getsockname()[1], TOKEN))
    server = await asyncio.start_server(RelayPort(made.owners, made.port).serve, sock=listener)
    yield made
    server.close()
    await made.owners.close()


def test_entries_are_full_with_bytes_or_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_task, "MOST_MESSAGES", 3)
    maker = EntryMaker(RAW, "p")
    frames = list(maker.add([OutMessage(b"%d" % number) for number in range(7)]))
    assert [*frames, maker.take()] == [[b"0", b"1", b"2"], [b"3", b"4", b"5"], [b"6"]] and maker.take() == []
    monkeypatch.setattr(relay_task, "MOST_BYTES", 1000)
    sizes = [[len(entry) for entry in frame] for frame in maker.add([OutMessage(bytes(600))] * 2)]
    assert sizes == [[600]] and len(maker.take()) == 1


async def test_what_a_task_relays_is_stored_in_order_and_in_one_ledger_for_all_batches(
    driver: Driver, cluster: SmallCluster
) -> None:
    frames = [[b"%d-%d" % (number, one) for one in range(3)] for number in range(3 * AT_ONCE)]
    assert await driver.relay(*frames) == 9 * AT_ONCE
    assert await driver.relay([b"next"]) == 1
    assert driver.opened == 1 and len(await ledgers(cluster)) == 1
    await driver.owners.close()
    assert await payloads(cluster) == [*(entry for frame in frames for entry in frame), b"next"]


async def test_a_stream_is_given_back_when_no_task_wants_it_for_a_while(driver: Driver, cluster: SmallCluster) -> None:
    await driver.relay([b"a"], idle_s=0.05)
    async with cluster.client(50).open_stream(NAME, settings=RAW, wait_s=20) as stream:
        await stream.append(b"b")
    await driver.relay([b"c"])
    await driver.owners.close()
    assert await payloads(cluster) == [b"a", b"b", b"c"] and await notes(cluster) == []


async def test_a_stream_stays_open_for_a_while_after_its_last_task_not_its_first(driver: Driver) -> None:
    for _ in range(4):
        await driver.relay([b"a"], idle_s=1.0)
        await asyncio.sleep(0.4)
    assert driver.opened == 1
    await until(lambda: not driver.owners._streams)


async def test_a_stream_that_another_process_owns_is_left_to_it(driver: Driver, cluster: SmallCluster) -> None:
    async with cluster.client(50).open_stream(NAME, settings=RAW) as stream:
        for switch in (False, True):
            with pytest.raises(StreamOwned, match="owner="):
                await driver.relay([b"a"], switch=switch)
        await stream.append(b"b")
    assert await driver.relay([b"c"]) == 1


async def test_who_finds_a_stream_with_a_driver_is_told_which(cluster: SmallCluster) -> None:
    driver = await relay_driver._connected(f"memory://{cluster.name}")
    async with driver, driver.open_stream(NAME, settings=RAW):
        with pytest.raises(StreamOwned, match=rf"owner=spark-driver-.*-{os.getpid()}-"):
            await cluster.client(50).open_stream(NAME, settings=RAW)


async def test_sinks_that_commit_are_ended_only_where_the_options_say_so(driver: Driver, cluster: SmallCluster) -> None:
    sink = await cluster.client(50).open_sink(NAME, "app", "query", settings=RAW)
    async with sink.attempt(0) as attempt:
        await attempt.append(b"a")
        await sink.commit(0, [await attempt.close()])
    with pytest.raises(StreamOwned, match=r"applications: app. switch=true"):
        await driver.relay([b"b"])
    assert await driver.relay([b"b"], switch=True) == 1
    with pytest.raises(StreamOwned):
        await sink.commit(1, [])
    assert await driver.relay([b"c"]) == 1
    await driver.owners.close()
    assert await payloads(cluster) == [b"a", b"b", b"c"]


async def test_a_driver_that_was_taken_over_says_so_and_opens_the_stream_anew(
    driver: Driver, cluster: SmallCluster
) -> None:
    await driver.relay([b"a"])
    async with cluster.client(50).open_stream(NAME, takeover=True, settings=RAW) as stream:
        await stream.append(b"b")
        with pytest.raises((StreamOwned, Unavailable)) as refused:
            for _ in range(2):  # the first may be told of the fence
                with contextlib.suppress(StreamFenced):
                    await driver.relay([b"lost"])
        assert isinstance(refused.value, StreamOwned)
    await driver.relay([b"c"])
    await driver.owners.close()
    assert await payloads(cluster) == [b"a", b"b", b"c"]


async def test_a_task_that_dies_leaves_whole_entries(driver: Driver, cluster: SmallCluster) -> None:
    def die() -> None:
        connection = socket.create_connection((driver.port.host, driver.port.port))
        connection.sendall(request().encode() + encode_frame([b"whole"]) + encode_frame([b"half"])[:-1])
        assert connection.recv(2, socket.MSG_WAITALL) == b"\n\n"
        connection.close()

    await asyncio.to_thread(die)
    await driver.relay([b"next"])
    await driver.owners.close()
    assert await payloads(cluster) == [b"whole", b"next"]


async def test_an_entry_that_is_too_long_fails_its_task_alone(driver: Driver, cluster: SmallCluster) -> None:
    with pytest.raises(UsageError, match="too long"):
        await driver.relay([b"a"], [bytes(6 << 20)], *[[b"b"]] * (2 * AT_ONCE))
    with pytest.raises(UsageError, match="too long"):
        await driver.relay([bytes(65 << 20)])
    await driver.relay([b"c"])
    await driver.owners.close()
    stored = await payloads(cluster)
    assert stored[0] == b"a" and stored[-1] == b"c"


def begin(driver: Driver, sent: bytes = b"") -> socket.socket:
    """Connect as a task does, and send more."""
    connection = socket.create_connection((driver.port.host, driver.port.port))
    connection.settimeout(20)
    connection.sendall(request().encode() + sent)
    return connection


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (struct.pack(">II", 7, 4) + b"abc", b"other entries than a task sends"),
        (struct.pack(">IB", 5, 0) + bytes(9), b"other entries than a task sends"),
        (encode_frame([b""] * 1001), b"other entries than a task sends"),
        (struct.pack(">II", 6 << 20, (6 << 20) - 4), b"an entry is too long"),
        (struct.pack(">I", LONGEST_FRAME + 1), b"a frame is too long"),
    ],
)
async def test_a_frame_that_no_task_sends_ends_its_connection_with_the_reason(
    driver: Driver, frame: bytes, words: bytes
) -> None:
    connection = await asyncio.to_thread(begin, driver, frame)
    with connection, connection.makefile("rb") as answers:
        assert await asyncio.to_thread(answers.readline) == b"\n"
        assert words in await asyncio.to_thread(answers.readline)
    assert await driver.relay([b""] * 1000) == 1000


async def test_tasks_that_stop_in_the_middle_of_long_messages_end_and_others_go_on(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_appends, "_LONG_BYTES", 1000)
    monkeypatch.setattr(relay_appends, "_LONG_S", 1.0)
    half = encode_frame([bytes(5000)])[:-1]
    stopped = [await asyncio.to_thread(begin, driver, half) for _ in range(2 * relay_appends._LONG_AT_ONCE)]
    with contextlib.ExitStack() as stack:
        for each in stopped:
            stack.enter_context(each)
        assert await asyncio.wait_for(driver.relay([b"short"]), 20) == 1
        assert await asyncio.wait_for(driver.relay([bytes(1001)]), 20) == 1, "when the others have had their time"
        with stopped[0].makefile("rb") as answers:
            assert await asyncio.to_thread(answers.readline) == b"\n"
            assert b"stopped in the middle of a message" in await asyncio.to_thread(answers.readline)


async def test_a_task_that_reads_no_answers_is_read_from_no_more(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has sent and nobody has answered is in its own hands."""
    read = 0
    turns = driver.owners.turns

    async def counted(reader: asyncio.StreamReader, size: int) -> bytes:
        nonlocal read
        read += 1
        return await reader.readexactly(size)

    async def blocked(writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(turns, "read", counted)
    monkeypatch.setattr(asyncio.StreamWriter, "drain", blocked)
    connection = await asyncio.to_thread(begin, driver, encode_frame([b"a"]) * 100)
    with connection, connection.makefile("rb") as answers:
        assert await asyncio.to_thread(answers.read, 2) == b"\n\n"
        await asyncio.sleep(0.2)
        assert AT_ONCE <= read <= AT_ONCE + 2


async def test_very_many_short_entries_of_many_tasks_leave_the_loop_its_turns(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In each turn one task appends, and not all that it has."""
    loop, appended, most = asyncio.get_running_loop(), 0, 0
    append = Stream.append_encoded

    def turn() -> None:
        nonlocal appended, most
        most, appended = max(most, appended), 0
        loop.call_soon(turn)

    async def counted(stream: Stream, entry: bytes) -> asyncio.Future[Position]:
        nonlocal appended
        appended += 1
        return await append(stream, entry)

    monkeypatch.setattr(Stream, "append_encoded", counted)
    loop.call_soon(turn)
    assert await asyncio.gather(*(driver.relay([b"x"] * 1000) for _ in range(8))) == [1000] * 8
    assert 0 < most <= relay_appends._IN_TURN


async def test_writers_with_other_options_take_turns(driver: Driver, cluster: SmallCluster) -> None:
    other = replace(RAW, retention_bytes=1 << 30)
    async with driver.owners.use(request()):
        with pytest.raises(UsageError, match="other options"):
            await driver.relay([b"a"], settings=other)
    assert await driver.relay([b"a"], settings=other) == 1
    assert driver.opened == 2


async def test_strangers_and_other_versions_are_told_nothing_or_what_is_wrong(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_driver, "_REQUEST_S", 0.2)
    stranger = replace(driver.port, token="x" * 32)

    def ask(line: bytes) -> bytes:
        with socket.create_connection((driver.port.host, driver.port.port)) as connection:
            connection.settimeout(20)
            with contextlib.suppress(ConnectionError):
                connection.sendall(line)
                return connection.makefile("rb").read()
            return b""

    with (
        Relay(stranger, replaced(request(), token=stranger.token)) as relay,
        pytest.raises(Unavailable, match="token"),
    ):
        await asyncio.to_thread(relay.send, [b"a"])
    assert await asyncio.to_thread(ask, b"") == b"", "who says nothing is not waited for"
    assert await asyncio.to_thread(ask, b"x" * 200_000) == b""
    assert b"another version" in await asyncio.to_thread(ask, b'{"token": 1}\n')
    assert driver.opened == 0


async def test_very_many_strangers_take_few_handles_and_keep_no_task_waiting(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They say nothing, or only what is none; those who came first must go."""
    monkeypatch.setattr(relay_driver, "_MOST_SILENT", 10)
    monkeypatch.setattr(relay_driver, "_REQUEST_S", 60.0)
    with contextlib.ExitStack() as stack:
        strangers = []
        for number in range(40):
            stranger = stack.enter_context(socket.create_connection((driver.port.host, driver.port.port)))
            stranger.sendall(b'{"token": 1}\n' if number % 2 else b"{")
            strangers.append(stranger)
        assert await asyncio.wait_for(driver.relay([b"a"]), 20) == 1
        for stranger in strangers[:29]:
            stranger.settimeout(5)
            with contextlib.suppress(ConnectionError):
                await asyncio.to_thread(stranger.makefile("rb").read)


def replaced(given: RelayRequest, **fields: object) -> RelayRequest:
    return RelayRequest(**{name: getattr(given, name) for name in given.__struct_fields__} | fields)


def test_who_is_told_no_port_says_what_to_do() -> None:
    with pytest.raises(UsageError, match="call tallystick"):
        Relay(None, request()).send([b"a"])
    with socket.create_server(("127.0.0.1", 0)) as listener:
        closed = listener.getsockname()[1]
    with pytest.raises(Unavailable, match="cannot be reached"):
        Relay(DriverPort("127.0.0.1", closed, TOKEN), request()).send([b"a"])


def test_settings_come_over_as_they_are() -> None:
    sent = request(settings=StreamSettings(5, 4, 3, compression="zstd", retention_s=60))
    assert decode_request(sent.encode()) == sent
    assert json.loads(sent.encode())["stream"] == NAME


def test_what_the_imports_made_is_left_out_of_collections_once(monkeypatch: pytest.MonkeyPatch) -> None:
    frozen: list[int] = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(1))
    leave_out_imports.cache_clear()
    schema = StructType([StructField("value", StringType())])
    options = SinkOptions.parse({"uri": "sqlite:///u", "stream": NAME, "delivery": "at-least-once"}, {}, follows=True)
    for _ in range(2):  # Spark makes a writer for each batch
        RepeatableFollowingWriter(options, schema)
    assert frozen == [1]


async def test_a_row_that_is_too_long_is_looked_for_in_its_partition(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = Mock(partitionId=lambda: 3, getLocalProperty=lambda name: driver.port.setting())
    monkeypatch.setattr(repeatable_sink, "this_task", lambda: task)
    options = SinkOptions.parse({"uri": "sqlite:///u", "stream": NAME, "delivery": "at-least-once"}, {}, follows=True)
    writer = RepeatableFollowingWriter(options, StructType([StructField("value", StringType())]))
    batches = [pa.record_batch({"value": ["a", "b"]}), pa.record_batch({"value": ["c" * (6 << 20)]})]
    with pytest.raises(UsageError, match=r"too long .*partition=3 rows_taken=3"):
        await asyncio.to_thread(writer.write_part, iter(batches), "p", 60.0)


def test_the_port_of_a_context_that_is_no_more_ends_with_the_next_one() -> None:
    def session(application: str) -> Any:
        context = Mock(applicationId=application)
        context.getConf.return_value = {"spark.driver.host": "127.0.0.1"}
        return Mock(sparkContext=context)

    ports = relay_driver._RelayThread()
    first, second = (ports.port_of(session(name)) for name in ("first", "second"))
    assert ports.port_of(session("second")) == second
    socket.create_connection((second.host, second.port)).close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((first.host, first.port))
