"""What stands before the body of a command with a JSON header (``rocketmq.wire.remoting`` has the frame)."""

from __future__ import annotations

import struct

import msgspec
from msgspec import UNSET, Raw, UnsetType

from tallystick.codec.implementation import with_twin

_HEAD = struct.Struct(">II")


class _Header(msgspec.Struct, gc=False):
    """A header with its members in the order in which fastjson writes them: a struct is encoded faster than a dict."""

    code: int
    extFields: dict[str, str] | Raw | UnsetType
    flag: int
    language: str
    opaque: int
    remark: str | UnsetType
    serialization: str = msgspec.field(name="serializeTypeCurrentRPC")
    version: int


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
    ext, text = UNSET if fields is None else fields, UNSET if remark is None else remark
    header = _encode_json(_Header(code, ext, flag, language, opaque, text, "JSON", version))
    return _HEAD.pack(4 + len(header) + behind, len(header)) + header
