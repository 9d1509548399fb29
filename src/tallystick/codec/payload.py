"""What a caller gives to be stored, as bytes."""

from __future__ import annotations

from tallystick.errors import UsageError


def payload_bytes(data: object, what: str) -> bytes:
    """The bytes of ``data``, which has a buffer. Raises UsageError for anything else, which names ``what`` it was for.

    ``bytes()`` alone would make a number so many zeros.
    """
    if type(data) is bytes:
        return data
    try:
        return bytes(memoryview(data))  # type: ignore[arg-type]  # refused below if it has no buffer
    except TypeError:
        hint = ": give text.encode()" if isinstance(data, str) else ""
        raise UsageError(f"{what} is bytes{hint}", given=type(data).__name__) from None
