"""What the codec takes for an entry, in Python and compiled: the functions that have both, in turn, CPU of this thread.

    python bench/codec.py [--quick] [--json FILE] [--docs FILE]

Runs as a loop sees them: of 1, 10 and 1,000 frames of one ledger, with payloads of 100 bytes and of 1 KiB. An entry's
digest is CRC32C. Each figure is the median of the rounds.
"""

from __future__ import annotations

import importlib
import pkgutil
import statistics
import struct
import sys
import tempfile
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import command
from machine import describe
from report import grid

import tallystick.codec
from tallystick.bookkeeper.wire import digest
from tallystick.bookkeeper.wire.values import DigestType
from tallystick.codec import checksum, reads, records
from tallystick.codec.dispatched import encode_units
from tallystick.codec.frames import PLAIN_ADD, AddRun
from tallystick.codec.implementation import REFERENCES, load
from tallystick.codec.v3_adds import ack_v3_adds, encode_v3_adds
from tallystick.codec.v3_reads import encode_v3_read_responses, encode_v3_reads
from tallystick.rocketmq.wire.headers import REQUESTS, SendHeader, SendResponse
from tallystick.rocketmq.wire.record import encode_batch
from tallystick.rocketmq.wire.remoting import encode, request
from tallystick.rocketmq.wire.values import RequestCode

COMPILED = load({})
for module in pkgutil.iter_modules(tallystick.codec.__path__, "tallystick.codec."):
    importlib.import_module(module.name)  # what they define is in REFERENCES then
COUNTS, SIZES = (1, 10, 1000), (100, 1024)
OF_ONE = ("usual_properties", "encode_head")  # each call is for one entry, however many there are
KEY, HOST = bytes(20), bytes(8)
LIMITS = (1 << 20, 1 << 30, 0, 0)  # messages and bytes that a pull may have, recent ones and others
SEND_RESPONSE = SendResponse(
    msg_id="7F0000010000" * 2, queue_id=3, queue_offset=12345, transaction_id="AB" * 16
).to_fields()
SEND = encode(
    request(
        RequestCode.SEND_MESSAGE_V2,
        SendHeader(
            "producers", "orders", "TBW102", 4, 3, 0, 1_764_500_000_000, 0, f"WAIT\x01true\x02UNIQ_KEY\x01{1:032X}\x02"
        ).to_letters(),
        b"body",
    )
)
Functions = dict[str, Callable[..., Any]]
Cases = dict[str, tuple[object, ...]]


@dataclass(frozen=True)
class Round:
    """One function on runs of ``count`` entries with payloads of ``size`` bytes."""

    function: str
    codec: str
    count: int
    size: int
    ns_per_entry: float


@dataclass(frozen=True)
class Entries:
    """Entries of one ledger, as clients add them and as bookies store them, which is as responses to reads."""

    payloads: list[bytes]
    bodies: list[bytes]  # with header and digest
    adds: bytes
    responses: bytes
    numbers: list[int]

    @classmethod
    def of(cls, count: int, size: int) -> Entries:
        payloads, crc32c = (
            [bytes([number % 256]) * size for number in range(count)],
            digest.Digest.of(DigestType.CRC32C),
        )
        bodies = [
            crc32c.encode(digest.EntryHeader(7, number, -1, number * size), payload)
            for number, payload in enumerate(payloads)
        ]
        adds = b"".join(struct.pack(">II20s", 24 + len(body), PLAIN_ADD, KEY) + body for body in bodies)
        responses = b"".join(
            struct.pack(">IIiqq", 24 + len(body), reads.PLAIN_READ, 0, 7, number) + body
            for number, body in enumerate(bodies)
        )
        return cls(payloads, bodies, adds, responses, list(range(count)))


def cases(functions: Functions, count: int, size: int) -> Cases:
    """Arguments for each function."""
    entries = Entries.of(count, size)
    return {
        **_of_version_2(functions, entries, count),
        **_of_version_3(entries, count),
        **_of_bookies(entries, count),
        **_of_topics(entries.payloads, count, size),
    }


