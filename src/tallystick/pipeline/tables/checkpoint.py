"""The query's id in a checkpoint of Spark, read before the query is started."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tallystick.errors import UsageError


def folder_uri(place: str) -> str:
    """Returns the URI of a folder that is named by one, or by a path."""
    return place if "://" in place else Path(place).absolute().as_uri()


def query_of(checkpoint: str) -> str | None:
    """Returns None where no query has begun. Raises UsageError for a folder that is no checkpoint."""
    from pyarrow import fs

    filesystem, root = fs.FileSystem.from_uri(folder_uri(checkpoint))
    if filesystem.get_file_info(f"{root}/metadata").type != fs.FileType.File:
        return None
    with filesystem.open_input_file(f"{root}/metadata") as file:
        text = file.read()
    try:
        stored: Any = json.loads(text)
        return str(stored["id"])
    except (ValueError, KeyError, TypeError):
        raise UsageError(
            "the checkpoint's file metadata has no query: give another folder", checkpoint=checkpoint
        ) from None
