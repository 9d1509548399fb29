"""Bugs planted in the sinks of streams, which whole drivers, executors and operators must show, or a test of theirs."""

from __future__ import annotations

from sim.mutants import Mutant

SPLICE = "bookkeeper/stream/splice/"
TESTS = "tests/unit/bookkeeper/stream/"
SCHEDULES = 80


def _planted(name: str, module: str, old: str, new: str, promise: str, *likely: int) -> Mutant:
    """One that breaks ``promise`` ("": any), most likely in one of these schedules."""
    return Mutant(
        name, SPLICE + module, old, new, killer="sim sinks", schedules=SCHEDULES, promise=promise, likely=likely
    )


def _seldom(name: str, module: str, old: str, new: str, killer: str) -> Mutant:
    """One that lives seldom meet: a test makes them meet."""
    return Mutant(name, SPLICE + module, old, new, killer=TESTS + killer)


def _of_spark(name: str, module: str, old: str, new: str, killer: str) -> Mutant:
    """One in what Spark's tasks and its driver do around a sink: no life has those."""
    return Mutant(name, "pipeline/stream/" + module, old, new, killer="tests/unit/pipeline/stream/" + killer)


SINK_MUTANTS = (
    _planted(
        "a batch that is stored is stored again (K1)",
        "commit_core.py",
        "    if batch.number <= record.batch:\n",
        "    if batch.number < record.batch:\n",
        "K1",
    ),
    _planted(
        "a run that is over commits (K3)",
        "commit_core.py",
        "    require_same_run(record, batch.run, batch.application, stream)\n    require_sink",
        "    require_sink",
        "K3",
    ),
    _planted(
        "another query goes on (K4)",
        "opening.py",
        "        require_same_query(record, ticket.query, application, stream)\n",
        "",
        "K4",
    ),
    _seldom(
        "a run that is over begins again (K3)",
        "opening.py",
        "        if ticket.run in record.before:\n",
        "        if False:\n",
        "test_sink.py::test_a_run_that_is_known_goes_on_and_one_that_is_over_does_not",
    ),
    _planted(
        "a ledger that is not above the last one is not copied (S4)",
        "commit_core.py",
        "if each.ledger <= last]",
        "if each.ledger < 0]",
        "",
    ),
    _seldom(
        "the last entry of a ledger is not copied (K1)",  # of several: a copy is seldom made, and of one mostly
        "sink.py",
        "reader.read(0, written.entries - 1):",
        "reader.read(0, max(0, written.entries - 2)):",
        "test_sink.py::test_applications_write_one_stream_side_by_side",
    ),
    _seldom(
        "ledgers are listed as they were given (S4)",  # readers of the list sort them
        "commit_core.py",
        "for each in sorted(batch.ledgers)]",
        "for each in batch.ledgers]",
        "test_sink_races.py::test_ledgers_are_listed_by_their_ids_and_the_record_decides",
    ),
    _planted(
        "a commit does not say how far the application is (K1)",
        "commit_core.py",
        "replace(before, batch=batch.number, offsets=batch.offsets)",
        "replace(before, batch=max(before.batch, 0))",
        "K1",
    ),
    _seldom(
        "a commit whose request was lost counts as made (K1)",
        "sink.py",
        "        except (ChangeOvertaken, MetadataUncertain):\n            return False\n",
        "        except (ChangeOvertaken, MetadataUncertain):\n            return True\n",
        "test_sink_races.py::test_a_commit_whose_request_was_lost_is_made_again",
    ),
    _planted(
        "the note of a ledger stays that is listed (S8)",
        "sink.py",
        "settled=settled, begun=begun",
        "begun=begun",
        "",
    ),
    _planted(
        "a sweep deletes what goes on (K5)",
        "attempt_note.py",
        "note.run not in record.before and note.batch > record.batch",
        "note.run not in record.before and note.batch > record.batch + 1",
        "K5",
    ),
    _planted(
        "a sweep leaves what a run that is over wrote (S8)",
        "attempt_note.py",
        "note.run not in record.before and note.batch > record.batch",
        "note.run not in record.before or note.batch > record.batch",
        "S8",
    ),
    _planted(
        "a sweep leaves what a stored batch does not have (S8)",
        "attempt_note.py",
        "note.run not in record.before and note.batch > record.batch",
        "note.run not in record.before",
        "S8",
    ),
    _planted(
        "a sweep knows no run but the one that goes on (K5)",
        "sweep.py",
        "(record is None or not can_be_committed(note, record))",
        "True",
        "K5",
    ),
    _planted(
        "what retention dropped is not swept (S8)",
        "sweep.py",
        "words in (NO_WORDS, CONDEMNED)",
        "words in (CONDEMNED,)",
        "S8",
        15,
    ),
    _planted(
        "what somebody condemned is not swept (S8)",
        "sweep.py",
        "words in (NO_WORDS, CONDEMNED)",
        "words in (NO_WORDS,)",
        "S8",
    ),
    _planted(
        "an attempt counts its writes, and not its entries (K1)",
        "attempt.py",
        "        self._entries += len(entries)\n",
        "        self._entries += 1\n",
        "K1",
        4,
    ),
    _planted(
        "an attempt's ledger is not noted (S8)",
        "attempt.py",
        "        beside=lambda ledger: [context.catalog.note(ticket.stream, ledger, data=written)],\n",
        "",
        "S8",
    ),
    _planted(
        "a run begins with the batch of nobody (K1)",
        "opening.py",
        "run=ticket.run)\n            return StreamSink(context, ticket, record.batch,",
        "run=ticket.run)\n            return StreamSink(context, ticket, -1,",
        "K1",
    ),
    _planted(
        "a run that begins forgets what was stored (K1)",
        "record.py",
        "replace(self, run=run, before=",
        "replace(self, run=run, batch=NO_BATCH, before=",
        "K1",
    ),
    _seldom(
        "runs that are over are forgotten (K3)",
        "record.py",
        "before=(*self.before, self.run)[-RUNS_BEFORE:])",
        "before=self.before)",
        "test_sink.py::test_a_run_that_is_known_goes_on_and_one_that_is_over_does_not",
    ),
    _seldom(
        "an empty batch is stored in another stream of the name (K1)",
        "sink.py",
        "            if await catalog.creation(stream) != self._creation:\n                return False\n",
        "",
        "test_sink_races.py::test_an_empty_batch_is_not_stored_in_another_stream_of_the_name",
    ),
    _seldom(
        "a run begins in another stream of the name (K1)",
        "opening.py",
        "        return False  # another stream of this name\n",
        "        pass\n",
        "test_sink_races.py::test_a_run_is_not_begun_in_another_stream_of_the_name",
    ),
    _seldom(
        "a stream that a broker writes is switched (K3)",
        "opening.py",
        "        await require_ours(context, stream, stored.value)\n",
        "",
        "test_sink_races.py::test_a_stream_that_a_broker_writes_is_not_switched",
    ),
    _seldom(
        "what attempts of a forgotten application wrote stays for good (K5)",
        "sweep.py",
        "(record is None or not can_be_committed(note, record))",
        "record is not None and not can_be_committed(note, record)",
        "test_sink_forgetting.py::test_a_forgotten_application_leaves_its_rows_and_nothing_else",
    ),
    _seldom(
        "whose answer was lost has forgotten nothing",
        "forget.py",
        "forgotten = record or forgotten",
        "forgotten = record",
        "test_sink_forgetting.py::test_the_answer_that_an_application_is_forgotten_may_be_lost",
    ),
    _seldom(
        "an application is forgotten in the list of an owner that is at work",
        "forget.py",
        "    if is_sink(before.value):\n",
        "    if True:\n",
        "test_sink_owned.py::test_nothing_is_forgotten_in_the_list_of_an_owner_that_has_it",
    ),
    _seldom(
        "an application is forgotten in the list that a broker writes",
        "forget.py",
        "    await require_ours(context, stream, before.value)\n",
        "",
        "test_sink_owned.py::test_nothing_is_forgotten_in_the_list_that_a_broker_writes",
    ),
    _seldom(
        "a sink trims what an owner keeps",
        "sink.py",
        "        require_no_owner(stored.value, self.stream)\n",
        "",
        "test_sink_owned.py::test_a_sink_trims_nothing_of_an_owner_that_took_the_stream_over",
    ),
    _seldom(
        "a sweep deletes what an owner notes (K5)",
        "sweep.py",
        "    if not is_sink(info):\n        return []\n",
        "",
        "test_sink_races.py::test_a_sweep_leaves_what_an_owner_notes_and_what_a_newer_version_says",
    ),
    _of_spark(
        "a batch is stored without the rows of a task that said nothing (K1)",
        "sink.py",
        "if len(parts) < len(messages):",
        "if False:",
        "test_sink_part.py::test_a_batch_is_not_done_before_each_task_has_said_what_it_wrote",
    ),
    _of_spark(
        "rows are written at least once but for those of a task that said nothing",
        "repeatable_sink.py",
        "if not all(isinstance(message, PartRelayed) for message in messages):",
        "if not any(isinstance(message, PartRelayed) for message in messages):",
        "test_sink_part.py::test_a_batch_is_not_done_before_each_task_has_said_what_it_wrote",
    ),
    _of_spark(
        "rows are written at least once but for the last ones of a task",
        "repeatable_sink.py",
        "            relay.send(maker.take())\n",
        "",
        "test_repeatable_sink.py::test_a_task_has_ended_when_all_of_its_rows_are_stored",
    ),
    _of_spark(
        "a task has ended before all of its rows are stored",
        "repeatable_sink.py",
        "return PartRelayed(relay.finish())",
        "return PartRelayed(relay.stored)",
        "test_repeatable_sink.py::test_a_task_has_ended_when_all_of_its_rows_are_stored",
    ),
    _of_spark(
        "a query does not say where its batch ends (K1)",
        "sink.py",
        "self._offsets(batch) if follows else None",
        "None",
        "test_sink_part.py::test_a_query_says_with_its_batch_where_that_ends_in_its_source",
    ),
)
