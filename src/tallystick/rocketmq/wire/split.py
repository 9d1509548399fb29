"""A long JSON text of tables in tables as several short ones, each to be read without a stop (``dialect.read_as``)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tallystick.errors import RemoteProtocolError

# What has a meaning for where an entry ends: strings, so that what is in them has none; brackets; commas. A flat table
# of numbers, which is what entries mostly are, is one piece.
_TOKEN = re.compile(
    rb""""(?:[^"\\]++|\\.)*+"|'(?:[^'\\]++|\\.)*+'|\{(?:\s*+"?+-?\d++"?+\s*+:\s*+-?\d++\s*+,?+)*+\s*+\}|[{}\[\],]""",
    re.DOTALL,
)


def split(text: bytes, size: int) -> Iterator[bytes]:
    """Texts with the same members as ``text``, and some of the entries of each: together all of them, in their order.

    A part has about ``size`` bytes, or one longer entry; a member comes as often as it has parts. Raises
    RemoteProtocolError for a text whose brackets do not match; other faults are left to whoever reads the parts.
    """
    depth = 0
    head = b""  # of the member, up to its opening bracket, if it is a table
    start = 0  # of what is not yielded yet
    for token in _TOKEN.finditer(text):
        mark = token[0]
        if not depth and mark not in (b"{", b"["):  # a flat table, or none at all
            yield text
            return
        if mark in (b"{", b"["):
            depth += 1
            if depth == 1:
                start = token.end()
            elif depth == 2 and mark == b"{":
                head, start = text[start : token.end()], token.end()
        elif mark in (b"}", b"]"):
            depth -= 1
            if depth == 1 and head:
                yield b"{%s%s}}" % (head, text[start : token.start()])
                head, start = b"", token.end()
            elif depth == 0:
                yield b"{%s}" % text[start : token.start()].lstrip(b", \t\r\n")
                _require(not text[token.end() :].strip(), token.end())
                return
        elif mark == b"," and depth == 1:
            if text[start : token.start()].strip():
                yield b"{%s}" % text[start : token.start()]
            start = token.end()
        elif mark == b"," and depth == 2 and head and token.start() - start >= size:
            yield b"{%s%s}}" % (head, text[start : token.start()])
            start = token.end()
    _require(False, len(text))


def _require(holds: bool, at: int) -> None:
    if not holds:
        raise RemoteProtocolError("the brackets of a text do not match", at=at)
