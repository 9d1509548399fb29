"""Bugs planted in the shells of streams that lives seldom meet: a test of the shell makes them meet."""

from __future__ import annotations

from sim.mutants import Mutant

STREAM = "bookkeeper/stream/"
TESTS = "tests/unit/bookkeeper/stream/"


def _planted(name: str, module: str, old: str, new: str, killer: str) -> Mutant:
    return Mutant(name, STREAM + module, old, new, killer=TESTS + killer)


STREAM_SHELL_MUTANTS = (
    _planted(
        "what an ended ledger's writer says counts for the next one (S1)",
        "append_flow.py",
        "        if writer is not self.writer:\n            return  # its ledger has ended, and is settled\n",
        "",
        "test_append_flow.py::test_what_an_ended_ledgers_writer_says_later_counts_no_more",
    ),
    _planted(
        "a stream that closes leaves out what is encoded late (S1)",
        "stream.py",
        "        await owner.flow.all_encoded()\n        owner.hurry()\n",
        "        owner.hurry()\n",
        "test_late_appends.py::test_a_stream_that_closes_stores_what_is_encoded_meanwhile",
    ),
    _planted(
        "an entry that is encoded late is not answered when all fail (S1)",
        "append_flow.py",
        ", (self._late.take_all(), False)",
        "",
        "test_late_appends.py::test_each_is_answered_once_when_the_stream_ends_before_they_are_encoded",
    ),
    _planted(
        "an append in doubt is not looked for (S1)",
        "dedup.py",
        "            self._read_from = since if self._read_from is None else min(self._read_from, since)\n",
        "",
        "test_dedup_failures.py::test_an_append_in_doubt_is_looked_for_before_its_repeat_is_judged",
    ),
    _planted(
        "an owner whose lease is another's goes on (S3)",
        "owner.py",
        "    def _lease_lost(self) -> None:\n        self.begin(self._core.lost())\n",
        "    def _lease_lost(self) -> None:\n        pass\n",
        "test_opening.py::test_an_owner_without_work_hears_of_another_that_has_the_stream",
    ),
    _planted(
        "a cursor whose ledger was fenced goes on in the node (S6)",
        "cursor_store.py",
        "            await self._require_owned()\n        self.abort()\n",
        "            pass\n        self.abort()\n",
        "test_cursor_store_failures.py::test_a_broker_that_took_the_stream_has_the_cursor",
    ),
    _planted(
        "a saved cursor that is closed keeps its ledger (S8)",
        "cursor_store.py",
        "        elif not is_saved or self._info.ledger != NO_LEDGER:\n",
        "        elif not is_saved:\n",
        "test_cursor_store.py::test_the_first_acknowledgement_makes_the_cursor_ledger",
    ),
    _planted(
        "who cannot open a stream keeps its lease (S9)",
        "opening.py",
        "        context.leases.give_back_soon(lease)\n        raise\n",
        "        raise\n",
        "test_opening.py::test_an_attempt_that_died_leaves_a_note_and_the_next_deletes_its_ledger",
    ),
    _planted(
        "a look at leases that failed counts (S9)",
        "leases.py",
        "                await self._look_at(store, paths)\n            self._session = session\n",
        "                await self._look_at(store, paths)\n        self._session = session\n",
        "test_leases.py::test_after_a_lost_session_all_leases_are_looked_at_though_the_first_look_failed",
    ),
    _planted(
        "an owner does not look at the list when it has its lease again (S9)",
        "owner.py",
        "        self._looks = True\n        self._begin_work()\n",
        "        pass\n",
        "test_opening.py::test_an_owner_without_work_hears_of_another_that_came_and_went",
    ),
    _planted(
        "a cursor does not look at its node when it has its lease again (S9)",
        "cursor.py",
        "            lease.lost, lease.regained = self._fence, self._lease_regained\n",
        "            lease.lost = self._fence\n",
        "test_cursor_leases.py::test_a_cursor_hears_that_another_owner_came_and_went",
    ),
    _planted(
        "a deletion fences nobody (S1)",
        "deletion.py",
        "        await _fence(context, stored_list.info)\n",
        "",
        "test_deletion.py::test_nothing_is_acknowledged_that_the_list_does_not_have_any_more",
    ),
    _planted(
        "numbers are saved as read beyond an append in doubt (S1)",
        "dedup.py",
        "                mark = min(mark, self._read_from)\n",
        "                pass\n",
        "test_dedup_saves.py::test_numbers_are_not_saved_as_read_beyond_an_append_in_doubt",
    ),
    _planted(
        "numbers are saved before the last of them are known (S1)",
        "dedup.py",
        "            await asyncio.sleep(0)  # whoever was confirmed by now is in the core\n",
        "",
        "test_dedup_saves.py::test_the_numbers_of_all_that_counts_as_saved_are_saved",
    ),
    _planted(
        "what is confirmed during a save counts as saved (S1)",
        "dedup.py",
        "            self._saved_mark = mark\n",
        "            self._saved_mark = self._owner.flow.last_confirmed\n",
        "test_dedup_saves.py::test_the_number_of_the_last_entry_that_is_deleted_is_saved",
    ),
    _planted(
        "numbers are closed as read beyond an append in doubt (S1)",
        "dedup.py",
        "        if self._store is None or self._core is None or self._read_from is not None:\n            return\n",
        "        if self._store is None or self._core is None:\n            return\n",
        "test_dedup_saves.py::test_closing_does_not_save_numbers_as_read_beyond_an_append_in_doubt",
    ),
    _planted(
        "numbers are saved with a position that is one too far (S1)",
        "dedup.py",
        "            mark = self._owner.flow.last_confirmed\n",
        "            mark = self._owner.flow.last_confirmed._replace(entry=1 << 20)\n",
        "test_dedup_saves.py::test_numbers_are_saved_now_and_then",
    ),
    _planted(
        "the numbers of what is trimmed are not saved (S1)",
        "dedup.py",
        "        if self._saved_mark < up_to:\n            await self._save_now()\n",
        "        pass\n",
        "test_dedup_saves.py::test_the_number_of_the_last_entry_that_is_deleted_is_saved",
    ),
    _planted(
        "what is refused takes along what is on its way (S1)",
        "dedup_core.py",
        "            pushed.remove(last)\n",
        "            pushed.clear()\n",
        "test_late_appends.py::test_a_repeat_is_known_though_what_came_behind_it_was_refused_late",
    ),
    _planted(
        "a message that is being joined is passed over (S6)",
        "messages.py",
        "        self._joining = joined.positions[0]",
        "        self._joining = None",
        "test_cursor_chunks.py::test_a_message_that_is_being_joined_when_its_read_ends_comes_with_the_next",
    ),
    _planted(
        "a delivered message is acknowledged when chunks are read again (S6)",
        "messages.py",
        " if each >= self._read_before]",
        "]",
        "test_cursor_chunks.py::test_a_message_that_is_delivered_is_not_acknowledged_when_chunks_before_it_are_read_again",
    ),
    _planted(
        "who waits for room is not woken by a batch that is refused late (S1)",
        "append_flow.py",
        "        if self._appends.waiting_count:\n            self._waits()\n        self.wake()\n",
        "        if self._appends.waiting_count:\n            self._waits()\n",
        "test_batch_checks.py::test_who_waits_for_room_goes_on_when_a_batch_is_refused_late",
    ),
    _planted(
        "a list is as it was to be written, though it was not (S1)",
        "owned_list.py",
        "                self._doubtful = change.info\n",
        "                self.info = self._doubtful = change.info\n",
        "test_owned_list.py::test_a_change_is_made_once",
    ),
    _planted(
        "a deletion condemns nothing (S4)",
        "catalog.py",
        "            await self.store.change(Update(self.paths.going(stream, ledger), CONDEMNED, 0))\n",
        "            await self.store.sync()\n",
        "test_deletion.py::test_it_deletes_no_ledger_that_an_owner_has_made_and_lists_then",
    ),
    _planted(
        "a new cursor ledger begins empty (S6)",
        "cursor_store.py",
        ("            await writer.append(core.encoded())\n        except BaseException:\n"),
        ("            pass\n        except BaseException:\n"),
        "test_cursor_store.py::test_the_first_acknowledgement_makes_the_cursor_ledger",
    ),
    _planted(
        "a message whose last chunk is missing is there (S5)",
        "chunks.py",
        "        if len(begun.parts) == begun.chunks:\n",
        "        if len(begun.parts) >= begun.chunks - 1:\n",
        "test_chunks.py::test_chunks_are_joined_in_order",
    ),
    _planted(
        "who cannot open a stream keeps its ledger's writer (S8)",
        "opening.py",
        "        writer.abort()  # nobody else would",
        "        pass  # nobody else would",
        "test_ledger_steps.py::test_a_list_that_cannot_be_written_leaves_no_open_writer",
    ),
    _planted(
        "an owner that was aborted lists its next ledger (S8)",
        "ledger_steps.py",
        "        try:\n            self._require_open()\n            await self._stored_list",
        "        try:\n            await self._stored_list",
        "test_ledger_steps.py::test_an_owner_that_is_aborted_lists_nothing_later",
    ),
    _planted(
        "a trim drops what the cursors did not need before the numbers were saved (S7)",
        "trim.py",
        "        part = again[: len(part)]\n",
        "",
        "test_trimmed.py::test_a_cursor_that_is_made_before_the_list_changes_keeps_what_it_needs",
    ),
    _planted(
        "an opening does not note what left the front (S5)",
        "opening.py",
        "with_gone(info, replace(info, ledgers=ledgers), ended, version)",
        "replace(info, ledgers=ledgers)",
        "test_opening.py::test_a_position_in_a_ledger_that_was_dropped_as_empty_is_before_the_next_one",
    ),
    Mutant(
        "long lists that differ in their newest ledgers are the same (S1)",
        "bookkeeper/wire/ledger_runs.py",
        "            return self.tail == other.tail\n",
        "            return True\n",
        killer="tests/unit/bookkeeper/wire/test_stream_lists.py::test_lists_with_the_same_runs_and_another_end_are_not_the_same",
    ),
)
