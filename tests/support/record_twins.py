"""Compare the two implementations of what a broker encodes and scans: see ``codec_twins``, which has the ledgers' part.

What the functions take comes from code of ours, whose types are as its annotations say; numbers and lengths may be any.
"""

from __future__ import annotations

import struct
from array import array
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

from msgspec import Raw

from support.codec_twins import ANY, COMPILED, OWNED, any_count, any_id, any_size, compare, damaged, let_go, outcome
from tallystick.codec import (
    alike,
    client_ids,
    command_heads,
    dispatched,
    pulled,
    records,
    sent_properties,
    uniform_records,
    unit_runs,
)
from tallystick.codec.checksum import crc32
from tallystick.codec.implementation import REFERENCES
from tallystick.codec.records import Content, Row
from tallystick.rocketmq.wire.values import ResponseCode

# All functions that have a twin are known when their modules are imported.
TWINNED = (records, pulled, client_ids, alike, sent_properties, command_heads, uniform_records, dispatched, unit_runs)

_EDGES = tuple(sign * (1 << bits) + more for bits in (31, 32, 63, 64) for sign in (1, -1) for more in (-1, 0, 1))
_TOPICS = ("orders", "t", "%RETRY%g", "a" * 127, "b" * 128, "c" * 255, "Füße", "")


def _number(random: Random, most: int = 1 << 20) -> int:
    """Seldom one that may be too large for its place."""
    return random.choice(_EDGES) if random.random() < 0.02 else random.randrange(most)


def _bytes(random: Random, most: int = 300) -> bytes:
    return random.randbytes(random.choice((0, 1, 63, 64, 65)) if random.random() < 0.3 else random.randrange(most))


def _host(random: Random) -> bytes:
    return random.randbytes(random.choice((7, 9, 19, 21)) if random.random() < 0.01 else random.choice((8, 8, 8, 20)))


def _body(random: Random) -> bytes | bytearray | memoryview:
    body = random.choice((bytes, *ANY))(_bytes(random))
    if random.random() < 0.01:  # views of other things than bytes one after another
        body = random.choice((memoryview(bytes(64))[::2], memoryview(bytes(64)).cast("q")))
    return body


def _contents(random: Random) -> list[Content]:
    sizes = [random.choice((0, 20, 300)) for _ in range(random.choice((0, 1, 1, 1, 5)))]
    contents = [(_number(random), _body(random), random.randbytes(size)) for size in sizes]
    if random.random() < 0.01:
        contents.append((0, b"", bytes(random.choice((65535, 65536)))))
    return contents


def _row(random: Random) -> Row:
    contents: list[Content] | tuple[Content, ...] = _contents(random)
    return (
        records.topic_field(random.choice(_TOPICS)),
        _number(random, 9),
        (1 << 63) - random.randrange(6) if random.random() < 0.02 else _number(random),
        random.choice((0, 1, 8, 16, 32, 48, _number(random))),
        _number(random),
        _host(random),
        _number(random, 9),
        tuple(contents) if random.random() < 0.5 else contents,
    )


def _encode_records(random: Random) -> None:
    rows: list[Any] = [_row(random) for _ in range(random.randrange(6))]
    arguments: tuple[object, ...] = (
        random.choice((list, tuple))(rows),
        (1 << 63) - random.randrange(1000) if random.random() < 0.02 else _number(random),
        _number(random),
        _host(random),
    )
    odd = random.random()
    if odd < 0.02:
        rows[:1] = [random.choice((rows, (), (b"", 0), (*_row(random)[:7], 5), [*_row(random)], None))]
    elif odd < 0.04:
        arguments = (deque(rows), *arguments[1:]) if odd < 0.03 else (*arguments[:3], None)
    compare("encode_records", *arguments)
    data, initial = _bytes(random, 700), random.choice((0, random.randrange(1 << 32)))
    assert COMPILED is not None
    assert COMPILED.crc32_ways(data, initial) == (crc32(data, initial),) * 2, f"{data!r}, {initial}"


