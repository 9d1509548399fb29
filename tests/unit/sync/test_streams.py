"""Streams through the blocking façade, against a cluster on a loop of its own."""

from __future__ import annotations

import threading
import time

import pytest

from support.small_cluster import SmallCluster
from tallystick import Position, StreamSettings, sync
from tallystick.errors import NoSuchStream, PositionTrimmed, StreamClosed, StreamOwned, StreamTerminated, UsageError

NAME = "t/n/persistent/s"


def test_append_and_read(bk: sync.BookKeeper) -> None:
    with bk.open_stream(NAME) as stream:
        first = stream.append(b"one", key="k", event_time=5, properties={"a": "b"}, producer="p", sequence=7)
        assert stream.append_batch([b"two", b"three"]) == [Position(0, 1, 0), Position(0, 1, 1)]
        futures = [stream.append_nowait(b"%d" % number) for number in range(10)]
        assert [future.result() for future in futures] == [Position(0, number) for number in range(2, 12)]
        assert (stream.name, stream.settings, stream.terminated) == (NAME, StreamSettings(), None)
        assert stream.last_confirmed == Position(0, 11) and stream.owner in repr(stream.state()) + stream.owner
        stream.roll_over()
        assert stream.trim() == []
        assert [ledger["ledgerId"] for ledger in stream.state()["ledgers"]] == [0, 1]
        with bk.read_stream(NAME) as reader:
            assert (reader.stream, reader.first(), reader.last_confirmed()) == (NAME, Position(0, 0), Position(0, 11))
            one, *others = reader.read()
            assert (one.position, one.key, one.event_time, one.producer, one.sequence) == (first, "k", 5, "p", 7)
            assert [message.data for message in others] == [b"two", b"three", *(b"%d" % n for n in range(10))]
            assert [message.data for message in reader.read("0:10", end="0:11")] == [b"8"]
            assert list(reader) == [one, *others]
            assert reader.position_at(0) == Position(0, 0)
        assert stream.terminate().entry == -1
        with pytest.raises(StreamTerminated):
            stream.append(b"late")
    assert list(bk.streams()) == list(bk.streams("t/n")) == [NAME]
    bk.delete_stream(NAME)
    assert list(bk.streams()) == []
    with pytest.raises(NoSuchStream):
        bk.read_stream(NAME)


def test_each_option_reaches_the_stream_the_reader_and_the_cursor(bk: sync.BookKeeper) -> None:
    with bk.open_stream(NAME) as stream:
        fields = {"a": "b"}
        stream.append_nowait(b"one", key=b"\xff", event_time=5, properties=fields, producer="p", sequence=7).result()
        time.sleep(0.005)
        batch = stream.append_batch([b"two", b"three"], producer="p", sequence=8)
        time.sleep(0.005)
        last = stream.append(b"four", producer="p", sequence=10)
        assert stream.append_batch([b"again", b"again"], producer="p", sequence=8) == batch
    with bk.read_stream(NAME) as reader:
        one, two, three, four = reader.read()
        assert (one.key, one.event_time, one.properties, one.producer) == (b"\xff", 5, fields, "p")
        assert [message.sequence for message in (one, two, three, four)] == [7, 8, 9, 10]
        between = reader.read(start_time=two.publish_time, end_time=four.publish_time)
        assert [message.data for message in between] == [b"two", b"three"]
    with bk.cursor(NAME, "billing") as cursor:
        assert [message.data for message in cursor.read(2, max_bytes=3)] == [b"one"]
        cursor.seek(time=four.publish_time)
        assert [message.position for message in cursor.read(wait=False)] == [last]


def test_a_thread_follows_while_another_appends(bk: sync.BookKeeper) -> None:
    heard: list[bytes] = []

    def follow() -> None:
        with bk.read_stream(NAME) as reader:
            heard.extend(message.data for message in reader.read(follow=True))

    with bk.open_stream(NAME) as stream:
        thread = threading.Thread(target=follow)
        thread.start()
        for number in range(3):
            stream.append(b"%d" % number)
            time.sleep(0.01)
        stream.terminate()
        thread.join(20)
    assert heard == [b"0", b"1", b"2"]


def test_the_second_owner_is_told_who_the_first_is(cluster: SmallCluster, bk: sync.BookKeeper) -> None:
    stream = bk.open_stream(NAME)
    with sync.connect(f"memory://{cluster.name}") as other, pytest.raises(StreamOwned) as owned:
        other.open_stream(NAME)
    assert owned.value.owner == stream.owner
    stream.abort()
    with pytest.raises(StreamClosed):
        stream.append(b"x")


def test_what_is_no_place_and_what_is_gone(bk: sync.BookKeeper) -> None:
    settings = StreamSettings(retention_s=0, max_entries_per_ledger=1)
    with bk.open_stream(NAME, settings=settings) as stream, bk.read_stream(NAME) as reader:
        for number in range(4):
            stream.append(b"%d" % number)
        time.sleep(0.01)  # a ledger is older than 0 s a millisecond after its end
        stream.trim()
        with pytest.raises(UsageError, match="start is a Position"):
            reader.read(40)  # type: ignore[arg-type]
        with pytest.raises(PositionTrimmed) as trimmed:
            list(reader.read("0:0"))
        assert trimmed.value.first > Position(0, 0)
