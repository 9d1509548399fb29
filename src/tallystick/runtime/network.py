"""Connections as asyncio protocols and transports: what servers and clients are given, real or simulated."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Protocol

from tallystick.errors import UsageError

# A peer whose machine or path is gone is noticed after some two minutes, also where nobody sends anything.
KEEP_ALIVE_IDLE_S, KEEP_ALIVE_INTERVAL_S, KEEP_ALIVE_PROBES = 60, 10, 6

ProtocolFactory = Callable[[], asyncio.BaseProtocol]


class Listener(Protocol):
    """A bound port."""

    @property
    def address(self) -> tuple[str, int]:
        """Host and the port that was really bound (a request for port 0 gets a free one)."""
        ...

    async def serve(self) -> None:
        """Accept connections from now on, if the port was only bound. Raises OSError."""
        ...

    async def close(self) -> None:
        """Stop accepting; connections that exist stay."""
        ...


class Reservation(Protocol):
    """Ports that nobody else gets, and that nobody listens on yet."""

    port: int

    def close(self) -> None:
        """Let them go: when the server listens, or never will."""
        ...


class Network(Protocol):
    """Opens connections and ports. Failures are ``OSError``; the shells map them."""

    async def connect(self, host: str, port: int, factory: ProtocolFactory, within_s: float) -> asyncio.Transport: ...

    async def listen(self, host: str, port: int, factory: ProtocolFactory, *, serving: bool = True) -> Listener:
        """Bind a port and accept connections, or only bind it: until ``serve`` they are refused."""
        ...

    def reserve(self, host: str, *offsets: int, port: int = 0, purpose: str = "") -> Reservation:
        """A port, 0 for a free one, and the ports at ``offsets`` from it; see ``ReservedPort``. Raises UsageError."""
        ...


def is_loopback(host: str) -> bool:
    """Whether this machine alone reaches the address. A name is, if it is ``localhost``."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def refuse_strangers(texts: Mapping[str, str], *, asks: bool, remedy: str) -> None:
    """Raises UsageError where ``bindAddress`` lets others reach a server that asks nobody who he is, unless
    ``allowAnonymous`` is written out. ``asks``: whether it does; ``remedy``: how it would."""
    host = texts.get("bindAddress", "")
    if host and not asks and not is_loopback(host) and texts.get("allowAnonymous", "").lower() != "true":
        raise UsageError(
            f"bindAddress lets others in, and nobody is asked who he is: {remedy}write allowAnonymous=true "
            "if whoever reaches the port may do everything",
            bindAddress=host,
        )


def refuse_readers(host: str, key: str, *, is_open: bool, asks: bool) -> None:
    """Raises UsageError where ``key`` lets others read metrics and nobody is asked who he is, unless that is written.
    ``asks``: whether they must show a certificate."""
    if not is_loopback(host) and not asks and not is_open:
        raise UsageError(
            f"{key} lets others read metrics, and nobody is asked who he is: ask for certificates, or write "
            "metricsAllowAnonymous=true",
            host=host,
        )


def refuse_readers_of(texts: Mapping[str, str]) -> None:
    """Do so by the keys of a broker or a name server. Raises UsageError."""
    on = {name: texts.get(name, "").lower() == "true" for name in ("allowAnonymous", "metricsAllowAnonymous")}
    enforces = "tls.server.certPath" in texts and texts.get("tls.server.mode", "enforcing").lower() == "enforcing"
    asks = enforces and texts.get("tls.server.need.client.auth", "").lower() == "require"
    if texts.get("metricsExporterType", "").upper() == "PROM":
        host = texts.get("metricsPromExporterHost", "127.0.0.1")
        refuse_readers(host, "metricsPromExporterHost", is_open=any(on.values()), asks=asks)


def no_delay(transport: asyncio.BaseTransport) -> None:
    """Responses are already batched; Nagle's algorithm would only add its delay."""
    sock = transport.get_extra_info("socket")
    if sock is not None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def keep_alive(sock: socket.socket) -> None:
    """Probe an idle connection; or those that a listening socket accepts from now on."""
    with suppress(OSError):  # its peer is gone already
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEP_ALIVE_IDLE_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEP_ALIVE_INTERVAL_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEP_ALIVE_PROBES)
