"""What becomes of messages that are appended from the terminal, on bookies that do as they are told."""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from collections.abc import AsyncIterator, Sequence
from typing import cast

import pytest

from support.small_cluster import SmallCluster
from support.waiting import until
from tallystick import Position, Stream
from tallystick.cli import stream_append
from tallystick.cli.stream_append import Appending, MessageTemplate
from tallystick.cli.stream_options import OutMessages, OwnerOptions, RollOver
from tallystick.errors import StreamClosed, StreamFenced, StreamOwned, TallyError, UsageError

NAME = "t/n/persistent/s"


@pytest.fixture
async def cluster() -> AsyncIterator[SmallCluster]:
    made = await SmallCluster().start(3)
    yield made
    await made.close()


async def append(
    cluster: SmallCluster,
    *bodies: str,
    quiet: bool = False,
    json: bool = False,
    takeover: bool = False,
    wait_s: float = 0.0,
    given: OutMessages | None = None,
) -> None:
    owner, messages = OwnerOptions(takeover=takeover, wait_s=wait_s), given or OutMessages()
    chosen = stream_append.settings(owner, RollOver(), messages)
    uri = f"memory://{cluster.name}"
    await stream_append.append(uri, NAME, bodies, chosen, owner, messages, quiet=quiet, json=json, explain=False)


async def stored(cluster: SmallCluster, entry_format: str = "pulsar") -> list[tuple[str, object, bytes]]:
    async with cluster.client(99).read_stream(NAME, entry_format=entry_format) as reader:
        return [(str(one.position), one.key, bytes(one.data)) async for one in reader.read()]


