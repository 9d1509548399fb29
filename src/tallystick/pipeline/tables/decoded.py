"""The values of messages as columns, of whatever format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystick.errors import UsageError
from tallystick.pipeline.tables.avro_rows import AvroFields, avro_rows
from tallystick.pipeline.tables.json_fields import JsonFields
from tallystick.pipeline.tables.json_rows import json_rows, value_texts
from tallystick.pipeline.tables.settings import HEADERS, MAX_COLUMNS
from tallystick.runtime.arguments import text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def decoded(source: DataFrame, value_schema: str = "", format: str = "json", header: str = "") -> DataFrame:
    """Returns the frame with the value's fields as columns. Raises UsageError.

    Without a schema, as in ``carrier STRING, delay INT``, the fields of JSON are looked for in all values; a frame that
    follows a source needs one, and so does Avro, whose ``value_schema`` is its own.
    """
    text(value_schema, "value_schema")
    if format not in ("json", "avro"):
        raise UsageError("values are decoded from json or avro", given=format)
    if header not in HEADERS or (header and format != "avro"):
        raise UsageError("header is confluent, before values in avro", given=header, format=format)
    if format == "avro":
        if not value_schema:
            raise UsageError("value_schema must be given for avro: values do not say what they have")
        return avro_rows(source, AvroFields(value_schema), header)
    if value_schema:
        return json_rows(source, JsonFields.given(value_schema))
    if source.isStreaming:
        raise UsageError("value_schema must be given for a frame that follows a source: nobody knows all its values")
    return json_rows(source, JsonFields.found(value_texts(source), None, MAX_COLUMNS))
