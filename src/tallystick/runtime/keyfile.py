"""Files of keys and values: a table of a TOML file of ours, or Java properties as the originals have them.

Both become text by key; here are also the readers of one value. Which keys a server knows, and what they set, is in its
schema (``schema.py``).
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from tallystick.errors import UsageError

_LINE = re.compile(r"([^=:\s]+)\s*[=:\s]\s*(.*)")

# Readers of one value; each takes the key too, to name it. They raise UsageError.


def prometheus(key: str, value: str) -> bool:
    """Whether ``/metrics`` is served: the original's name of the exporter, or its number. Raises UsageError."""
    if value.upper() not in ("PROM", "DISABLE", "2", "0"):
        raise UsageError(f"{key} is PROM or DISABLE: there is no other exporter", value=value)
    return value.upper() in ("PROM", "2")


def text(key: str, value: str) -> str:
    return value


def integer(key: str, value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise UsageError(f"{key} is a whole number", value=value) from None


def number(key: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise UsageError(f"{key} is a number", value=value) from None


def seconds(key: str, value: str) -> float:
    """From milliseconds."""
    return integer(key, value) / 1000


def flag(key: str, value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise UsageError(f"{key} is true or false", value=value)
    return value.lower() == "true"


# Files


def read_keys(path: str, table: str) -> dict[str, str]:
    """The keys of a file, in either format, as text; a byte order mark is none of it. Raises UsageError."""
    try:
        with open(path, encoding="utf-8-sig") as file:
            content = file.read()
    except OSError as error:
        raise UsageError(f"cannot read the configuration: {error.strerror}", path=path) from error
    except UnicodeDecodeError as error:
        raise UsageError("cannot read the configuration: it is no UTF-8", path=path) from error
    return parse_toml(path, content, table) if _is_toml(path, content, table) else parse_properties(content)


def without_empty(values: Mapping[str, str]) -> dict[str, str]:
    """Without the keys that have no value: they count as absent."""
    return {key: value.strip() for key, value in values.items() if value.strip()}


def _is_toml(path: str, content: str, table: str) -> bool:
    if path.endswith(".toml"):
        return True
    has_table = re.search(rf"^\s*\[{table}\]", content, re.MULTILINE) is not None
    return not path.endswith((".conf", ".properties")) and has_table


def parse_toml(path: str, content: str, table: str) -> dict[str, str]:
    """The keys of the one table of that name, as text. Raises UsageError, which names ``path``."""
    try:
        document = tomllib.loads(content)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"the configuration is not TOML: {error}", path=path) from error
    key_table = document.pop(table, None)
    if not isinstance(key_table, dict):
        raise UsageError(f"the configuration has no table [{table}]", path=path)
    if document:
        raise UsageError(f"the configuration has more than the table [{table}]", path=path, found=",".join(document))
    return {key: _as_text(value) for key, value in _flat(key_table)}


def _flat(table: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Returns the keys of a table, those with dots as one key each."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield before + name, value


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ",".join(map(_as_text, value))
    return str(value)


def parse_properties(content: str) -> dict[str, str]:
    """``key=value`` lines as Java reads them: # and ! begin comments, a backslash at the end joins the next line.

    Raises UsageError, also for a key with two values: one of them was meant, and nobody knows which.
    """
    values: dict[str, str] = {}
    logical = ""
    for line_number, line in enumerate([*content.splitlines(), ""], 1):
        logical += line.strip()
        if not logical or logical[0] in "#!":
            logical = ""
            continue
        if logical.endswith("\\"):
            logical = logical[:-1]
            continue
        match = _LINE.fullmatch(logical) or re.fullmatch(r"(\S+)()", logical)
        if match is None:
            raise UsageError("a line of the configuration is not key=value", line=line_number)
        key, value = match[1], match[2].strip()
        if values.setdefault(key, value) != value:
            raise UsageError(f"{key} is given twice in the configuration, with two values", line=line_number)
        logical = ""
    return values
