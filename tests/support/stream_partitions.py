"""Streams read as Spark does, without Spark: a survey, a plan, and its partitions one after another."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from support.listed_streams import NAME
from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.pipeline.cuts import Limits
from tallystick.pipeline.stream.options import StreamSourceOptions
from tallystick.pipeline.stream.plan import StreamPartition
from tallystick.pipeline.stream.read import read_partition
from tallystick.pipeline.stream.rows import SCHEMA
from tallystick.pipeline.stream.survey import partitions_of as planned
from tallystick.pipeline.stream.survey import survey_cluster

URI = "sqlite:///unused"  # the client is given


def wanted(limits: Limits | None = None, /, *, follows: bool = False, **options: str) -> StreamSourceOptions:
    """Options of a query, of the one stream unless they say otherwise."""
    named = {} if "subscribePattern" in options else {"subscribe": NAME}
    parsed = StreamSourceOptions.parse({"uri": URI, **named, **options}, {}, follows=follows)
    return parsed if limits is None else replace(parsed, limits=limits)


async def partitions_of(bk: BookKeeper, options: StreamSourceOptions) -> list[StreamPartition]:
    return planned(await survey_cluster(bk, options), options)


async def rows_of(partitions: Sequence[StreamPartition], schema: pa.Schema = SCHEMA) -> list[dict[str, Any]]:
    def read() -> list[dict[str, Any]]:
        return [row for each in partitions for batch in read_partition(each, schema) for row in batch.to_pylist()]

    return await asyncio.to_thread(read)  # the bookies are on this loop
