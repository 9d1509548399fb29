from __future__ import annotations

import random
import sys

import pytest

from support.copied_offsets import lacking, take_over
from support.stores import SteppingClock
from tallystick.rocketmq.broker import offset_keys, offset_merge
from tallystick.rocketmq.broker.offset_merge import freeing
from tallystick.rocketmq.broker.offsets import OffsetCommit, Offsets
from tallystick.rocketmq.broker.resets import STRIDE, ResetsCore, ResetTable
from tallystick.rocketmq.broker.role import Role, Standing
from tallystick.rocketmq.wire.bodies import OffsetTable
from tallystick.rocketmq.wire.values import DataVersion


def a_slave() -> Offsets:
    return Offsets(SteppingClock(), lambda topic, queue_id: sys.maxsize, standing=Standing(Role.SLAVE))


def master(count: int, offset: int = 5) -> OffsetTable:
    return OffsetTable(DataVersion(0, 5, 5), {f"T{number}@g": {0: offset, 1: offset} for number in range(count)})


def test_very_many_offsets_are_put_together_in_steps_and_seen_at_once() -> None:
    """A million commits of a slave's own were turns of the loop of 5 s and 1.7 s in each round."""
    offsets = a_slave()
    for number in range(3000):
        offsets.commit(f"T{number}", "g", 0, 9)
    merge = offsets.merge(master(3000))
    before = dict(offsets.table().offsets)
    steps = 0
    for _ in merge.steps():
        steps += 1
        assert offsets.get("T7", "g", 1) is None
    assert steps >= 12 and offsets.table().offsets == before
    mine = offsets._offsets, offsets._pull_offsets, offsets._own, offsets._own_resets, offsets.resets.pending.table()
    freed = len(list(offsets.become(merge)))
    assert freed >= 12
    kept = [*vars(merge).values(), merge._slave_resets.pending]
    assert not any(table is one for table in mine for one in kept), "else all of it is freed with the merge, at once"
    assert (offsets.get("T7", "g", 0), offsets.get("T7", "g", 1)) == (9, 5)
    assert len(lacking(offsets, master(3000))) == 3000 and offsets.groups_of("T7") == ["g"]


@pytest.mark.rule("H13")
def test_h13_what_is_committed_while_a_copy_is_put_together_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if all of it were one step: with queues and keys that come, go back, or are told to the master meanwhile."""
    monkeypatch.setattr(offset_merge, "STEP_OFFSETS", 1)
    monkeypatch.setattr(offset_keys, "STEP_KEYS", 1)
    seed = random.randrange(1 << 32)
    rng, offsets = random.Random(seed), a_slave()
    monkeypatch.setattr(offset_merge, "STEP_CHANGED", rng.randrange(1, 5))
    here: dict[tuple[str, int], int] = {}
    own: dict[tuple[str, int], int] = {}
    back: set[tuple[str, int]] = set()  # of them: went back here, which counts whatever the master has

    def act() -> None:
        topic, queue_id, offset = f"T{rng.randrange(4)}", rng.randrange(2), rng.randrange(50)
        if rng.random() < 0.2 and (topic, queue_id) in own:
            offsets.disown(OffsetCommit(topic, "g", queue_id, own.pop((topic, queue_id))))
            back.discard((topic, queue_id))
        elif rng.random() < 0.5:
            offsets.commit(topic, "g", queue_id, offset)
            if offset < here.get((topic, queue_id), 0):
                back.add((topic, queue_id))
            here[topic, queue_id] = own[topic, queue_id] = offset

    for _ in range(400):
        theirs = {(f"T{rng.randrange(4)}", rng.randrange(2)): rng.randrange(50) for _ in range(rng.randrange(6))}
        table = OffsetTable(DataVersion(), {})
        for (topic, queue_id), offset in theirs.items():
            table.offsets.setdefault(f"{topic}@g", {})[queue_id] = offset
        merge = offsets.merge(table)
        for _ in merge.steps():
            act()
        freed = offsets.become(merge)
        own = {queue: offset for queue, offset in own.items() if theirs.get(queue, -1) < offset or queue in back}
        back &= own.keys()
        here = theirs | own
        for _ in freed:
            act()
        shown = {
            (key[:2], queue_id): n
            for key, queues in offsets.committed_offsets.items()
            for queue_id, n in queues.items()
        }
        assert shown == here, f"seed {seed}"
        counted = sum(map(len, offsets.committed_offsets.values()))
        assert (offsets._count, set(offsets.topics_of("g")) >= {topic for topic, _ in here}) == (counted, True), seed
        saved = {(key[:2], queue_id) for key, queues in (offsets.to_save().own or {}).items() for queue_id in queues}
        assert saved == own.keys(), f"seed {seed}"


def test_a_merge_that_is_given_up_changes_nothing() -> None:
    offsets = a_slave()
    offsets.commit("T0", "g", 0, 9)
    given_up = offsets.merge(master(1, 3))
    next(given_up.steps(), None)
    take_over(offsets, master(1, 4))
    assert dict(offsets.queues("T0", "g")) == {0: 9, 1: 4}


def test_a_text_that_is_written_meanwhile_has_what_there_was() -> None:
    """A table is freed only as far as nobody else has it."""
    offsets = a_slave()
    for number in range(30):
        offsets.commit(f"T{number}", "g", 0, 9)
    saved = offsets.to_save()
    take_over(offsets, master(30, 20))
    assert len(saved.offsets) == len(saved.own or {}) == 30 and offsets.to_save().own is None


def test_tables_are_freed_some_entries_a_step() -> None:
    tables: list[dict[str, int]] = [dict.fromkeys(map(str, range(2500)), 1), {}, {"a": 1}]
    assert len(list(freeing(tables))) == 8


def test_one_table_grows_in_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python makes room in a table of a million entries in 40 ms, and three of them did so in the same step."""
    monkeypatch.setattr(offset_merge, "STEP_OFFSETS", 10)
    monkeypatch.setattr(offset_keys, "STEP_KEYS", 10)
    offsets = a_slave()
    for number in range(100):
        offsets.commit(f"T{number}", "g", 0, 9)
    merge = offsets.merge(master(100, 3))

    def sizes() -> list[int]:
        return [len(merge._overlays), len(merge.own), len(merge.own_resets), len(merge.keys.topics_of("g"))]

    before, touched = sizes(), False
    for _ in merge.steps():
        now = sizes()
        grown = [more - less for more, less in zip(now, before, strict=True) if more != less]
        assert len(grown) <= 2 and max(grown, default=0) <= 10
        before = now
        if not touched and merge.own:
            touched = offsets.commit("T99", "g", 0, 10)
    offsets.become(merge)
    assert offsets.get("T99", "g", 0) == 10 and offsets.get("T98", "g", 0) == 9
    assert len(offsets.to_save().own or {}) == 100


