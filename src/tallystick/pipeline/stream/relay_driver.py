"""The driver's side of the at-least-once sink: it owns the streams, and appends what tasks relay.

A stream is opened with the first task that wants it, and closed when none did for a while: so it stays open from batch
to batch, and a batch costs no ledger and no change of the metadata. All of it is in a thread of the process that called
``register``, and ends with that: then whoever opens the stream next recovers its last ledger.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import secrets
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
import uvloop

from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.bookkeeper.stream.settings import StreamClientSettings
from tallystick.bookkeeper.stream.splice.commit_core import require_sink
from tallystick.bookkeeper.stream.splice.record import applications, is_sink
from tallystick.bookkeeper.stream.stream import Stream
from tallystick.errors import NoSuchStream, StreamError, StreamOwned, TallyError, UsageError
from tallystick.pipeline.bookies import connect_here
from tallystick.pipeline.codes import code_of
from tallystick.pipeline.driver_port import DriverPort, listen
from tallystick.pipeline.stream.relay import LONGEST_LINE, SETTING, RelayRequest, decode_request
from tallystick.pipeline.stream.relay_appends import Turns, append_all

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_REQUEST_S = 2.0  # who connects says at once what it wants
_MOST_SILENT = 256  # who have not said it yet: each takes a handle of the driver, and the memory of a line
_WAIT_S = 30.0  # for the lease of a driver that died
_CLOSE_S = 5.0

Place = tuple[str, str]  # of the metadata, and the stream
Connect = Callable[[str], Awaitable[BookKeeper]]


@dataclass(eq=False)
class _OwnedStream:
    """A stream that this process owns, or is about to, with a client of its own."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    bk: BookKeeper | None = None
    stream: Stream | None = None
    users: int = 0  # tasks
    closing: asyncio.TimerHandle | None = None

    async def close(self) -> None:
        bk, self.bk, self.stream = self.bk, None, None
        if bk is not None:
            await bk.close()


class StreamOwners:
    """The streams that this process owns for its tasks. On one event loop."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self.turns = Turns()
        self._streams: dict[Place, _OwnedStream] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def use(self, request: RelayRequest) -> AsyncIterator[Stream]:
        """Own the stream meanwhile. Raises StreamOwned while another process does, or sinks write it; UsageError, and
        as ``open_stream``."""
        place = request.uri, request.stream
        owned = self._streams.setdefault(place, _OwnedStream())
        owned.users += 1
        if owned.closing is not None:
            owned.closing.cancel()
        stream = None
        try:
            async with owned.turn:
                stream = await self._opened(owned, request)
            yield stream
        except StreamError:  # whatever it was, the next task finds out anew whose the stream is
            async with owned.turn:
                if stream is not None and owned.stream is stream:
                    stream.abort()
                    await owned.close()
            raise
        finally:
            owned.users -= 1
            if not owned.users:
                loop = asyncio.get_running_loop()
                owned.closing = loop.call_later(request.idle_s, self._close_soon, place)

    async def _opened(self, owned: _OwnedStream, request: RelayRequest) -> Stream:
        if owned.stream is not None and owned.stream.settings != request.settings:
            if owned.users > 1:
                raise UsageError(
                    "other tasks write this stream with other options at this moment: give both writers the same ones",
                    stream=request.stream,
                )
            await self._close_stream(owned)
        if owned.stream is None:
            owned.bk = await self._connect(request.uri)
            try:
                owned.stream = await _open(owned.bk, request)
            except BaseException:
                await owned.close()
                raise
        return owned.stream

    def _close_soon(self, place: Place) -> None:
        if (owned := self._streams.get(place)) is not None:
            task = asyncio.get_running_loop().create_task(self._close_unused(place, owned))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _close_unused(self, place: Place, owned: _OwnedStream) -> None:
        async with owned.turn:
            if not owned.users:
                await self._close_stream(owned)
            if not owned.users:
                self._streams.pop(place, None)

    async def _close_stream(self, owned: _OwnedStream) -> None:
        """What cannot be closed properly is recovered by whoever opens it next."""
        with contextlib.suppress(TallyError):
            if owned.stream is not None:
                await owned.stream.close()
        with contextlib.suppress(TallyError):
            await owned.close()

    async def close(self) -> None:
        """Give all streams back."""
        await asyncio.gather(*map(self._close_stream, self._streams.values()))


async def _open(bk: BookKeeper, request: RelayRequest) -> Stream:
    """Sinks that commit are ended if the request says so; an owner that is alive never is."""
    takeover = await _is_to_be_taken(bk, request)
    return await bk.open_stream(request.stream, takeover=takeover, wait_s=_WAIT_S, settings=request.settings)


async def _is_to_be_taken(bk: BookKeeper, request: RelayRequest) -> bool:
    try:
        info = (await bk.stream_context.catalog.read(request.stream, synced=True)).value
    except NoSuchStream:
        return False
    if not is_sink(info):
        return False
    if not request.switch:
        names = ", ".join(applications(info)) or "none has committed yet"
        raise StreamOwned(
            f"sinks write this stream exactly once, of these applications: {names}. switch=true ends their commits, "
            "and the driver appends to it from then on",
            stream=request.stream,
        )
    require_sink(info, request.stream)
    return True


class RelayPort:
    """Answers the tasks of one Spark context."""

    def __init__(self, owners: StreamOwners, port: DriverPort) -> None:
        self._owners, self._port = owners, port
        self._silent: dict[asyncio.StreamWriter, None] = {}  # the one that is waited for longest is first

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Append what a task relays, until it ends the connection."""
        with contextlib.suppress(OSError, EOFError, asyncio.LimitOverrunError), contextlib.closing(writer):
            async with self._brief(writer):
                line = await reader.readuntil(b"\n")
            try:
                request = self._admitted(line)
                async with self._owners.use(request) as stream:
                    writer.write(b"\n")
                    await append_all(stream, reader, writer, self._owners.turns)
            except TallyError as error:
                writer.write(f"[{code_of(type(error))}] {' '.join(str(error).split())}\n".encode())
                async with self._brief(writer):
                    await _discard(reader)

    @contextlib.asynccontextmanager
    async def _brief(self, writer: asyncio.StreamWriter) -> AsyncIterator[None]:
        """Wait for what comes at once, or ends. Of very many that are waited for so the first must go."""
        self._silent[writer] = None
        if len(self._silent) > _MOST_SILENT:
            first = next(iter(self._silent))
            del self._silent[first]
            first.transport.abort()
        try:
            async with asyncio.timeout(_REQUEST_S):
                yield
        finally:
            self._silent.pop(writer, None)

    def _admitted(self, line: bytes) -> RelayRequest:
        """Raises UsageError for what only another version says, ConnectionError for a stranger."""
        try:
            request = decode_request(line)
        except msgspec.MsgspecError as error:
            raise UsageError(f"the executors have another version of tallystick than the driver: {error}") from None
        if not self._port.admits(request.token):
            raise ConnectionError("a stranger")
        return request


