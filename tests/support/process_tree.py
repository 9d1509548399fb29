"""Which processes a process started."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def children_of(pid: int) -> list[int]:
    """Those that its threads started and that live; none of a process that has ended."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):  # it, or a thread of it, ended just now
        return []


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
