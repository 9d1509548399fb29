"""What a simulated disk has: names and files, those that are read now and those on the medium, and changes between."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Write:
    offset: int
    data: bytes


@dataclass(frozen=True)
class Truncate:
    size: int


@dataclass(eq=False)
class Inode:
    """A file: what is read now, what is on the medium, and how one becomes the other."""

    cached: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    pending: list[Write | Truncate] = field(default_factory=list)


Node = Inode | None  # None: a folder


@dataclass(frozen=True)
class Link:
    """A change of a folder: ``path`` now is ``node``, and ``source`` (of a rename) is gone."""

    path: str
    node: Node
    source: str | None = None


@dataclass(frozen=True)
class Unlink:
    path: str


def apply_write(content: bytearray, change: Write | Truncate) -> None:
    end = change.size if isinstance(change, Truncate) else change.offset + len(change.data)
    if end > len(content):
        content.extend(bytes(end - len(content)))
    if isinstance(change, Truncate):
        if end < len(content):
            del content[end:]
    else:
        content[change.offset : end] = change.data


def apply_name(names: dict[str, Node], change: Link | Unlink) -> None:
    if isinstance(change, Unlink):
        names.pop(change.path, None)
        return
    if change.source is not None:
        names.pop(change.source, None)
    names[change.path] = change.node


@dataclass
class DiskImage:
    """The content of a disk: its names now, its durable names, and the changes between."""

    names: dict[str, Node] = field(default_factory=lambda: {"/": None})
    durable: dict[str, Node] = field(default_factory=lambda: {"/": None})
    pending: dict[str, list[Link | Unlink]] = field(default_factory=dict)
