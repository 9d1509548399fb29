"""Bugs planted in what Spark reads: rows would be lost, doubled or others than were asked for, without a word."""

from __future__ import annotations

from sim.mutants import Mutant

PIPELINE = "pipeline/"
TESTS = "tests/unit/pipeline/"


def _planted(name: str, module: str, old: str, new: str, killer: str) -> Mutant:
    return Mutant(name, PIPELINE + module, old, new, killer=TESTS + killer)


SOURCE_MUTANTS = (
    _planted(
        "a broker that gives later messages than it was asked for is believed",
        "topic/brokers.py",
        "np.arange(offset, offset + len(run))",
        "np.arange(int(offsets[0]), int(offsets[0]) + len(run))",
        "topic/test_read.py::test_a_gap_is_an_error",
    ),
    _planted(
        "a queue begins where a slave does that never had its beginning",
        "topic/follow.py",
        "unsure = sorted(queue for queue, each in limits.items() if not each.is_sure)",
        "unsure = []",
        "topic/test_survey.py::test_h13_a_queue_does_not_begin_where_a_slave_does_that_never_had_its_beginning",
    ),
    _planted(
        "a query whose start is behind its end reads what is between",
        "stream/survey.py",
        "StreamSpan(extent, start, max(start, stop))",
        "StreamSpan(extent, min(start, stop), max(start, stop))",
        "stream/test_survey.py::test_a_query_whose_start_is_behind_its_end_has_nothing",
    ),
    _planted(
        "what a query has read of a ledger is planned again",
        "ledger/plan.py",
        "max(extent.first, entries.first), min(extent.last, entries.last)",
        "entries.first, min(extent.last, entries.last)",
        "ledger/test_plan.py::test_what_a_query_has_read_of_a_ledger_is_not_planned_again",
    ),
    _planted(
        "a ledger that was named and goes is left out",
        "ledger/survey.py",
        "elif not isinstance(outcome, NoSuchLedger) or ledger in options.selection.named_ledgers:",
        "elif not isinstance(outcome, NoSuchLedger):",
        "ledger/test_survey.py"
        "::test_an_open_ledger_that_goes_while_its_end_is_asked_for_is_missed_only_if_it_was_named",
    ),
    _planted(
        "a ledger that the options name no more is read on",
        "ledger/planner.py",
        "if ledger in self.options.selection}",
        "}",
        "ledger/test_planner_options.py::test_a_ledger_that_the_options_name_no_more_is_left_alone",
    ),
    _planted(
        "a query that is started again waits for a plan that Spark does not make",
        "planner.py",
        "start == self._initial and ",
        "",
        "test_planner.py::test_a_restarted_query_that_has_finished_its_batches_reads_on_before_it_plans_anything",
    ),
    _planted(
        "a batch with Trigger.Once has what a limit leaves",
        "following.py",
        "TriggerLimits() if isinstance(limit, ReadAllAvailable) else self.options.trigger",
        "self.options.trigger",
        "test_following.py::test_limits_count_unless_spark_wants_all",
    ),
    _planted(
        "Trigger.AvailableNow has no end",
        "following.py",
        "            self.planner.freeze()\n",
        "            pass\n",
        "test_following.py::test_each_call_goes_to_one_planner_as_it_is",
    ),
    _planted(
        "an empty plan is a task that reads nobody knows what",
        "source.py",
        "for partition in partitions or [self.nothing()]]",
        "for partition in partitions]",
        "test_source.py::test_each_part_of_a_plan_is_a_task_and_a_plan_without_any_is_one_that_has_nothing",
    ),
    _planted(
        "a query has lost what another planner of it saw and this one did not",
        "stream/follow.py",
        "is None or at > extent.end",
        "is None",
        "stream/test_planner_rounds.py::test_a_stream_that_is_read_further_than_it_was_seen_is_looked_at_at_once",
    ),
)
