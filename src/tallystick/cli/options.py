"""Options that many commands share, and what they mean when they are left out."""

from __future__ import annotations

import os
import re
from codecs import BOM_UTF8
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from cyclopts import Parameter, Token

from tallystick.errors import UsageError
from tallystick.runtime import arguments


def _whole(type_: type[int], tokens: Sequence[Token]) -> int:
    """cyclopts rounds 7.6, and Python takes 1_0 for 10: a slip would be another ledger. Raises ValueError."""
    written = tokens[0].value
    if not re.fullmatch(r"[+-]?[0-9]{1,40}", written):
        raise ValueError(f'"{written}" is no whole number.')
    return int(written)


def _number(type_: type[float], tokens: Sequence[Token]) -> float:
    """As for an int, in decimals or without; Python takes digits of any script. Raises ValueError."""
    written = tokens[0].value
    if not re.fullmatch(r"[+-]?([0-9]{1,40}(\.[0-9]{0,40})?|\.[0-9]{1,40})", written):
        raise ValueError(f'"{written}" is no number.')
    return float(written)


def _path(type_: type[str], tokens: Sequence[Token]) -> str:
    """An empty one is a script's variable that was never set, and would be the working directory. Raises ValueError."""
    written = tokens[0].value
    if not written:
        raise ValueError("an empty text names no file or folder.")
    return written


WHOLE = Parameter(converter=_whole)  # of each option or argument that is an int
NUMBER = Parameter(converter=_number)  # of each that is a float
PATH = Parameter(converter=_path)  # of each argument that is a file or folder


def filled(option: str, value: str | None) -> str | None:
    """The same value. Raises UsageError for an empty one: it is a script's variable that was never set, and without the
    option the command would go to another cluster."""
    if value == "":
        raise UsageError(f"{option} is empty: give it a value, or leave it out")
    return value


Json = Annotated[bool, Parameter(name="--json", help="Print one JSON object a line instead of text.")]
Hex = Annotated[bool, Parameter(name="--hex", help="Print the bytes in hexadecimal.")]


@Parameter(name="*")
@dataclass(frozen=True)
class MetadataOption:
    """Which cluster."""

    uri: Annotated[
        str | None,
        Parameter(
            help="Metadata service: sqlite:///path or zk+hierarchical://host:port/ledgers. "
            "By default TALLY_URI, else the running development cluster."
        ),
    ] = None

    def resolve(self) -> str:
        """Raises UsageError when nothing says which cluster, and for one in memory."""
        from tallystick.admin.dev_lookup import find_uri
        from tallystick.bookkeeper.metadata.uri import require_shared

        return require_shared(filled("--uri", self.uri) or find_uri())


@Parameter(name="*")
@dataclass(frozen=True)
class NameServersOption:
    """Which brokers: those that these name servers know."""

    name_server: Annotated[
        str | None,
        Parameter(
            help="Name server: host:port; between several a semicolon or comma. "
            "By default TALLY_NAMESRV, else that of the running development cluster."
        ),
    ] = None

    def resolve(self) -> str:
        """Raises UsageError when nothing says which servers."""
        from tallystick.admin.dev_lookup import find_name_server

        return filled("--name-server", self.name_server) or find_name_server()


@Parameter(name="*")
@dataclass(frozen=True)
class Config:
    """What a server is told."""

    config: Annotated[str | None, Parameter(help="TOML file, or the original's file of properties.")] = None
    set_: Annotated[tuple[str, ...], Parameter(name="--set", help="Overrides one setting: key=value. Repeatable.")] = ()

    def overrides(self) -> dict[str, str]:
        """Raises UsageError."""
        return pairs("--set", "key=value", self.set_)


Instances = Annotated[
    int | None,
    WHOLE,
    Parameter(help="Run so many, each a process, that stop together (at most 64)."),
]


def pairs(option: str, form: str, texts: Iterable[str]) -> dict[str, str]:
    """Values of an option that is given as ``name=value``, more than once; each name once. Raises UsageError."""
    values = {}
    for pair in texts:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise UsageError(f"{option} needs {form}", given=pair)
        if name in values:
            raise UsageError(f"{option} has a value for {name} already", given=pair)
        values[name] = value
    return values


@Parameter(name="*")
@dataclass(frozen=True)
class Password:
    """A ledger's password; never an argument, which every user of the machine could read."""

    password_file: Annotated[
        str | None,
        Parameter(
            help="File with the ledger's password (a line break at its end is left out, a byte order mark too). "
            "By default TALLY_PASSWORD."
        ),
    ] = None

    def read(self) -> bytes:
        if self.password_file is None:
            return os.environb.get(b"TALLY_PASSWORD", b"")
        try:
            with open(self.password_file, "rb") as file:
                password = file.read().removeprefix(BOM_UTF8).removesuffix(b"\n").removesuffix(b"\r")
        except OSError as error:
            raise UsageError(f"cannot read the password file: {error.strerror}", path=self.password_file) from error
        if not password:  # who names a file wants a password: everybody could read the ledger
            raise UsageError("the password file is empty", path=self.password_file)
        return password


def require_quorums(ensemble: int, write_quorum: int, ack_quorum: int) -> None:
    """Raises UsageError, by the names of the options, for numbers that no ledger can have."""
    arguments.whole(ensemble, "--ensemble", least=1)
    arguments.whole(write_quorum, "--write-quorum", least=1)
    arguments.whole(ack_quorum, "--ack-quorum", least=1)
    if not ensemble >= write_quorum >= ack_quorum:
        raise UsageError(
            "of --ensemble, --write-quorum and --ack-quorum none is more than the one before it",
            ensemble=ensemble,
            write_quorum=write_quorum,
            ack_quorum=ack_quorum,
        )


@Parameter(name="*")
@dataclass(frozen=True)
class Shape:
    """What a new ledger is like."""

    ensemble: Annotated[int, WHOLE, Parameter(help="How many bookies hold the ledger.")] = 3
    write_quorum: Annotated[int, WHOLE, Parameter(help="How many of them hold each entry.")] = 2
    ack_quorum: Annotated[int, WHOLE, Parameter(help="How many must have stored an entry before it counts.")] = 2
    digest: Annotated[
        Literal["crc32c", "crc32", "hmac", "dummy"], Parameter(help="What protects each entry; dummy: nothing.")
    ] = "crc32c"
    id: Annotated[int | None, WHOLE, Parameter(help="Take this id instead of the next free one.")] = None
    custom: Annotated[tuple[str, ...], Parameter(help="Custom metadata: name=value. Repeatable.")] = ()
    accept_silent_bookies: Annotated[
        bool, Parameter(help="With --id: also while bookies that may hold an older ledger of it do not answer.")
    ] = False

    def require(self) -> None:
        """Raises UsageError, by the names of the options."""
        require_quorums(self.ensemble, self.write_quorum, self.ack_quorum)
        if self.id is not None:
            arguments.whole(self.id, "--id", most=arguments.MAX_INT64)


# As defaults of parameters: frozen, so one value serves all.
SERVICE = MetadataOption()
NAME_SERVERS = NameServersOption()
CONFIG = Config()
PASSWORD = Password()
SHAPE = Shape()