def _of_version_2(functions: Functions, entries: Entries, count: int) -> Cases:
    adds, responses, bodies, numbers = entries.adds, entries.responses, entries.bodies, entries.numbers
    acks = b"".join(struct.pack(">IIiqq", 24, PLAIN_ADD, 0, 7, number) for number in numbers)
    requests = reads.encode_reads(7, range(count))
    uneven = [*bodies[:-1], bodies[-1] + b"."] if count > 1 else bodies
    even = reads.EvenEntries(memoryview(responses), len(bodies[0]), reads.READ_PREFIX)
    return {
        "encode_adds": (KEY, 7, 0, -1, 0, entries.payloads, functions["crc32c_digest"], 4),
        "scan_adds": (adds, 0, len(adds), 1 << 20),
        "scan_uniform_adds": (adds, 0, len(adds), 1 << 20),
        "ack_adds": (AddRun([KEY] * count, [7] * count, numbers),),
        "scan_acks": (acks, 0, len(acks), 7),
        "encode_reads": (7, numbers),
        "scan_read_requests": (requests, 0, len(requests)),
        "response_entries": (responses, count),
        "scan_reads": (responses, 0, len(responses), 7),
        "open_entries": (even, 7, 0, functions["crc32c_digests"], 4),
        "open_singles": (numbers, even, 7, functions["crc32c_digests"], 4),
        "open_entries, uneven": (uneven, 7, 0, functions["crc32c_digests"], 4),
        "open_together": (even, 7, 0, functions["crc32c_digests"], 4),
        "open_together, uneven": (uneven, 7, 0, functions["crc32c_digests"], 4),
        "crc32c_of_spans": (responses, *spans_of(len(bodies[0]), count)),
        "crc32c_of_parts": (bodies, 7),
        "copy_parts": (bodies, memoryview(bytearray(sum(map(len, bodies))))),
    }


def _of_version_3(entries: Entries, count: int) -> Cases:
    numbers, responses = entries.numbers, entries.responses
    adds = b"".join(map(bytes, encode_v3_adds(0, numbers, [entries.adds])))
    acks, requests = ack_v3_adds(numbers, [7] * count, numbers), encode_v3_reads(0, 7, numbers)
    v3_responses = encode_v3_read_responses(numbers, responses, 5)
    return {
        "scan_v3_adds": (adds, 0, len(adds), 1 << 20),
        "ack_v3_adds": (numbers, [7] * count, numbers),
        "encode_v3_adds": (0, numbers, [entries.adds]),
        "scan_v3_acks": (acks, 0, len(acks)),
        "encode_v3_reads": (0, 7, numbers),
        "scan_v3_read_requests": (requests, 0, len(requests)),
        "encode_v3_read_responses": (numbers, responses, 5),
        "scan_v3_reads": (v3_responses, 0, len(v3_responses)),
    }


