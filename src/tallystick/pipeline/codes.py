"""Stable codes in the text of errors: Spark hands on the text of a Python exception, never the exception."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from tallystick.errors import TallyError


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
