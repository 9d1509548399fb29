"""What the original's own tests assert of its client and its protocol, and which tests hold it here, or why none does.

``tools/conformance.py`` writes it behind its table of rules, and refuses a name of a test that is not there.
"""

from __future__ import annotations

from typing import NamedTuple


class Line(NamedTuple):
    """One behaviour. ``tests`` are names; ``reason`` says what differs, or why there is none."""

    what: str
    tests: tuple[str, ...] = ()
    reason: str = ""


LINES = {
    27: Line(
        "given ids in any order, through ensemble changes: told and read in id order",
        (
            "test_27_any_order_is_confirmed_told_and_read_in_id_order",
            "test_an_ensemble_change_under_way_keeps_the_order",
        ),
    ),
    28: Line("closing with a gap ends the ledger before it", ("test_28_closing_with_a_gap_ends_the_ledger_before_it",)),
    29: Line(
        "a duplicate id, and an append without id, are refused",
        (
            "test_29_an_id_that_is_confirmed_under_way_or_held_is_refused",
            "test_29_an_id_is_appended_once_and_every_append_has_one",
        ),
    ),
    30: Line(
        "deferred: the LAC moves with force alone, to what was acknowledged before it",
        (
            "test_q5_the_lac_is_what_was_acknowledged_before_the_last_force",
            "test_an_ack_that_comes_during_a_force_is_not_part_of_it",
        ),
    ),
    31: Line(
        "a force fails while a bookie is down, and succeeds when it is back",
        (
            "test_all_bookies_must_do_it_and_a_force_that_failed_may_succeed_later",
            "test_the_first_error_fails_the_force_and_nothing_else",
        ),
    ),
    32: Line(
        "deferred: no ensemble change; force on a closed writer; force up to the first gap",
        (
            "test_q7_a_deferred_ledger_never_changes_its_ensemble",
            "test_force_on_a_closed_or_stopped_writer",
            "test_given_ids_are_forced_up_to_the_first_gap",
        ),
    ),
    33: Line(
        "closing without a force; force of an ordinary ledger",
        ("test_without_a_force_the_ledger_is_empty", "test_a_force_of_an_ordinary_ledger_asks_all_its_bookies"),
    ),
    34: Line(
        "explicit LAC, also after a restart",
        (
            "test_an_idle_writer_tells_its_lac_once_to_the_bookies_of_that_entry",
            "test_off_or_without_version_3_nothing_is_told",
            "test_q6_the_explicit_lac_counts_where_it_is_told_and_asked_for",
            "test_an_explicit_lac_survives",
        ),
    ),
    35: Line(
        "the LAC in entries lags by one; reads advance it",
        (
            "test_q6_entries_carry_the_lac_of_the_moment_they_are_sent",
            "test_q6_an_open_ledger_is_read_up_to_the_lac_and_never_fenced",
            "test_a_read_by_version_3_tells_how_far_the_ledger_goes",
        ),
    ),
    36: Line("an append beside a close", ("test_an_append_beside_a_close_is_in_the_ledger_or_fails",)),
    37: Line(
        "a close keeps edits of older fragments; equal ends; a second close waits",
        (
            "test_a_close_keeps_what_others_changed_in_older_fragments",
            "test_q16_a_close_that_another_client_stored_alike_is_a_success",
            "test_p3_a_writer_closes_no_ledger_that_another_client_recovers",
            "test_close_waits_for_what_is_under_way_and_refuses_the_rest",
            "test_a_second_close_waits_for_the_first",
        ),
        "a close waits for pending appends, and leaves a ledger in recovery alone",
    ),
    38: Line(
        "all bookies down",
        (
            "test_q9_without_a_spare_bookie_the_writer_stops_and_can_be_closed",
            "test_q5_where_the_quorum_needs_the_missing_bookie_appends_wait_for_it",
        ),
        "appends wait for `no_quorum_s` first",
    ),
    39: Line(
        "a bookie that refuses the key while another is slow; each append is answered",
        (
            "test_q9_a_wrong_key_changes_no_ensemble",
            "test_q11_a_fenced_writer_withdraws_and_leaves_the_metadata_alone",
            "test_random_faults_lose_nothing_that_was_acknowledged",
        ),
    ),
    40: Line("opening fences; the next append fails", ("test_q11_the_old_writer_can_confirm_nothing_more",)),
    41: Line(
        "many opens under a running writer",
        (
            "test_ten_recoveries_at_once_agree",
            "test_a_running_writer_is_taken_over_and_nothing_acknowledged_is_lost",
        ),
    ),
    42: Line(
        "opening without recovery fences nothing and reads up to its LAC",
        (
            "test_q17_opening_without_recovery_fences_nothing",
            "test_q6_an_open_ledger_is_read_up_to_the_lac_and_never_fenced",
        ),
    ),
    43: Line(
        "a fence survives restarts; a hung bookie; a wrong password leaves the writer alone",
        (
            "test_a_fence_survives_a_restart_of_every_bookie",
            "test_q11_a_fence_survives_every_kind_of_restart",
            "test_q15_a_bookie_that_hangs_does_not_delay_a_certain_end",
            "test_a_wrong_password_asks_no_bookie",
        ),
    ),
    44: Line(
        "repair of a dead bookie beside a fence", reason="there is no repair yet; the original's: `test_shell.py`"
    ),
    45: Line(
        "a fenced, deleted and collected ledger takes no adds",
        (
            "test_the_writer_of_a_deleted_ledger_is_refused_by_its_bookies",
            "test_an_add_to_a_deleted_ledger_is_not_acknowledged_into_nothing",
            "test_first_adds_wait_for_a_look_as_in_version_2",
        ),
    ),
    46: Line(
        "recovery of empty and other ledgers, with too few bookies, with slow ones",
        (
            "test_q16_an_empty_ledger_ends_at_minus_1",
            "test_q16_a_recovered_ledger_is_closed_with_its_last_entry_and_length",
            "test_q12_too_few_fences_fail_the_recovery",
            "test_wrong_password_and_no_ledger",
        ),
    ),
    47: Line(
        "a recovery that cannot write back stores nothing",
        (
            "test_q14_a_write_back_without_quorum_stores_nothing",
            "test_q14_recovery_fails_when_a_write_back_cannot_get_its_quorum",
        ),
    ),
    48: Line(
        "bookies that take no write-backs are replaced; reading ahead",
        (
            "test_two_changes_of_one_recovery_are_two_fragments",
            "test_reading_ahead_doubles_and_entries_beyond_a_gap_are_dropped",
        ),
    ),
    49: Line(
        "all bookies down; readable and not writable",
        ("test_q15_unknown_is_never_a_no_on_the_wire", "test_q14_a_write_back_without_quorum_stores_nothing"),
    ),
    50: Line("closed by another in the middle", ("test_a_ledger_that_a_rival_closed_keeps_the_rivals_end",)),
    51: Line(
        "a fragment appended by another in the middle",
        ("test_q13_a_newest_fragment_that_changed_meanwhile_fails_the_close",),
    ),
    52: Line(
        "a bookie that is dead at the start, at entry 1; two at one entry",
        (
            "test_a_dead_bookie_is_replaced_in_the_closing_write_only",
            "test_two_changes_at_one_entry_are_one_fragment",
            "test_two_changes_of_one_recovery_are_two_fragments",
        ),
    ),
    53: Line(
        "a late write behind the fence is refused",
        (
            "test_q14_every_recovery_request_fences_and_reads_wait_for_coverage",
            "test_p2_a_writer_that_was_cut_off_acknowledges_nothing_behind_the_end",
        ),
    ),
    54: Line(
        "the newest fragment's beginning is the floor",
        (
            "test_q13_the_start_is_the_highest_of_all_lacs_and_the_fragments_floor",
            "test_q13_an_empty_newest_fragment_does_not_reach_back",
        ),
    ),
    55: Line(
        "IN_RECOVERY is written again in between", ("test_q16_who_closes_first_wins_and_the_other_takes_that_end",)
    ),
    56: Line("a gap at the tail", ("test_entries_beyond_a_gap_are_dropped",)),
    57: Line(
        "the writer closes while a recovery begins",
        (
            "test_p3_recovery_never_opens_a_closed_ledger_again",
            "test_a_ledger_that_a_rival_closed_keeps_the_rivals_end",
        ),
    ),
    58: Line(
        "which bookies must answer before the LAC is known",
        (
            "test_q12_covered_means_no_entry_can_be_acknowledged",
            "test_q6_the_lac_needs_answers_from_enough_bookies",
        ),
    ),
    59: Line(
        "no ledger from one, no answer from the other",
        (
            "test_no_such_ledger_at_the_bookies_is_an_answer",
            "test_q6_the_lac_needs_answers_from_enough_bookies",
        ),
    ),
    60: Line("concurrent opens by version 2", ("test_ten_recoveries_at_once_agree",)),
    61: Line(
        "passwords, digests, opens of unsealed and of deleted ledgers",
        (
            "test_wrong_password_and_no_ledger",
            "test_q1_all_digests_write_read_and_recover",
            "test_q6_an_open_ledger_is_read_up_to_the_lac_and_never_fenced",
        ),
        "the stored digest counts, always",
    ),
    62: Line("another digest than the stored one", ("test_q1_all_digests_write_read_and_recover",), "nobody names one"),
    63: Line(
        "reads of all replicas; a recovery read that fails at once",
        (
            "test_q17_replicas_are_tried_until_one_succeeds",
            "test_q15_a_bookie_that_hangs_does_not_delay_a_certain_end",
            "test_q17_no_such_entry_only_when_every_replica_says_so",
        ),
    ),
    64: Line(
        "batch reads: full, short, damaged",
        ("test_a_short_or_damaged_batch_goes_on_elsewhere", "test_q17_batch_reads_of_the_original"),
    ),
    65: Line(
        "limits of batch reads",
        (
            "test_entries_of_all_sizes_keep_within_the_answer_limit",
            "test_q17_a_batch_read_is_limited_by_the_bookie_and_gives_at_least_one_entry",
            "test_q17_bookies_without_batch_reads_are_found_out_and_remembered",
        ),
        "by version 3 alone, single reads without an error",
    ),
    66: Line(
        "speculative reads",
        (
            "test_66_two_that_hang_cost_two_waits_and_the_next_reads_none",
            "test_66_a_late_first_answer_is_harmless_and_one_that_comes_in_time_asks_nobody_else",
        ),
    ),
    67: Line(
        "long polls, with bookies down, with entries that cannot be read",
        (
            "test_an_idle_ledgers_last_entry_comes_soon_and_a_busy_ones_at_once",
            "test_it_follows_onto_another_ensemble_and_past_bookies_that_died",
            "test_a_confirmed_entry_that_is_not_here_is_told_by_the_lac_alone",
        ),
    ),
    68: Line(
        "a response that moves the LAC without an entry; later ones",
        (
            "test_a_long_poll_hears_the_lac_and_the_entry_that_it_allows",
            "test_an_entry_with_a_bad_digest_is_read_elsewhere",
            "test_who_stops_following_leaves_nothing_behind",
        ),
    ),
    69: Line(
        "the LAC with some or all bookies down",
        ("test_q6_the_lac_needs_answers_from_enough_bookies", "test_a_read_that_fails_looks_for_newer_metadata"),
        "a LAC that too few know is not given: there is no call that takes the first one",
    ),
    70: Line(
        "sticky reads",
        (
            "test_70_sticky_reads_begin_at_one_bookie_and_after_its_failure_at_exactly_one_other",
            "test_70_striped_ledgers_use_all_bookies_sticky_or_not",
        ),
    ),
    71: Line(
        "an open reader follows new fragments",
        (
            "test_a_reader_follows_an_ensemble_change",
            "test_it_follows_onto_another_ensemble_and_past_bookies_that_died",
        ),
        "that the metadata was deleted is told by the next read of it",
    ),
    72: Line(
        "a client whose session expired goes on",
        ("test_an_expired_session_registers_its_bookies_again", "test_a_killed_server_that_comes_back_costs_nothing"),
    ),
    73: Line(
        "quarantine",
        (
            "test_q4_a_failed_bookie_is_left_out_for_a_while",
            "test_q2_different_bookies_and_doubtful_ones_only_where_needed",
        ),
        "at the first failed write, on by default",
    ),
    74: Line(
        "placement by racks, regions, zones",
        ("test_q2_placement_uses_all_bookies_alike", "test_q8_only_the_failed_places_change"),
        "there are no racks: placement is random",
    ),
    75: Line(
        "no falling back in responses; unknown opcodes; batch reads both ways",
        (
            "test_what_nobody_asked_for_ends_the_connection",
            "test_what_the_original_closes_on_is_refused",
            "test_batch_answers_round_trip",
        ),
    ),
    76: Line(
        "AUTH of older clients",
        ("test_the_recorded_exchanges_go_the_same_way", "test_version_2_is_closed_for_what_version_3_hears_no_of"),
    ),
    77: Line(
        "fencing reads wait for their fence, and fail with it; plain reads fence nothing",
        (
            "test_q11_every_answer_to_a_fencing_read_waits_until_the_fence_is_durable",
            "test_q15_a_disk_error_is_never_a_no",
            "test_a_key_alone_does_not_fence",
        ),
    ),
    78: Line(
        "what a bookie puts into a batch",
        (
            "test_batches_follow_the_original",
            "test_q17_a_batch_read_is_limited_by_the_bookie_and_gives_at_least_one_entry",
        ),
    ),
    79: Line(
        "adds to a read-only bookie, by priority",
        (
            "test_a_read_only_bookie_takes_recovery_alone_and_only_while_there_is_space",
            "test_a_peer_that_does_not_take_its_answers_is_not_read",
        ),
    ),
    80: Line(
        "force answers when it is synced; a long poll's watcher ends with it",
        (
            "test_a_deferred_add_is_acknowledged_when_it_is_written_and_durable_with_a_force",
            "test_a_poll_is_answered_after_its_time_out_and_none_waits_for_ever",
            "test_those_of_a_connection_that_has_ended_are_forgotten",
        ),
    ),
    81: Line(
        "connects and disconnects leak nothing; each request is answered",
        (
            "test_q15_a_lost_connection_is_unknown_for_everything_outstanding",
            "test_a_client_that_is_closed_while_it_connects_leaves_nothing_behind",
            "test_a_connection_that_has_ended_is_held_by_nothing",
        ),
    ),
    82: Line(
        "flags; logs without bodies and keys",
        ("test_what_is_logged_of_a_request_shows_no_master_key_and_no_body", "test_adds_round_trip"),
        "there are no pools of threads",
    ),
    83: Line(
        "outstanding requests are bounded",
        (
            "test_answers_that_nobody_takes_are_bounded_together_and_others_are_served",
            "test_unfinished_frames_are_bounded_by_closing_who_holds_most",
            "test_bytes_in_flight_hold_appends_back",
        ),
    ),
    84: Line(
        "sparse entries, unknown ledgers, batches with holes, the space of disks",
        (
            "test_the_recorded_exchanges_go_the_same_way",
            "test_batches_follow_the_original",
            "test_both_ask_for_the_space_of_disks",
        ),
    ),
    85: Line(
        "empty payloads; lengths; reads beside an open writer",
        (
            "test_q17_any_size_up_to_the_largest_frame",
            "test_the_length_in_an_entry_is_that_of_the_ledger_up_to_it",
            "test_q17_the_writer_reads_its_open_ledger_up_to_its_lac",
        ),
    ),
    86: Line(
        "authentication",
        (
            "test_a_user_shows_either_secret_and_is_counted",
            "test_n2_who_shows_nothing_is_not_let_in_and_learns_nothing",
            "test_version_2_is_closed_for_what_version_3_hears_no_of",
            "test_an_original_client_shows_our_bookie_who_it_is",
            "test_our_client_shows_an_original_bookie_who_it_is",
        ),
    ),
    87: Line(
        "TLS",
        (
            "test_plain_bytes_are_served_beside_encrypted_ones_where_that_is_written",
            "test_n2_a_client_without_the_certificate_that_is_asked_for_does_not_come_in",
            "test_a_changed_certificate_counts_for_new_connections",
        ),
    ),
    88: Line(
        "registrations: lists, watches, what is told of a bookie",
        (
            "test_watchers_hear_of_bookies",
            "test_what_is_told_about_a_bookie_changes_in_place",
            "test_no_bytes_mean_that_the_id_is_the_address",
            "test_a_bookie_with_a_damaged_registration_does_not_hide_the_others",
        ),
    ),
}