@pytest.mark.rule("H13")
def test_h13_counters_of_resets_decide_in_a_merge_too() -> None:
    offsets = a_slave()
    for topic in ("T0", "T1"):
        offsets.commit(topic, "g", 0, 9)
    resets = ResetTable(counts={"T0@g": {0: 1}})
    assert [commit.topic for commit in lacking(offsets, master(2), resets)] == ["T1"]
    take_over(offsets, master(2), resets)
    assert (offsets.get("T0", "g", 0), offsets.get("T1", "g", 0)) == (5, 9)


def test_very_many_resets_are_the_masters_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 100,000 of which a slave's consumers had heard each copy was a turn of the loop of 1.2 s."""
    offsets, count = a_slave(), 3000

    def copied() -> tuple[int, int]:
        queues = {f"T{number}@g": {0: 5} for number in range(count)}
        merge = offsets.merge(master(1), ResetTable(counts={key: {0: STRIDE} for key in queues}, pending=queues))
        return len(list(merge.steps())), len(list(offsets.become(merge)))

    assert copied()[0] >= 12 and offsets.resets.dirty
    offsets.resets.dirty = False
    pending = offsets.resets.pending
    for number in range(count):
        assert pending.hear(f"T{number}@g", 0, 5, "a", 0.0, commits=True) is None
    asked: list[str] = []

    def get(_: ResetsCore, key: str, queue_id: int) -> int:
        asked.append(key)
        return STRIDE

    monkeypatch.setattr(ResetsCore, "get", get)
    assert copied()[1] >= 12, "what there was is freed in steps, too"
    assert not offsets.resets.dirty and not asked, "who has heard is looked for when it is asked for"
    assert pending.hear("T7@g", 0, 6, "a", 0.0, commits=False) is None, "and has"


@pytest.mark.parametrize(
    "other",
    [
        ResetTable(1, {"T@g": {0: 1}}, {"T": 1}, {"g": 1}, {"T@g": {0: 5}}),
        ResetTable(0, {"T@g": {0: 2}}, {"T": 1}, {"g": 1}, {"T@g": {0: 5}}),
        ResetTable(0, {}, {"T": 1}, {"g": 1}, {"T@g": {0: 5}}),
        ResetTable(0, {"T@g": {0: 1}}, {}, {"g": 1}, {"T@g": {0: 5}}),
        ResetTable(0, {"T@g": {0: 1}}, {"T": 1}, {"g": 2}, {"T@g": {0: 5}}),
        ResetTable(0, {"T@g": {0: 1}}, {"T": 1}, {"g": 1}, {"T@g": {1: 5}}),
        ResetTable(0, {"T@g": {0: 1}}, {"T": 1}, {"g": 1}),
    ],
)
def test_resets_are_to_be_saved_when_they_differ(other: ResetTable) -> None:
    offsets = a_slave()
    take_over(offsets, master(1), ResetTable(0, {"T@g": {0: 1}}, {"T": 1}, {"g": 1}, {"T@g": {0: 5}}))
    offsets.resets.dirty = False
    take_over(offsets, master(1), ResetTable(0, {"T@g": {0: 1}}, {"T": 1}, {"g": 1}, {"T@g": {0: 5}}))
    take_over(offsets, master(1))
    assert not offsets.resets.dirty, "an original has none"
    take_over(offsets, master(1), other)
    assert offsets.resets.dirty and offsets.resets.table() == other
    take_over(offsets, master(1), other)
    assert offsets.resets.dirty, "none of it was saved meanwhile"
