"""TLS over transports that exist: what comes in batches, what is held, and how it ends."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import cast

import pytest

from support.certificates import Authority, Certified, secret_file
from support.clocks import ManualClock
from support.waiting import until
from tallystick.errors import UsageError
from tallystick.runtime.certificates import (
    TlsContexts,
    TlsFiles,
    client_context,
    common_name,
    secret_text,
    server_context,
)
from tallystick.runtime.handshake_turns import HandshakeTurns
from tallystick.runtime.tls import READ_BYTES, TlsBuffer, TlsConnection

pytestmark = pytest.mark.real_time


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.make(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def certified(authority: Authority) -> Certified:
    return authority.certify("server")


class End(asyncio.BufferedProtocol):
    """One side: it keeps what comes, in the pieces in which it came."""

    def __init__(self, size: int = 1024 * 1024) -> None:
        self._buffer = bytearray(size)
        self.pieces: list[bytes] = []
        self.lost: list[Exception | None] = []
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.ready.add_done_callback(lambda ready: ready.cancelled() or ready.exception())
        self.paused = False

    @property
    def data(self) -> bytes:
        return b"".join(self.pieces)

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._buffer)

    def buffer_updated(self, nbytes: int) -> None:
        self.pieces.append(bytes(self._buffer[:nbytes]))

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False

    def done(self, error: Exception | None) -> None:
        if error is None:
            self.ready.set_result(None)
        else:
            self.ready.set_exception(error)


@asynccontextmanager
async def pair(
    server: ssl.SSLContext, client: ssl.SSLContext, *, size: int = 1024 * 1024, host: str = "127.0.0.1"
) -> AsyncIterator[tuple[End, TlsConnection, End, TlsConnection]]:
    """Both sides, with their handshakes under way."""
    loop, here, made = asyncio.get_running_loop(), End(size), list[TlsConnection]()
    turns = HandshakeTurns(2)

    class Accept(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            in_turn = partial(turns.run, self, "127.0.0.1")
            accepted = cast(asyncio.Transport, transport)
            tls = TlsConnection(accepted, here, server, TlsBuffer(), here.done, in_turn=in_turn)
            made.append(tls)
            tls.begin()

    listener = await loop.create_server(Accept, "127.0.0.1", 0)
    there = End()
    transport, _ = await loop.create_connection(lambda: there, *listener.sockets[0].getsockname())
    tls = TlsConnection(transport, there, client, TlsBuffer(), there.done, host=host)
    tls.begin()
    await until(lambda: bool(made))
    try:
        yield here, made[0], there, tls
    finally:
        for each in (made[0], tls):
            each.abort()
        listener.close()


Contexts = Callable[[], tuple[ssl.SSLContext, ssl.SSLContext]]


@pytest.fixture
def contexts(authority: Authority, certified: Certified) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    files = TlsFiles(None, certified.certificate, certified.key)
    return server_context(files, require_peer=False), client_context(TlsFiles(authority.trust))


async def test_bytes_go_both_ways_and_come_in_large_batches(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    async with pair(*contexts) as (here, server, there, client):
        await asyncio.gather(here.ready, there.ready)
        data = bytes(range(256)) * 16_384  # 4 MiB
        client.writelines([data[:100], data[100:]])
        server.write(b"answer")
        await until(lambda: len(here.data) == len(data) and there.data == b"answer")
        assert here.data == data
        assert max(map(len, here.pieces)) > 3 * 16_384  # records of TLS have 16 KiB at most


async def test_who_does_not_read_holds_one_read_of_the_socket_and_no_more(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    async with pair(*contexts) as (here, server, there, client):
        await asyncio.gather(here.ready, there.ready)
        server.pause_reading()
        data = bytes(8 * 1024 * 1024)
        client.write(data)
        await asyncio.sleep(0.2)
        assert there.paused
        assert here.pieces == []
        assert server.held_bytes <= READ_BYTES
        server.resume_reading()
        await until(lambda: len(here.data) == len(data))
        assert not there.paused
        assert server.held_bytes == 0


async def test_a_small_buffer_gets_all_in_its_own_pieces(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    async with pair(*contexts, size=1000) as (here, _, there, client):
        await asyncio.gather(here.ready, there.ready)
        client.write(bytes(100_000))
        await until(lambda: len(here.data) == 100_000)
        assert max(map(len, here.pieces)) <= 1000


async def test_reading_may_stop_in_the_middle_of_a_batch(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    async with pair(*contexts, size=1000) as (here, server, there, client):
        await asyncio.gather(here.ready, there.ready)
        keep = here.buffer_updated

        def once(nbytes: int) -> None:
            keep(nbytes)
            server.pause_reading()

        here.buffer_updated = once  # type: ignore[method-assign]
        client.write(bytes(10_000))
        for count in range(1, 11):
            await until(lambda count=count: len(here.pieces) == count)  # type: ignore[misc]
            await asyncio.sleep(0.01)
            assert len(here.pieces) == count
            server.resume_reading()
        await until(lambda: len(here.data) == 10_000)


async def test_nothing_more_comes_to_who_has_ended_the_connection(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    for end in ("abort", "close"):
        async with pair(*contexts, size=1000) as (here, server, there, client):
            await asyncio.gather(here.ready, there.ready)
            keep = here.buffer_updated

            def once(nbytes: int, keep: Callable[[int], None] = keep, server: TlsConnection = server) -> None:
                keep(nbytes)
                getattr(server, end)()  # noqa: B023

            here.buffer_updated = once  # type: ignore[method-assign]
            client.write(bytes(10_000))
            await until(lambda: bool(here.lost))
            assert len(here.pieces) == 1


async def test_close_sends_what_is_left_and_tells_both_sides(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    async with pair(*contexts) as (here, _, there, client):
        await asyncio.gather(here.ready, there.ready)
        client.write(bytes(1_000_000))
        client.close()
        client.write(b"too late")
        await until(lambda: bool(here.lost and there.lost))
        assert len(here.data) == 1_000_000


@pytest.mark.rule("N5")
async def test_n5_a_server_of_another_host_or_authority_is_not_believed(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext], tmp_path: Path
) -> None:
    server, client = contexts
    async with pair(server, client, host="192.0.2.1") as (_, _, there, _):
        with pytest.raises(ssl.SSLCertVerificationError, match="IP address mismatch"):
            await there.ready
    other = client_context(TlsFiles(Authority.make(tmp_path / "other").trust))
    async with pair(server, other) as (here, _, there, _):
        with pytest.raises(ssl.SSLCertVerificationError):
            await there.ready
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await here.ready


async def test_a_connection_that_ends_within_its_handshake_says_so_once(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    async with pair(*contexts) as (here, _, there, client):
        client.abort()
        await until(lambda: bool(there.lost and here.lost))
        with pytest.raises((ConnectionError, ssl.SSLError)):
            await there.ready
        assert len(there.lost) == 1


async def test_damaged_records_end_the_connection(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    async with pair(*contexts) as (here, _, there, client):
        await asyncio.gather(here.ready, there.ready)
        client._socket.write(b"\x17\x03\x03\x00\x20" + bytes(32))
        await until(lambda: bool(here.lost))
        assert here.pieces == []


# Files


@pytest.mark.rule("N2", "N9")
class Wire(asyncio.Transport):
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""

    def is_closing(self) -> bool:
        return False

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += bytes(data)


async def test_who_reads_on_within_its_handshake_takes_no_step_of_it_out_of_turn(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    """A read does what is left of it: hundreds of handshakes were one turn, and bytes came before they were over."""
    server, client = contexts
    to_client, from_client, wire, end = ssl.MemoryBIO(), ssl.MemoryBIO(), Wire(), End()
    there, steps = client.wrap_bio(to_client, from_client, server_hostname="127.0.0.1"), list[Callable[[], None]]()
    tls = TlsConnection(wire, end, server, TlsBuffer(), end.done, in_turn=steps.append)

    async def read_on() -> None:
        tls.pause_reading()
        tls.resume_reading()
        await asyncio.sleep(0)

    with pytest.raises(ssl.SSLWantReadError):
        there.do_handshake()
    tls.begin(from_client.read())
    await read_on()
    assert wire.sent == b"" and len(steps) == 1
    steps.pop()()
    to_client.write(wire.sent)
    there.do_handshake()
    there.write(b"request")
    records = from_client.read()
    tls.get_buffer(-1)[: len(records)] = records
    tls.buffer_updated(len(records))
    await read_on()
    assert end.pieces == [] and not end.ready.done()
    steps.pop()()
    assert end.pieces == [b"request"] and end.ready.done()


def test_n9_secrets_that_everybody_may_read_are_refused(authority: Authority, tmp_path: Path) -> None:
    certified = authority.certify("readable")
    Path(certified.key).chmod(0o644)
    with pytest.raises(UsageError, match="chmod"):
        server_context(TlsFiles(None, certified.certificate, certified.key), require_peer=False)
    with pytest.raises(UsageError, match="chmod"):
        secret_text(secret_file(tmp_path / "secret", "s", mode=0o604))
    with pytest.raises(UsageError, match="chmod"):  # whose secret is anybody's
        secret_text(secret_file(tmp_path / "secret", "s", mode=0o602))
    assert secret_text(secret_file(tmp_path / "secret", "s", mode=0o640)) == "s"


@pytest.mark.rule("N2")
def test_n2_a_context_is_not_made_of_half_the_files(authority: Authority, certified: Certified) -> None:
    with pytest.raises(UsageError, match="together"):
        TlsFiles(None, certified.certificate)
    with pytest.raises(UsageError, match="needs a certificate"):
        server_context(TlsFiles(authority.trust), require_peer=False)
    with pytest.raises(UsageError, match="which authorities"):
        server_context(TlsFiles(None, certified.certificate, certified.key), require_peer=True)
    with pytest.raises(UsageError, match="authorities that are trusted"):
        client_context(TlsFiles(None, certified.certificate, certified.key))


def test_a_context_is_made_again_when_its_files_have_changed(authority: Authority, tmp_path: Path) -> None:
    trust, clock, failures = tmp_path / "trust.pem", ManualClock(), list[str]()
    trust.write_bytes(Path(authority.trust).read_bytes())
    contexts = TlsContexts(TlsFiles(str(trust)), client_context, clock, failures.append, every_s=1.0)
    first = contexts.current()
    trust.write_text("damaged")
    assert contexts.current() is first  # it was looked at a moment ago
    clock.time += 1.0
    assert contexts.current() is first
    assert len(failures) == 1
    trust.write_bytes(Path(authority.trust).read_bytes() * 2)
    clock.time += 1.0
    assert contexts.current() is not first
    assert len(failures) == 1


def test_the_common_name_of_a_certificate_is_the_only_one() -> None:
    named = ((("commonName", "a"),), (("organizationName", "b"),))
    assert common_name({"subject": named}) == "a"
    assert common_name({"subject": (*named, (("commonName", "c"),))}) == ""
    assert common_name({}) == ""
