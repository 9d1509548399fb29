"""Which codec is in use: the functions in Python, which are the reference, or their twins in C (``native/``).

The variable ``TALLY_CODEC`` says it: ``python``; ``compiled``, which is refused where that is not there; ``auto``, as
without the variable: compiled where that is there. It is read once, when this module is imported.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, TypeVar, cast

from tallystick.errors import UsageError

VARIABLE = "TALLY_CODEC"
INTERFACE = 1  # of the compiled module: one that was made for another tallystick is as if it were not there
_MODULE = "tallystick.codec._compiled"

F = TypeVar("F", bound=Callable[..., Any])

REFERENCES: dict[str, Callable[..., Any]] = {}  # by name: what has a twin; the twins call these for what they leave out


def load(environment: Mapping[str, str]) -> ModuleType | None:
    """Returns the compiled codec, or None if the one in Python is to be used. Raises UsageError."""
    choice = environment.get(VARIABLE) or "auto"
    if choice not in ("auto", "compiled", "python"):
        raise UsageError(f"{VARIABLE} is auto, compiled or python", given=choice)
    if choice == "python":
        return None
    try:
        module = importlib.import_module(_MODULE)
        if module.INTERFACE != INTERFACE:
            raise ImportError(f"{_MODULE} was compiled for another version")
    except ImportError as error:
        if choice == "compiled":
            raise UsageError(
                f"{VARIABLE} is compiled, but tallystick is installed without it", why=str(error)
            ) from error
        return None
    return module


_compiled = load(os.environ)


def in_use() -> str:
    """Returns ``python``, or ``compiled`` and by which instructions it computes CRC32C."""
    return "python" if _compiled is None else f"compiled, CRC32C by {_compiled.CRC32C}"


def is_compiled() -> bool:
    """Returns whether the twins are in use, for who has another way where they are not."""
    return _compiled is not None


def with_twin(reference: F) -> F:
    """Mark a function that has a twin in C: its name becomes that of the one in use."""
    REFERENCES[reference.__name__] = reference
    return reference if _compiled is None else cast(F, getattr(_compiled, reference.__name__))
