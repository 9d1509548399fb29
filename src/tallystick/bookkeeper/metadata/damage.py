"""Where many nodes are shown, one that nobody can read hides no other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from tallystick.bookkeeper.metadata.store import Znode
from tallystick.errors import MetadataError

Tell = Callable[[MetadataError], None]  # hears why a node cannot be read

T = TypeVar("T")


def refuse(error: MetadataError) -> None:
    """Let one node that cannot be read fail the whole: a ``Tell``."""
    raise error


def decoded(nodes: Mapping[str, Znode], decode: Callable[[str, bytes], T], tell: Tell) -> Iterator[T]:
    """Yield what nodes say, by path and data. ``tell`` hears of those that cannot be read, which are left out."""
    for path, node in nodes.items():
        try:
            value = decode(path, node.data)
        except MetadataError as error:
            tell(error)
        else:
            yield value
