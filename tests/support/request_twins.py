"""Compare the two implementations of what cuts and reads requests: see ``codec_twins``."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from random import Random
from typing import TypeVar

from support.codec_twins import ANY, compare
from tallystick.codec import requests
from tallystick.rocketmq.wire.headers import REQUESTS

TWINNED = (requests,)

T = TypeVar("T")

_SEND_NAMES = (
    "producerGroup",
    "topic",
    "defaultTopic",
    "defaultTopicQueueNums",
    "queueId",
    "sysFlag",
    "bornTimestamp",
    "flag",
    "properties",
    "reconsumeTimes",
    "unitMode",
    "maxReconsumeTimes",
    "batch",
    "bname",
)
_PULL_NAMES = (
    "consumerGroup",
    "topic",
    "queueId",
    "queueOffset",
    "maxMsgNums",
    "sysFlag",
    "commitOffset",
    "suspendTimeoutMillis",
    "subVersion",
    "subscription",
    "expressionType",
    "maxMsgBytes",
    "bname",
    "tallyMark",
)
# By name: a string, an int, a long or a boolean.
_LETTERS = dict(zip("abcdefghijklmn", "sssiiilisibibs", strict=True))
_SEND = dict(zip(_SEND_NAMES, _LETTERS.values(), strict=True))
_PULL = dict(zip(_PULL_NAMES, "ssiliilllssiss", strict=True))
_FIELDS = {10: _SEND, 310: _LETTERS, 320: _LETTERS, 11: _PULL, 361: _PULL}
_TEXTS = (
    "orders",
    "WAIT\x01true\x02UNIQ_KEY\x01AB\x02",
    'a"\\/\b\f\n\r\t\x7f',
    "Füße€",
    "Ã¤",  # whose bytes in Latin 1 are UTF-8, too
    "\U0001f600",
    "x" * 5000,
    "null",
)
_NUMBERS = (
    "0",
    "1",
    "-1",
    "7",
    "2147483647",
    "-2147483648",
    "2147483648",
    "999999999",
    "1000000000",
    "007",
    "-0",
    "+1",
    "1700000000000",
    "9223372036854775807",
    "-9223372036854775809",
    "999999999999999999",
    "18446744073709551623",
    "",
    " 1",
    "1.0",
    "x",
)
_BOOLS = ("true", "false", "TRUE", "1", "0", "null", "yes")
# With an escape, and about as long as one may be that has any.
_LONG_TEXTS = tuple(text for size in range(4093, 4098) for text in ("y" * size + '"', "\\" + "z" * size))


def _usual(random: Random, usual: Sequence[T], others: Sequence[T]) -> T:
    """Seldom one of the others: a frame has some twenty of these, and most frames are to be read."""
    return random.choice(usual if random.random() < 0.985 else others)


def _value(random: Random, kind: str) -> str:
    if kind == "s":
        return _usual(random, _TEXTS, ("", *_LONG_TEXTS))
    if kind == "b":
        return _usual(random, _BOOLS[:2], _BOOLS)
    return _usual(random, _NUMBERS[:4] if kind == "i" else (*_NUMBERS[:4], "1700000000000"), _NUMBERS)


def _fields(random: Random, code: int) -> list[tuple[str, str]]:
    kinds = _FIELDS.get(code, _LETTERS)
    fields = [(name, _value(random, kind)) for name, kind in kinds.items() if random.random() < 0.99]
    odd = random.random()
    if odd < 0.1:
        random.shuffle(fields)
    elif odd < 0.15 and fields:
        fields.insert(random.randrange(len(fields)), random.choice((*fields, ("AccessKey", "k"), ("o", "1"), ("", ""))))
    return fields


def _json_header(random: Random, code: int) -> bytes:
    def text(value: str) -> str:
        return json.dumps(value, ensure_ascii=random.random() < 0.5)

    def name_text(name: str) -> str:
        return text(name) if not name or random.random() < 0.998 else f'"\\u{ord(name[0]):04x}{name[1:]}"'

    pairs = [f"{name_text(name)}:{text(value)}" for name, value in _fields(random, code)]
    if pairs and random.random() < 0.03:
        pairs[-1] = random.choice(
            ('"e":3', '"i":null', '"k":true', '"a":"\\u00e4"', '"a":"\\u0000"', '"a":"\\x"', '"a":"\x01"')
        )
    members = [
        f'"extFields":{{{",".join(pairs)}}}',
        f'"flag":{_usual(random, (0, 2), (1, -1, 1 << 31))}',
        f'"language":"{_usual(random, ("JAVA", "PYTHON", "NODE_JS"), ("COBOL", ""))}"',
        f'"opaque":{_usual(random, (0, 77, -5, 999999999), (1000000000, 2147483647, 2147483648))}',
        '"serializeTypeCurrentRPC":"JSON"',
        f'"version":{_usual(random, (0, 513), (1.5, "007", "-0"))}',
    ]
    odd = random.random()
    if odd < 0.05:
        random.shuffle(members)
    elif odd < 0.1:
        del members[random.randrange(len(members))]
    elif odd < 0.15:
        more = (*members, '"remark":null', '"remark":"r"', '"new":[1,{}]', '"code":11', '"code":320', '"extFields":{}')
        members.insert(random.randrange(len(members) + 1), random.choice(more))
    between = "," if random.random() < 0.97 else ", "
    number = f"{code}" if random.random() < 0.97 else random.choice((f"0{code}", f" {code}", f'"{code}"', ""))
    return ('{"code":' + between.join([number, *members]) + "}").encode()


def _binary_header(random: Random, code: int) -> bytes:
    pairs = []
    for name, value in _fields(random, code):
        value = value if random.random() < 0.99 else ""
        sizes = [len(name.encode()), len(value.encode())]
        if random.random() < 0.01:
            place = random.randrange(2)
            sizes[place] = random.choice((0, -1, 1, 30000, sizes[place] + 1, sizes[place] - 1))
        if value or random.random() < 0.7:
            pairs.append(struct.pack(">h", sizes[0]) + name.encode() + struct.pack(">i", sizes[1]) + value.encode())
    if pairs and random.random() < 0.03:  # the last one goes on behind the header
        *_, (name, value) = _fields(random, code) or [("n", "b")]
        pairs[-1] = (
            struct.pack(">h", len(name)) + name.encode() + struct.pack(">i", len(value.encode()) + 1) + value.encode()
        )
    fields, remark = b"".join(pairs), b"" if random.random() < 0.97 else b"r"
    size = len(fields) if random.random() < 0.97 else random.choice((0, -1, len(fields) - 1, 1 << 30))
    language = _usual(random, (0, 3, 13), (14, 15, 255))
    numbers = code, language, random.choice((0, 513, -1)), random.choice((0, -5, 77)), _usual(random, (0, 2), (1, -1))
    head = struct.pack(">hBhii", *numbers)
    return head + struct.pack(">i", len(remark)) + remark + struct.pack(">i", size) + fields


def _frame(random: Random) -> bytes:
    code, kind = _usual(random, (310, 320, 10, 11, 361), (34, 0)), _usual(random, (0, 0, 1), (2, 255))
    header = (_binary_header if kind == 1 else _json_header)(random, code)
    if random.random() < 0.05:
        place = random.randrange(len(header))
        header = header[:place] + random.choice((b"", b'"', b"\\", b"\x00", b"\xff", b"}")) + header[place + 1 :]
    if random.random() < 0.02:
        header = header[: random.randrange(len(header))]
    if random.random() < 0.02:
        header += random.choice((b" ", b"}", b"x"))
    body = random.randbytes(random.choice((0, 1, 40)))
    sizes = [4 + len(header) + len(body), kind << 24 | len(header)]
    if random.random() < 0.03:  # a header that goes on behind its frame
        sizes[1] = kind << 24 | (sizes[0] + random.randrange(-3, 2))
    elif random.random() < 0.03:
        sizes[random.randrange(2)] = random.choice((0, 3, 4, len(header), sizes[0] + 1, (1 << 24) - 1, (1 << 32) - 1))
    return struct.pack(">II", *sizes) + header + body


def _scan_requests(random: Random) -> None:
    frames = [_frame(random) for _ in range(random.choice((1, 1, 2, 4)))]
    before = random.randbytes(random.choice((0, 0, 5)))
    data = before + b"".join(frames)
    end = len(data) if random.random() < 0.8 else random.randrange(len(before), len(data) + 1)
    until = random.choice((1 << 62, 1 << 62, len(before) + 1, end)) if random.random() < 0.95 else len(before)
    buffer = random.choice(ANY)(data)
    compare("scan_requests", buffer, len(before), end, until, _usual(random, (1 << 62, 1, 3), (0, -1)), REQUESTS)


COMPARISONS: dict[str, Callable[[Random], None]] = {"scan_requests": _scan_requests}
