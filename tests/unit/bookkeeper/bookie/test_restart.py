"""A start beside files that do not belong together: refused, and nothing is deleted by who refuses."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest

from support.stores import KEY, Store
from tallystick.bookkeeper.wire.codes import Code
from tallystick.codec.steps import finished
from tallystick.errors import CorruptRecord, StorageError
from tallystick.sim.disk import Crashed


def _read(store: Store, path: str) -> bytes:
    file = store.disk.open(path)
    return file.read(file.size(), 0)


def _content(store: Store) -> dict[str, bytes]:
    return {path: _read(store, path) for path in store.disk.files()}


def _commit_beside(store: Store, record: bytes) -> None:
    """Commit what is staged, and a record of another version of this program behind it."""
    taken = store.storage.take()
    ((journal, part),) = taken.parts
    beside = replace(part, buffers=(*part.buffers, record), size=part.size + len(record))
    store.storage.commit(replace(taken, parts=((journal, beside),), size=beside.size))


def _put_back(store: Store, path: str, content: bytes) -> None:
    store.disk.unlink(path)
    file = store.disk.open(path, create=True)
    file.write([content], 0)
    file.close()


@pytest.mark.rule("Q15")
def test_q15_a_ledger_of_an_earlier_life_is_none_that_nobody_made_whatever_a_look_finds_now() -> None:
    """The metadata may have been put back from an older copy since: an honest ledger is not in it either."""
    store = Store()
    store.fill(5, [0])
    for reopen in (store.kill, store.restart):
        reopen()
        store.storage._ledgers.lacks(5)
        assert not store.storage._ledgers.alive[5].unmade


def test_leftovers_of_checkpoints_are_deleted_and_other_files_are_not_touched() -> None:
    store = Store()
    store.fill(5, [0])
    store.storage.checkpoint()
    [log] = store.storage._logs.logs
    leftovers = [f"{log + 7:010x}.log", f"{log + 7:010x}.index", f"{log:010x}.log.new"]
    others = ["README", "state", "state.spare", f"{log:010x}.log", f"{log:010x}.index"]
    for name in (*leftovers, "README"):
        store.disk.open(f"{store.ledger_dir}/{name}", create=True).close()
    store.restart()
    assert sorted(store.disk.listdir(store.ledger_dir)) == sorted(others)


@pytest.mark.rule("Q15")
def test_q15_a_start_with_an_older_state_is_refused_and_deletes_no_log() -> None:
    store = Store()
    store.fill(5, range(40))
    store.storage.checkpoint()
    path = f"{store.ledger_dir}/state"
    older = _read(store, path)
    for first in range(40, 4000, 40):
        store.fill(5, range(first, first + 40))
        if store.storage.checkpoints.due:
            store.storage.checkpoint()
    store.storage.checkpoint()
    store.storage.close()
    newer = _read(store, path)
    logs = sorted(name for name in store.disk.listdir(store.ledger_dir) if name != "state")
    _put_back(store, path, older)
    with pytest.raises(CorruptRecord, match="a commit in the middle of the journal is damaged"):
        store.open()
    assert sorted(name for name in store.disk.listdir(store.ledger_dir) if name != "state") == logs
    _put_back(store, path, newer)
    store.open()
    assert all(store.has(5, entry) for entry in range(4000))


@pytest.mark.rule("Q15")
def test_q15_a_journal_that_ends_before_the_state_is_refused() -> None:
    """Its disk lost the end, or it is a copy of an earlier moment: what was acknowledged after it would be a no."""
    store = Store()
    store.fill(5, range(10))
    (name,) = store.disk.listdir(store.journal_dir)
    path = f"{store.journal_dir}/{name}"
    earlier = _read(store, path)
    store.fill(5, range(10, 20))
    store.storage.checkpoint()
    store.fill(5, range(20, 30))
    store.storage.close()
    whole = _read(store, path)
    _put_back(store, path, earlier)
    with pytest.raises(CorruptRecord, match="the journal ends before the state of the ledgers"):
        store.open()
    _put_back(store, path, whole)
    store.open()
    assert all(store.has(5, entry) for entry in range(30))


@pytest.mark.rule("Q15")
@pytest.mark.parametrize("step", range(1, 12))
def test_q15_a_crash_before_the_first_commit_of_a_segment_used_again_is_no_lost_end(step: int) -> None:
    """The journal has no commit as new as the state's mark then, and none was lost."""
    store = Store()
    store.fill(5, range(10))
    store.storage.checkpoint()
    store.restart()
    store.disk.crash_at = store.disk.operations + step
    with contextlib.suppress(Crashed):
        store.fill(5, range(10, 20))
    store.power_loss()
    assert all(store.has(5, entry) for entry in range(10))


