"""Which pulls are read in which turn, and what is kept of those that wait."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from support.brokers import benched, fill, pull_command
from support.waiting import until
from tallystick.rocketmq.broker import pull
from tallystick.rocketmq.broker.broker import Broker
from tallystick.rocketmq.broker.pull_reads import PullRead
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import PullFlag


def numbered(opaque: int) -> Command:
    command = pull_command()
    command.opaque = opaque
    return command


@asynccontextmanager
async def with_pulls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int) -> AsyncIterator[tuple[Broker, Link]]:
    """A broker that reads for one pull in each turn, and a connection of which so many have come."""
    monkeypatch.setattr(pull, "TURN_BYTES", 1)
    async with benched(tmp_path) as bench:
        broker = await bench.broker()
        reader = await bench.peer(broker)
        await fill(reader, 3)
        await reader.ask(pull_command())
        (link,) = broker._server._main._links
        for opaque in range(1000, 1000 + count):
            broker._requests.received([(link, numbered(opaque))])
        yield broker, link


async def test_a_pull_does_not_wait_for_all_of_another_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hundreds of connections of a stranger have thousands, of which each may bring megabytes, and take a turn."""
    monkeypatch.setattr(pull, "TURN_BYTES", 1)
    async with benched(tmp_path) as bench:
        broker = await bench.broker()
        reader = await bench.peer(broker)
        await fill(reader, 3)
        await reader.ask(pull_command())
        other = await bench.peer(broker)
        await other.ask(pull_command())
        link_of_reader, link_of_other = broker._server._main._links
        for opaque in range(1000, 1300):
            broker._requests.received([(link_of_reader, numbered(opaque))])
        broker._requests.received([(link_of_other, numbered(2000))])
        pulls, backlog = broker._pulls._late, broker._requests._backlog  # the backlog has some on a busy machine
        assert len(pulls) + len(backlog) == 300, "one was read at once"
        await other.answer(2000)
        assert len(pulls) + len(backlog) > 200
        await reader.answer(1299)
        assert [answer.opaque for answer in reader.order][-300:] == list(range(1000, 1300))


async def test_of_a_connection_that_ends_no_pull_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with with_pulls(tmp_path, monkeypatch, 10) as (broker, link):
        assert broker._pulls._late
        link.abort("its peer has gone")
        assert not broker._pulls._late


async def test_nothing_is_kept_of_a_connection_that_ends_as_a_pull_of_it_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with with_pulls(tmp_path, monkeypatch, 3) as (broker, link):
        read = broker._pulls._reads.read

        def end(link: Link, *args: Any) -> PullRead:
            link.abort("its peer has gone")
            return read(link, *args)

        monkeypatch.setattr(broker._pulls._reads, "read", end)
        await until(lambda: not broker._server._main._links)
        assert link not in broker._pulls._late._order._peers[link.host]._used


async def test_a_connection_whose_pulls_take_long_has_fewer_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pull, "TURN_BYTES", 1)
    async with benched(tmp_path) as bench:
        broker = await bench.broker()
        slow, quick = await bench.peer(broker), await bench.peer(broker)
        await fill(slow, 3)
        await slow.ask(pull_command())
        link_of_slow, link_of_quick = broker._server._main._links
        read, read_links = broker._pulls._reads.read, list[object]()

        def work(link: Any, *args: Any) -> PullRead:
            read_links.append(link)
            ends = time.thread_time() + 0.003
            while link is link_of_slow and time.thread_time() < ends:
                pass
            return read(link, *args)

        monkeypatch.setattr(broker._pulls._reads, "read", work)
        for opaque in range(2000, 2030):
            for link in (link_of_slow, link_of_quick):
                broker._requests.received([(link, numbered(opaque))])
        await quick.answer(2029)
        assert read_links.count(link_of_slow) < 20


async def test_a_pull_that_waits_counts_with_all_texts_of_its_header(tmp_path: Path) -> None:
    """Ten thousand of one connection, of a mebibyte that nobody looks at each, counted as a kibibyte each."""
    async with benched(tmp_path) as bench:
        broker = await bench.broker()
        reader = await bench.peer(broker)
        await fill(reader, 1)
        memory, flags = broker._server.memory, PullFlag.SUBSCRIPTION | PullFlag.SUSPEND
        reader.send(pull_command(offset=1, flags=flags, suspend_ms=60_000, broker="x" * 500_000))
        await until(lambda: memory.kept_bytes > 500_000)
        reader.send(pull_command(offset=1, flags=flags, suspend_ms=60_000, mark="x" * 500_000))
        await until(lambda: memory.kept_bytes > 3_000_000)
        await fill(reader, 1)
        await until(lambda: memory.kept_bytes < 500_000)
