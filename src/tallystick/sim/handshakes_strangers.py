"""Who has no secret: one that hears all that others write, and repeats it; and one at the address of a bookie."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from contextlib import suppress

from tallystick.bookkeeper.bookie.wires import V3_FIRST_BYTE
from tallystick.bookkeeper.wire import v2, v3
from tallystick.bookkeeper.wire import v3_responses as responses
from tallystick.bookkeeper.wire.auth import DIGEST_MD5, DISABLED, SCRAM_SHA_256, encode_message
from tallystick.bookkeeper.wire.codes import Code
from tallystick.errors import RemoteProtocolError
from tallystick.rocketmq.wire.remoting import Command, FrameReader, encode
from tallystick.rocketmq.wire.signature import ONCE, SIGNATURE
from tallystick.rocketmq.wire.values import RequestCode
from tallystick.sim import brokers_hosts as brokers
from tallystick.sim.cluster_hosts import PORT
from tallystick.sim.virtual.network import Fabric
from tallystick.sim.virtual.process import Process
from tallystick.sim.virtual.transport import SimTransport

Address = tuple[str, int]
CONNECT_S = 1.0
LURKS_S = 2.0  # for which something new is waited for
_FIRST, _LAST = b"n,,n=bookkeeper-0,r=abcdefghij", b"c=biws,r=abcdefghij,p=" + b"A" * 43 + b"="  # of SCRAM
ANSWER_S = 0.5  # for which an answer is waited for
NEWEST = 8  # connections: of them one is repeated, before all of it was heard or after
_OTHER_CODES = (RequestCode.GET_BROKER_CONFIG, RequestCode.UPDATE_AND_CREATE_TOPIC, RequestCode.GET_ALL_TOPIC_CONFIG)


class Heard:
    """What was written on each connection, by both sides, in pieces as it was written."""

    def __init__(self) -> None:
        self.to_bookies: dict[Address, tuple[Address, list[bytes]]] = {}  # by here: there, and the pieces
        self.to_others: dict[Address, tuple[Address, list[bytes]]] = {}
        self.bookies: list[list[bytes]] = []
        self._of_bookie: dict[SimTransport, list[bytes]] = {}
        self.ignored: dict[str, None] = {}  # addresses
        self._listener: tuple[Address, asyncio.Future[bytes]] | None = None

    def wrote(self, end: SimTransport, data: bytes) -> None:
        """Hear what an end of a connection has written."""
        if end.here[0] in self.ignored or end.there[0] in self.ignored:
            return
        if end.here[1] == PORT:
            if end not in self._of_bookie:
                self.bookies.append([])
                self._of_bookie[end] = self.bookies[-1]
            self._of_bookie[end].append(data)
        elif end.there[1] in (PORT, brokers.PORT, brokers.NAMES_PORT):
            clients = self.to_bookies if end.there[1] == PORT else self.to_others
            clients.setdefault(end.here, (end.there, []))[1].append(data)
            if self._listener is not None and self._listener[0] == end.there and not self._listener[1].done():
                self._listener[1].set_result(data)

    async def next_to(self, where: Address) -> bytes:
        """Return the next that is written to a server, in the moment in which it is."""
        self._listener = where, asyncio.get_running_loop().create_future()
        return await self._listener[1]

    def choose(self, rng: random.Random) -> tuple[Address, list[bytes]] | None:
        """Return where a client has sent something lately, and what; None if nobody has."""
        clients = rng.choice((self.to_bookies, self.to_others))
        return rng.choice(list(clients.values())[-NEWEST:]) if clients else None


class _Answers(asyncio.Protocol):
    def __init__(self) -> None:
        self.more = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self.more.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.more.set()


class Replayer:
    """Repeats what it heard, and what it makes of it. ``run`` it in a process of its own."""

    def __init__(
        self, fabric: Fabric, process: Process, heard: Heard, bookies: Sequence[str], rng: random.Random
    ) -> None:
        """``bookies``: their addresses."""
        self._network, self._heard, self._bookies, self._random = fabric.network(process), heard, bookies, rng
        self._trace = fabric.trace

    async def run(self, times: int, within_s: float) -> None:
        """Repeat something so many times."""
        for _ in range(times):
            await asyncio.sleep(2 * self._random.random() * within_s / times)
            if (chosen := self._heard.choose(self._random)) is None:
                continue
            where, pieces = chosen
            if where[1] == PORT:
                make = self._random.choice((self._whole, self._without_first, self._mixed, self._own, self._own))
                where = (self._random.choice(self._bookies), PORT)
            else:
                make = self._random.choice((self._whole, self._requests, self._requests, self._changed))
            with suppress(OSError, TimeoutError):
                await self._send(where, pieces, make)

    async def _send(self, where: Address, pieces: list[bytes], make: Callable[[list[bytes]], list[bytes]]) -> None:
        """Send what is made of pieces, at once or each behind an answer."""
        rng, answers = self._random, _Answers()
        overtakes, waits = where[1] != PORT and rng.random() < 0.5, rng.random() < 0.6
        transport = await self._network.connect(*where, lambda: answers, CONNECT_S)
        try:
            if overtakes:  # it is there before what it repeats
                async with asyncio.timeout(LURKS_S):
                    pieces = [await self._heard.next_to(where)]
            sent = make(list(pieces))
            self._trace.note("overtakes" if overtakes else "repeats", make.__name__, *where, len(sent))
            for piece in sent:
                if transport.is_closing():
                    break
                answers.more.clear()
                transport.write(piece)
                if waits:
                    await self._answer(answers)
            await self._answer(answers)
        finally:
            transport.abort()

    async def _answer(self, answers: _Answers) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_S):
                await answers.more.wait()

    # What is said to bookies.

    def _whole(self, pieces: list[bytes]) -> list[bytes]:
        return pieces

    def _without_first(self, pieces: list[bytes]) -> list[bytes]:
        return pieces[1:]

    def _mixed(self, pieces: list[bytes]) -> list[bytes]:
        others = self._random.choice(list(self._heard.to_bookies.values())[-NEWEST:])[1]
        mixed = [*pieces[:3], *others[:3]]
        self._random.shuffle(mixed)
        return mixed

    def _own(self, pieces: list[bytes]) -> list[bytes]:
        """Return frames that it made itself, in any order: requests that come too early, and wrong steps."""
        rng, head = self._random, v3.Header(self._random.randrange(1, 5))
        plugin, token = rng.choice(((DIGEST_MD5, b""), (SCRAM_SHA_256, _FIRST), (DISABLED, b""), (DIGEST_MD5, _LAST)))
        begins = v3.encode_request(v3.AuthRequest(head, plugin.encode(), token))
        frames = [
            begins,
            v3.encode_request(v3.StartTlsRequest(head)),
            v3.encode_request(v3.AuthRequest(head, plugin.encode(), _LAST)),
            v3.encode_request(v3.ReadRequest(head, 0, 0)),
            v3.encode_request(v3.BookieInfoRequest(head, 3)),
            v3.encode_request(v3.EntryListRequest(head, 0)),
            v2.AuthFrame(encode_message(plugin, token)).encode(),
            v2.ReadFrame(0, 0).encode(),
            *pieces[:2],
        ]
        return [*([begins] if rng.random() < 0.5 else []), *rng.sample(frames, rng.randint(1, 5))]

    # What is said to brokers and name servers.

    def _requests(self, pieces: list[bytes]) -> list[bytes]:
        """Return some of the requests, some twice."""
        commands = _commands(pieces)
        return self._numbered(self._random.choices(commands, k=3)) if commands else []

    def _changed(self, pieces: list[bytes]) -> list[bytes]:
        """Return requests with another code or body, without a signature, or without what makes them count once."""
        rng, changed = self._random, list[Command]()
        for command in rng.sample(commands := _commands(pieces), min(3, len(commands))):
            fields, how = dict(command.fields), rng.randrange(4)
            if how == 0:
                command.code = rng.choice([code for code in _OTHER_CODES if code != command.code])
            elif how == 1:
                command.body = b"another"
            else:
                fields.pop(ONCE if how == 2 else SIGNATURE, None)
            command.ext = fields
            changed.append(command)
        return self._numbered(changed)

    def _numbered(self, commands: Sequence[Command]) -> list[bytes]:
        """Return frames whose answers can be told from each other; a signature does not cover that number."""
        frames = []
        for number, command in enumerate(commands, start=1):
            command.opaque = number
            frames.append(encode(command))
        return frames


def _commands(pieces: Sequence[bytes]) -> list[Command]:
    try:
        return FrameReader().take(b"".join(pieces))
    except RemoteProtocolError:
        return []


class Impostor(asyncio.Protocol):
    """One connection of a client to who has taken a bookie's address, and knows no secret."""

    def __init__(self, script: str, heard: Heard, rng: random.Random) -> None:
        self._script, self._random, self._data, self._steps = script, rng, b"", 0
        self._old = rng.choice(heard.bookies[-NEWEST:]) if heard.bookies else []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        while len(self._data) > 4 and len(self._data) >= (stop := 4 + int.from_bytes(self._data[:4], "big")):
            body, self._data = self._data[4:stop], self._data[stop:]
            request = v3.decode_request(body) if body[0] == V3_FIRST_BYTE else None
            if isinstance(request, v3.AuthRequest):
                self._transport.write(self._answer(request))

    def _answer(self, request: v3.AuthRequest) -> bytes:
        number, self._steps = request.header.request_id, self._steps + 1
        plugin, token = request.plugin, request.payload
        if self._script == "repeats" and self._steps <= len(self._old):
            return self._old[self._steps - 1]
        if self._script == "refuses":
            return responses.encode_response(responses.RefusedResponse(number, v3.Operation.AUTH, Code.UNAUTHORIZED))
        if self._script == "asks nobody":
            plugin, token = DISABLED.encode(), b""
        elif self._script == "other plugin":
            plugin = (DIGEST_MD5 if plugin.decode() == SCRAM_SHA_256 else SCRAM_SHA_256).encode()
            token = _made_up(plugin.decode(), b"", self._steps)
        elif self._script == "made up":
            token = _made_up(plugin.decode(), token, self._steps)
        return responses.encode_response(responses.AuthResponse(number, Code.OK, plugin, token))


def _made_up(plugin: str, token: bytes, step: int) -> bytes:
    """Return what a bookie would say, of its form, that knows no secret."""
    if plugin == DIGEST_MD5:
        challenge = b'realm="bookkeeper",nonce="%s",qop="auth",charset=utf-8,algorithm=md5-sess' % (b"x" * 32)
        return challenge if step == 1 else b"rspauth=" + b"0" * 32
    nonce = token.rpartition(b"r=")[2]
    return b"r=%sxxxxxxxx,s=c2FsdHNhbHRzYWx0,i=4096" % nonce if step == 1 else b"v=" + b"A" * 43 + b"="


def listen(fabric: Fabric, process: Process, script: str, heard: Heard, rng: random.Random) -> asyncio.Task[object]:
    """Let an impostor listen at the address of its host, until its process dies."""
    return process.start(fabric.network(process).listen(process.address, PORT, lambda: Impostor(script, heard, rng)))
