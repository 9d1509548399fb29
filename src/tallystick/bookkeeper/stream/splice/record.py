"""What the list of a stream says of the sinks that write it, in its properties: a Pulsar broker keeps them.

::

    tallystick/writer              "sink": no owner appends; without it the stream has an owner
    tallystick/sink/APPLICATION    {"v": 1, "query": "…", "batch": 41, "run": "…", "before": ["…"],
                                   "offsets": 5}

An *application* is a name that is kept until it is forgotten. Its *query* is who it says that it is: one that comes
back without its memory is another. Each start of it is a *run*, which ends those before, and it commits *batches*, from
0 on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec

from tallystick.bookkeeper.wire.stream_values import StreamInfo
from tallystick.errors import MetadataError, UsageError
from tallystick.runtime.arguments import text

NO_BATCH = -1  # nothing was committed yet
LONGEST_NAME = 255
RUNS_BEFORE = 16  # that are remembered

_WRITER_KEY = "tallystick/writer"
_SINK = "sink"
RECORD_KEY = "tallystick/sink/"
_VERSION = 1


@dataclass(frozen=True)
class SinkRecord:
    """How far an application is: ``batch`` is the last one that was committed."""

    query: str
    run: str
    batch: int = NO_BATCH
    before: tuple[str, ...] = ()  # the last runs before this one
    offsets: int | None = None  # a digest of where the last batch ends in its source, where that is known

    def begun(self, run: str) -> SinkRecord:
        """Returns the record where that run goes on."""
        return self if run == self.run else replace(self, run=run, before=(*self.before, self.run)[-RUNS_BEFORE:])


class _Written(msgspec.Struct, omit_defaults=True):
    v: int
    query: str
    batch: int
    run: str
    before: tuple[str, ...]
    offsets: int | None = None


def application_name(name: object) -> str:
    """Returns the name of an application. Raises UsageError for what is none."""
    return recorded_name(name, "the name of an application")


def recorded_name(name: object, what: str) -> str:
    """Returns a text that the record may have: of applications, queries and runs. Raises UsageError for another."""
    checked = text(name, what)
    if not 0 < len(checked) <= LONGEST_NAME or not checked.isprintable():
        raise UsageError(f"{what} has 1 to {LONGEST_NAME} characters that can be printed", name=checked[:LONGEST_NAME])
    return checked


def is_sink(info: StreamInfo) -> bool:
    """Whether sinks write the stream, and no owner. Raises MetadataError for a kind that only a newer version knows."""
    kind = info.properties.get(_WRITER_KEY)
    if kind not in (None, _SINK):
        raise MetadataError("who writes this stream is told in words of a newer version", writer=kind)
    return kind is not None


def as_sink(info: StreamInfo) -> StreamInfo:
    """Returns the list of a stream that sinks write from now on."""
    return replace(info, properties={**info.properties, _WRITER_KEY: _SINK})


def as_owned(info: StreamInfo) -> StreamInfo:
    """Returns the list of a stream that an owner writes from now on. What the applications committed stays known."""
    return replace(info, properties={key: value for key, value in info.properties.items() if key != _WRITER_KEY})


def record_of(info: StreamInfo, application: str) -> SinkRecord | None:
    """Returns how far an application is, None if it never wrote. Raises MetadataError for foreign words."""
    written = info.properties.get(RECORD_KEY + application)
    if written is None:
        return None
    try:
        fields = msgspec.json.decode(written, type=_Written)
    except msgspec.DecodeError as error:
        raise MetadataError(f"what the stream says of an application is no record: {error}", record=written) from error
    if fields.v != _VERSION:
        raise MetadataError("what the stream says of an application was written by a newer version", record=written)
    return SinkRecord(fields.query, fields.run, fields.batch, fields.before, fields.offsets)


def with_record(info: StreamInfo, application: str, record: SinkRecord) -> StreamInfo:
    """Returns the list that says so of an application."""
    fields = _Written(_VERSION, record.query, record.batch, record.run, record.before, record.offsets)
    written = msgspec.json.encode(fields).decode()
    return replace(info, properties={**info.properties, RECORD_KEY + application: written})


def without_record(info: StreamInfo, application: str) -> StreamInfo:
    """Returns the list that says nothing of an application."""
    return replace(info, properties={k: v for k, v in info.properties.items() if k != RECORD_KEY + application})


def applications(info: StreamInfo) -> dict[str, SinkRecord]:
    """Returns the records of all applications. Raises MetadataError as ``record_of``."""
    names = [key.removeprefix(RECORD_KEY) for key in info.properties if key.startswith(RECORD_KEY)]
    return {name: record for name in names if (record := record_of(info, name)) is not None}
