"""A client's connection to a bookie, from its first byte to the first request: TLS, and who the client is.

Nothing is sent to a bookie that does not show what the client asks for, and what the client has is shown by the
strongest means that both sides take. A bookie that takes less is unavailable: never is anything done without it.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence

from tallystick.bookkeeper.ledger import wire_handshake
from tallystick.bookkeeper.ledger.link import BookieLink
from tallystick.bookkeeper.ledger.security import ClientSecurity
from tallystick.bookkeeper.wire.auth import CERTIFICATE, DIGEST_MD5, DISABLED, Exchange
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.digest_md5 import DigestClient
from tallystick.bookkeeper.wire.scram import ScramClient
from tallystick.bookkeeper.wire.values import BookieId
from tallystick.errors import BookieUnavailable, RemoteProtocolError, UsageError
from tallystick.runtime.certificates import TlsContexts, client_context, secret_text
from tallystick.runtime.once import Once
from tallystick.runtime.outside import Outside
from tallystick.runtime.tls import TlsBuffer, TlsConnection

MAX_ANSWER_BYTES = 64 * 1024
MOST_TOKENS = 8  # of one exchange
_START_TLS, _FIRST_AUTH = 1, 2  # numbers of requests

Address = tuple[str, int]
# What a bookie says that it takes; none: it says nothing, as an original does. None: nobody here knows what it says.
Offers = Callable[[BookieId], Awaitable[Sequence[str] | None]]


async def no_offers(bookie: BookieId) -> Sequence[str] | None:
    """Return None: nobody here knows what the bookie takes."""
    return None


class Handshaker:
    """Makes the connections of a client to bookies. ``security`` None: they begin with a request."""

    def __init__(self, outside: Outside, security: ClientSecurity | None, offers: Offers) -> None:
        """Raises UsageError for files that cannot be used."""
        self._network, self._events, self._offers = outside.network, outside.events, offers
        self._security, self._reports = security, Once()
        self._buffer, self._contexts = TlsBuffer(), None
        if security is not None and (files := security.files) is not None:
            self._contexts = TlsContexts(files, client_context, outside.clock, self._file_failed)
        if security is not None and security.password_file is not None:
            secret_text(security.password_file)  # one that cannot be read is told at once

    async def connect(self, bookie: BookieId, address: Address, link: BookieLink, within_s: float) -> None:
        """Connect, and give the link its transport. Raises OSError, TimeoutError, BookieUnavailable, UsageError,
        RemoteProtocolError."""
        host, port = address
        if self._security is None:
            await self._network.connect(host, port, lambda: link, within_s)
            return
        async with asyncio.timeout(within_s):
            mechanisms = self._chosen(self._security, await self._offers(bookie), bookie)
            answers = _Answers()
            transport = await self._network.connect(host, port, lambda: answers, within_s)
            try:
                if self._contexts is not None:
                    transport = await self._encrypted(transport, answers, host)
                if mechanisms:
                    await self._authenticate(self._security, mechanisms, transport, answers, bookie)
                answers.expect_nothing()
                transport.set_protocol(link)
                link.connection_made(transport)
            except BaseException:
                transport.abort()
                raise

    def _chosen(self, security: ClientSecurity, offered: Sequence[str] | None, bookie: BookieId) -> Sequence[str]:
        """Return the plugins of AUTH by which the client shows who it is; none: by nothing, or by its certificate.

        Of several the next is for a bookie that does not take the one before. Raises BookieUnavailable.
        """
        own = security.own
        if not own:
            return ()
        if offered is None:
            return [name for name in own if name != CERTIFICATE]
        if offered:
            common = next((name for name in own if name in offered), None)
            if common is None:
                reason = "it takes nothing by which this client may show who it is"
                raise BookieUnavailable(reason, bookie=bookie, takes=",".join(offered))
            return () if common == CERTIFICATE else (common,)
        if DIGEST_MD5 in own:  # an original's only plugin
            return (DIGEST_MD5,)
        if CERTIFICATE in own or not security.auth_required:
            return ()
        raise BookieUnavailable("it does not say by what a client may show who it is", bookie=bookie)

    async def _encrypted(self, transport: asyncio.Transport, answers: _Answers, host: str) -> asyncio.Transport:
        assert self._contexts is not None, "asked by who has it"
        transport.write(wire_handshake.start_tls(_START_TLS))
        code = wire_handshake.tls_answer(_START_TLS, await answers.next())
        if code != Code.OK:
            raise BookieUnavailable(f"the bookie does not encrypt: {code.name}")
        answers.expect_nothing()  # it would be from whoever sits between
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(error: Exception | None) -> None:
            if ready.done():
                return
            if error is None:
                ready.set_result(None)
            else:
                ready.set_exception(error)

        encrypted = TlsConnection(transport, answers, self._contexts.current(), self._buffer, done, host=host)
        encrypted.begin()
        await ready
        return encrypted

    async def _authenticate(
        self,
        security: ClientSecurity,
        mechanisms: Sequence[str],
        transport: asyncio.Transport,
        answers: _Answers,
        bookie: BookieId,
    ) -> None:
        (mechanism, *others), token = mechanisms, b""
        exchange = self._exchange(security, mechanism)
        for number in range(_FIRST_AUTH, _FIRST_AUTH + MOST_TOKENS):
            step = exchange.step(token)
            if step.failure:
                raise BookieUnavailable(step.failure, bookie=bookie)
            if step.done:
                return
            transport.write(wire_handshake.auth(number, mechanism, step.token or b""))
            answer = wire_handshake.auth_answer(number, await answers.next())
            if answer is None:
                answer = wire_handshake.auth_answer(number, await answers.next())
            if answer is None:
                raise RemoteProtocolError("a bookie answers a START_TLS that was answered")
            if answer.code != Code.OK and others and not token:
                mechanism = others.pop(0)
                exchange = self._exchange(security, mechanism)
                continue
            if answer.code != Code.OK:
                raise BookieUnavailable("the bookie does not let this client in", bookie=bookie, code=answer.code.name)
            if answer.plugin == DISABLED:
                self._not_asked(security, bookie)
                return
            if answer.plugin != mechanism:
                raise RemoteProtocolError("a bookie answers for another plugin than was asked", plugin=answer.plugin)
            token = answer.payload
        raise RemoteProtocolError("a bookie asks for more tokens than an exchange has")

    def _not_asked(self, security: ClientSecurity, bookie: BookieId) -> None:
        """The bookie asks nobody who he is, and so has not shown who it is itself."""
        if security.auth_required:
            reason = "it asks nobody who he is, and has not shown who it is (authRequired=false lets that pass)"
            raise BookieUnavailable(reason, bookie=bookie)
        if self._reports.is_new(bookie):
            self._events.emit("bookie without authentication", bookie=bookie, reason="authRequired=false lets it pass")

    def _exchange(self, security: ClientSecurity, mechanism: str) -> Exchange:
        assert security.user is not None, "its mechanism needs one"
        assert security.password_file is not None, "a user has one"
        password, nonce = secret_text(security.password_file).partition("\n")[0].strip(), secrets.token_urlsafe(24)
        if not password:
            raise UsageError("passwordFile is empty", path=security.password_file)
        kind = DigestClient if mechanism == DIGEST_MD5 else ScramClient
        return kind(security.user, password, nonce)

    def _file_failed(self, reason: str) -> None:
        self._events.emit("security file not read", reason=reason)


class _Answers(asyncio.BufferedProtocol):
    """The frames that come before the first request: one is waited for at a time, and none comes unasked."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._piece, self._data = bytearray(MAX_ANSWER_BYTES), bytearray()
        self._next: asyncio.Future[bytes] | None = None
        self._lost: Exception | None = None

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._piece)

    def buffer_updated(self, nbytes: int) -> None:
        self._data += memoryview(self._piece)[:nbytes]
        if len(self._data) > MAX_ANSWER_BYTES:
            self._fail(RemoteProtocolError("more came before the first request than a handshake has"))
        else:
            self._take()

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(exc or ConnectionError("the bookie closed the connection before the first request"))

    async def next(self) -> bytes:
        """Return the body of the next frame. Raises OSError, RemoteProtocolError."""
        self._next = self._loop.create_future()
        if self._lost is not None:
            raise self._lost
        self._take()
        return await self._next

    def expect_nothing(self) -> None:
        """Raises RemoteProtocolError if something came unasked, OSError if the connection ended."""
        if self._data:
            raise RemoteProtocolError("bytes came that nobody asked for, before the first request")
        if self._lost is not None:
            raise self._lost

    def _take(self) -> None:
        size = int.from_bytes(self._data[:4], "big")
        if self._next is None or self._next.done() or len(self._data) < 4 or len(self._data) < 4 + size:
            return
        body = bytes(self._data[4 : 4 + size])
        del self._data[: 4 + size]
        self._next.set_result(body)

    def _fail(self, error: Exception) -> None:
        self._lost = self._lost or error
        if self._next is not None and not self._next.done():
            self._next.set_exception(error)
