"""Which processes a process started."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def children_of(pid: int) -> list[int]:
    """Those that its threads started and that live; none of a process that has ended."""
    children = list[int]()
    with suppress(FileNotFoundError, ProcessLookupError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):  # many a thread of a JVM has ended when it is read
                children += map(int, (thread / "children").read_text().split())
    return children


def descendants(pid: int) -> Iterator[int]:
    """Its children, theirs, and so on."""
    for child in children_of(pid):
        yield child
        yield from descendants(child)


def command_of(pid: int) -> bytes:
    """Its command line, with a zero byte behind each argument; empty of one that has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""
