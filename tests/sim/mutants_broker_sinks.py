"""Bugs planted in what a broker knows of sinks, and in who sends for them: lives of sinks must show them, or a test."""

from __future__ import annotations

from sim.mutants import Mutant

TABLE = "rocketmq/store/sink_table.py"
CHECKS = "rocketmq/broker/sink_checks.py"
SENDER = "rocketmq/client/sinking.py"
TASK = "pipeline/topic/sink_"
TABLE_TEST = "tests/unit/rocketmq/store/test_sink_table.py::test_"
CHECKS_TEST = "tests/unit/rocketmq/broker/test_sink_checks.py::test_"
SENDER_TEST = "tests/unit/rocketmq/client/test_sinking.py::test_"
TASK_TEST = "tests/unit/pipeline/topic/test_sink_"


def _planted(name: str, module: str, old: str, new: str, killer: str = "sim broker sinks") -> Mutant:
    return Mutant(name, module, old, new, killer=killer, schedules=30)


BROKER_SINK_MUTANTS = (
    _planted(
        "what is behind the last checkpoint is not known (B11)",
        "rocketmq/store/opening.py",
        "        while start < log.end:\n            for chunk in chunks(log.files, start):\n                sinks.",
        "        while start > log.end:\n            for chunk in chunks(log.files, start):\n                sinks.",
    ),
    _planted(
        "a slave does not learn of sinks by what it copies (B11)",
        "rocketmq/store/store.py",
        "self._reput.sinks = self.sinks if slave else None",
        "self._reput.sinks = None",
    ),
    _planted(
        "what is stored is stored again with the rest (B7)",
        CHECKS,
        "        put_request.messages = messages[repeated_count:]\n",
        "",
    ),
    _planted(
        "a repeated send does not wait for disk and slaves (B1)",
        CHECKS,
        "RepeatedSend(topic, first_end, newest.end,",
        "RepeatedSend(topic, first_end, 0,",
    ),
    Mutant(
        "without an index the end of a repeated batch stands for its beginning (B1)",
        CHECKS,
        " and self._store.has_whole_index\n",
        "\n",
        killer=CHECKS_TEST + "without_an_index_a_slave_that_began_within_a_batch_is_no_copy_of_it",
    ),
    Mutant(
        "a sink is forgotten before the disk has it",
        "rocketmq/broker/sink_requests.py",
        "respond_when_noted(parts, self._store.note_sinks, command.response(OK), reply)\n        return None",
        "return command.response(OK)",
        killer=CHECKS_TEST + "who_has_a_sink_forgotten_waits_for_the_disk",
    ),
    Mutant(
        "messages that come while a forgotten sink is noted keep it from that",
        "rocketmq/store/upkeep.py",
        "_SINK_NOTES = 3",
        "_SINK_NOTES = 2",
        killer="tests/unit/rocketmq/store/test_forgotten_sinks.py::test_it_is_noted_though_others_go_on",
    ),
    _planted(
        "the next batch is taken for stored as far as the last one (B11)",
        CHECKS,
        "            if state.batch == first.batch:\n                newest",
        "            if True:\n                newest",
    ),
    _planted(
        "of the messages that a slave copies the first counts (B11)",
        TABLE,
        "                last_numbers[run.topics[number], shared] = number",
        "                last_numbers.setdefault((run.topics[number], shared), number)",
    ),
    _planted(
        "partitions that a slave copies are taken for one (B11)",
        TABLE,
        '.rsplit(b" ", _OWN_PARTS)[0]',
        '.rsplit(b" ", _OWN_PARTS + 1)[0]',
    ),
    _planted(
        "what is new is not noted with a checkpoint (B11)",
        TABLE,
        "            state.stored_ms = max(state.stored_ms, stored_ms)\n            self._changed.add(key)",
        "            state.stored_ms = max(state.stored_ms, stored_ms)",
    ),
    _planted(
        "a part goes on where another batch ended",
        SENDER,
        "if state.batch == place.batch and state.sequence is not None and",
        "if state.sequence is not None and",
        SENDER_TEST + "the_newest_batch_of_all_broker_sets_counts",
    ),
    _planted(
        "a slave takes what it lacks for stored",
        TABLE,
        "                if last.end <= end:\n",
        "                if True:\n",
        TABLE_TEST + "a_slave_that_lacks_the_end_does_not_take_it_for_stored",
    ),
    _planted(
        "a slave takes what it has not dispatched for stored",
        "rocketmq/store/replicated_queues.py",
        "self._parts.sinks.learn(kept, self._reput.offset)",
        "self._parts.sinks.learn(kept, self._parts.log.end)",
        TABLE_TEST + "a_slave_takes_no_message_for_stored_that_it_has_not_dispatched",
    ),
    _planted(
        "a slave notes what it has not dispatched as known",
        "rocketmq/store/upkeep.py",
        "lambda: parts.log.end if parts.reput.sinks is None else parts.reput.offset",
        "lambda: parts.log.end",
        TABLE_TEST + "a_slave_that_dies_before_it_has_dispatched_all_knows_it_later",
    ),
    _planted(
        "a slave takes what was deleted for stored",
        "rocketmq/store/replicated_queues.py",
        "if all(last.end > deleted_topics.get(row.topic) for last in row.partitions)",
        "if True",
        TABLE_TEST + "a_slave_is_not_told_of_sinks_of_a_topic_that_is_deleted",
    ),
    _planted(
        "a checkpoint looks between the log and the table",
        "rocketmq/store/store.py",
        "        with self.sinks.lock:\n",
        "        if True:\n",
        TABLE_TEST + "no_checkpoint_looks_between_the_log_and_the_table",
    ),
    _planted(
        "an older table of a master takes the place of what is newer",
        TABLE,
        "if state is not None and end <= state.end:",
        "if state is not None and end < 0:",
        TABLE_TEST + "what_is_further_behind_in_the_log_is_newer_whenever_it_is_told",
    ),
    _planted(
        "a message behind a gap is stored",
        CHECKS,
        "        if first.sequence > expected:\n",
        "        if first.sequence > expected + 1:\n",
        CHECKS_TEST + "no_message_is_taken_behind_a_gap",
    ),
    _planted(
        "a batch that is over is stored again",
        CHECKS,
        "if state.query != identity.query or identity.batch < state.batch:",
        "if state.query != identity.query:",
        CHECKS_TEST + "a_batch_has_one_number_of_partitions_and_one_query",
    ),
    _planted(
        "an error of a broker is remembered when a later send is stored",
        SENDER,
        "and not (is_error and errors < _ERRORS):",
        "and not 0 < errors < _ERRORS:",
        SENDER_TEST + "at_least_once_a_send_that_came_through_is_not_repeated",
    ),
    _planted(
        "a message that no slave has is taken for stored",
        SENDER,
        "if response.code not in _NOT_NOW and",
        "if (response.code not in _NOT_NOW or response.code in _LATE) and",
        SENDER_TEST + "what_disk_or_slaves_may_lack_is_sent_again",
    ),
    _planted(
        "broker sets of which another one tells are not asked",
        SENDER,
        '            brokers |= dict.fromkeys(names_of(state.brokers or ""))\n',
        "",
        SENDER_TEST + "a_set_of_which_only_another_one_tells_is_waited_for",
    ),
    _planted(
        "a part is sent without the rows that are in memory at its end",
        TASK + "order.py",
        "heapq.merge(*map(_read, files), part) if files",
        "heapq.merge(*map(_read, files)) if files",
        TASK_TEST + "rows.py::test_rows_that_are_in_memory_at_the_end_are_merged_with_those_in_files",
    ),
    _planted(
        "a batch that comes again without its last row is taken for the same",
        TASK + "part.py",
        "        if self.count <= self._start.stored:\n",
        "        if self.count < self._start.stored:\n",
        TASK_TEST
        + "tasks.py"
        + "::test_a_batch_that_has_fewer_rows_than_before_is_refused_also_if_only_the_last_one_is_missing",
    ),
)
