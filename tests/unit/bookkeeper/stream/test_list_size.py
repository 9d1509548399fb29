"""How long the list of a stream gets by what sinks commit: a day of a commit a second, and what is said and refused."""

from __future__ import annotations

import random
import uuid
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from tallystick.bookkeeper.stream.context import StreamContext
from tallystick.bookkeeper.stream.retention import trimmable
from tallystick.bookkeeper.stream.settings import StreamSettings
from tallystick.bookkeeper.stream.splice.commit_core import Batch, WrittenLedger, is_stored, spliced
from tallystick.bookkeeper.stream.splice.list_size import LONG_LIST_BYTES, MOST_LIST_BYTES, require_short
from tallystick.bookkeeper.stream.splice.record import (
    RUNS_BEFORE,
    SinkRecord,
    applications,
    as_sink,
    record_of,
    with_record,
)
from tallystick.bookkeeper.wire.stream_lists import list_encoding
from tallystick.bookkeeper.wire.stream_values import StreamInfo, StreamLedger
from tallystick.errors import UsageError
from tallystick.runtime.events import Event, Events

DAY_S, KEPT_S, TRIM_S = 86_400, 300, 30
START_MS = 1_790_000_000_000
NAME = "tenant/ns/persistent/sink"


def stored_bytes(info: StreamInfo) -> int:
    encoding = list_encoding(info)
    while True:
        try:
            next(encoding)
        except StopIteration as done:
            return len(cast("bytes", done.value))


def begun() -> StreamInfo:
    return with_record(as_sink(StreamInfo()), "app", SinkRecord("q", "run"))


def test_a_day_of_a_commit_a_second_by_simulated_time() -> None:
    """With retention the list stays as long as that makes it, and each batch is there once."""
    seed = random.randrange(1 << 32)
    rng, settings = random.Random(seed), StreamSettings(retention_s=KEPT_S)
    info, ledger, longest = begun(), 1_000, 0
    for second in range(DAY_S):
        now_ms = START_MS + 1000 * second
        ledger += rng.randrange(1, 4)  # others make ledgers, too
        batch = Batch(
            "app", "q", "run", second, (WrittenLedger(ledger, rng.randrange(1, 500), rng.randrange(1 << 16)),)
        )
        assert not is_stored(info, batch, NAME), f"{seed=}"
        info = spliced(info, batch, now_ms)
        if second % TRIM_S == 0:
            dropped = set(trimmable(info, [], settings, now_ms))
            info = replace(info, ledgers=tuple(each for each in info.ledgers if each.ledger not in dropped))
        if second % (KEPT_S) == 0:
            longest = max(longest, stored_bytes(info))
    assert is_stored(info, batch, NAME), "it comes again"
    record = record_of(info, "app")
    assert record is not None and record.batch == DAY_S - 1
    assert KEPT_S - 1 <= len(info.ledgers) <= KEPT_S + TRIM_S, f"{seed=}"
    assert longest < LONG_LIST_BYTES, f"{seed=}"


def test_hours_of_a_commit_a_second_are_listed_before_that_is_told() -> None:
    assert stored_bytes(of_ledgers(4 * 3_600, random.Random(7))) < LONG_LIST_BYTES


def of_ledgers(count: int, rng: random.Random) -> StreamInfo:
    ledgers = []
    for number in range(count):
        place = 1_000 + 2 * number, rng.randrange(1, 500), rng.randrange(1 << 16), START_MS + 1000 * number
        ledgers.append(StreamLedger(*place))
    return replace(begun(), ledgers=tuple(ledgers))


def with_bytes(above: int) -> StreamInfo:
    """A list that is a little longer than so many bytes."""
    rng = random.Random(7)
    count = 1_000
    while (size := stored_bytes(info := of_ledgers(count, rng))) <= above:
        count = max(count + 100, count * above // size)
    return info


async def test_a_list_that_is_long_by_its_applications_says_what_helps_then() -> None:
    """Neither retention nor a longer trigger makes the records of applications fewer: each is kept."""
    rng, properties = random.Random(7), dict(begun().properties)
    for number in range(4_000):
        query, run, *before = (str(uuid.UUID(int=rng.getrandbits(128))) for _ in range(RUNS_BEFORE + 2))
        record = SinkRecord(query, run, number, tuple(before))
        properties |= with_record(begun(), f"orders-of-day-{number}", record).properties
    info, context = replace(begun(), properties=properties), cast("StreamContext", SimpleNamespace())
    count = len(applications(info))
    with pytest.raises(UsageError, match=rf"{count:,} applications, whose records are kept: .*forget-sink"):
        await require_short(context, NAME, info)


@pytest.mark.parametrize(
    ("above", "is_told", "is_refused"),
    [(LONG_LIST_BYTES // 2, False, False), (LONG_LIST_BYTES, True, False), (MOST_LIST_BYTES, True, True)],
)
async def test_a_list_is_told_from_half_of_its_bound_on_and_refused_behind_it(
    above: int, is_told: bool, is_refused: bool
) -> None:
    events: list[Event] = []
    context = cast("StreamContext", SimpleNamespace(context=SimpleNamespace(events=Events(events.append))))
    info = with_bytes(above)
    if is_refused:
        with pytest.raises(UsageError, match="let retention delete what is old, commit less often") as refused:
            await require_short(context, NAME, info)
        assert refused.value.fields["max_bytes"] == 768 * 1024
    else:
        await require_short(context, NAME, info)
        assert [event.kind for event in events] == ["stream list long"] * is_told
