"""What is done to whole streams and their cursors from the terminal, and what it shows of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from support.small_cluster import SmallCluster
from tallystick import Position, StreamMessage, StreamSettings
from tallystick.admin.streams import stream_status
from tallystick.cli import stream_read, streams
from tallystick.cli.stream_options import OwnerOptions, ReadOptions
from tallystick.cli.stream_places import Place
from tallystick.errors import (
    CorruptEntry,
    NoSuchCursor,
    NoSuchPosition,
    NoSuchStream,
    NotFound,
    StreamOwned,
    StreamTerminated,
    UsageError,
)

NAME = "t/n/persistent/s"
OWNER = OwnerOptions()


@pytest.fixture
async def cluster() -> AsyncIterator[SmallCluster]:
    """Its stream has messages 0 to 9, in ledgers of four."""
    made = await SmallCluster().start(3)
    async with made.client(2).open_stream(NAME, settings=StreamSettings(max_entries_per_ledger=4)) as stream:
        for number in range(10):
            await stream.append(b"%d" % number)
    yield made
    await made.close()


@pytest.fixture
async def uri(cluster: SmallCluster) -> str:
    return f"memory://{cluster.name}"


async def consumed(uri: str, cursor: str, **options: object) -> str:
    reading = ReadOptions(cursor=cursor, **options)  # type: ignore[arg-type]
    shown: list[StreamMessage] = []
    selection = stream_read.selection(reading, "beginning", None, follow=False)
    await stream_read.run(uri, NAME, reading, selection, shown.append, explain=False)
    return "".join(message.data.decode() for message in shown)


async def create_cursor(uri: str, cursor: str, where: str = "beginning") -> Position:
    return await streams.create_cursor(uri, NAME, cursor, Place.parse(where), explain=False)


async def seek(uri: str, cursor: str, where: str, *, takeover: bool = False) -> Position:
    return await streams.seek(uri, NAME, cursor, Place.parse(where), takeover=takeover, explain=False)


async def test_a_stream_is_made_shown_listed_and_deleted(uri: str) -> None:
    assert await streams.create(uri, "t/n/persistent/new") == ("stream t/n/persistent/new",)
    assert await streams.create(uri, "t/n/persistent/new") == ()
    rows = await streams.find_all(uri, "t/n")
    assert [(row["stream"], row["ledgers"], row["closed_entries"]) for row in rows] == [
        ("t/n/persistent/new", 0, 0),
        (NAME, 3, 8),
    ]
    await streams.delete(uri, NAME, takeover=False, explain=False)
    with pytest.raises(NoSuchStream):
        await streams.find(uri, NAME)
    assert len(await streams.find_all(uri, "")) == 1
    assert await streams.find_all(uri, "u") == []


async def test_what_is_shown_of_a_stream(cluster: SmallCluster, uri: str) -> None:
    await create_cursor(uri, "billing", "-3")
    shown = streams.details(await streams.find(uri, NAME), explain=True)
    assert shown["ledgers"][2] == "2: 2 entries, " + shown["ledgers"][2].split(", ", 1)[1]
    assert shown["ledgers"][2].endswith("closed") and shown["ledgers"][0].endswith("Z")
    assert (shown["owner"], shown["since"], shown["state"], shown["entries"]) == ("nobody", None, "open", 10)
    assert (shown["first"], shown["last"]) == ("0:0", "2:1")
    assert shown["cursors"] == ["billing: mark 1:2, 3 behind, owner nobody"]
    assert "gave the stream back" in shown["why"]
    async with cluster.client(3).open_stream(NAME):
        status = await streams.find(uri, NAME)
        assert streams.details(status, explain=False)["ledgers"][-1].endswith(": open")
        since = streams.json_details(status)["since"]
        assert len(since) == len("2026-03-01T12:00:00.000Z") and since.endswith("Z")
    assert "why" not in streams.details(status, explain=False)


async def test_show_and_cursors_have_the_same_cursors(cluster: SmallCluster, uri: str) -> None:
    for name in ("b", "a c", "é"):
        await create_cursor(uri, name)
    async with cluster.client(3).cursor(NAME, "b") as handle:
        await handle.ack("0:0")
        rows = await streams.find_cursors(uri, NAME)
        assert [(row["cursor"], row["behind"], row["owner"] == "nobody") for row in rows] == [
            ("é", 10, True),
            ("a c", 10, True),
            ("b", 9, False),
        ]
        shown = streams.details(await streams.find(uri, NAME), explain=False)["cursors"]
        assert [line.partition(":")[0] for line in shown] == [row["cursor"] for row in rows]


async def test_a_ledger_is_closed_and_the_front_is_trimmed_but_for_what_a_cursor_needs(uri: str) -> None:
    assert await streams.roll(uri, NAME, OWNER, explain=False) == 2
    await create_cursor(uri, "billing", "1:1")
    assert await streams.trim(uri, NAME, OWNER, None, 0, explain=False) == [0]
    await seek(uri, "billing", "end")
    assert await streams.trim(uri, NAME, OWNER, 3600.0, None, explain=False) == []
    assert await streams.trim(uri, NAME, OWNER, None, 0, explain=False) == [1, 2]
    with pytest.raises(UsageError, match="say what to keep"):
        await streams.trim(uri, NAME, OWNER, None, None, explain=False)


async def test_what_tasks_of_a_batch_that_nobody_commits_wrote_is_deleted(cluster: SmallCluster, uri: str) -> None:
    bk, name = cluster.client(3), "t/n/persistent/sunk"
    sink = await bk.open_sink(name, "app", "query", run="1")
    async with bk.sink_attempt(sink.ticket, 0, 0) as attempt:
        await attempt.append(b"x")
        written = await attempt.close()
    assert written is not None
    assert await streams.sweep(uri, name, explain=False) == [], "the run may commit it yet"
    await (await bk.open_sink(name, "app", "query", run="2")).commit(0, [])
    assert await streams.sweep(uri, name, explain=False) == [written.ledger]
    assert await streams.sweep(uri, name, explain=False) == []
    with pytest.raises(NoSuchStream):
        await streams.sweep(uri, "t/n/persistent/other", explain=False)


async def test_applications_are_listed_and_forgotten(cluster: SmallCluster, uri: str) -> None:
    bk, name = cluster.client(3), "t/n/persistent/sunk"
    for application in ("b", "a"):
        await (await bk.open_sink(name, application, "query", run="1")).commit(4, [])
    row = {"application": "a", "query": "query", "batch": 4, "run": "1"}
    assert await streams.find_sinks(uri, name) == [row, row | {"application": "b"}]
    assert (await streams.forget_sink(uri, name, "a", explain=False)).batch == 4
    assert [one["application"] for one in await streams.find_sinks(uri, name)] == ["b"]
    with pytest.raises(NotFound, match="no such application"):
        await streams.forget_sink(uri, name, "a", explain=False)


async def test_a_stream_that_sinks_write_is_left_to_them_with_what_to_do_instead(
    cluster: SmallCluster, uri: str
) -> None:
    """To take it over, as an owner is told that appends, would end their commits."""
    bk, name = cluster.client(3), "t/n/persistent/sunk"
    sink = await bk.open_sink(name, "app", "query", run="1")
    for work, words in (
        (streams.trim(uri, name, OWNER, None, 0, explain=False), "retentionSeconds and retentionBytes"),
        (streams.roll(uri, name, OWNER, explain=False), "no open ledger"),
        (streams.terminate(uri, name, OWNER, explain=False), "End their queries first; --takeover"),
    ):
        with pytest.raises(StreamOwned, match=rf"applications: app\. .*{words}"):
            await work
    assert not (await sink.commit(0, [])).was_stored, "it goes on"
    await streams.terminate(uri, name, replace(OWNER, takeover=True), explain=False)
    with pytest.raises((StreamOwned, StreamTerminated)):
        await sink.commit(1, [])


async def test_a_stream_ends_for_good(cluster: SmallCluster, uri: str) -> None:
    last = await streams.terminate(uri, NAME, OWNER, explain=False)
    with pytest.raises(StreamTerminated):
        await (await cluster.client(3).open_stream(NAME)).append(b"late")
    assert (await stream_status(cluster.client(4), NAME)).ownership.info.terminated == last


async def test_cursors_pass_over_what_is_too_old(uri: str) -> None:
    await create_cursor(uri, "c")
    assert await streams.trim(uri, NAME, OWNER, None, None, ttl_s=3600.0, explain=False) == []
    assert await consumed(uri, "c", count=1) == "0"
    await asyncio.sleep(0.01)
    assert await streams.trim(uri, NAME, OWNER, None, None, ttl_s=0.001, explain=False) == []
    assert await consumed(uri, "c") == ""


async def test_cursors_pass_over_what_is_too_much(uri: str) -> None:
    await create_cursor(uri, "c")
    assert await streams.trim(uri, NAME, OWNER, None, None, backlog_bytes=10**6, explain=False) == []
    assert await consumed(uri, "c", count=1) == "0"
    assert await streams.trim(uri, NAME, OWNER, None, None, backlog_bytes=0, explain=False) == []
    assert await consumed(uri, "c") == ""


async def test_a_wrong_name_makes_no_stream(uri: str) -> None:
    name = "t/n/persistent/typo"
    for work in (
        streams.roll(uri, name, OWNER, explain=False),
        streams.terminate(uri, name, OWNER, explain=False),
        streams.trim(uri, name, OWNER, 0.0, None, explain=False),
        streams.delete(uri, name, takeover=False, explain=False),
        streams.create_cursor(uri, name, "c", Place(), explain=False),
        streams.find_cursors(uri, name),
        streams.hand_over(uri, name, force=False, takeover=False, explain=False),
        streams.take_back(uri, name, OWNER, explain=False),
    ):
        with pytest.raises(NoSuchStream):
            await work
    assert [row["stream"] for row in await streams.find_all(uri, "")] == [NAME]


async def test_a_stream_with_an_owner_is_left_to_it(cluster: SmallCluster, uri: str) -> None:
    async with cluster.client(3).open_stream(NAME) as stream:
        for work in (
            streams.roll(uri, NAME, OWNER, explain=False),
            streams.terminate(uri, NAME, OWNER, explain=False),
            streams.trim(uri, NAME, OWNER, 0.0, None, explain=False),
            streams.delete(uri, NAME, takeover=False, explain=False),
        ):
            with pytest.raises(StreamOwned):
                await work
        await stream.append(b"still mine")


@pytest.mark.parametrize(
    ("where", "shown"),
    [("beginning", "0123456789"), ("end", ""), ("-3", "789"), ("1:1", "56789"), ("s@0", "0123456789"), ("2:2", "")],
)
async def test_where_a_cursor_begins_and_is_moved_to(uri: str, where: str, shown: str) -> None:
    await create_cursor(uri, "a", where)
    assert await consumed(uri, "a") == shown
    assert await consumed(uri, "a") == ""
    await create_cursor(uri, "b")
    await seek(uri, "b", where)
    assert await consumed(uri, "b") == shown


async def test_a_cursor_acknowledges_what_it_shows_and_no_more(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    await create_cursor(uri, "a")
    assert await consumed(uri, "a", count=3) == "012"
    assert await consumed(uri, "a", count=0) == ""
    assert await consumed(uri, "a", count=4) == "3456"
    assert await consumed(uri, "a") == "789"
    capsys.readouterr()
    assert await consumed(uri, "a") == ""
    assert capsys.readouterr().err == "0 messages read; cursor a has acknowledged all\n"


async def test_a_wrong_name_makes_no_cursor(uri: str) -> None:
    await create_cursor(uri, "billing")
    with pytest.raises(NoSuchCursor):
        await consumed(uri, "biling")
    with pytest.raises(NoSuchCursor):
        await seek(uri, "biling", "end")
    with pytest.raises(NoSuchCursor):
        await streams.delete_cursor(uri, NAME, "biling", takeover=False, explain=False)
    with pytest.raises(UsageError, match="has a cursor of this name; `tally stream seek` moves it"):
        await create_cursor(uri, "billing", "end")
    with pytest.raises(NoSuchPosition):
        await seek(uri, "billing", "99:0")
    assert [row["cursor"] for row in await streams.find_cursors(uri, NAME)] == ["billing"]
    await streams.delete_cursor(uri, NAME, "billing", takeover=False, explain=False)
    assert await streams.find_cursors(uri, NAME) == []


async def test_a_cursor_that_somebody_has_is_taken_over_if_that_is_said(cluster: SmallCluster, uri: str) -> None:
    await create_cursor(uri, "a")
    async with cluster.client(3).cursor(NAME, "a"):
        with pytest.raises(StreamOwned):
            await seek(uri, "a", "end")
        assert await seek(uri, "a", "-1", takeover=True) == Position(2, 1)
    assert await consumed(uri, "a", takeover=True) == "9"
    with pytest.raises(UsageError, match="--takeover goes with --cursor"):
        reading = ReadOptions(takeover=True)
        selection = stream_read.selection(reading, "end", None, follow=False)
        await stream_read.run(uri, NAME, reading, selection, print, explain=False)


async def test_a_cursor_leaves_out_what_is_no_message_if_that_is_said(
    cluster: SmallCluster, uri: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async with cluster.client(3).open_stream(NAME, settings=StreamSettings(entry_format="raw")) as stream:
        await stream.append(b"raw")
    async with cluster.client(3).open_stream(NAME) as stream:
        await stream.append(b"a")
    await create_cursor(uri, "c", "2:1")
    with pytest.raises(CorruptEntry):
        await consumed(uri, "c", count=5)
    assert await consumed(uri, "c", skip_corrupt=True) in ("9a", "a")
    assert "tally: entry left out: " in capsys.readouterr().err


async def test_a_stream_goes_to_a_broker_and_comes_back(cluster: SmallCluster, uri: str) -> None:
    name = "public/default/persistent/x"
    made = await streams.create_for_pulsar(uri, name, "c1")
    assert [path.split("/")[1] for path in made] == ["admin", "admin", "managed-ledgers"]
    async with cluster.client(3).open_stream(name) as stream:
        await stream.append(b"a")
    assert await streams.hand_over(uri, name, force=False, takeover=False, explain=False) == "nothing"
    assert (await streams.take_back(uri, name, OWNER, explain=False)).entry == 0


def test_what_cannot_be_undone_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    answers = iter(["y", "YES ", "n", ""])
    monkeypatch.setattr("builtins.input", lambda question: next(answers))
    for _ in range(2):
        streams.confirm("Delete it?", "deleting", stream=NAME, yes=False)
    for _ in range(2):
        with pytest.raises(UsageError, match="not done"):
            streams.confirm("Delete it?", "deleting", stream=NAME, yes=False)
    monkeypatch.setattr("sys.stdin.isatty", lambda: False)
    streams.confirm("Delete it?", "deleting", stream=NAME, yes=True)
    with pytest.raises(UsageError, match="deleting cannot be undone: give --yes"):
        streams.confirm("Delete it?", "deleting", stream=NAME, yes=False)