async def _discard(reader: asyncio.StreamReader) -> None:
    """Read what the task has sent already: a connection that ends before that takes the answer with it."""
    while await reader.read(LONGEST_LINE):
        pass


class _RelayThread:
    """The loop of all ports, as long as the process."""

    def __init__(self) -> None:
        self._loop = uvloop.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="tally-relay", daemon=True).start()
        self._owners = StreamOwners(_connected)
        self._ports: dict[str, DriverPort] = {}  # by application
        self._servers: list[asyncio.Server] = []
        atexit.register(self._close)

    def port_of(self, spark: SparkSession) -> DriverPort:
        application = spark.sparkContext.applicationId
        if application not in self._ports:
            self._close_ports()  # a process has one context at a time: of the one before no task comes any more
            listener, port = listen(spark)
            serve = RelayPort(self._owners, port).serve
            starting = asyncio.start_server(serve, sock=listener, limit=LONGEST_LINE)
            self._servers.append(asyncio.run_coroutine_threadsafe(starting, self._loop).result())
            self._ports[application] = port
        return self._ports[application]

    def _close_ports(self) -> None:
        while self._servers:
            self._loop.call_soon_threadsafe(self._servers.pop().close)
        self._ports.clear()

    def _close(self) -> None:
        closing: Future[None] = asyncio.run_coroutine_threadsafe(self._owners.close(), self._loop)
        with contextlib.suppress(TimeoutError):
            closing.result(_CLOSE_S)


async def _connected(uri: str) -> BookKeeper:
    """Others who want one of its streams are told which driver has it."""
    owner = f"spark-driver-{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
    return await connect_here(uri, streams=StreamClientSettings(owner=owner))


_threads: list[_RelayThread] = []  # one, once there is a session


def serve_relay(spark: SparkSession) -> None:
    """Begin to take entries from the tasks of a session's context, once."""
    if not _threads:
        _threads.append(_RelayThread())
    spark.conf.set(SETTING, _threads[0].port_of(spark).setting())
