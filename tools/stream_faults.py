"""Where Pulsar's managed ledgers failed, or can fail, and which tests hold it here (``tools/conformance.py``)."""

from __future__ import annotations

from tools.acceptance import Line

# By the number of a report there, or a word for a weakness of its design.
STREAM_FAULTS = {
    "14664, 12221": Line(
        "two roll-overs at once made two ledgers, and appends went to the one that left the list",
        (
            "test_two_roll_overs_at_once_are_one",
            "test_two_roll_overs_at_once_make_one_ledger",
            "test_a_lost_compare_and_set_of_the_list_fences",
        ),
    ),
    "25858, 26680": Line(
        "the end of a stream raced a roll-over, which opened it again: entries were acknowledged beyond the end",
        (
            "test_what_is_appended_before_the_end_of_the_stream_is_stored",
            "test_a_terminated_stream_has_no_open_ledger",
            "test_a_terminated_stream_is_opened_and_takes_nothing",
        ),
    ),
    "2573": Line(
        "a second failure of a ledger closed the one after it",
        ("test_a_late_failure_of_an_older_ledger_does_nothing_to_the_newer",),
    ),
    "18620": Line(
        "a cursor could not move over a lost ledger",
        ("test_a_lost_ledger_is_told_until_it_is_acknowledged", "test_a_lost_entry_is_told_until_it_is_acknowledged"),
    ),
    "346": Line(
        "a cursor whose ledger was lost began again at the start",
        ("test_a_lost_cursor_ledger_is_rebuilt_from_the_node", "test_bookies_that_are_away_are_no_loss"),
    ),
    "empty ledgers": Line(
        "a ledger without entries leaves the list, though a position may name it",
        (
            "test_a_position_in_a_ledger_that_was_dropped",
            "test_a_ledger_that_was_dropped_at_the_end_leaves_the_mark_where_it_is",
            "test_the_mark_moves_over_ledgers_without_entries",
        ),
    ),
    "readers": Line(
        "a reader opens ledgers with recovery, which fences the owner",
        ("test_nothing_is_fenced_and_nothing_is_written",),
    ),
    "one slow cursor": Line(
        "nothing is trimmed while a durable cursor lags",
        ("test_what_a_durable_cursor_needs_is_kept", "test_q18_what_no_cursor_needs_is_trimmed_and_its_ledgers_go"),
        "it is so here, too",
    ),
    "leaked ledgers": Line(
        "ledgers whose deletion failed stay for ever",
        (
            "test_what_could_not_be_deleted_is_deleted_by_the_next_owner",
            "test_an_attempt_that_died_leaves_a_note_and_the_next_deletes_its_ledger",
        ),
    ),
    "a deletion tried again": Line(
        "one that is tried again never ends", ("test_a_deletion_that_ends_anywhere_is_ended_by_the_next",)
    ),
    "trimming": Line(
        "the list in memory is changed before a conflict is seen",
        (
            "test_a_write_of_the_list_that_fails_deletes_nothing_too_early",
            "test_an_owner_that_was_taken_over_trims_nothing",
        ),
    ),
}
