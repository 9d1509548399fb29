"""The refusal of a file, or of a part of one, that only a newer version of this program knows.

Such a file is whole, and what is in it was promised: it is never skipped, cut or deleted. A magic is seven letters and
the version of all that follows; records of the journal and sections of the state have a type and a version each.
"""

from __future__ import annotations

from tallystick.errors import StorageError


def of_a_newer_version(what: str, path: str, offset: int, *, version: int, kind: int | None = None) -> StorageError:
    """Return the refusal to start; ``kind`` is the type of a part, at this offset."""
    named = {} if kind is None else {"type": f"0x{kind:04x}"}
    reason = "start the version of tallystick that wrote it, or a later one; nothing was changed"
    return StorageError(f"{what} is of a newer version: {reason}", path=path, offset=offset, **named, version=version)


def version_of(magic: bytes, name: bytes) -> int | None:
    """Return the version in a magic, None if it is not that of these files."""
    return magic[-1] - ord("0") if magic[:-1] == name else None
