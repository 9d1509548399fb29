"""The broker sets that a streaming query may have sent to, kept in its checkpoint.

Brokers tell each other's names in the messages that they have. But a set that is the only one with messages of an
application tells nothing while it is away, and no name server knows that it was there.
"""

from __future__ import annotations

from collections.abc import Iterable

from tallystick.errors import Unavailable
from tallystick.pipeline.checkpoint import query_of, read_note, write_note

SETS = "tallystick-broker-sets"  # a file of the checkpoint


def add_sets(checkpoint: str, topic: str, sets: Iterable[str]) -> tuple[str, ...]:
    """Note that a query may send to these broker sets. Returns them, and those that were noted before for the topic.

    Raises CorruptRecord for a file that says something else; Unavailable if the checkpoint is here and cannot be
    written (a full disk): a set that nobody notes may be away when the batch is repeated, which would be sent elsewhere
    once more; OSError, NotImplementedError or ValueError for a file system that only the JVM knows.
    """
    noted = read_note(checkpoint, SETS, dict[str, list[str]]) or {}
    both = sorted({*sets, *noted.get(topic, [])})
    if both != noted.get(topic):
        try:
            write_note(checkpoint, SETS, {**noted, topic: both})
        except OSError as error:
            if query_of(checkpoint) is None:
                raise
            raise Unavailable(
                "the checkpoint cannot be written, which notes the broker sets that a query sends to: nothing is sent "
                f"before that. {error}",
                checkpoint=checkpoint,
                topic=topic,
            ) from error
    return tuple(both)
