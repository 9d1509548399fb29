"""/metrics and /health over a socket."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import generate_latest

from support.bookies import Home, adds, read, talking
from support.waiting import until
from tallystick.bookkeeper.bookie.bookie import Bookie
from tallystick.runtime import health
from tallystick.runtime.health import MAX_VISITS, PIECE_SAMPLES, WRITES_EACH_TURN, HealthPages, serve_health
from tallystick.runtime.tcp import TcpNetwork


async def get(bookie: Bookie, request: bytes) -> tuple[str, str, str]:
    """Status line, head, body."""
    assert bookie.http_address is not None
    reader, writer = await asyncio.open_connection(*bookie.http_address)
    writer.write(request)
    try:
        data = (await asyncio.wait_for(reader.read(), 10)).decode()
    except ConnectionError:
        data = ""
    writer.close()
    head, _, body = data.partition("\r\n\r\n")
    return head.partition("\r\n")[0], head, body


@pytest.fixture
async def home(tmp_path: Path) -> Home:
    made = Home(tmp_path)
    await made.found()
    return made


async def test_the_pages(home: Home) -> None:
    async with home.running(http_enabled=True, http_port=0) as bookie:
        assert bookie.http_address is not None
        assert bookie.http_address[0] == "127.0.0.1"
        async with talking(bookie) as peer:
            await peer.code(adds(1, [0]))
            await peer.code(read(1, 5))
            status, _, body = await get(bookie, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        assert status == "HTTP/1.1 200 OK"
        lines = body.splitlines()
        for line in (
            'bookkeeper_server_ADD_ENTRY_count{success="true"} 1.0',
            'bookkeeper_server_READ_ENTRY_count{success="false"} 1.0',
            "bookie_journal_JOURNAL_SYNC_count 1.0",
            "bookie_SERVER_STATUS 1.0",
            "bookie_ledgers_count 1.0",
            "bookie_connections 1.0",
        ):
            assert line in lines
        status, _, body = await get(bookie, b"GET /health?x=1 HTTP/1.0\r\n\r\n")
        assert (status, json.loads(body)) == (
            "HTTP/1.1 200 OK",
            {"healthy": True, "bookie": "b0", "read_only": False, "drained": False, "metadata_reached": True},
        )


async def test_other_requests_are_refused(home: Home) -> None:
    async with home.running(http_enabled=True, http_port=0) as bookie:
        assert (await get(bookie, b"GET / HTTP/1.1\r\n\r\n"))[0] == "HTTP/1.1 404 Not Found"
        assert (await get(bookie, b"POST /metrics HTTP/1.1\r\n\r\n"))[0] == "HTTP/1.1 405 Method Not Allowed"
        assert (await get(bookie, b"nonsense\r\n\r\n"))[0] == "HTTP/1.1 404 Not Found"
        assert (await get(bookie, b"GET /" + b"a" * 9000))[0] == ""
        assert (await get(bookie, b"HEAD /health HTTP/1.1\r\n\r\n"))[2] == ""


async def test_a_bookie_that_failed_says_so(home: Home) -> None:
    async with home.running(http_enabled=True, http_port=0) as bookie:
        bookie.failure.set_result(RuntimeError("x"))
        status, _, body = await get(bookie, b"GET /health HTTP/1.1\r\n\r\n")
        assert (status, json.loads(body)["healthy"]) == ("HTTP/1.1 503 Service Unavailable", False)


async def test_a_crowd_that_asks_nothing_keeps_nobody_out_and_takes_no_more_than_its_places() -> None:
    pages = HealthPages(CollectorRegistry(), lambda: {"healthy": True})
    listener = await serve_health(TcpNetwork(), "127.0.0.1", 0, pages)
    crowd = [await asyncio.open_connection(*listener.address) for _ in range(MAX_VISITS)]
    reader, writer = await asyncio.open_connection(*listener.address)
    writer.write(b"GET /health HTTP/1.1\r\n\r\n")
    assert b"200 OK" in await asyncio.wait_for(reader.read(), 10)
    oldest, _ = crowd[0]
    with contextlib.suppress(ConnectionError):
        assert await asyncio.wait_for(oldest.read(), 4) == b"", "its place was taken; all would end in 5 s"
    writer.close()
    for _, one in crowd:
        one.close()
    await listener.close()


async def test_a_crowd_of_one_host_keeps_nobody_else_from_the_pages() -> None:
    """64 connections that said nothing were enough, and a supervisor took a server for dead that was well."""
    pages = HealthPages(CollectorRegistry(), lambda: {"healthy": True})
    listener = await serve_health(TcpNetwork(), "127.0.0.1", 0, pages)
    crowd = [
        await asyncio.open_connection(*listener.address, local_addr=("127.0.0.66", 0)) for _ in range(MAX_VISITS + 1)
    ]
    for _ in range(3):
        reader, writer = await asyncio.open_connection(*listener.address)
        writer.write(b"GET /health HTTP/1.1\r\n\r\n")
        assert b"200 OK" in await asyncio.wait_for(reader.read(), 10)
        writer.close()
    for _, one in crowd:
        one.close()
    await listener.close()


async def test_part_of_a_question_is_none() -> None:
    pages = HealthPages(CollectorRegistry(), lambda: {"healthy": True})
    listener = await serve_health(TcpNetwork(), "127.0.0.1", 0, pages)
    crowd = [await asyncio.open_connection(*listener.address) for _ in range(MAX_VISITS)]
    for _, one in crowd:
        one.write(b"GET /hea")
    await asyncio.sleep(0.1)
    reader, writer = await asyncio.open_connection(*listener.address)
    writer.write(b"GET /health HTTP/1.1\r\n\r\n")
    assert b"200 OK" in await asyncio.wait_for(reader.read(), 10)
    for one in (writer, *(one for _, one in crowd)):
        one.close()
    await listener.close()


class Many:
    """A collector with a family of many series; it counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def collect(self) -> Iterator[Metric]:
        self.asked += 1
        many = GaugeMetricFamily("many", "Of these there are many", labels=["number"])
        for number in range(2 * PIECE_SAMPLES + 1):
            many.add_metric([str(number)], number)
        yield many
        total = CounterMetricFamily("some", "A counter")
        total.add_metric([], 7)
        yield total


