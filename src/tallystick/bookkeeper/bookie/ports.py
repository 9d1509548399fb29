"""The ports of a bookie: the one for clients, and the one for its health pages.

They are bound before anything else is done, so that a start without a port leaves no trace, and refuse connections
until the bookie can serve them.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial

from tallystick.bookkeeper.bookie.address import Address
from tallystick.bookkeeper.bookie.config import Addresses, BookieSettings, is_near
from tallystick.bookkeeper.bookie.server import BookieServer
from tallystick.bookkeeper.wire.registration import AUTH, MACHINE, RACK, TLS_EXTENSION
from tallystick.bookkeeper.wire.values import BookieInfo, Endpoint
from tallystick.errors import UsageError
from tallystick.runtime.certificates import TlsContexts, TlsFiles, server_context
from tallystick.runtime.health import HealthPages, serve_health
from tallystick.runtime.network import Listener, Network
from tallystick.runtime.outside import Outside
from tallystick.runtime.tls_network import Door, TlsNetwork


class BookiePorts:
    """``bind`` them, then ``serve`` them; ``close`` them in any case."""

    def __init__(self, settings: BookieSettings, addresses: Addresses, outside: Outside) -> None:
        self._settings, self._addresses, self._outside = settings, addresses, outside
        self._network, self._events = outside.network, outside.events
        self._clients: Listener | None = None
        self._health: Listener | None = None

    @property
    def address(self) -> Address:
        """Where clients are served. The port is known once it is bound."""
        if self._clients is None:
            return self._addresses.listen_host, self._settings.port
        return self._clients.address

    @property
    def http_address(self) -> Address | None:
        """Where the health pages are; None if there are none, or before they are bound."""
        return self._health.address if self._health is not None else None

    @property
    def advertised(self) -> Address:
        """The address of the bookie in its registration."""
        return self._addresses.advertised_host, self.address[1]

    @property
    def info(self) -> BookieInfo:
        """What the registration has of the ports, and of where the bookie is."""
        endpoints, security = BookieInfo.at(*self.advertised).endpoints, self._settings.security
        if security.tls:
            endpoints = tuple(replace(endpoint, extensions=(TLS_EXTENSION,)) for endpoint in endpoints)
        if self.http_address is not None:
            endpoints += (Endpoint("httpserver", *self.http_address, "http"),)
        settings = self._settings
        where = {RACK: settings.rack, MACHINE: settings.machine, AUTH: ",".join(security.mechanisms)}
        return BookieInfo(endpoints, {name: value for name, value in where.items() if value})

    async def bind(self, session: Callable[[], asyncio.BaseProtocol], pages: Callable[[], HealthPages]) -> None:
        """Take the ports, and refuse connections until ``serve``. Raises UsageError, for files of TLS as well."""
        settings, listen = self._settings, partial(self._network.listen, factory=session, serving=False)
        self._clients = await _bound(self._addresses.listen_host, settings.port, "clients", listen)
        if settings.http_enabled:
            bind = partial(serve_health, self._network_of_pages(), pages=pages(), serving=False)
            self._health = await _bound(settings.http_host, settings.http_port, "HTTP", bind)

    def _network_of_pages(self) -> Network:
        """Return the network of the pages: where clients have TLS they have it, too, by the first byte. Without it they
        are for this machine alone, unless clients need not have it either."""
        security = self._settings.security
        if not security.tls:
            return self._network

        def failed(reason: str) -> None:
            self._events.emit("security file not read", reason=reason)

        def context(files: TlsFiles) -> ssl.SSLContext:
            return server_context(files, require_peer=security.tls_ask_certificate)

        contexts = TlsContexts(security.files, context, self._outside.clock, failed, every_s=security.tls_look_s)
        door = Door(contexts, lambda host: is_near(host) or not security.tls_required)
        return TlsNetwork(self._network, self._events, door=door, dial=None)

    async def serve(self, server: BookieServer) -> None:
        """Accept connections on both. Raises UsageError."""
        assert self._clients is not None, "bind comes before serve"
        try:
            await server.serve(self._clients)
            if self._health is not None:
                await self._health.serve()
        except OSError as error:  # another process bound the port in the same moment and was faster
            raise UsageError(f"cannot listen: {error.strerror}", port=self._settings.port) from error
        if not self._addresses.is_loopback:
            self._tell_who_comes()
        if self.http_address is not None and not is_near(self._settings.http_host):
            host, port = self.http_address
            encrypted = self._settings.security.tls and self._settings.security.tls_required
            how = "by TLS" if encrypted else "in plain bytes"
            who = "who has a certificate" if self._settings.asks_readers else "whoever reaches it"
            reason = f"httpServerHost says so; {who} reads metrics and health, {how}"
            self._events.emit("listening beyond this machine", host=host, port=port, reason=reason)

    def _tell_who_comes(self) -> None:
        security, (host, port) = self._settings.security, self.address
        if not security.authenticates:
            who = "whoever reaches the port can read and write"
        elif not (security.tls and security.tls_required):
            who = "secrets and entries are not encrypted"
        else:
            who = "who shows who it is comes in"
        reason = f"listeningInterface says so; {who}"
        self._events.emit("listening beyond this machine", host=host, port=port, reason=reason)

    async def close(self) -> None:
        for listener in (self._health, self._clients):
            if listener is not None:
                await listener.close()


async def _bound(host: str, port: int, whom: str, bind: Callable[..., Awaitable[Listener]]) -> Listener:
    try:
        return await bind(host=host, port=port)
    except OSError as error:
        raise UsageError(f"cannot listen for {whom}: {error.strerror}", host=host, port=port) from error
