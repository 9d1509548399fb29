"""What stands before the body of a command with a JSON header (``rocketmq.wire.remoting`` has the frame)."""

from __future__ import annotations

import struct

import msgspec
from msgspec import Raw

from tallystick.codec.implementation import with_twin

_HEAD = struct.Struct(">II")


_encode_json = msgspec.json.Encoder().encode


@with_twin
def encode_head(
    code: int,
    fields: dict[str, str] | Raw | None,
    flag: int,
    language: str,
    opaque: int,
    remark: str | None,
    version: int,
    behind: int,
) -> bytes:
    """Both lengths and the header of a command with so many bytes ``behind`` it; whether they are too many is the
    caller's to see. Without ``fields`` or ``remark`` (None) the header has no such member.

    Raises UnicodeEncodeError for a text that is none.
    """
    members: dict[str, object] = {"code": code}  # in the order in which fastjson writes them
    if fields is not None:
        members["extFields"] = fields
    members["flag"], members["language"], members["opaque"] = flag, language, opaque
    if remark is not None:
        members["remark"] = remark
    members["serializeTypeCurrentRPC"], members["version"] = "JSON", version
    header = _encode_json(members)
    return _HEAD.pack(4 + len(header) + behind, len(header)) + header