async def test_metrics_are_made_in_pieces_once_for_all_who_ask_within_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """60 scrapes at once were a turn of the loop of 3.8 s."""
    monkeypatch.setattr(health, "SLICE_S", 0.0)
    registry, many = CollectorRegistry(), Many()
    registry.register(many)
    whole, before = generate_latest(registry), many.asked
    pages = HealthPages(registry, lambda: {"healthy": True})
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counter = asyncio.create_task(count())
    gone = asyncio.create_task(pages.page("GET", "/metrics"))
    visits = [asyncio.create_task(pages.page("GET", "/metrics")) for _ in range(20)]
    await asyncio.sleep(0)
    gone.cancel()  # the others get theirs all the same
    made = await asyncio.gather(*visits)
    assert turns >= 4
    assert {body for _, _, body in made} == {whole}
    assert (await pages.page("GET", "/metrics"))[2] == whole and many.asked == before + 1
    monkeypatch.setattr(health, "KEEP_S", 0.0)
    assert (await pages.page("GET", "/metrics"))[2] == whole and many.asked == before + 2
    counter.cancel()


async def test_a_visit_that_asks_twice_is_answered_once() -> None:
    pages = HealthPages(CollectorRegistry(), lambda: {"healthy": True})
    listener = await serve_health(TcpNetwork(), "127.0.0.1", 0, pages)
    reader, writer = await asyncio.open_connection(*listener.address)
    writer.write(b"GET /health HTTP/1.1\r\n\r\n" * 3)
    assert (await asyncio.wait_for(reader.read(), 10)).count(b"200 OK") == 1
    writer.close()
    await listener.close()


class Visitor(asyncio.Transport):
    """A connection whose peer takes nothing; it keeps what it was given to send."""

    def __init__(self) -> None:
        super().__init__()
        self.given: list[object] = []
        self.is_aborted = False

    def write(self, data: object) -> None:
        self.given.append(data)

    def is_closing(self) -> bool:
        return False

    def close(self) -> None: ...

    def abort(self) -> None:
        self.is_aborted = True


class Port:
    """Makes the protocol of each connection."""

    async def listen(self, host: str, port: int, factory: Callable[[], asyncio.Protocol], *, serving: bool) -> Any:
        self.factory = factory

    def visit(self, request: bytes) -> Visitor:
        protocol, visitor = self.factory(), Visitor()
        protocol.connection_made(visitor)
        protocol.data_received(request)
        return visitor


async def test_a_crowd_that_asks_for_long_pages_has_them_over_many_turns_and_one_body() -> None:
    """64 visitors of 3 MB were a turn of 166 ms, and 216 MB."""
    port, made = Port(), 0

    def rows() -> list[str]:
        nonlocal made
        made += 1
        return ["somebody"] * 1000

    await serve_health(cast(Any, port), "127.0.0.1", 0, HealthPages(CollectorRegistry(), dict, {"/rows": rows}))
    visitors = [port.visit(b"GET /rows HTTP/1.1\r\n\r\n") for _ in range(MAX_VISITS)]
    given: list[int] = []
    for _ in range(MAX_VISITS):
        before = sum(map(bool, given))
        await asyncio.sleep(0)
        given = [len(visitor.given) for visitor in visitors]
        assert sum(map(bool, given)) - before <= 2 * WRITES_EACH_TURN
    assert all(given), "each has a response"
    assert made == 1 and len({id(visitor.given[-1]) for visitor in visitors}) == 1


async def test_long_pages_are_made_anew_once_a_second_has_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def page(name: str) -> Callable[[], int]:
        return lambda: made.append(name) or made.count(name)  # type: ignore[func-returns-value]

    pages = HealthPages(CollectorRegistry(), dict, {"/a": page("a"), "/b": page("b")})
    for _ in range(2):  # within the second one does not have the other made anew
        assert [(await pages.page("GET", path))[2] for path in ("/a", "/b")] == [b"1\n", b"1\n"]
    assert made == ["a", "b"]
    now = asyncio.get_running_loop().time()
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now + health.KEEP_S + 1.0)
    assert (await pages.page("GET", "/a"))[2] == b"2\n"


async def test_who_takes_nothing_of_a_page_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_TAKE_WAIT_S", 0.0)
    port = Port()
    await serve_health(cast(Any, port), "127.0.0.1", 0, HealthPages(CollectorRegistry(), lambda: {"healthy": True}))
    visitor = port.visit(b"GET /health HTTP/1.1\r\n\r\n")
    await until(lambda: visitor.is_aborted)
    assert visitor.given