def _of_bookies(entries: Entries, count: int) -> Cases:
    """What memory, entry logs and their indexes are read by."""
    adds, responses, numbers = entries.adds, entries.responses, array("q", entries.numbers)
    bounds = array("Q", range(0, len(adds) + 1, len(adds) // count))
    spread = array("Q", [(1 << 40) + at * (len(responses) // count) for at in range(count)])
    chunks = array("Q", (*range(0, len(responses), 8192), len(responses)))
    checksums = array("I", [checksum.crc32c(responses[start:stop]) for start, stop in pairwise(chunks)])
    return {
        "responses_of_runs": ([(numbers, bounds, adds)],),
        "responses_of_runs, singles": ([(array("q", [0]), bounds[:2], adds)] * count,),
        "page_pieces": (numbers, bounds[:-1], 1 << 40),
        "page_pieces, every other": (array("q", range(0, 2 * count, 2)), bounds[:-1], 1 << 40),
        "dense_locations": ({0: bounds[1:]}, numbers),
        "picked_responses": ([(responses, 1 << 40, count)], spread, 7, numbers, 1 << 40),
        "picked_responses, singles": ([(responses, 1 << 40, 1)] * count, spread, 7, numbers, 1 << 40),
        "cut_chunks": (responses, array("Q", [start - (1 << 40) for start in spread]), 8192, 0, 0),
        "count_good_chunks": (responses, chunks, checksums),
    }


def _of_topics(payloads: list[bytes], count: int, size: int) -> Cases:
    numbers, contents = list(range(count)), [(0, payload, b"KEYS\x01some-key\x02") for payload in payloads]
    log = records.encode_records([(b"\x06orders", 0, 0, 0, 0, HOST, 0, contents)], 0, 0, HOST)
    singles = [(b"\x06orders", 0, number, 0, 0, HOST, 0, [content]) for number, content in enumerate(contents)]
    with_ids = [(0, payload, b"UNIQ_KEY\x01%032X\x02" % number) for number, payload in enumerate(payloads)]
    alike_log = records.encode_records([(b"\x06orders", 0, 0, 0, 0, HOST, 0, with_ids)], 0, 0, HOST)
    units = encode_units([size * number for number in numbers], [size] * count, numbers)
    return {
        "encode_records": ([(b"\x06orders", 0, 0, 0, 0, HOST, 0, contents)], 0, 0, HOST),
        "encode_records, singles": (singles, 0, 0, HOST),
        "scan_records": (log, 0),
        "scan_uniform_records": (log, 0),
        "scan_pulled": (log,),
        "split_uniform_batch": (encode_batch(contents),),
        "encode_units": (numbers, numbers, numbers),
        "runs_of_units": (units, 0, 1 << 40, 1 << 30, 0, LIMITS, None),
        "add_index_entries": (numbers, numbers, numbers, 0, 1, array("i", bytes(1 << 20)), bytearray(1 << 8)),
        "scan_requests": (SEND * count, 0, len(SEND) * count, sys.maxsize, sys.maxsize, REQUESTS),
        "encode_head": (0, SEND_RESPONSE, 1, "PYTHON", 77, None, 513, 0),
        "usual_properties": (f"WAIT\x01true\x02UNIQ_KEY\x01{1:032X}\x02", b"CLUSTER\x01c\x02"),
        "scan_alike": (alike_log, 0, b"orders", b"UNIQ_KEY\x01", b"\x02", 7, 0, count),
        "hash_client_ids": ([b"WAIT\x01true\x02UNIQ_KEY\x01%032X\x02" % number for number in numbers], 7),
    }


def spans_of(size: int, count: int) -> tuple[array[int], array[int]]:
    """Where entries are in responses, and how many bytes they have."""
    step = reads.READ_PREFIX + size
    return array("q", range(reads.READ_PREFIX, step * count, step)), array("q", [size]) * count


def measure(function: Callable[..., Any], arguments: tuple[object, ...], count: int, seconds: float) -> float:
    """CPU of this thread for an entry, in ns."""
    function(*arguments)
    calls, used, began = 1, 0, 0
    while used < seconds * 1e9:
        calls *= 2
        began = time.thread_time_ns()
        for _ in range(calls):
            function(*arguments)
        used = time.thread_time_ns() - began
    return used / calls / count


def all_rounds(quick: bool) -> command.Results:
    """Everything that the report needs; both codecs in turn."""
    compiled: Functions = {name: getattr(COMPILED, name) for name in REFERENCES}
    rounds = []
    for _ in range(1 if quick else 3):
        for count in COUNTS:
            for size in SIZES:
                for codec, functions in (("python", dict(REFERENCES)), ("compiled", compiled)):
                    for name, arguments in cases(functions, count, size).items():
                        function = functions[name.split(",")[0]]
                        ns = measure(function, arguments, 1 if name in OF_ONE else count, 0.002 if quick else 0.02)
                        rounds.append(Round(name, codec, count, size, ns))
    return {"machine": describe(Path(tempfile.gettempdir())), "rounds": rounds}


def markdown(results: command.Results) -> str:
    """A row for each function: ns an entry in Python, compiled, and how many times less that is."""
    rounds: list[Round] = results["rounds"]
    rows = []
    for name in dict.fromkeys(one.function for one in rounds):
        row = [name]
        for size in SIZES:
            for count in COUNTS:
                python, compiled = (
                    statistics.median(
                        one.ns_per_entry
                        for one in rounds
                        if (one.function, one.codec, one.count, one.size) == (name, codec, count, size)
                    )
                    for codec in ("python", "compiled")
                )
                row.append(f"{python:,.0f} / {compiled:,.0f} ({python / compiled:.1f})")
        rows.append(row)
    return grid(["function", *(f"{count} of {size} B" for size in SIZES for count in COUNTS)], rows)


def main() -> int:
    if COMPILED is None:
        print("codec.py: skipped: there is no compiled codec here (docs/installation.md)", file=sys.stderr)
        return 0
    return command.run(__doc__, "one short round each", all_rounds, markdown, place="codec")


if __name__ == "__main__":
    sys.exit(main())
