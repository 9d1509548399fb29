"""As ``codec_twins``: values that lie scattered in a buffer, and messages of protobuf there."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from random import Random

from support.codec_twins import ANY, compare
from tallystick.codec import messages, positions, spans

TWINNED = (messages, positions, spans)

_LIES = (0, 1, -1, 5, 1 << 40, (1 << 63) - 1, -(1 << 63))
_SIZE_FIELD = 3
TABLE = bytes((1, messages.PAIRS, 0, 2, messages.BYTES, 0, _SIZE_FIELD, messages.NUMBER, 31, 16, 0, 56, 18, 2, 0))


def _scattered(random: Random, name: str) -> None:
    data = random.choice(ANY)(random.randbytes(random.randrange(200)))
    bounds = [sorted(random.randrange(len(data) + 1) for _ in range(2)) for _ in range(random.randrange(6))]
    columns = [array("q", [start for start, _ in bounds]), array("q", [end - start for start, end in bounds])]
    if random.random() < 0.4 and bounds:
        column, place = random.choice(columns), random.randrange(len(bounds))
        column[place] = random.choice((*_LIES, len(data), len(data) + 1, len(data) - column[place]))
    if random.random() < 0.1:
        columns[random.randrange(2)] = array(random.choice("qiB"), range(random.randrange(4)))
    compare(name, data, *columns)


def _crc32c_of_spans(random: Random) -> None:
    _scattered(random, "crc32c_of_spans")


def _crc32_of_spans(random: Random) -> None:
    _scattered(random, "crc32_of_spans")


def _position_texts(random: Random) -> None:
    count = random.choice((0, 1, 3, 300))
    numbers = random.choice(((*_LIES, 9, 10, random.randrange(1 << 62)), (-(1 << 63),), ((1 << 63) - 1,)))
    columns = [array("q", random.choices(numbers, k=count)) for _ in "ei"]
    if random.random() < 0.1:
        columns[random.randrange(2)] = array(random.choice("qi"), range(random.randrange(4)))
    compare("position_texts", random.choice(_LIES) if random.random() < 0.5 else random.randrange(99), *columns)


def _joined_spans(random: Random) -> None:
    _scattered(random, "joined_spans")


def _varint(number: int) -> bytes:
    parts = bytearray()
    while number >= 0x80:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(parts) + bytes((number,))


def _number(random: Random) -> int:
    return random.choice((random.randrange(200), 127, 128, (1 << 31) - 1, 1 << 31, (1 << 56) - 1, 1 << 56, 1 << 63))


def _with_length(content: bytes) -> bytes:
    return _varint(len(content)) + content


def _text(random: Random) -> bytes:
    return random.randbytes(random.choice((0, 1, 5, 130)))


def _message(random: Random, size: int) -> bytes:
    """A message of ``TABLE``, that says how long its content is; now and then with another field, or in disorder."""
    pairs = random.choice((0, 0, 0, 1, 2, messages.MOST_PAIRS, messages.MOST_PAIRS + 1))
    parts = [
        b"\x0a" + _with_length(b"\x0a" + _with_length(_text(random)) + b"\x12" + _with_length(_text(random)))
        for _ in range(pairs)
    ]
    parts += [b"\x12" + _with_length(_text(random))] * (random.random() < 0.5)
    parts += [b"\x18" + _varint(size if random.random() < 0.98 else _number(random))] * (random.random() < 0.98)
    parts += [b"\x80\x01" + _varint(_number(random) if random.random() < 0.2 else 7)] * (random.random() < 0.5)
    parts += [b"\x92\x01" + _with_length(_text(random))] * (random.random() < 0.3)
    if random.random() < 0.05:
        random.shuffle(parts)
    return b"".join(parts)


def _changed(random: Random, data: bytes) -> bytes:
    changed = bytearray(data)
    if changed and random.random() < 0.4:
        place = random.randrange(len(changed))
        if random.random() < 0.7:
            changed[place] = random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))
        else:
            del changed[place : place + random.randrange(1, 4)]
    return bytes(changed)


def _table(random: Random) -> bytes:
    if random.random() < 0.9:
        return TABLE
    return random.choice((b"", TABLE[:-1], bytes((1, 1, 0)), bytes((3, 0, 63)), TABLE[:3] * 33, TABLE[6:9]))


def _placed(random: Random, parts: Sequence[bytes]) -> tuple[bytes, array[int], array[int]]:
    """The parts, with something between them, and where each starts and ends."""
    data, starts, ends = b"", array("q"), array("q")
    for part in parts:
        data += random.randbytes(random.choice((0, 0, 3)))
        starts.append(len(data))
        data += part
        ends.append(len(data))
    if random.random() < 0.1 and parts:
        random.choice((starts, ends))[random.randrange(len(parts))] = random.choice((*_LIES, len(data), len(data) + 1))
    if random.random() < 0.03:
        ends.append(0)
    return data, starts, ends


def _scan_messages(random: Random) -> None:
    data, starts, ends = _placed(
        random, [_changed(random, _message(random, 5)) for _ in range(random.choice((0, 1, 3, 8)))]
    )
    compare("scan_messages", random.choice(ANY)(data), starts, ends, _table(random))


def _scan_members(random: Random) -> None:
    counts = array("q", [random.choice((0, 1, 2, 5)) for _ in range(random.randrange(4))])
    batches = []
    for count in counts:
        batch = b""
        for _ in range(count):
            content = random.randbytes(random.choice((0, 1, 20)))
            lie = random.choice((-1, 1, 4)) if random.random() < 0.05 else 0
            message = _message(random, max(0, len(content) + lie))
            lie = random.choice((-1, 1, 4)) if random.random() < 0.05 else 0
            batch += max(0, len(message) + lie).to_bytes(4, "big") + message + content
        batches.append(_changed(random, batch) + bytes(random.choice((0, 0, 2))))
    if counts and random.random() < 0.2:
        counts[random.randrange(len(counts))] = random.choice((-1, 0, 3, 6, 50))
    data, starts, ends = _placed(random, batches)
    if counts and random.random() < 0.03:
        counts.pop()
    size_field = random.choice((_SIZE_FIELD, _SIZE_FIELD, _SIZE_FIELD, 16, 2, 9))
    longest = random.choice((1 << 20, 1 << 20, 200, 0, -1))
    buffer = random.choice(ANY)(data)
    compare("scan_members", buffer, starts, ends, counts, _table(random), size_field, longest)


COMPARISONS: dict[str, Callable[[Random], None]] = {
    comparison.__name__.removeprefix("_"): comparison
    for comparison in (_crc32c_of_spans, _crc32_of_spans, _position_texts, _joined_spans, _scan_messages, _scan_members)
}