class Stdin:
    """Lines that come in blocks; what stands between two blocks is awaited there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *blocks: Sequence[bytes] | asyncio.Event) -> None:
        self.blocks = blocks
        monkeypatch.setattr("sys.stdin.fileno", lambda: 0)
        monkeypatch.setattr(stream_append, "lines", lambda fd, max_bytes: self.lines())

    async def lines(self) -> AsyncIterator[list[bytes]]:
        for block in self.blocks:
            if isinstance(block, asyncio.Event):
                await block.wait()
            else:
                yield list(block)


async def test_positions_are_printed_and_the_sum_is_told(
    cluster: SmallCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    await append(cluster, "a", "é", "\udcff")
    assert capsys.readouterr() == ("0:0\n0:1\n0:2\n", f"stream {NAME}: 3 messages stored, the last at 0:2\n")
    await append(cluster, "b", json=True)
    assert json.loads(capsys.readouterr().out) == {"stream": NAME, "position": "1:0"}
    await append(cluster, "c", quiet=True)
    assert capsys.readouterr() == ("", f"stream {NAME}: 1 message stored, the last at 2:0\n")
    assert [data for _, _, data in await stored(cluster)] == [b"a", "é".encode(), b"\xff", b"b", b"c"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (OutMessages(event_time="1969-01-01"), "--event-time is a time from 1970 on"),
        (OutMessages(key="\udcff"), "--key is text that UTF-8 can carry"),
        (OutMessages(property_=("a=\udcff",)), "--property is text that UTF-8 can carry"),
        (OutMessages(producer="\udcff", sequence=1), "--producer is text that UTF-8 can carry"),
        (OutMessages(raw=True, key="k"), "raw entries have no key"),
        (OutMessages(raw=True, event_time="5"), "raw entries have no key"),
        (OutMessages(raw=True, property_=("a=b",)), "raw entries have no key"),
        (OutMessages(raw=True, producer="p", sequence=1), "raw entries have no key"),
    ],
)
async def test_an_owner_is_not_fenced_for_messages_that_cannot_be(
    cluster: SmallCluster, given: OutMessages, said: str
) -> None:
    async with cluster.client(7).open_stream(NAME) as stream:
        with pytest.raises(UsageError, match=f"^{said}"):
            await append(cluster, "x", takeover=True, given=given)
        await stream.append(b"goes on")
    assert [data for _, _, data in await stored(cluster)] == [b"goes on"]


async def test_what_each_message_has_beside_its_payload(cluster: SmallCluster) -> None:
    given = OutMessages(key="k", property_=("a=b=c",), event_time="5", producer="p", sequence=7, compression="zlib")
    await append(cluster, "one", "two", given=given)
    async with cluster.client(99).read_stream(NAME) as reader:
        one, two = [message async for message in reader.read()]
    assert (one.key, one.properties, one.event_time, one.producer) == ("k", {"a": "b=c"}, 5, "p")
    assert (one.sequence, two.sequence, two.data) == (7, 8, b"two")


async def test_a_repeated_append_stores_nothing_and_says_so(
    cluster: SmallCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    await append(cluster, "a", "b", given=OutMessages(producer="p", sequence=0))
    capsys.readouterr()
    await append(cluster, "a", "b", "c", given=OutMessages(producer="p", sequence=0))
    printed = capsys.readouterr()
    assert printed.out.splitlines()[:2] in (["stored before"] * 2, ["0:0", "0:1"])
    assert printed.err == f"stream {NAME}: 3 messages stored, the last at {printed.out.splitlines()[2]}\n"
    assert [data for _, _, data in await stored(cluster)] == [b"a", b"b", b"c"]
    await append(cluster, "a", json=True, given=OutMessages(producer="p", sequence=0))
    assert json.loads(capsys.readouterr().out)["position"] in (None, "0:0")


async def test_each_line_has_its_own_key(cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    Stdin(monkeypatch, [b"a\t1", b"\t2\t3"], [b"\xff\t4"])
    await append(cluster, given=OutMessages(key_delimiter="\\t"))
    assert [one[1:] for one in await stored(cluster)] == [("a", b"1"), ("", b"2\t3"), (b"\xff", b"4")]


async def test_a_line_without_delimiter_says_how_many_lines_before_it_are_stored(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Stdin(monkeypatch, [b"a:1"], [b"b:2", b"c", b"d:4"], [b"e:5"])
    with pytest.raises(TallyError, match=r"line 3 was not appended: it has no key delimiter \("):
        await append(cluster, given=OutMessages(key_delimiter=":"))
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == (
        "0:0\n0:1\n",
        f"stream {NAME}: 2 lines stored, the last at 0:1; 1 not stored\n",
    )
    assert len(await stored(cluster)) == 2


async def test_a_first_line_that_is_no_message_is_wrong_usage(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    Stdin(monkeypatch, [b"c"])
    with pytest.raises(UsageError, match=r"line 1 was not appended: it has no key delimiter \("):
        await append(cluster, given=OutMessages(key_delimiter=":"))
    with pytest.raises(UsageError, match="message 1 was not appended: an entry is too long"):
        await append(cluster, "x" * (6 << 20))
    assert await stored(cluster) == []


class Taken:
    """A stream that is taken over after two messages: three more were sent by then."""

    name = NAME

    def __init__(self) -> None:
        self.count = 0

    def append_nowait(self, data: bytes, **fields: object) -> asyncio.Future[Position]:
        future = asyncio.get_running_loop().create_future()
        self.count += 1
        if self.count <= 2:
            future.set_result(Position(7, self.count - 1))
        else:
            error = StreamFenced(stream=NAME)
            error.ambiguous = self.count <= 5
            future.set_exception(error)
        return future


async def test_after_a_takeover_each_message_is_stored_or_in_doubt_or_not_stored(
    capsys: pytest.CaptureFixture[str],
) -> None:
    template = MessageTemplate.of(OutMessages())
    appending = Appending(NAME, template, "line", quiet=False, json=False)
    with pytest.raises(StreamFenced):
        await appending.append(Taken(), [b"%d" % number for number in range(1, 7)])  # type: ignore[arg-type]
    appending.end()
    assert capsys.readouterr() == (
        "7:0\n7:1\n",
        f"stream {NAME}: 2 lines stored, the last at 7:1; 3 in doubt (number 3 to 5): stored or not; 1 not stored\n",
    )


async def test_a_takeover_between_two_lines(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    go_on = asyncio.Event()
    Stdin(monkeypatch, [b"1", b"2"], go_on, [b"3", b"4", b"5"], [b"6"])
    appending = asyncio.create_task(append(cluster))
    printed = ""

    def is_stored() -> bool:
        nonlocal printed
        printed += capsys.readouterr().out
        return printed == "0:0\n0:1\n"

    await until(is_stored)
    async with cluster.client(2).open_stream(NAME, takeover=True) as stream:
        go_on.set()
        with pytest.raises(StreamFenced):
            await appending
        assert (await stream.append(b"other")).entry == 0
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"stream {NAME}: 2 lines stored, the last at 0:1; ")
    assert [data for _, _, data in await stored(cluster)] == [b"1", b"2", b"other"]


async def test_who_interrupts_it_hears_what_was_stored_all_the_same(
    cluster: SmallCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    for bookie in cluster.bookies.values():
        bookie.held = []
    appending = asyncio.create_task(append(cluster, "a", "b"))
    await until(lambda: any(bookie.held for bookie in cluster.bookies.values()))
    appending.cancel()
    await asyncio.sleep(0.01)
    for bookie in cluster.bookies.values():
        bookie.release()
    with pytest.raises(asyncio.CancelledError):
        await appending
    assert capsys.readouterr() == ("0:0\n0:1\n", f"stream {NAME}: 2 messages stored, the last at 0:1\n")


async def test_who_interrupts_it_again_waits_no_longer(
    cluster: SmallCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bookies hang: the first interrupt said nothing for a minute."""
    monkeypatch.setattr(stream_append, "PATIENCE_S", 0.0)
    for bookie in cluster.bookies.values():
        bookie.held = []
    appending = asyncio.create_task(append(cluster, "a", "b"))
    await until(lambda: any(bookie.held for bookie in cluster.bookies.values()))
    appending.cancel()
    await asyncio.sleep(0.01)
    assert capsys.readouterr().err == "2 messages are under way: another interrupt leaves it in doubt whether stored\n"
    appending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await appending
    assert "0 messages stored; 2 in doubt (number 1 to 2)" in capsys.readouterr().err


