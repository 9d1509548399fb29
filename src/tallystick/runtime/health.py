"""GET /metrics and GET /health, for monitoring. One request a connection, no framework."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from tallystick.runtime.network import Listener, Network

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

MAX_VISITS = 64  # connections at once: more are closed, so that a crowd here takes no handles from the service
_MAX_HEAD_BYTES = 8192
_HEAD_WAIT_S = 5.0
_REASONS = {200: "OK", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}

Page = tuple[int, str, bytes]  # status, content type, body


class HealthPages:
    """What the pages say. ``state`` has the key ``healthy``, and whatever else an operator wants to see."""

    def __init__(self, registry: CollectorRegistry, state: Callable[[], dict[str, object]]) -> None:
        self._registry, self._state = registry, state

    def page(self, method: str, path: str) -> Page:
        if path not in ("/metrics", "/health"):
            return 404, "text/plain", b"/metrics and /health\n"
        if method not in ("GET", "HEAD"):
            return 405, "text/plain", b"GET only\n"
        if path == "/metrics":
            from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

            return 200, CONTENT_TYPE_LATEST, generate_latest(self._registry)
        state = self._state()
        return (200 if state["healthy"] else 503), "application/json", json.dumps(state).encode() + b"\n"


class _Visit(asyncio.Protocol):
    """``visits`` are the connections of this port that are open now."""

    def __init__(self, pages: HealthPages, visits: set[_Visit]) -> None:
        self._pages, self._visits, self._head = pages, visits, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._timer = asyncio.get_running_loop().call_later(_HEAD_WAIT_S, self._transport.abort)
        self._visits.add(self)
        if len(self._visits) > MAX_VISITS:
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._timer.cancel()
        self._visits.discard(self)

    def data_received(self, data: bytes) -> None:
        if self._transport.is_closing():
            return
        self._head += data
        if len(self._head) > _MAX_HEAD_BYTES:
            self._transport.abort()
        elif b"\r\n\r\n" in self._head:
            self._answer()

    def _answer(self) -> None:
        method, _, rest = self._head.split(b"\r\n", 1)[0].decode("latin-1").partition(" ")
        status, kind, body = self._pages.page(method, rest.partition(" ")[0].partition("?")[0])
        head = f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        self._transport.write(head.encode() + b"Connection: close\r\n\r\n" + (b"" if method == "HEAD" else body))
        self._transport.close()


async def serve_health(network: Network, host: str, port: int, pages: HealthPages, *, serving: bool = True) -> Listener:
    """Without ``serving`` the port is only bound. Raises OSError."""
    visits: set[_Visit] = set()
    return await network.listen(host, port, lambda: _Visit(pages, visits), serving=serving)
