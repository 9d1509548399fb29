"""Stable codes in the text of errors: Spark hands on the text of a Python exception, never the exception."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from tallystick.errors import TallyError

_CODED = re.compile(r"\[(TALLY-[A-Z-]+)\] (.*)")


def code_of(kind: type[TallyError]) -> str:
    """``DigestMismatch`` is ``TALLY-DIGEST-MISMATCH``."""
    return "TALLY-" + re.sub(r"(?<=[a-z])(?=[A-Z])", "-", kind.__name__).upper()


@contextlib.contextmanager
def coded() -> Iterator[None]:
    """Raise this package's errors again with their code in front: ``[TALLY-UNAUTHORIZED] The password is wrong``."""
    try:
        yield
    except TallyError as error:
        raise type(error)(f"[{code_of(type(error))}] {error.message}", **error.fields) from error


def error_of(text: str) -> TallyError | None:
    """Returns the error of this package that Spark tells of in the text of its own; None if there is none.

    It has the class, whose code is in the text, and no fields: these are part of the message.
    """
    matches = _CODED.findall(text)
    if not matches:
        return None
    code, message = matches[-1]  # the last line of a traceback
    kinds = {code_of(kind): kind for kind in _kinds(TallyError)}
    return kinds.get(code, TallyError)(message)


def _kinds(kind: type[TallyError]) -> Iterator[type[TallyError]]:
    yield kind
    for each in kind.__subclasses__():
        yield from _kinds(each)
