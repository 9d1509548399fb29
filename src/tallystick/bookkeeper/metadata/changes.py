"""What changes do to nodes, for drivers that keep the nodes themselves (ZooKeeper's servers do it for the third)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from tallystick.bookkeeper.metadata.store import (
    Absent,
    Change,
    Check,
    Create,
    Delete,
    Owner,
    Update,
    Version,
    Znode,
    parent_of,
)
from tallystick.errors import MetadataError, NoSuchZnode, ZnodeChanged, ZnodeExists, ZnodeNotEmpty


class Znodes(Protocol):
    """Znodes inside a transaction: whoever begins it undoes all when an exception leaves it."""

    def find(self, path: str) -> Znode | None:
        """Returns the node. Returns None if there is none, or if it has expired."""
        ...

    def has_children(self, path: str) -> bool: ...

    def insert(self, path: str, data: bytes, owner: Owner | None) -> None:
        """Make a node, in place of one that has expired if there is one."""
        ...

    def write(self, path: str, data: bytes, version: Version) -> None:
        """Replace the data of a node that exists."""
        ...

    def remove(self, path: str) -> None:
        """Delete a node, expired or not, if it is there."""
        ...

    def next_number(self, path: str) -> int | None:
        """Take a number from a node's counter. Returns None if there is no node."""
        ...


def apply(nodes: Znodes, changes: Iterable[Change], owner: Owner) -> None:
    """Make all changes, in order. Raises as ``store.py`` says of each."""
    for change in changes:
        node = nodes.find(change.path)
        if isinstance(change, Create | Absent):
            if node is not None:
                raise ZnodeExists(path=change.path)
            if isinstance(change, Create):
                _make_folders(nodes, change.path)
                nodes.insert(change.path, change.data, owner if change.ephemeral else None)
            else:
                nodes.remove(change.path)  # an expired one does not come back
            continue
        _require(change, node)
        if isinstance(change, Update):
            nodes.write(change.path, change.data, change.version + 1)
        elif isinstance(change, Delete):
            if nodes.has_children(change.path):
                raise ZnodeNotEmpty(path=change.path)
            nodes.remove(change.path)


def take_number(nodes: Znodes, counter: str) -> int:
    """Returns the next number of a counter, whose node is made if it is missing."""
    number = nodes.next_number(counter)
    if number is None:
        apply(nodes, [Create(counter)], "")
        number = nodes.next_number(counter)
    assert number is not None, "its node was made"
    return number


def _require(change: Update | Delete | Check, node: Znode | None) -> None:
    if node is None:
        raise NoSuchZnode(path=change.path)
    if change.version not in (None, node.version):
        raise ZnodeChanged(path=change.path, expected=change.version, stored=node.version)


def _make_folders(nodes: Znodes, path: str) -> None:
    missing_folders: list[str] = []
    while (path := parent_of(path)) and (node := nodes.find(path)) is None:
        missing_folders.append(path)
    if path and node is not None and node.owner is not None:
        raise MetadataError("a node that ends with a session has no children", path=path)
    for folder in reversed(missing_folders):
        nodes.insert(folder, b"", None)