def _stored(random: Random) -> bytes:
    """Records from anywhere in a log, often with a lie in them, mostly in a length."""
    parts = []
    for _ in range(random.randrange(6)):
        topic = records.topic_field(random.choice(_TOPICS))
        bodies = [(random.randrange(9), random.randbytes(random.randrange(90)), _bytes(random, 40)) for _ in range(2)]
        row = topic, random.randrange(9), 7, random.choice((0, 0, 1)), 5, random.randbytes(random.choice((8, 8, 20))), 0
        host = random.randbytes(random.choice((8, 8, 20)))
        parts.append(records.encode_records([(*row, bodies)], random.randrange(1 << 40), 9, host))
    data = bytearray(b"".join(parts))
    for _ in range(random.choice((0, 0, 1, 2))):
        starts = [sum(map(len, parts[:number])) for number in range(len(parts))] or [0]
        place = random.choice((*starts, *[start + 84 for start in starts], random.randrange(len(data) + 1)))
        kind = random.randrange(4)
        if kind < 2:
            lie = random.choice((0, 8, 74, 91, len(data), (1 << 31) - 1, 1 << 31, (1 << 32) - 1)).to_bytes(4, "big")
            data[place : place + len(lie)] = lie[: len(data) - place]
        elif kind == 2:
            del data[place + random.randrange(100) :]
        elif data:
            data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    return bytes(data)


def _scan_pulled(random: Random) -> None:
    data = random.choice((bytes, bytes, bytes, bytearray))(_stored(random))
    named = {} if random.random() < 0.3 else {"verify": random.random() < 0.5}
    compare("scan_pulled", data, **named)


def _hash_client_ids(random: Random) -> None:
    """Of ids that are mostly alike in length, and of properties that are mostly alike in all else."""
    before, after = (
        random.choice((b"", b"WAIT\x01true\x02", b"A\x01\x02UNIQ_KEY\x01x\x02")),
        random.choice((b"", b"\x02", b"\x02B\x01c")),
    )
    size, texts = random.choice((0, 1, 3, 32, 32, 32, 128, 130)), list[Any]()
    for _ in range(random.randrange(1, 20)):
        key = bytes(random.choice(b"0189ABYZ\x01") for _ in range(size))
        texts.append(before + b"UNIQ_KEY\x01" + key + after)
    odd, place = random.random(), random.randrange(len(texts))
    text = texts[place]
    if odd < 0.2:
        at = random.randrange(len(text))
        texts[place] = (
            text[:at] + random.choice((b"\x02", b"\x80", "ä".encode(), b"z")) + text[at + random.randrange(3) :]
        )
    elif odd < 0.25:
        texts[place] = random.choice((b"", bytearray(text), text.decode(), text + b"\x02", b"x" * len(text)))
    elif odd < 0.28:  # too short for an id
        texts = [text[: random.randrange(9)] for text in texts]
    elif odd < 0.32:
        texts = [text.replace(b"UNIQ_KEY", b"UNIQ-KEY") for text in texts]
    compare("hash_client_ids", random.choice((list, tuple))(texts), _number(random, 1 << 32))


_BROKERS = ("DELAY", "TRAN_MSG", "POP_CK", "INNER_NUM", "CLUSTER", "MSG_REGION", "TRACE_ON", "TALLY_SINK")


def _usual_properties(random: Random) -> None:
    usual, brokers = ("WAIT", "UNIQ_KEY", "KEYS", "XWAIT", "TAGS", "UNIQ_KEYS"), ("TIMER_DELAY_MS", *_BROKERS)
    names, weights = (*usual, *brokers), (6, 8, 3, 1, 3, 1, *[3 / len(brokers)] * len(brokers))
    values = ("true", "TRUE", "false", "", "A1", "ä€", "WAIT\x01true", "tru", "\U0001f600")
    chosen = random.choices(names, weights, k=random.randrange(5))
    text = "".join(f"{name}\x01{random.choice(values)}\x02" for name in chosen)
    odd = random.random()
    if odd < 0.2:
        text = text.removesuffix("\x02")
    elif odd < 0.4 and text:
        at = random.randrange(len(text))
        text = text[:at] + random.choice(("\x01", "\x02", "", "\ud800", "\0")) + text[at + 1 :]
    given = random.choice((text.encode("utf-8", "surrogatepass"), None)) if odd > 0.98 else text
    compare("usual_properties", given, random.choice((b"", b"CLUSTER\x01c\x02")))


def _text(random: Random) -> str:
    letters = ("a", "Z9", "ä€", '"', "\\", "\x01", "\x02", "\b\t\n\x0b\f\r\x1f\x7f", "\0", "\U0001f600", "x" * 900)
    text = "".join(random.choices(letters, (20, 20, 3, 3, 3, 3, 3, 3, 1, 2, 1), k=random.randrange(8)))
    return text + "\ud800" if random.random() < 0.005 else text


