"""The broker sets that a streaming query may have sent to, kept in its checkpoint.

Brokers tell each other's names in the messages that they have. But a set that is the only one with messages of an
application tells nothing while it is away, and no name server knows that it was there.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tallystick.errors import CorruptRecord
from tallystick.pipeline.checkpoint import folder_uri

SETS = "tallystick-broker-sets"  # a file of the checkpoint


def add_sets(checkpoint: str, topic: str, sets: Iterable[str]) -> tuple[str, ...]:
    """Note that a query may send to these broker sets. Returns them, and those that were noted before for the topic.

    Raises CorruptRecord for a file that says something else; OSError, NotImplementedError or ValueError for a file
    system that only the JVM knows.
    """
    from pyarrow import fs

    filesystem, root = fs.FileSystem.from_uri(folder_uri(checkpoint))
    path, noted = f"{root}/{SETS}", dict[str, list[str]]()
    if filesystem.get_file_info(path).type == fs.FileType.File:
        with filesystem.open_input_file(path) as file:
            text = file.read()
        try:
            noted = msgspec.json.decode(text, type=dict[str, list[str]])
        except msgspec.DecodeError as error:
            raise CorruptRecord(f"{SETS} is none of ours: put its copy back", checkpoint=checkpoint) from error
    both = sorted({*sets, *noted.get(topic, [])})
    if both != noted.get(topic):
        filesystem.create_dir(root, recursive=True)
        with filesystem.open_output_stream(f"{path}.new") as file:
            file.write(msgspec.json.encode({**noted, topic: both}))
        filesystem.move(f"{path}.new", path)
    return tuple(both)
