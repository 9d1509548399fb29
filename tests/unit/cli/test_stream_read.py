"""Which messages of a stream a command shows."""

from __future__ import annotations

import asyncio
import io
import sys
from collections.abc import AsyncIterator
from functools import partial

import pytest

from support.small_cluster import SmallCluster
from support.waiting import until
from tallystick import StreamMessage, StreamSettings
from tallystick.cli import stream_read
from tallystick.cli.stream_places import Place
from tallystick.cli.stream_read import StreamSelection
from tallystick.errors import CorruptEntry, NoSuchPosition, NoSuchStream, PositionTrimmed, UsageError

NAME = "t/n/persistent/s"


@pytest.fixture
async def cluster() -> AsyncIterator[SmallCluster]:
    """Its stream has messages 0 to 9, in ledgers of three; 4 and 5 are a batch."""
    made = await SmallCluster().start(3)
    async with made.client(2).open_stream(NAME, settings=StreamSettings(max_entries_per_ledger=3)) as stream:
        for number in (0, 1, 2, 3):
            await stream.append(b"%d" % number)
        await stream.append_batch([b"4", b"5"])
        for number in (6, 7, 8, 9):
            await stream.append(b"%d" % number)
    yield made
    await made.close()


async def read(
    cluster: SmallCluster,
    start: str = "beginning",
    *,
    to: str | None = None,
    count: int | None = None,
    follow: bool = False,
    raw: bool = False,
    skip: bool = False,
    name: str = NAME,
) -> str:
    end = None if to is None else Place.parse(to, "--to")
    selection = StreamSelection(Place.parse(start), end, count, follow, raw, skip)
    shown: list[StreamMessage] = []
    await stream_read.read(f"memory://{cluster.name}", name, selection, shown.append, explain=False)
    return "".join(message.data.decode() for message in shown)


@pytest.mark.parametrize(
    ("start", "shown"),
    [
        ("beginning", "0123456789"),
        ("end", ""),
        ("-0", ""),
        ("-1", "9"),
        ("-4", "6789"),
        ("-5", "56789"),
        ("-6", "456789"),
        ("-10", "0123456789"),
        ("-1000000", "0123456789"),
        ("1:0", "3456789"),
        ("1:1:1", "56789"),
        ("1:3", "6789"[1:]),
        ("s@0", "0123456789"),
        ("s@9000000000000", ""),
    ],
)
async def test_where_to_begin(cluster: SmallCluster, start: str, shown: str) -> None:
    assert await read(cluster, start) == shown


@pytest.mark.parametrize(
    ("start", "to", "shown"),
    [
        ("beginning", "1:0", "012"),
        ("1:0", "1:1:1", "34"),
        ("s@0", "s@9000000000000", "0123456789"),
        ("s@0", "s@1", ""),
    ],
)
async def test_where_to_end(cluster: SmallCluster, start: str, to: str, shown: str) -> None:
    assert await read(cluster, start, to=to) == shown


async def test_so_many(cluster: SmallCluster) -> None:
    assert await read(cluster, count=3) == "012"
    assert await read(cluster, "-3", count=2) == "78"
    assert await read(cluster, count=0) == ""
    for count in (-1, -1000):
        with pytest.raises(UsageError, match="-c is a number from 0"):
            await read(cluster, count=count)


@pytest.mark.parametrize(("start", "to"), [("-3", "1:0"), ("end", "1:0"), ("beginning", "end"), ("0:0", "-1")])
async def test_an_end_that_cannot_be(cluster: SmallCluster, start: str, to: str) -> None:
    with pytest.raises(UsageError, match="--to "):
        await read(cluster, start, to=to)


@pytest.mark.parametrize("start", ["99:0", "0:99", "1:1:7"])
@pytest.mark.parametrize("follow", [False, True])
async def test_a_position_that_is_not_there_is_an_error(cluster: SmallCluster, start: str, follow: bool) -> None:
    with pytest.raises(NoSuchPosition):
        async with asyncio.timeout(10):
            await read(cluster, start, follow=follow)


