"""The options that a user gave, out of what Spark hands over.

``CREATE TABLE … OPTIONS (…)`` hands the options over once, when the table is made, among keys of Spark's own
(``provider``, ``owner``, table properties, and each option once more as ``option.NAME``). A query of the table gets
none of them. So they are stored with the table's schema, in the metadata of its first column, and are read from there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tallystick.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

METADATA_KEY = "tallystick.options"
_PREFIX = "option."
_SECRET = frozenset(("password", "passwords"))


def is_table(options: Mapping[str, str]) -> bool:
    """Whether a table of the catalog is being made."""
    return "provider" in options


def options_of_read(options: Mapping[str, str], schema: StructType | None = None) -> dict[str, str]:
    """The options of a read: those stored with a table, and over them those given with the query itself."""
    if is_table(options):
        options = {name[len(_PREFIX) :]: value for name, value in options.items() if name.startswith(_PREFIX)}
    stored_text = schema.fields[0].metadata.get(METADATA_KEY, "{}") if schema is not None and schema.fields else "{}"
    stored_options: dict[str, str] = json.loads(stored_text)
    return stored_options | {name.lower(): value for name, value in options.items()}


def to_store(options: Mapping[str, str]) -> dict[str, str]:
    """The metadata that keeps the options of a table that is being made; nothing for any other read.

    Raises UsageError for a password: a catalog shows a table's schema to everybody.
    """
    if not is_table(options):
        return {}
    read_options = options_of_read(options)
    if _SECRET & read_options.keys():
        raise UsageError(
            "a table keeps no password: give passwordFile instead, or set TALLY_PASSWORD where Spark is started"
        )
    return {METADATA_KEY: json.dumps(read_options)}
