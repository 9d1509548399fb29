"""What a checkpoint of Spark says of its query: the id, before it is started, and where a batch ends; and what we note
there beside it, in files of our own, which Spark leaves alone."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from tallystick.errors import CorruptRecord, UsageError

T = TypeVar("T")
_MOST_CHARACTERS = 300  # of another library's words


def folder_uri(place: str) -> str:
    """Returns the URI of a folder that is named by one, by a path, or by ``file:`` and a path, as Spark writes them."""
    return place if "://" in place else Path(place.removeprefix("file:")).absolute().as_uri()


def require_folder(place: str, what: str) -> None:
    """Raises UsageError where Python on the driver can have no folder: of another scheme than pyarrow knows, say."""
    from pyarrow import fs

    try:
        filesystem, root = fs.FileSystem.from_uri(folder_uri(place))
        is_file = filesystem.get_file_info(root).type == fs.FileType.File
    except (OSError, ValueError, NotImplementedError) as error:
        words = " ".join(str(error).split())[:_MOST_CHARACTERS]
        raise UsageError(
            f"Python on the driver cannot use this {what}: {words}. Give a path, or a URI that pyarrow can open "
            "(file, s3, gs; hdfs where its library is)",
            given=place,
        ) from None
    if is_file:
        raise UsageError(f"{what} is a folder, and this is a file", given=place)


def _read(checkpoint: str, name: str) -> bytes | None:
    """Returns what a file of the checkpoint has; None if there is none. Raises OSError."""
    from pyarrow import fs

    filesystem, root = fs.FileSystem.from_uri(folder_uri(checkpoint))
    if filesystem.get_file_info(f"{root}/{name}").type != fs.FileType.File:
        return None
    with filesystem.open_input_file(f"{root}/{name}") as file:
        return bytes(file.read())


def query_of(checkpoint: str) -> str | None:
    """Returns None where no query has begun. Raises UsageError for a folder that is no checkpoint."""
    text = _read(checkpoint, "metadata")
    if text is None:
        return None
    try:
        stored: Any = json.loads(text)
        return str(stored["id"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise UsageError(
            "the checkpoint's file metadata has no query: give another folder", checkpoint=checkpoint
        ) from None


def batch_offsets(checkpoint: str, batch: int) -> int:
    """Returns the digest of the offsets of a batch, which Spark writes before the batch runs."""
    from pyarrow import fs

    filesystem, root = fs.FileSystem.from_uri(folder_uri(checkpoint))
    with filesystem.open_input_file(f"{root}/offsets/{batch}") as file:
        return offsets_digest(file.read().decode())


def offsets_digest(text: str) -> int:
    """Returns 63 bits of what Spark's log of offsets has of a batch, without the lines of its version and its time."""
    lines = text.split("\n")[2:]
    return int.from_bytes(hashlib.sha256("\n".join(lines).encode()).digest()[:8], "big") >> 1


def last_batch(checkpoint: str) -> int:
    """Returns the number of the last batch that was begun, -1 for none."""
    return _last_of(checkpoint, "offsets")


def last_finished(checkpoint: str) -> int:
    """Returns the number of the last batch that the sink had all of, -1 for none."""
    return _last_of(checkpoint, "commits")


def _last_of(checkpoint: str, log: str) -> int:
    from pyarrow import fs

    filesystem, root = fs.FileSystem.from_uri(folder_uri(checkpoint))
    infos = filesystem.get_file_info(fs.FileSelector(f"{root}/{log}", allow_not_found=True))
    return max((int(each.base_name) for each in infos if each.base_name.isdecimal()), default=-1)


def read_note(checkpoint: str, name: str, kind: type[T]) -> T | None:
    """Returns what was noted under a name; None if nothing was. Raises CorruptRecord, OSError."""
    text = _read(checkpoint, name)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.DecodeError as error:
        raise CorruptRecord(f"{name} is none of ours: put its copy back", checkpoint=checkpoint) from error


def write_note(checkpoint: str, name: str, note: object) -> None:
    """Note something, in place of what was noted under the name. Raises OSError."""
    from pyarrow import fs

    filesystem, root = fs.FileSystem.from_uri(folder_uri(checkpoint))
    filesystem.create_dir(root, recursive=True)
    with filesystem.open_output_stream(f"{root}/{name}.new") as file:
        file.write(msgspec.json.encode(note))
    filesystem.move(f"{root}/{name}.new", f"{root}/{name}")
