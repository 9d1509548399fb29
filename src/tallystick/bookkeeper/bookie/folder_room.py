"""The room of a bookie's folders as its registration shows it: a property, with a part for each folder.

::

    45,107374182400,,/srv/tally/disk1;97,107374182400,full,/srv/tally/disk2        per cent in use, bytes, state, path

The paths are in percent-encoding. Whole numbers of per cent, so that the registration seldom changes.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from urllib.parse import quote, unquote

from tallystick.runtime.disk import Usage

FOLDERS = "folders"  # the property's name
MOST_FOLDERS = 64
_PART = re.compile(r"(\d{1,3}),(\d{1,19}),([a-z]*),([^,;]+)", re.ASCII)


class FolderState(enum.Enum):
    """FULL: it takes nothing new. FAILED: it is not used any more."""

    GOOD = ""
    FULL = "full"
    FAILED = "failed"


_STATES = {state.value: state for state in FolderState}


@dataclass(frozen=True)
class FolderRoom:
    """How full the file system of a folder is; nobody knows of a failed one."""

    path: str
    used_percent: int
    total_bytes: int
    state: FolderState

    def __str__(self) -> str:
        if self.state is FolderState.FAILED:
            return f"{self.path}: failed"
        full = ", full" if self.state is FolderState.FULL else ""
        return f"{self.path}: {self.used_percent} % in use{full}"


def encode(usages: Mapping[str, Usage], full: Collection[str], failed: Collection[str]) -> str:
    """Return the property's text."""
    rooms = [
        (round(100 * (usage.total - usage.free) / usage.total) if usage.total else 0, usage.total, path)
        for path, usage in usages.items()
        if path not in failed
    ]
    parts = [f"{used},{total},{'full' if path in full else ''},{quote(path)}" for used, total, path in rooms]
    parts += [f"0,0,failed,{quote(path)}" for path in failed]
    return ";".join(parts[:MOST_FOLDERS])


def decode(text: str) -> tuple[FolderRoom, ...]:
    """Return the folders; none of a text that nobody can read."""
    matches = [_PART.fullmatch(part) for part in text.split(";")]
    return tuple(
        FolderRoom(unquote(match[4]), int(match[1]), int(match[2]), _STATES[match[3]])
        for match in matches
        if match is not None and match[3] in _STATES
    )
