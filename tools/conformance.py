"""Make docs/conformance.md from the ``rule`` markers of the tests; with ``--check`` only say whether it is up to date.

Fails when a rule has no test, or a line of ``acceptance.py`` or ``stream_faults.py`` names one that is not there: the
tables are a promise, not a wish.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.acceptance import LINES, Line
from tools.stream_faults import STREAM_FAULTS

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "docs" / "conformance.md"
RULES = {
    "Q1": "create, open, delete; append by the creator only; dense ids; reads of ranges",
    "Q2": "creation: E ≥ Qw ≥ Qa ≥ 1, placement, unique id, no bookie contacted",
    "Q3": "metadata: what is stored of a ledger",
    "Q4": "striping: Qw bookies from position i mod E",
    "Q5": "an add succeeds at Qa acks, after every earlier one",
    "Q6": "LAC: the readers' limit, carried by entries, stored at close",
    "Q7": "write failure: ensemble change at once, or with the next write",
    "Q8": "ensemble change: new fragment at LAC + 1, compare-and-set, re-send",
    "Q9": "unrecoverable write errors surface",
    "Q10": "a dead writer's ledger is recovered by another client",
    "Q11": "fencing comes first",
    "Q12": "fencing leaves no write set with Qa free bookies",
    "Q13": "recovery order and starting point",
    "Q14": "recovery reads forward, writes back",
    "Q15": "recovery ends at Qf explicit no; unknown is never a no",
    "Q16": "close with last entry and length",
    "Q17": "reads: the writer's own, closed ledgers, next replica, batches",
    "Q18": "streams: a list of ledgers, of which the newest is written; roll-over, retention, state",
    "Q19": "streams: an owner that dies is followed by another, which recovers the last ledger",
    "Q20": "two replicas are highly available; disks fill evenly; a new bookie takes its share",
    "H1": "the messages and the metadata replicate apart from each other",
    "H2": "replication synchronous or asynchronous, by configuration, apart from the write path",
    "H3": "no failover: a slave of a dead master takes no writes and serves reads",
    "H4": "a slave pulls by offset: its report, where the master starts, the start of the newest file",
    "H5": "reports on an interval and after what was written; a report is the ack",
    "H6": "housekeeping: who hears nothing closes; the slave tries again",
    "H7": "frames: offset, size, body; 32 KiB at most; heartbeats; woken by a write",
    "H8": "a slave appends at exactly its end and dispatches: it serves consumers",
    "H9": "synchronous: the request waits for the slave's ack, or FLUSH_SLAVE_TIMEOUT",
    "H10": "no slave within 256 MB: SLAVE_NOT_AVAILABLE at once",
    "H11": "fixed-size files named by start offset; lookups by offset; slices to the socket",
    "H12": "metadata: fetched on an interval and persisted; tables only when their version differs",
    "H13": "consumers read from the slave",
    "N1": "listeners bind loopback; beyond it nobody serves strangers unless that is written",
    "N2": "what is missing, damaged or unknown lets nobody in",
    "N3": "before a peer is known its handshake alone is parsed, and bounded",
    "N4": "each operation needs one named permission",
    "N5": "a client never does with less; TLS 1.2 or newer; the host is checked before the first request",
    "N6": "lengths are checked before anything is buffered for them",
    "N7": "nothing is decompressed without a bound",
    "N8": "nothing from outside becomes code, a class or a command",
    "N9": "secrets are in files that nobody else may read",
    "N10": "secrets are in no log, error, repr or metadata",
    "N11": "what a reader gets is what was written, by its digest",
    "N12": "what a peer can make grow is bounded",
    "N13": "nothing that was sent before, or elsewhere, counts",
    "N14": "what destroys needs the right and is said outright, and is told with who did it",
    "P1": "durability: an ack means Qa synced copies where the metadata says",
    "P2": "no truncation: nothing acknowledged lies beyond the end",
    "P3": "one end, whoever closes",
    "P4": "order: dense ids, acks in order",
    "P5": "agreement: all readers see the same bytes, none beyond the LAC",
    "P6": "fencing holds",
    "P7": "every entry of a closed ledger is on Qa bookies",
    "P8": "every acknowledged entry is readable at every moment",
    "P9": "recovery ends when the faults do",
}


def markers(path: Path) -> list[tuple[str, str]]:
    """(rule, test) of one file."""
    marks = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        for mark in node.decorator_list:
            if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.rule":
                marks += [(ast.literal_eval(argument), node.name) for argument in mark.args]
    return marks


def table() -> tuple[str, list[str]]:
    """The page, and the rules without a test."""
    tests: dict[str, list[str]] = defaultdict(list)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for rule, test in markers(path):
            tests[rule].append(f"[{test}](../{path.relative_to(ROOT)})")
    unknown = sorted(set(tests) - set(RULES))
    if unknown:
        raise SystemExit(f"tests name rules that do not exist: {', '.join(unknown)}")
    lines = [
        "# Conformance",
        "",
        "Made by `tools/conformance.py` from the markers of the tests. Q (ledgers) and H (master and slave) are the",
        "requirements, N what lets nobody in, P the promises that the simulator checks during each run.",
        "",
        "| rule | what | tests |",
        "|---|---|---|",
        *(f"| {rule} | {what} | {'<br>'.join(dict.fromkeys(tests[rule]))} |" for rule, what in RULES.items()),
        "",
    ]
    return "\n".join(lines), [rule for rule in RULES if not tests[rule]]


def acceptance() -> tuple[str, list[str]]:
    """The tables of what the originals' tests assert and where they fail, and the names of tests that do not exist."""
    places: dict[str, str] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                places.setdefault(node.name, str(path.relative_to(ROOT)))
    text = [
        "## What the original's tests assert",
        "",
        "Of its client and its protocol, in the order of a list of its tests; `tools/acceptance.py` has the words.",
        "",
        *rows("line", LINES, places),
        "",
        "## Where Pulsar's managed ledgers fail",
        "",
        "By the number of a report to Pulsar, or a word for a weakness of the design; `tools/stream_faults.py`.",
        "",
        *rows("fault", STREAM_FAULTS, places),
        "",
    ]
    lines = [*LINES.values(), *STREAM_FAULTS.values()]
    return "\n".join(text), [test for line in lines for test in line.tests if test not in places]


def rows(name: str, lines: Mapping[Any, Line], places: Mapping[str, str]) -> list[str]:
    """One table."""
    table = [f"| {name} | what | tests |", "|---|---|---|"]
    for key, line in lines.items():
        links = [f"[{test}](../{places[test]})" for test in line.tests if test in places]
        table.append(f"| {key} | {line.what} | {'<br>'.join([*links, *filter(None, [line.reason])])} |")
    return table


def main(arguments: list[str]) -> int:
    text, missing = table()
    more, missing_tests = acceptance()
    text = f"{text}\n{more}"
    if missing_tests:
        print(f"there is no {', '.join(missing_tests)}", file=sys.stderr)
        return 1
    if missing:
        print(f"no test bears {', '.join(missing)}", file=sys.stderr)
        return 1
    if "--check" not in arguments:
        TABLE.write_text(text, encoding="utf-8")
    elif not TABLE.exists() or TABLE.read_text(encoding="utf-8") != text:
        print("docs/conformance.md is out of date: python tools/conformance.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