async def test_what_was_trimmed_and_what_never_was(cluster: SmallCluster) -> None:
    bk = cluster.client(3)
    async with bk.open_stream(NAME, settings=StreamSettings(retention_bytes=0)) as stream:
        assert await stream.trim() == [0, 1, 2]
    with pytest.raises(PositionTrimmed):
        await read(cluster, "0:0")
    with pytest.raises(NoSuchStream):
        await read(cluster, name="t/n/persistent/typo")


async def test_nothing_read_says_what_there_is(cluster: SmallCluster, capsys: pytest.CaptureFixture[str]) -> None:
    await read(cluster, "end")
    assert capsys.readouterr().err == "0 messages read; the stream has 0:0 to 2:2\n"
    async with cluster.client(3).open_stream("t/n/persistent/new"):
        await read(cluster, name="t/n/persistent/new")
    assert capsys.readouterr().err == "0 messages read; the stream is empty\n"


@pytest.mark.parametrize(
    ("start", "shown"), [("-2", "89ab"), ("end", "ab"), ("beginning", "0123456789ab"), ("3:0", "ab")]
)
async def test_following_goes_on_with_what_comes_until_the_stream_is_terminated(
    cluster: SmallCluster, start: str, shown: str
) -> None:
    async with cluster.client(3).open_stream(NAME) as stream:
        following = asyncio.create_task(read(cluster, start, follow=True))
        await asyncio.sleep(0.05)
        await stream.append(b"a")
        await stream.roll_over()
        await stream.append(b"b")
        await stream.terminate()
        assert await following == shown


async def test_what_is_followed_is_shown_as_it_comes(cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also through a pipe, into which Python writes by blocks."""
    shown = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(shown))
    selection = StreamSelection(Place.parse("end"), None, None, True, False, False)

    def is_shown(letter: str) -> bool:
        return shown.getvalue().endswith(f"{letter}\n".encode())

    async with cluster.client(3).open_stream(NAME) as stream:
        reading = stream_read.read(
            f"memory://{cluster.name}",
            NAME,
            selection,
            lambda message: print(message.data.decode(), flush=False),
            explain=False,
        )
        following = asyncio.create_task(reading)
        await asyncio.sleep(0.05)
        for letter in "ab":
            await stream.append(letter.encode())
            await until(partial(is_shown, letter))
        await stream.terminate()
        await following
    assert shown.getvalue() == b"a\nb\n"


async def test_a_follower_of_an_empty_stream_ends_after_so_many(cluster: SmallCluster) -> None:
    name = "t/n/persistent/new"
    async with cluster.client(3).open_stream(name) as stream:
        following = [
            asyncio.create_task(read(cluster, start, follow=True, count=1, name=name)) for start in ("end", "-3")
        ]
        await asyncio.sleep(0.05)
        await stream.append(b"a")
        await stream.append(b"b")
        assert await asyncio.gather(*following) == ["a", "a"]


async def test_entries_that_are_no_messages(cluster: SmallCluster, capsys: pytest.CaptureFixture[str]) -> None:
    async with cluster.client(3).open_stream(NAME, settings=StreamSettings(entry_format="raw")) as stream:
        await stream.append(b"raw")
    with pytest.raises(CorruptEntry):
        await read(cluster, "-2")
    assert await read(cluster, "-2", skip=True) == "9"
    assert "tally: entry left out" in capsys.readouterr().err
    assert await read(cluster, "-1", raw=True) == "raw"


async def test_a_cursor_takes_so_many_and_no_more(cluster: SmallCluster) -> None:
    """What is not shown is not acknowledged."""
    async with cluster.client(3).cursor(NAME, "billing"):
        pass
    shown: list[StreamMessage] = []
    for _ in range(2):
        selection = StreamSelection(Place(), None, 3, False, False, False)
        uri = f"memory://{cluster.name}"
        await stream_read.consume(uri, NAME, "billing", selection, shown.append, takeover=False, explain=False)
    assert [message.data for message in shown] == [b"%d" % number for number in range(6)]
