"""A blocking client and the forks of its process."""

from __future__ import annotations

import asyncio
import gc
import os
import socketserver
import sys
import threading
from collections.abc import Iterator

import pytest

from support.forking import in_child
from tallystick import sync
from tallystick.admin import cluster
from tallystick.errors import MetadataError, UsageError
from tallystick.runtime.opening import Opening
from tallystick.sync.connection import BlockingClient


class Echo:
    """A client whose transport is registered with its loop."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def say(self, line: bytes) -> bytes:
        self._writer.write(line)
        return await self._reader.readline()

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()

    async def __aexit__(self, *error: object) -> None:
        await self.close()


class Answers(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        while line := self.rfile.readline():
            self.wfile.write(line)


@pytest.fixture
def port() -> Iterator[int]:
    """Of a server that answers each line with itself."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


class Blocking(BlockingClient[Echo]):
    def say(self, line: bytes) -> bytes:
        loop, client = self._client()
        return loop.run(client.say(line))


def test_a_fork_while_another_thread_connects(port: int) -> None:
    parent, connecting, go_on = os.getpid(), threading.Event(), threading.Event()

    async def start() -> Echo:
        if os.getpid() == parent:
            connecting.set()
            await asyncio.to_thread(go_on.wait)
        return Echo(*await asyncio.open_connection("127.0.0.1", port))

    with Blocking(Opening(start, "client"), "fork") as client:
        first = threading.Thread(target=client.say, args=(b"first\n",))
        first.start()
        connecting.wait()

        def child() -> None:
            assert client.say(b"child\n") == b"child\n"
            client.close()

        try:
            assert in_child(child) == 0
        finally:
            go_on.set()
            first.join()
        assert client.say(b"parent\n") == b"parent\n"


@pytest.mark.parametrize("of_all", [False, True], ids=["one client's lock", "the lock of all loops"])
def test_a_lock_of_the_parents_threads_is_free_in_the_child(port: int, of_all: bool) -> None:
    held, go_on = threading.Event(), threading.Event()

    async def start() -> Echo:
        return Echo(*await asyncio.open_connection("127.0.0.1", port))

    with Blocking(Opening(start, "client"), "locks") as client:

        def hold() -> None:
            with sync.loop._guard if of_all else client._guard:
                held.set()
                go_on.wait()

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait()
        try:
            assert in_child(lambda: client.say(b"x\n")) == 0
        finally:
            go_on.set()
            thread.join()


def test_a_child_that_drops_what_it_inherited_does_not_disturb_the_parent(port: int) -> None:
    async def start() -> Echo:
        return Echo(*await asyncio.open_connection("127.0.0.1", port))

    clients = [Blocking(Opening(start, "client"), "drop")]
    try:
        assert clients[0].say(b"before\n") == b"before\n"

        def child() -> None:
            clients.clear()
            sys.modules["tallystick.sync.loop"]._loops.clear()
            gc.collect()

        assert in_child(child) == 0
        assert clients[0].say(b"after\n") == b"after\n"
    finally:
        clients[0].close()


def test_that_no_cluster_is_there_is_told_by_the_first_call(tmp_path: object) -> None:
    with (
        sync.connect(f"sqlite://{tmp_path}/metadata.db") as bk,
        pytest.raises(MetadataError, match="there is no cluster here"),
    ):
        bk.bookies()


def test_a_child_connects_anew_and_knows_its_parents_handles(tmp_path: object) -> None:
    asyncio.run(cluster.init(f"sqlite://{tmp_path}/metadata.db"))
    with sync.connect(f"sqlite://{tmp_path}/metadata.db") as bk:
        loop, _ = bk._client()

        def child() -> None:
            assert bk._client()[0] is not loop
            with pytest.raises(UsageError, match="another process"):
                loop.run(asyncio.sleep(0))
            bk.close()

        assert in_child(child) == 0
        assert bk._client()[0] is loop
