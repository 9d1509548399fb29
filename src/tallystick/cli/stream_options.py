"""Options that several commands of streams share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from cyclopts import Parameter, Token

from tallystick.cli.options import NUMBER, WHOLE, Hex, require_quorums
from tallystick.runtime import arguments


def _stream_name(type_: type[str], tokens: Sequence[Token]) -> str:
    """However it is typed, what is printed is the name as others print it. Raises UsageError."""
    from tallystick.bookkeeper.stream.names import stream_name

    return stream_name(tokens[0].value)


StreamName = Annotated[
    str,
    Parameter(
        converter=_stream_name,
        help="The stream: tenant/namespace/persistent/topic, or persistent://tenant/namespace/topic.",
    ),
]
CursorName = Annotated[str, Parameter(help="The cursor's name.")]
_WHERE = (
    "beginning, end, -N (the last N), s@TIME (2026-03-01T12:00 by the clock of this machine, 2026-03-01T12:00Z, or ms "
    "since 1970), or LEDGER:ENTRY (in a batch LEDGER:ENTRY:INDEX)."
)
From = Annotated[str, Parameter(name=("--from", "-o"), allow_leading_hyphen=True, help=f"Where to begin: {_WHERE}")]
StreamJson = Annotated[bool, Parameter(name=("--json", "-J"), help="Print one JSON object a line instead of text.")]
StreamExplain = Annotated[
    bool, Parameter(name="--explain", help="Print each decision of the protocol with its reason.")
]
Takeover = Annotated[
    bool, Parameter(help="Take it from an owner that lives: that one is fenced, and stores nothing more.")
]
Yes = Annotated[bool, Parameter(help="Do not ask.")]
Raw = Annotated[bool, Parameter(help="An entry is the bytes alone, without key, times and properties.")]


@Parameter(name="*")
@dataclass(frozen=True)
class OwnerOptions:
    """How a command becomes the stream's owner, and what its next ledger is like."""

    takeover: Takeover = False
    wait_s: Annotated[float, NUMBER, Parameter(help="Wait so many seconds for its owner to give it back.")] = 0.0
    ensemble: Annotated[int, WHOLE, Parameter(help="How many bookies hold a new ledger.")] = 3
    write_quorum: Annotated[int, WHOLE, Parameter(help="How many of them hold each entry.")] = 2
    ack_quorum: Annotated[int, WHOLE, Parameter(help="How many must have stored an entry before it counts.")] = 2

    def require(self) -> None:
        """Raises UsageError, by the names of the options."""
        arguments.number(self.wait_s, "--wait-s")
        require_quorums(self.ensemble, self.write_quorum, self.ack_quorum)


@Parameter(name="*")
@dataclass(frozen=True)
class RollOver:
    """When a ledger is full."""

    max_entries: Annotated[int, WHOLE, Parameter(help="Entries of a ledger before the stream goes on.")] = 50_000
    max_bytes: Annotated[int, WHOLE, Parameter(help="The same in bytes.")] = 104_857_600
    max_age_s: Annotated[float, NUMBER, Parameter(help="The same in seconds.")] = 14_400.0


@Parameter(name="*")
@dataclass(frozen=True)
class OutMessages:
    """What each message of a command has beside its payload."""

    key: Annotated[str | None, Parameter(name=("--key", "-k"), help="The key of all messages.")] = None
    key_delimiter: Annotated[
        str | None,
        Parameter(
            name=("--key-delimiter", "-K"),
            allow_leading_hyphen=True,
            help="What stands between the key and the payload of each message: a text, with \\t and \\xHH.",
        ),
    ] = None
    property_: Annotated[
        tuple[str, ...], Parameter(name="--property", help="A property of each message: name=value. Repeatable.")
    ] = ()
    event_time: Annotated[
        str | None, Parameter(help="The event time of all messages: 2026-03-01T12:00Z, or ms since 1970.")
    ] = None
    producer: Annotated[
        str | None, Parameter(help="Who sends them; with --sequence, so that a repeated append stores nothing twice.")
    ] = None
    sequence: Annotated[int | None, WHOLE, Parameter(help="The number of the first; each next one has the next.")] = (
        None
    )
    compression: Annotated[
        Literal["lz4", "zlib", "zstd", "snappy"] | None, Parameter(help="Compress the payloads.")
    ] = None
    raw: Raw = False
    force: Annotated[bool, Parameter(help="Also where the newest entry is of the other format.")] = False


@Parameter(name="*")
@dataclass(frozen=True)
class ReadOptions:
    """What of a stream is printed, and how."""

    cursor: Annotated[
        str | None,
        Parameter(help="Read what this durable cursor has not acknowledged, and acknowledge what is printed."),
    ] = None
    takeover: Annotated[bool, Parameter(help="With --cursor: take it from whoever has it.")] = False
    count: Annotated[
        int | None,
        WHOLE,
        Parameter(name=("--count", "-c"), allow_leading_hyphen=True, help="End after so many messages."),
    ] = None
    format_: Annotated[
        str | None,
        Parameter(
            name=("--format", "-f"),
            allow_leading_hyphen=True,
            help="Print messages so: %s payload, %k key, %o position, %T publish time in ms, %d the same as a date, "
            "%e event time, %p producer, %q sequence, %h properties, %S and %K bytes of payload and key, %t stream, "
            "%% a percent sign, \\n \\t \\xHH.",
        ),
    ] = None
    key_delimiter: Annotated[
        str | None,
        Parameter(
            name=("--key-delimiter", "-K"),
            allow_leading_hyphen=True,
            help="Put the key and this in front of each payload.",
        ),
    ] = None
    ids: Annotated[bool, Parameter(help="Put the position and a tab in front of each payload.")] = False
    hex_: Hex = False
    raw: Raw = False
    skip_corrupt: Annotated[
        bool, Parameter(help="Leave out entries that cannot be read, and say so, instead of ending there.")
    ] = False


OWNER = OwnerOptions()
READING = ReadOptions()
ROLL_OVER = RollOver()
OUT_MESSAGES = OutMessages()
