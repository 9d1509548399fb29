"""GET /metrics and GET /health, for monitoring. One request a connection, no framework."""

from __future__ import annotations

import asyncio
import json
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

from tallystick.runtime.network import Listener, Network
from tallystick.runtime.peers import peer_of
from tallystick.runtime.places import Places
from tallystick.runtime.turn_wakes import TurnWakes

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Metric
    from prometheus_client.registry import Collector

MAX_VISITS = 64  # connections at once, so that a crowd here takes no handles from the service
KEEP_S = 1.0  # so long metrics, and pages that may be long, are good enough for the next who asks
WRITES_EACH_TURN = 4  # responses: for a long one the kernel takes a millisecond or two
SLICE_S = 0.005  # of a turn of the loop, for metrics
PIECE_SAMPLES = 100
_PAUSE = "pause"
_MAX_HEAD_BYTES = 8192
_HEAD_WAIT_S = 5.0
_TAKE_WAIT_S = 5.0
_REASONS = {200: "OK", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}

_NONE: Mapping[str, Callable[[], object]] = MappingProxyType({})
Page = tuple[int, str, bytes]  # status, content type, body


class _Build:
    """Which version a process is, to be seen from outside while servers are upgraded one by one."""

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import GaugeMetricFamily

        build = GaugeMetricFamily("tallystick_build_info", "What runs here: always 1", labels=["version", "python"])
        build.add_metric([version("tallystick"), platform.python_version()], 1)
        yield build


def process_registry(*collectors: Collector) -> CollectorRegistry:
    """Everything a scrape of a server shows: its collectors, its build and its process."""
    from prometheus_client import CollectorRegistry, ProcessCollector

    registry = CollectorRegistry()
    for collector in (*collectors, _Build()):
        registry.register(collector)
    ProcessCollector(registry=registry)
    return registry


def pause() -> Metric:
    """What a collector yields between two steps of a family that takes long: it is no metric of the page."""
    from prometheus_client.core import Metric

    return Metric(_PAUSE, "", "untyped")


class HealthPages:
    """What the pages say. ``state`` has the key ``healthy``, and whatever else an operator wants to see; ``more`` pages
    are JSON, too, and may be long.

    Metrics are made for some milliseconds of each turn of the loop. They and those pages are made, and in memory, once
    for all who ask within a second.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        state: Callable[[], dict[str, object]],
        more: Mapping[str, Callable[[], object]] = _NONE,
    ) -> None:
        self._registry, self._state, self._more = registry, state, more
        self._metrics, self._made_at = b"", -KEEP_S
        self._making: asyncio.Task[None] | None = None
        self._made_pages: dict[str, tuple[float, bytes]] = {}  # by path, and when

    async def page(self, method: str, path: str) -> Page:
        if path not in ("/metrics", "/health", *self._more):
            return 404, "text/plain", b"/metrics and /health\n"
        if method not in ("GET", "HEAD"):
            return 405, "text/plain", b"GET only\n"
        if path == "/metrics":
            from prometheus_client.exposition import CONTENT_TYPE_LATEST

            return 200, CONTENT_TYPE_LATEST, await self._recent_metrics()
        if path in self._more:
            return 200, "application/json", self._recent(path)
        state = self._state()
        return (200 if state["healthy"] else 503), "application/json", json.dumps(state).encode() + b"\n"

    def _recent(self, path: str) -> bytes:
        now = asyncio.get_running_loop().time()
        made_at, body = self._made_pages.get(path, (-KEEP_S, b""))
        if now >= made_at + KEEP_S:
            body = json.dumps(self._more[path]()).encode() + b"\n"
            self._made_pages[path] = now, body
        return body

    async def _recent_metrics(self) -> bytes:
        loop = asyncio.get_running_loop()
        if self._making is None and loop.time() >= self._made_at + KEEP_S:
            self._making = loop.create_task(self._make())
        if self._making is not None:
            await asyncio.shield(self._making)  # others wait for it too
        return self._metrics

    async def _make(self) -> None:
        loop = asyncio.get_running_loop()
        pieces: list[bytes] = []
        try:
            ends_at = loop.time() + SLICE_S
            for piece in _pieces(self._registry):
                pieces.append(piece)
                if loop.time() >= ends_at:
                    await asyncio.sleep(0)
                    ends_at = loop.time() + SLICE_S
            self._metrics, self._made_at = b"".join(pieces), loop.time()
        finally:
            self._making = None


def _pieces(registry: CollectorRegistry) -> Iterator[bytes]:
    """The text of the metrics, each piece made in a millisecond or so."""
    from prometheus_client.core import Metric
    from prometheus_client.exposition import generate_latest

    for family in registry.collect():
        if family.name == _PAUSE:
            yield b""
            continue
        for start in range(0, max(1, len(family.samples)), PIECE_SAMPLES):
            part = Metric(family.name, family.documentation, family.type, family.unit)
            part.samples = family.samples[start : start + PIECE_SAMPLES]
            text = generate_latest(_Families([part]))
            yield text if not start else b"".join(text.splitlines(keepends=True)[2:])  # HELP and TYPE are there once


class _Families:
    """As much of a registry as a text is made of."""

    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Sequence[Metric]:
        return self._families


class _Visit(asyncio.Protocol):
    """``places`` are of the connections of this port that are open now: a crowd that asks nothing keeps nobody out.
    ``turns`` are of their responses."""

    def __init__(self, pages: HealthPages, places: Places[_Visit], turns: TurnWakes) -> None:
        self._pages, self._places, self._turns, self._head = pages, places, turns, b""
        self._response_task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._timer = asyncio.get_running_loop().call_later(_HEAD_WAIT_S, self._transport.abort)
        peer = peer_of(transport)
        goes = self._places.arrived(self, peer[0] if peer else "unknown")
        if goes is not None:
            goes._transport.abort()

    @property
    def has_asked(self) -> bool:
        return self._response_task is not None

    def connection_lost(self, error: Exception | None) -> None:
        self._timer.cancel()
        self._places.left(self)
        if self._response_task is not None:
            self._response_task.cancel()

    def data_received(self, data: bytes) -> None:
        if self._transport.is_closing() or self._response_task is not None:
            return
        self._head += data
        if len(self._head) > _MAX_HEAD_BYTES:
            self._transport.abort()
        elif b"\r\n\r\n" in self._head:
            self._response_task = asyncio.get_running_loop().create_task(self._respond())

    async def _respond(self) -> None:
        method, _, rest = self._head.split(b"\r\n", 1)[0].decode("latin-1").partition(" ")
        self._timer.cancel()
        try:
            status, kind, body = await self._pages.page(method, rest.partition(" ")[0].partition("?")[0])
        except Exception:
            self._transport.abort()
            raise
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._turns.wake(turn)
        await turn
        self._timer = asyncio.get_running_loop().call_later(_TAKE_WAIT_S, self._transport.abort)
        head = f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        self._transport.write(head.encode() + b"Connection: close\r\n\r\n")
        if method != "HEAD":
            self._transport.write(body)  # by itself: it is one for all, who may take nothing of it
        self._transport.close()


async def serve_health(network: Network, host: str, port: int, pages: HealthPages, *, serving: bool = True) -> Listener:
    """Without ``serving`` the port is only bound. Raises OSError."""
    places: Places[_Visit] = Places(MAX_VISITS, has_spoken=lambda visit: visit.has_asked)
    turns = TurnWakes(WRITES_EACH_TURN)
    return await network.listen(host, port, lambda: _Visit(pages, places, turns), serving=serving)
