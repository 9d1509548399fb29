"""/metrics and /health over a socket."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from support.bookies import Home, adds, read, talking
from tallystick.bookkeeper.bookie.bookie import Bookie


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
            {"healthy": True, "bookie": "b0", "read_only": False},
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
