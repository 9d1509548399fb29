"""What is appended, as bytes of an entry."""

from __future__ import annotations

from collections.abc import Sequence

from support.machines import machine
from support.pulsar_entries import decode_entry
from support.workers import WorkerAtOnce
from tallystick.bookkeeper.stream.encoding import EntryEncoder
from tallystick.bookkeeper.stream.late_appends import LateEntry
from tallystick.bookkeeper.stream.settings import StreamSettings
from tallystick.bookkeeper.stream.side_thread import SideThread
from tallystick.bookkeeper.wire.pulsar_messages import InMessage, OutMessage
from tallystick.bookkeeper.wire.stream_values import Position
from tallystick.runtime.clock import Clock

THREAD = SideThread(lambda name: WorkerAtOnce(), "encode")


class Wall(Clock):
    """A wall clock that shows what the test says."""

    def __init__(self) -> None:
        self.ms = 1_000

    def wall_ms(self) -> int:
        return self.ms

    def now(self) -> float:
        return 0.0

    def cpu(self) -> float:
        return 0.0


def encoded(
    encoder: EntryEncoder, messages: Sequence[OutMessage], producer: str | None = None, sequence: int | None = None
) -> list[InMessage]:
    entry = encoder.encode(messages, producer, sequence)
    assert isinstance(entry, bytes)
    return decode_entry(entry, position=Position(1, 0), max_bytes=1 << 20)


async def test_numbers_that_nobody_gives_are_each_given_once() -> None:
    encoder = EntryEncoder(StreamSettings(), "owner", machine().clock, THREAD)
    one, two = OutMessage(b"1"), OutMessage(b"2")
    found = [*encoded(encoder, [one]), *encoded(encoder, [one, two, one]), *encoded(encoder, [two])]
    assert [(each.producer, each.sequence) for each in found] == [("owner", number) for number in range(5)]


async def test_numbers_of_others_take_none_of_ours() -> None:
    encoder = EntryEncoder(StreamSettings(), "owner", machine().clock, THREAD)
    encoded(encoder, [OutMessage(b"1")])
    (found,) = encoded(encoder, [OutMessage(b"2")], "p", 70)
    assert (found.producer, found.sequence) == ("p", 70)
    assert encoded(encoder, [OutMessage(b"3")])[0].sequence == 1


def test_publish_times_never_step_back() -> None:
    """A clock that is set back would hide messages from who seeks by time."""
    wall = Wall()
    encoder = EntryEncoder(StreamSettings(), "owner", wall, THREAD)
    times = []
    for wall.ms in (1_000, 5_000, 2_000, 5_001):
        times += [each.publish_time_ms for each in encoded(encoder, [OutMessage(b"")])]
    assert times == [1_000, 5_000, 5_000, 5_001]


def test_an_event_time_of_zero_is_one() -> None:
    encoder = EntryEncoder(StreamSettings(), "owner", Wall(), THREAD)
    assert [each.event_time_ms for each in encoded(encoder, [encoder.message(b"", event_time=0)])] == [0]
    assert [each.event_time_ms for each in encoded(encoder, [encoder.message(b"")])] == [None]


async def test_a_late_entry_counts_with_all_that_was_given() -> None:
    """Keys, properties, and messages without any bytes are in memory, too, until they are encoded."""
    encoder = EntryEncoder(StreamSettings(), "owner", machine().clock, THREAD)
    empty, count = OutMessage(b""), 100_000
    entry = encoder.encode([empty] * count, None, None)
    assert isinstance(entry, LateEntry) and entry.size >= count * 50
    long = OutMessage(b"", key="k" * 1000, properties={"name": "v" * 1000})
    entry = encoder.encode([long] * count, None, None)
    assert isinstance(entry, LateEntry) and entry.size >= count * 2000


def test_what_its_caller_can_still_change_is_copied_and_nothing_else() -> None:
    encoder = EntryEncoder(StreamSettings(), "owner", Wall(), THREAD)
    plain, data, properties = OutMessage(b"a"), bytearray(b"a"), {"p": "v"}
    assert encoder.checked(plain) is plain
    copies = [encoder.checked(OutMessage(data)), encoder.checked(OutMessage(b"a", properties=properties))]  # type: ignore[arg-type]  # users do
    data[0], properties["p"] = 0, "w"
    assert [(each.data, dict(each.properties)) for each in copies] == [(b"a", {}), (b"a", {"p": "v"})]
