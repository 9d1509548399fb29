"""A long JSON text of tables in tables as several short ones, each to be read without a stop (``dialect.read_as``)."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

from tallystick.errors import RemoteProtocolError

# What has a meaning for where an entry ends: strings, so that what is in them has none; brackets; commas. A flat table,
# which is what entries mostly are, is one piece. Something matches wherever a search begins: none is done twice.
_STRING = rb'"(?:[^"\\]++|\\.)*+"'
_FLAT = rb"\{(?:\s*+(?:%b|-?\d++)\s*+:\s*+(?:%b|-?\d++|true|false|null|\{\s*+\})\s*+,?+){0,4096}+\s*+\}" % (
    _STRING,
    _STRING,
)
_LEAD_BYTES = 65_536  # that stand before a token at most
_TOKEN = re.compile(rb"[^\"'{}\[\],]{0,65536}+(%b|'(?:[^'\\]++|\\.)*+'|%b|[{}\[\],\"']|)" % (_STRING, _FLAT), re.DOTALL)


def split(text: bytes, size: int, *, depth: int = 2, most: int = sys.maxsize) -> Iterator[bytes]:
    """Yields texts with the members of ``text``, and some of the entries of each: together all of them, in their order.

    ``depth``: of the tables that are cut between their entries; 1: the text itself, 2: its members, too. A part has
    about ``size`` bytes, or one longer entry; a member comes as often as it has parts. Raises RemoteProtocolError for a
    text whose brackets do not match, or with an entry of more than ``most`` bytes; other faults are left to whoever
    reads the parts.
    """
    heads: list[bytes] = []  # of the tables that are open and may be cut, each up to its opening bracket
    before = b""  # those that were open where the next part starts
    level = start = name_at = 0
    for token in _tokens(text, most):
        mark, (at, end) = token[1], token.span(1)
        if not level and mark not in (b"{", b"["):  # a flat table, or none at all
            yield text
            return
        is_cut = mark in (b'"', b"'")  # a string without an end, or where it was searched
        _require(not (is_cut and len(text) - at <= most) and at < len(text), at)
        if is_cut or end - start > most:
            raise RemoteProtocolError(f"an entry of a text has at most {most} bytes", at=at)
        if mark in (b"{", b"["):
            level += 1
            if level == len(heads) + 1 and level <= depth and mark == b"{":
                heads.append(text[name_at:end])
                name_at = end
        elif mark in (b"}", b"]"):
            level -= 1
            del heads[level:]
            if not level:
                yield before + text[start:end]
                _require(not text[end:].strip(), end)
                return
        elif mark == b"," and level == len(heads):
            name_at = end
            if at - start >= size:
                yield before + text[start:at] + b"}" * level
                before, start = b"".join(heads), end


def _tokens(text: bytes, most: int) -> Iterator[re.Match[bytes]]:
    """Yields all tokens. A string of more than ``most`` bytes is none: its end is not searched."""
    at, window = 0, min(most, len(text)) + _LEAD_BYTES
    while token := _TOKEN.match(text, at, at + window):
        yield token
        at = token.end()
        if at == token.start():  # it is empty: the end, or what nothing matches
            return


def _require(holds: bool, at: int) -> None:
    if not holds:
        raise RemoteProtocolError("the brackets or quotes of a text do not match", at=at)
