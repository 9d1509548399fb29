"""Who comes to the bookies of a cluster, as an operator sees it."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from support.bookies import SMALL, Peer
from support.keyed import OLD_SECRET, SECRET, USER, KeyFiles, show
from tallystick.admin.auth import MAX_PAGE_BYTES, BookieAuthentication, authentication
from tallystick.bookkeeper.bookie.bookie import start_bookie
from tallystick.bookkeeper.bookie.config import BookieSettings
from tallystick.bookkeeper.bookie.security import SecuritySettings
from tallystick.bookkeeper.metadata.cluster import ClusterMetadata
from tallystick.bookkeeper.metadata.memory import MemoryStore
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.digest_md5 import DigestClient
from tallystick.bookkeeper.wire.values import BookieInfo, Endpoint
from tallystick.cli import NOT_WELL, main
from tallystick.cli.auth import _bookie_rows
from tallystick.runtime.machine import this_machine

pytestmark = pytest.mark.real_time


async def test_who_came_to_each_bookie_and_how(tmp_path: Path) -> None:
    keys, uri, folder = KeyFiles.make(tmp_path / "keys"), "memory://who-came", str(tmp_path / "b0")
    driver = ClusterMetadata(MemoryStore("who-came"))
    await driver.init_cluster()
    open_ = SecuritySettings(mechanisms=("sasl",), users_file=keys.users(), allow_anonymous=True)
    with_page: dict[str, Any] = {"http_enabled": True, "http_port": 0}
    settings = BookieSettings(uri, (folder,), (folder,), port=0, bookie_id="b0", security=open_, **with_page)
    silent = str(tmp_path / "b1")
    bookies = [
        await start_bookie(settings, this_machine(), SMALL),
        await start_bookie(BookieSettings(uri, (silent,), (silent,), port=0, bookie_id="b1"), this_machine(), SMALL),
    ]
    try:
        for secret, code in ((SECRET, Code.OK), (OLD_SECRET, Code.OK), ("no", Code.UNAUTHORIZED)):
            peer = Peer(*await asyncio.open_connection(*bookies[0].address))
            assert await show(peer, "sasl", DigestClient(USER, secret, "cnonce")) == code
            await peer.close()
        first, second = await authentication(driver)
        assert (first.bookie, first.mechanisms, first.tls, first.problem) == ("b0", ("sasl",), False, None)
        assert list(first.rows) == [
            {"host": "127.0.0.1", "identity": f"user {USER}", "came": 2, "old secret": 1},
            {"host": "127.0.0.1", "identity": "unknown", "refused": 1},
        ]
        assert (second.mechanisms, second.rows) == ((), ())
        assert "httpServerEnabled" in str(second.problem)
    finally:
        for bookie in bookies:
            await bookie.stop()


Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


class Pages:
    """Pages of bookies that nobody runs."""

    def __init__(self, name: str) -> None:
        self.driver = ClusterMetadata(MemoryStore(name))
        self.open_ = self.most_open = 0
        self._servers: list[asyncio.Server] = []

    async def add(self, bookie: str, answer: Answer) -> None:
        async def visited(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.open_ += 1
            self.most_open = max(self.most_open, self.open_)
            await reader.readuntil(b"\r\n\r\n")
            await answer(writer)
            self.open_ -= 1
            writer.close()

        self._servers.append(await asyncio.start_server(visited, "127.0.0.1", 0))
        port = self._servers[-1].sockets[0].getsockname()[1]
        page = Endpoint("httpserver", "127.0.0.1", port, "http", (), ())
        await self.driver.register(bookie, BookieInfo((page,)))

    async def close(self) -> None:
        for server in self._servers:
            server.close()
        await self.driver.close()


@pytest.fixture
async def pages(request: pytest.FixtureRequest) -> AsyncIterator[Pages]:
    pages = Pages(request.node.name)
    await pages.driver.init_cluster()
    yield pages
    await pages.close()


ROWS = [{"host": f"10.0.{number // 250}.{number % 250}", "identity": "anonymous", "came": 1} for number in range(1000)]
OK = b"HTTP/1.1 200 OK\r\n\r\n"


async def in_parts(writer: asyncio.StreamWriter) -> None:
    body = json.dumps(ROWS).encode()
    for part in (OK, body[:1000], body[1000:]):
        writer.write(part)
        for _ in range(20):  # so that it is read by itself
            await asyncio.sleep(0)


async def test_a_page_that_comes_in_parts_is_read_to_its_end(pages: Pages) -> None:
    await pages.add("b0", in_parts)
    (bookie,) = await authentication(pages.driver)
    assert (bookie.problem, len(bookie.rows)) == (None, len(ROWS))


@pytest.mark.parametrize(
    "page", [b"\r\n\r\n", b"200\r\n\r\n", OK, OK + b"[" * 100_000, OK + b"[1]", OK + b" " * (MAX_PAGE_BYTES + 9), b""]
)
async def test_a_page_that_is_none_is_told_and_hides_no_other_bookie(pages: Pages, page: bytes) -> None:
    async def nonsense(writer: asyncio.StreamWriter) -> None:
        writer.write(page)

    await pages.add("b0", nonsense)
    await pages.add("b1", in_parts)
    first, second = await authentication(pages.driver)
    assert first.problem and not first.rows
    assert (second.problem, len(second.rows)) == (None, len(ROWS))


async def test_of_very_many_bookies_some_are_asked_at_once(pages: Pages) -> None:
    for number in range(100):
        await pages.add(f"b{number}", in_parts)
    assert [bookie.problem for bookie in await authentication(pages.driver)] == [None] * 100
    assert pages.most_open <= 32


async def test_a_page_that_is_reached_from_elsewhere_does_not_say_who_came(tmp_path: Path) -> None:
    folder = str(tmp_path / "b0")
    driver = ClusterMetadata(MemoryStore("page-elsewhere"))
    await driver.init_cluster()
    settings = BookieSettings(
        "memory://page-elsewhere", (folder,), (folder,), port=0, bookie_id="b0",
        http_enabled=True, http_port=0, http_host="0.0.0.0", http_anonymous=True,
    )  # fmt: skip
    bookie = await start_bookie(settings, this_machine(), SMALL)
    try:
        (found,) = await authentication(driver)
        assert "on loopback" in str(found.problem)
    finally:
        await bookie.stop()


def test_a_bookie_that_asks_nobody_is_amiss_though_nobody_came() -> None:
    (row,) = _bookie_rows(BookieAuthentication("b0", (), tls=False))
    assert (row["takes"], row["amiss"]) == ("anybody", "it asks nobody who he is")
    (row,) = _bookie_rows(BookieAuthentication("b0", ("scram-sha-256",), tls=True))
    assert (row["takes"], row["amiss"]) == ("scram-sha-256", "")


def test_the_command_says_what_is_amiss(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    uri = f"sqlite://{tmp_path}/m.db"
    assert main(["cluster", "init", uri]) == 0
    capsys.readouterr()
    assert main(["auth", "status", "--uri", uri]) == 0
    assert "no bookie is registered" in capsys.readouterr().err
    folder = str(tmp_path / "b0")

    async def ask() -> tuple[int | None, bytes]:
        bookie = await start_bookie(
            BookieSettings(uri, (folder,), (folder,), port=0, bookie_id="b0"), this_machine(), SMALL
        )
        try:
            command = [sys.executable, "-m", "tallystick", "auth", "status", "--uri", uri, "--json"]
            process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
            out, _ = await process.communicate()
            return process.returncode, out
        finally:
            await bookie.stop()

    code, out = asyncio.run(ask())
    assert code == NOT_WELL
    (row,) = map(json.loads, out.splitlines())
    assert (row["bookie"], row["takes"], row["tls"], row["came"]) == ("b0", "anybody", False, 0)
    assert "httpServerEnabled" in row["amiss"]