@pytest.mark.rule("Q15")
def test_q15_nobody_is_told_that_a_ledger_is_gone_which_a_loss_of_power_brings_back() -> None:
    """Who gives the id away again believed it, and the old entries were read as the new ledger's."""
    store = Store()
    store.fill(5, range(3))
    store.storage.checkpoint()
    plan = store.storage.checkpoints.begin_collect([5], [])
    assert (store.storage.read(5, 0)[0], store.storage.fence(5, KEY)) == (Code.IO_ERROR, Code.IO_ERROR)
    store.power_loss()
    assert store.has(5, 0)
    plan = store.storage.checkpoints.begin_collect([5], [])
    store.storage.checkpoints.write(plan)
    finished(store.storage.checkpoints.finish(plan))
    assert (store.storage.read(5, 0)[0], store.storage.fence(5, KEY)) == (Code.NO_LEDGER, Code.NO_LEDGER)
    store.power_loss()
    assert store.storage.read(5, 0)[0] == Code.NO_LEDGER


NEWER = bytes.fromhex("00000014 ff7f 0002") + bytes(16)  # a record that is not known here


@pytest.mark.rule("Q15")
@pytest.mark.parametrize("last", [False, True], ids=["in the middle", "in the newest commit"])
def test_q15_a_record_of_a_newer_version_is_refused_and_nothing_is_changed(last: bool) -> None:
    """It may be what an answer promised: skipped, or cut with its commit, the promise was broken."""
    store = Store()
    store.fill(5, range(3))
    store.add(5, range(3, 6))
    _commit_beside(store, NEWER)
    if not last:
        store.fill(5, range(6, 9))
    store.storage.close(clean=False)
    before = _content(store)
    for _ in range(2):
        with pytest.raises(StorageError, match="start the version of tallystick that wrote it") as refused:
            store.open()
        path, offset = refused.value.fields["path"], refused.value.fields["offset"]
        assert before[path][offset:].startswith(NEWER)
        assert (refused.value.fields["type"], refused.value.fields["version"]) == ("0xff7f", 2)
        assert _content(store) == before


def test_a_record_of_a_newer_version_in_what_a_checkpoint_covers_does_not_matter() -> None:
    """Who checkpointed knew it."""
    store = Store()
    store.add(5, range(3))
    _commit_beside(store, NEWER)
    store.storage.checkpoint()
    store.fill(5, range(3, 6))
    store.kill()
    assert all(store.has(5, entry) for entry in range(6))


@pytest.mark.rule("Q15")
@pytest.mark.parametrize("seed", range(12))
def test_q15_a_newest_commit_that_is_torn_is_cut_whatever_is_in_it(seed: int) -> None:
    """It was not acknowledged. As a whole it is refused, not cut."""
    store = Store()
    store.fill(5, range(3))
    store.add(5, range(3, 6))
    store.disk.random.seed(seed)
    store.disk.crash_at = store.disk.operations + 1 + seed % 2
    with pytest.raises(Crashed):
        _commit_beside(store, NEWER)
    store.disk.power_loss()
    try:
        store.open()
    except StorageError as refused:
        assert "is of a newer version" in str(refused)  # all of it was written
    else:
        assert [store.has(5, entry) for entry in range(6)] == [True] * 3 + [False] * 3