async def test_what_becomes_of_a_message_in_doubt_is_no_noise(capsys: pytest.CaptureFixture[str]) -> None:
    """Its future fails when the client is closed, and asyncio complained that nobody had looked."""

    class Hanging:
        def append_nowait(self, payload: bytes, **beside: object) -> asyncio.Future[Position]:
            futures.append(loop.create_future())
            return futures[-1]

    loop, noise, futures = asyncio.get_running_loop(), list[object](), list[asyncio.Future[Position]]()
    loop.set_exception_handler(lambda loop, context: noise.append(context))
    appending = Appending(NAME, MessageTemplate.of(OutMessages()), "line", quiet=False, json=False)
    task = asyncio.create_task(appending.append(cast("Stream", Hanging()), [b"x"]))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    appending.end()
    assert "1 in doubt (number 1)" in capsys.readouterr().err
    futures.pop().set_exception(StreamClosed(stream=NAME))
    await asyncio.sleep(0)
    gc.collect()
    assert not noise


async def test_the_other_format_is_refused_unless_it_is_forced(cluster: SmallCluster) -> None:
    await append(cluster, "a")
    with pytest.raises(UsageError, match="has messages in Pulsar's format: leave out --raw, or mix them with --force"):
        await append(cluster, "b", given=OutMessages(raw=True))
    await append(cluster, "b", given=OutMessages(raw=True, force=True))
    with pytest.raises(UsageError, match="has raw entries: give --raw, or mix them with --force"):
        await append(cluster, "c")
    await append(cluster, "c", given=OutMessages(raw=True))
    assert [data for _, _, data in await stored(cluster, "raw")][1:] == [b"b", b"c"]


async def test_a_stream_with_an_owner_is_left_alone(cluster: SmallCluster) -> None:
    async with cluster.client(2).open_stream(NAME) as stream:
        with pytest.raises(StreamOwned):
            await append(cluster, "a")
        await stream.append(b"b")
    assert [data for _, _, data in await stored(cluster)] == [b"b"]


async def test_a_stream_with_an_owner_is_waited_for_if_that_is_said(cluster: SmallCluster) -> None:
    async with cluster.client(2).open_stream(NAME) as stream:
        appending = asyncio.create_task(append(cluster, "a", wait_s=60.0))
        await asyncio.sleep(0.05)
        assert not appending.done()
        await stream.append(b"b")
    await appending
    assert [data for _, _, data in await stored(cluster)] == [b"b", b"a"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (OutMessages(key="k", key_delimiter=":"), "give one of them"),
        (OutMessages(key_delimiter=""), "-K needs a text"),
        (OutMessages(key_delimiter="\\q"), "-K knows"),
        (OutMessages(producer="p"), "given together"),
        (OutMessages(sequence=1), "given together"),
        (OutMessages(property_=("p",)), "--property needs name=value"),
        (OutMessages(event_time="now"), "--event-time is a time"),
        (OutMessages(raw=True, key="k"), "raw entries have no key"),
        (OutMessages(raw=True, compression="lz4"), "they have no compression"),
    ],
)
async def test_options_that_do_not_go_together(cluster: SmallCluster, given: OutMessages, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        await append(cluster, "a", given=given)


@pytest.mark.parametrize("given", [OutMessages(compression="lz4"), OutMessages(key_delimiter=":")])
async def test_no_owner_is_fenced_for_messages_that_cannot_be_appended(
    cluster: SmallCluster, given: OutMessages, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A library that is not installed, and a message without a key, are seen before the stream is taken over."""
    monkeypatch.setitem(sys.modules, "cramjam", None)
    stream = await cluster.client(1).open_stream(NAME)
    with pytest.raises(UsageError, match=r"needs cramjam|nothing is appended: message 2: it has no key delimiter"):
        await append(cluster, "k:a", "b", takeover=True, given=given)
    await stream.append(b"c")
    await stream.close()
    assert [data for _, _, data in await stored(cluster)] == [b"c"]


def test_quorums_that_cannot_be_are_refused_before_anything_is_asked() -> None:
    with pytest.raises(UsageError, match="none is more than the one before it"):
        stream_append.settings(OwnerOptions(ack_quorum=5), RollOver(), OutMessages())
