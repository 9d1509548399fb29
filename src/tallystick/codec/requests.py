"""The requests that brokers get most, sends and pulls: cut from what a connection received, with their typed headers.

``rocketmq.wire.remoting`` has the frame and both kinds of header, and reads whatever is not as usual: this stops there.
Usual is a header of strict JSON whose first member is the code, or a binary one without a remark, with all mandatory
fields and none that the type does not have.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Generic, NamedTuple, TypeVar

import msgspec

from tallystick.codec.implementation import with_twin

Buffer = bytes | bytearray | memoryview
C = TypeVar("C")

_Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
_HEAD = struct.Struct(">II")  # of a frame: its length; kind and length of the header
_BINARY_HEAD = struct.Struct(">hBhiiii")  # code, language, version, opaque, flag, bytes of remark, bytes of fields
_SHORT = struct.Struct(">h")
_INT = struct.Struct(">i")
_BEGIN_BYTES = 12  # by which the code of a JSON header is usual
_MOST_FIELDS = 32
_MOST_BYTES = 1 << 20  # of a frame: the content of a longer one costs more than its header
_RESPONSE = 1  # bit of the flag


class Forms(NamedTuple, Generic[C]):
    """What requests are made into; ``forms_of`` makes one."""

    make: Callable[..., C]  # of code, opaque, flag, remark, header, body, parts, language, version, serialization
    headers: Mapping[int, type[msgspec.Struct]]  # by code
    languages: Mapping[str, enum.Enum]
    numbered_languages: Sequence[enum.Enum]
    json: Any  # the serializations
    binary: Any
    decoders: Mapping[bytes, tuple[int, Callable[[bytes], Any]]]  # by how a JSON header begins: its code, and how to


def forms_of(
    make: Callable[..., C],
    headers: Mapping[int, type[msgspec.Struct]],
    languages: type[enum.Enum],
    serializations: tuple[Any, Any],
) -> Forms[C]:
    """``headers`` forbid unusual fields, and take theirs by position; ``languages`` are in the order of their numbers,
    and their values are their names in JSON."""
    decoders = dict[bytes, tuple[int, Callable[[bytes], Any]]]()
    for code, header in headers.items():
        members: list[Any] = [("code", _Int32), ("extFields", header), ("flag", _Int32, 0), ("language", languages)]
        members += [("opaque", _Int32, 0), ("remark", None, None), ("version", _Int32, 0)]
        head: type[Any] = msgspec.defstruct("Head", sorted(members, key=len), gc=False)
        decoders[(b'{"code":%d,"' % code)[:_BEGIN_BYTES]] = code, msgspec.json.Decoder(head, strict=False).decode
    by_name = {language.value: language for language in languages}
    return Forms(make, headers, by_name, tuple(languages), *serializations, decoders)


@with_twin
def scan_requests(buffer: Buffer, start: int, end: int, until: int, most: int, forms: Forms[C]) -> tuple[list[C], int]:
    """At most so many requests, none of which begins at ``until`` or behind it; stops at the first frame that is
    another one, unusual, or not whole.

    Returns what was made of them, and where it stopped. The contents are copies.
    """
    made, make, decoders, json = list[C](), forms.make, forms.decoders, forms.json
    view = memoryview(buffer)
    while start < until and end - start >= _HEAD.size and len(made) < most:
        size, mark = _HEAD.unpack_from(view, start)
        kind, header, stop = mark >> 24, start + _HEAD.size, start + 4 + size
        body = header + (mark & 0xFFFFFF)
        if size > _MOST_BYTES or not body <= stop <= end:
            break
        text, content = view[header:body].tobytes(), view[body:stop].tobytes()
        if kind == 0 and (usual := decoders.get(text[:_BEGIN_BYTES])) is not None:
            code, decode = usual
            try:
                head = decode(text)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                break
            flag = head.flag
            if flag & _RESPONSE or head.code != code:
                break
            made.append(
                make(code, head.opaque, flag, None, head.extFields, content, (), head.language, head.version, json)
            )
        elif kind != 1 or (request := _read_binary(text, content, forms)) is None:
            break
        else:
            made.append(request)
        start = stop
    return made, start


def _read_binary(header: bytes, body: bytes, forms: Forms[C]) -> C | None:
    if len(header) < _BINARY_HEAD.size:
        return None
    code, language, version, opaque, flag, remark_bytes, fields_bytes = _BINARY_HEAD.unpack_from(header)
    kind = forms.headers.get(code)
    is_whole = not remark_bytes and fields_bytes == len(header) - _BINARY_HEAD.size
    if kind is None or flag & _RESPONSE or language >= len(forms.numbered_languages) or not is_whole:
        return None
    try:
        typed_header = msgspec.convert(_binary_fields(header), kind, strict=False)
    except (ValueError, struct.error):  # of msgspec and of Unicode, too
        return None
    language = forms.numbered_languages[language]
    return forms.make(code, opaque, flag, None, typed_header, body, (), language, version, forms.binary)


def _binary_fields(header: bytes) -> dict[str, str]:
    """Raises ValueError or struct.error if they are unusual."""
    fields, at, end = dict[str, str](), _BINARY_HEAD.size, len(header)
    while at < end:
        name = at + _SHORT.size
        name_end = name + _SHORT.unpack_from(header, at)[0]
        if name_end < name:
            raise ValueError("a name of less than nothing")
        value = name_end + _INT.size
        at = value + _INT.unpack_from(header, name_end)[0]
        text = header[name:name_end].decode()
        # The original reads an empty value as none.
        if not value < at <= end or text in fields or len(fields) == _MOST_FIELDS:
            raise ValueError("not as usual")
        fields[text] = header[value:at].decode()
    return fields
