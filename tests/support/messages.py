"""Messages that any side can make and check again; the twin of tests/interop/java/rocketmq/Messages.java."""

from __future__ import annotations

from collections.abc import Iterable

from support.content import content, payload
from tallystick import Message, ReceivedMessage

NUMBER = "number"
TAGS = ("red", "green", "blue")


def message(topic: str, seed: int, number: int, size: int, *, wait: bool = True) -> Message:
    """Number i of a seed has a body, a tag and a key of its own."""
    return Message(
        topic,
        payload(seed, number, size),
        TAGS[number % len(TAGS)],
        (f"k{seed}-{number}",),
        {NUMBER: str(number)},
        wait_stored=wait,
    )


def received(messages: Iterable[ReceivedMessage]) -> dict[str, str]:
    """What came, in one hash, whatever the order between queues; and whether each queue kept the order of sending."""
    numbered = [(int(each.properties[NUMBER]), each) for each in messages]
    last: dict[object, int] = {}
    ordered = True
    for number, each in sorted(numbered, key=lambda pair: pair[1].offset):
        ordered &= last.get(each.queue, -1) < number
        last[each.queue] = number
    records = sorted((number, each.body + f"{each.tags} {' '.join(each.keys)}".encode()) for number, each in numbered)
    return {**content(records), "ordered": "yes" if ordered else "no"}


def expected(seed: int, first: int, last: int, size: int, tag: str | None = None) -> dict[str, str]:
    """What reading those messages, or those of them with a tag, must deliver."""
    made = ((number, message("", seed, number, size)) for number in range(first, last + 1))
    records = (
        (number, bytes(each.body) + f"{each.tags} {each.keys[0]}".encode())
        for number, each in made
        if tag in (None, each.tags)
    )
    return {**content(records), "ordered": "yes"}
