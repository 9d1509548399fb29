"""The codes of a bookie's responses, in whatever protocol. Each wire has numbers of its own for these codes."""

from __future__ import annotations

import enum


class Code(enum.IntEnum):
    """The code of a bookie's response. One that is neither OK nor one of the two "no" leaves it unknown (Q15).

    The values are of this process alone: they are on no wire and no disk. OK is the one that is false.
    """

    OK = 0
    NO_LEDGER = enum.auto()
    NO_ENTRY = enum.auto()
    BAD_REQUEST = enum.auto()
    IO_ERROR = enum.auto()
    UNAUTHORIZED = enum.auto()
    BAD_VERSION = enum.auto()
    FENCED = enum.auto()
    READ_ONLY = enum.auto()
    TOO_MANY_REQUESTS = enum.auto()
    UNKNOWN_LEDGER_STATE = enum.auto()
    UNDEFINED = enum.auto()  # a number came that its protocol does not define
    AMBIGUOUS = enum.auto()  # responses came that are not told apart, with different codes

    def __str__(self) -> str:
        return self.name


NO_CODES = frozenset((Code.NO_LEDGER, Code.NO_ENTRY))