def _encode_head(random: Random) -> None:
    fields: Any = {_text(random): _text(random) for _ in range(random.randrange(7))}
    odd = random.random()
    if odd < 0.3:
        fields = random.choice((None, None, Raw(b'{"a":"b"}'), Raw(b"")))
    elif odd < 0.33:
        fields[random.choice(("a", 5))] = random.choice((5, None, b"x"))
    numbers = [random.choice((0, -1, True, _number(random))) for _ in range(4)]
    numbers[0] = ResponseCode.SYSTEM_ERROR if random.random() < 0.2 else numbers[0]
    language, remark = random.choice(("JAVA", "PYTHON", _text(random))), random.choice((None, _text(random)))
    behind = random.choice((0, random.randrange(1 << 24)))
    tight = random.random()
    if tight < 0.03:  # hardly a byte that does not become six: little less room would be too little
        remark = "\x01" * random.randrange(550, 800)
    elif tight < 0.06:
        fields = {chr(14 + number // 18) + chr(14 + number % 18): "\x01" for number in range(random.randrange(324))}
    elif tight < 0.09:
        behind = random.choice((-1, (1 << 31) - 1, 1 << 31, (1 << 32) - 300, (1 << 32) - 1, 1 << 32, 1 << 64))
    compare("encode_head", numbers[0], fields, numbers[1], language, numbers[2], remark, numbers[3], behind)


def _split_uniform_batch(random: Random) -> None:
    body, properties = random.randbytes(random.choice((0, 1, 40))), random.randbytes(random.choice((0, 1, 30)))
    if random.random() < 0.05:
        properties = bytes(random.choice((32767, 32768)))
    size, count = 22 + len(body) + len(properties), random.choice((0, 1, 15, 16, 17, 20))
    head = struct.pack(">IIIiI", size, 0, 0, random.choice((0, -1, 9)), len(body))
    data = bytearray((head + body + struct.pack(">H", len(properties)) + properties) * count)
    odd = random.random()
    if odd < 0.5 and data:
        place = random.choice((0, 16, 20 + len(body), size * random.randrange(count), random.randrange(len(data))))
        lie = random.choice((0, 21, 22, size, len(data), (1 << 31) - 1, (1 << 32) - 1, (1 << 32) - 22))
        wide = random.choice((1, 4))
        data[place : place + wide] = lie.to_bytes(4, "big")[-wide:][: len(data) - place]
    elif odd < 0.6:
        del data[random.randrange(len(data) + 1) :]
    compare("split_uniform_batch", bytes(data))


def _columns(random: Random, count: int, most: int) -> list[list[int]]:
    """Three columns as long as each other, mostly."""
    columns = [[_number(random, most) for _ in range(count)] for _ in range(3)]
    if random.random() < 0.03:
        columns[random.randrange(3)].append(7)
    return columns


def _encode_units(random: Random) -> None:
    columns: list[Any] = _columns(random, random.randrange(8), 1 << 31)
    if random.random() < 0.03:
        columns[random.randrange(3)] = random.choice((("x",), ["x"] * len(columns[0]), None, [True] * len(columns[0])))
    compare("encode_units", *columns)


def _add_index_entries(random: Random) -> None:
    """Both change what they get: each has its own."""
    columns, slot_count = _columns(random, random.randrange(8), 1 << 31), random.choice((1, 5, 1024, 1025, 3000))
    columns[0] = [abs(key_hash) & 0x7FFFFFFF for key_hash in columns[0]] if random.random() < 0.97 else columns[0]
    if columns[0] and random.random() < 0.03:
        columns[0][-1] = random.choice((1 << 31, (1 << 32) - 1, -1))
    numbers = (
        random.choice((0, columns[2][0] if columns[2] else 9, _number(random)))
        if random.random() < 0.9
        else -(1 << 62),
        random.choice((1, _number(random))),
    )
    slots = array(random.choice("i" * 30 + "hq"), [random.choice((0, 0, 3)) for _ in range(slot_count)])
    pages = bytearray(-(-slot_count // 1024) - (random.random() < 0.02))
    results = []
    assert COMPILED is not None
    for function in (REFERENCES["add_index_entries"], COMPILED.add_index_entries):
        own_slots, own_pages = array(slots.typecode, slots), bytearray(pages)
        results.append((outcome(function, *columns, *numbers, own_slots, own_pages), own_slots, own_pages))
        let_go((own_slots, own_pages))
    assert results[0] == results[1], f"{columns}, {numbers}, {slots}: {results}"


def _record(random: Random, physical: int, body: bytes, topic: bytes, properties: bytes, flags: int) -> bytes:
    born, store = random.randbytes(20 if flags & 16 else 8), random.randbytes(20 if flags & 32 else 8)
    magic = records.V1 if len(topic) < 128 else records.V2
    start = struct.pack(">iiqqiq", random.randrange(9), 0, any_id(random), physical, flags, any_id(random))
    rest = born + struct.pack(">q", any_id(random)) + store + struct.pack(">iqi", 0, 0, len(body)) + body
    rest += (bytes([len(topic)]) if magic == records.V1 else len(topic).to_bytes(2, "big")) + topic
    rest += len(properties).to_bytes(2, "big") + properties
    size = 12 + len(start) + len(rest)
    crc = crc32(body) & records.CRC_MASK
    return struct.pack(">III", size, magic, crc) + start + rest


def _records(random: Random, base: int) -> bytes:
    parts, offset, unlike = list[bytes](), base, random.random() < 0.5
    body, topic, properties, flags = random.randbytes(any_size(random)), b"orders", b"KEYS\x01a\x02", 0
    for _ in range(any_count(random, 25)):
        if unlike and random.random() < 0.2:
            topics = (b"orders", b"others", b"", b"t" * 127, b"t" * 300)
            body, topic = random.randbytes(any_size(random)), random.choice(topics)
            properties, flags = random.randbytes(any_size(random)), random.choice((0, 1, 8, 16, 32, 48))
            if random.random() < 0.1:  # as short as one can be
                body, topic, properties, flags = b"", b"", b"", 0
        parts.append(_record(random, _wrapped(offset), body, topic, properties, flags))
        offset += len(parts[-1])
    if parts and random.random() < 0.2:
        _lie_in_one(random, parts)
    if random.random() < 0.3:
        rest = random.choice((0, 4, 8, 100))
        size, magic = random.choice((rest, rest, 0)), random.choice((records.BLANK, 0))
        parts.append((size.to_bytes(4, "big") + magic.to_bytes(4, "big") + bytes(100))[:rest])
    elif parts and random.random() < 0.1:  # the last one ends where its hosts would
        size, offset = random.randrange(91, 113), offset - len(parts[-1])
        parts[-1] = (size.to_bytes(4, "big") + _record(random, _wrapped(offset), b"", b"", b"", 48)[4:])[:size]
    starts = [sum(map(len, parts[:number])) for number in range(len(parts))]
    topics_at = [start + 88 + len(body) for start in starts]  # of records like the last one
    return damaged(random, b"".join(parts), [*starts, *topics_at[-1:]] if random.random() < 0.7 else topics_at[-1:])


def _alike_records(random: Random, base: int) -> bytes:
    """As many as are read by columns, of one size, and perhaps one of them is another one than its size says."""
    body, topic, properties = any_size(random), random.choice((b"orders", b"")), any_size(random)
    parts = list[bytes]()
    for number in range(random.randrange(15, 20)):
        offset = _wrapped(base + number * (len(parts[0]) if parts else 0))
        contents = random.randbytes(body), topic, random.randbytes(properties)
        parts.append(_record(random, offset, *contents, random.choice((0, 1, 8))))
    if random.random() < 0.7:
        _lie_in_one(random, parts)
    return b"".join(parts) + random.randbytes(random.choice((0, 0, 50)))


def _wrapped(offset: int) -> int:
    """One behind the highest, as it were if an addition of 64 bits did not see that: records are not placed there."""
    return offset if offset < 1 << 63 else offset - (1 << 64)


def _lie_in_one(random: Random, parts: list[bytes]) -> None:
    """Turn one bit of what readers rely on: size, kind, place, hosts, sizes of the parts; or of the contents."""
    which = random.randrange(len(parts))
    changed = bytearray(parts[which])
    body_size = int.from_bytes(changed[84:88], "big")
    places = range(8), range(28, 40), range(39, 40), range(84, 92), range(88 + body_size, 100 + body_size)
    at = random.choice(random.choice(places))
    if at < len(changed):
        changed[at] ^= 1 << random.randrange(8)
        parts[which] = bytes(changed)


def _scan_records(random: Random) -> None:
    base = random.choice((0, 1 << 30, (1 << 63) - 300))
    data = random.choice(OWNED)(_records(random, base))
    named = {"verify": random.random() < 0.5} if random.random() < 0.4 else {}
    compare("scan_records", data, base, **named)


def _scan_uniform_records(random: Random) -> None:
    base = random.choice((0, 1 << 30, (1 << 63) - 300))
    make = _alike_records if random.random() < 0.5 else _records
    compare("scan_uniform_records", make(random, base), base)


def _scan_alike(random: Random) -> None:
    """Records that are mostly alike, of queues whose offsets mostly go on, with one lie in them at most."""
    topic, base = random.choice((b"orders", b"t", "Füße".encode())), random.choice((0, 1 << 40, (1 << 63) - 2000))
    before, after = b"WAIT\x01true\x02UNIQ_KEY\x01", random.choice((b"", b"\x02", b"\x02CLUSTER\x01c\x02"))
    nexts, rows = [random.choice((0, 7, (1 << 63) - 3, -(1 << 63))) for _ in range(2)], list[Row]()
    for _ in range(random.randrange(1, 12)):
        queue_id, key = random.randrange(2), bytes(random.choice(b"09AZ\x01") for _ in range(random.choice((1, 8, 32))))
        odd = random.random()
        if odd < 0.1:
            key = random.choice((b"", b"\x02", "ä".encode(), b"a\x02b", key * 5))
        properties = before + key + after if odd > 0.02 else random.choice((b"", before, after, before + after[1:]))
        field = (
            records.topic_field(random.choice(("t", "a" * 200))) if 0.1 < odd < 0.13 else bytes([len(topic)]) + topic
        )
        host = random.randbytes(20 if 0.2 < odd < 0.23 else 8)
        flag = random.choice((4, 8, 12)) if 0.3 < odd < 0.33 else random.choice((0, 1))
        offset = nexts[queue_id] if odd < 0.9 else random.choice((0, 9, -1))
        nexts[queue_id] = min(offset + 1, (1 << 63) - 1)
        rows.append(
            (field, queue_id, offset, flag, 5, host, 0, [(0, random.randbytes(random.randrange(9)), properties)])
        )
    data = bytearray()
    for row in rows:  # each has a place of its own, though it is at another one than the last place of a log
        data += records.encode_records([row], min(base + len(data), (1 << 63) - 1), random.randrange(1 << 41), bytes(8))
    if random.random() < 0.3:
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    elif random.random() < 0.3:
        del data[random.randrange(len(data)) :]
    arguments: list[Any] = [bytes(data), base, topic, before, after, _number(random, 1 << 32), _number(random)]
    arguments.append(random.choice((0, 1, 3, 1 << 20)))
    if random.random() < 0.03:
        place = random.randrange(len(arguments))
        arguments[place] = random.choice((None, "x", -1, 1 << 70, memoryview(b"x"), True))
    compare("scan_alike", *arguments)


def _runs_of_units(random: Random) -> None:
    units, physical = list[bytes](), random.randrange(1000)
    for _ in range(random.choice((0, 1, 2, 40))):
        size = random.choice((100, 100, 100, 300, 0x7FFFFFFF, random.choice((0, -1, -(1 << 31), 1 << 30))))
        place = random.choice(_EDGES[:-6]) if random.random() < 0.02 else physical
        units.append(struct.pack(">qiq", max(min(place, (1 << 63) - 1), -(1 << 63)), size, random.randrange(3)))
        physical += random.choice((size, size, size, 250, 1 << 20)) if 0 < size < 1000 else 0
    first, end = (
        random.choice((0, 0, 500, _number(random))),
        random.choice((physical, physical, 1 << 40, _number(random))),
    )
    limits = tuple(random.choice((0, 1, 8, 350, 400, 1 << 20, _number(random))) for _ in range(4))
    tags = random.choice((None, None, frozenset({1}), frozenset({0, 2}), frozenset()))
    recent, file_bytes = random.choice((0, physical // 2, _number(random))), random.choice((1 << 30, 500, 100))
    compare("runs_of_units", b"".join(units), first, end, file_bytes, recent, limits, tags)


COMPARISONS: dict[str, Callable[[Random], None]] = {
    comparison.__name__.removeprefix("_"): comparison
    for comparison in (
        _encode_records,
        _scan_records,
        _scan_uniform_records,
        _scan_pulled,
        _scan_alike,
        _hash_client_ids,
        _usual_properties,
        _encode_head,
        _split_uniform_batch,
        _encode_units,
        _add_index_entries,
        _runs_of_units,
    )
}
