"""Bugs planted in streams, which whole owners, readers and consumers must show."""

from __future__ import annotations

from sim.mutants import Mutant

STREAM = "bookkeeper/stream/"
SCHEDULES = 120


def _planted(name: str, module: str, old: str, new: str, promise: str, *likely: int) -> Mutant:
    """One that breaks ``promise`` ("": any), most likely in one of these schedules."""
    return Mutant(
        name, STREAM + module, old, new, killer="sim streams", schedules=SCHEDULES, promise=promise, likely=likely
    )


STREAM_MUTANTS = (
    _planted(
        "a new owner fences nobody (S4)",
        "opening.py",
        "async with context.ledgers.open_ledger(ledger, recover=True) as reader:",
        "async with context.ledgers.open_ledger(ledger) as reader:",
        "",
        1,
    ),
    _planted(
        "a new owner drops a ledger of one entry (S7)",
        "opening.py",
        "ledgers = (*[each for each in kept if each.entries], StreamLedger",
        "ledgers = (*[each for each in kept if each.entries > 1], StreamLedger",
        "",
        4,
    ),
    _planted(
        "what a new owner drops is noted nowhere (S8)",
        "opening.py",
        "return ListChange(as_owned(replace(info, ledgers=ledgers)), dropped, (ledger,))",
        "return ListChange(as_owned(replace(info, ledgers=ledgers)), (), (ledger,))",
        "S8",
        1,
    ),
    _planted(
        "a ledger that cannot be closed counts as closed (S4)",
        "ledger_steps.py",
        "            return self._core.not_ended(self._failed(error), self._now())\n",
        "            pass\n",
        "",
        57,
    ),
    _planted(
        "a ledger takes one entry more than it should (S4)",
        "rollover.py",
        "return self._limits.max_entries - self.entries",
        "return self._limits.max_entries + 1 - self.entries",
        "S4",
        4,
    ),
    _planted(
        "a trim asks no cursor (S7)",
        "trim.py",
        "return trimmable(stored_list.info, marks.values(), settings,",
        "return trimmable(stored_list.info, [], settings,",
        "S7",
        38,
    ),
    _planted(
        "a ledger is trimmed whose first entry is acknowledged (S7)",
        "retention.py",
        "mark < Position(ledger.ledger, ledger.entries - 1)",
        "mark < Position(ledger.ledger, 0)",
        "S7",
        29,
    ),
    _planted(
        "the furthest cursor decides what is trimmed (S7)",
        "retention.py",
        "min(marks, default=None)",
        "max(marks, default=None)",
        "S7",
        29,
    ),
    _planted(
        "the note of a ledger goes before the ledger (S8)",
        "deletions.py",
        (
            "                with contextlib.suppress(NoSuchLedger):\n"
            "                    await self._ledgers.delete_ledger(ledger)\n"
            "                await self._catalog.gone(stream, [ledger])\n"
        ),
        (
            "                await self._catalog.gone(stream, [ledger])\n"
            "                with contextlib.suppress(NoSuchLedger):\n"
            "                    await self._ledgers.delete_ledger(ledger)\n"
        ),
        "S8",
        1,
    ),
    _planted(
        "a ledger is made without a note (S8)",
        "marks.py",
        "        beside=lambda ledger: [catalog.note(stream, ledger)],\n",
        "",
        "S8",
        1,
    ),
    _planted(
        "a cursor moves one entry too far (S6)",
        "cursor_core.py",
        "            self._move(Position(following.ledger, end - 1))",
        "            self._move(Position(following.ledger, end))",
        "S6",
        8,
    ),
    _planted(
        "an ack does not wait until it is stored (S6)",
        "cursor.py",
        "            await self._saves.saved()\n",
        "            pass\n",
        "S6",
        11,
    ),
    _planted(
        "whoever opens a cursor does not read its ledger (S6)",
        "cursor_store.py",
        "        state = await self._recover_ledger()\n",
        "        state = None\n",
        "S6",
        29,
    ),
    _planted(
        "whoever opens a cursor fences nobody (S6)",
        "cursor_store.py",
        "async with self._context.ledgers.open_ledger(ledger, recover=True) as reader:",
        "async with self._context.ledgers.open_ledger(ledger) as reader:",
        "S6",
        29,
    ),
    _planted(
        "bits of a batch are shifted by one (S6)",
        "cursor_core.py",
        "& ~(1 << position.batch_index)\n",
        "& ~(1 << position.batch_index + 1)\n",
        "S6",
        19,
    ),
    _planted(
        "a cursor closes with the state that its node had (S6)",
        "cursor_store.py",
        ("await self._write(replace(self._info, ledger=ledger, state=state), noted=noted, settled=settled)"),
        "await self._write(replace(self._info, ledger=ledger), noted=noted, settled=settled)",
        "S6",
        11,
    ),
    _planted(
        "a cursor ledger is not replaced in the node (S9)",
        "cursor_store.py",
        ("            await self._replace_node(writer.id, core.snapshot(MOST_NODE_RANGES), settled=[writer.id])\n"),
        "            pass\n",
        "S9",
        5,
    ),
    _planted(
        "the ledger before a cursor's new one is noted nowhere (S8)",
        "cursor_store.py",
        "noted = [] if before in (NO_LEDGER, ledger) else [before]",
        "noted = []",
        "S8",
        2,
    ),
    _planted(
        "a restored cursor forgets its single acks (S6)",
        "cursor_core.py",
        "        yield from core._restore_ranges(state)\n",
        "        yield\n",
        "S6",
        84,
    ),
    _planted(
        "a reader leaves out the last entry of a closed ledger (S5)",
        "entries.py",
        "if count is not None and first >= count:",
        "if count is not None and first + 1 >= count:",
        "",
        0,
    ),
    _planted(
        "a reader skips a ledger that is not listed when it looks (S5)",
        "entries.py",
        "            at = Position(listed.ledger + 1, 0)\n",
        "            at = Position(listed.ledger + 2, 0)\n",
        "",
        0,
    ),
    _planted(
        "a terminate does not end the ledger (S3)",
        "stream.py",
        "        if (last := self.terminated) is None:\n            await owner.end()\n",
        "        if (last := self.terminated) is None:\n",
        "S3",
        70003,
    ),
    Mutant(
        "a stale owner writes the list of a stream that was made anew (S8)",
        STREAM + "owned_list.py",
        "            await self._require_same()\n            try:\n",
        "            try:\n",
        killer="tests/unit/bookkeeper/stream/test_owned_list.py",
    ),
    _planted(
        "numbers that wait are overtaken (S2)",
        "stream.py",
        "            if dedup is not None and dedup.holds:\n",
        "            if False:\n",
        "S2",
        19,
    ),
    _planted(
        "the newest number of a producer is no repeat (S1)",
        "dedup_core.py",
        "if sequence <= self._stored.get(producer, -1):",
        "if sequence < self._stored.get(producer, -1):",
        "S1",
        46,
    ),
    _planted(
        "an empty ledger that is rolled over is noted nowhere (S8)",
        "owned_list.py",
        "() if ended.entries else (ended.ledger,), (ledger,))",
        "(), (ledger,))",
        "S8",
        124,
    ),
    _planted(
        "all that was sent to a ledger that ended is stored (S3)",
        "append_flow.py",
        "self._stored(last + 1 - self.confirmed)",
        "self._stored(1 << 30)",
        "S3",
        124,
    ),
    _planted(
        "what a ledger that ended did not take is sent to no other (S9)",
        "append_flow.py",
        "        self._appends.send_on()\n",
        "",
        "S9",
        125,
    ),
    _planted(
        "a stream is terminated before its last entry (S3)",
        "owned_list.py",
        "replace(info, terminated=last)",
        "replace(info, terminated=last._replace(entry=last.entry - 1))",
        "S3",
        73,
    ),
    _planted(
        "a cursor that was moved is not stored (S6)",
        "cursor.py",
        ("        await self._reading.set(place.position)\n        await self._save()\n"),
        "        await self._reading.set(place.position)\n",
        "S6",
        83,
    ),
    _planted(
        "of a batch only the first number is known (S1)",
        "dedup.py",
        "core.stored(opened.producer, opened.sequence, opened.last_sequence, position)",
        "core.stored(opened.producer, opened.sequence, opened.sequence, position)",
        "S1",
        614,
    ),
    _planted(
        "a deletion condemns nothing (S4)",
        "catalog.py",
        "            await self.store.change(Update(self.paths.going(stream, ledger), CONDEMNED, 0))\n",
        "            await self.store.sync()\n",
        "",
        228,
    ),
    _planted(
        "a deletion forgets the ledgers of cursors (S8)",
        "deletion.py",
        "noted = () if node.value.ledger == NO_LEDGER else (node.value.ledger,)",
        "noted = ()",
        "S8",
        0,
    ),
    Mutant(
        "a condemned ledger is listed (S4)",
        STREAM + "catalog.py",
        "cursor=cursor), 0) for ledger in settled]",
        "cursor=cursor)) for ledger in settled]",
        killer="tests/unit/bookkeeper/stream/test_deletion.py",
    ),
    Mutant(
        "a cursor's deletion forgets what was made for it (S8)",
        STREAM + "catalog.py",
        "        dead = sorted({*noted, *unused})\n",
        "        dead = sorted(noted)\n",
        killer="tests/unit/bookkeeper/stream/test_cursor_store.py",
    ),
    _planted(
        "a new cursor ledger begins empty (S6)",
        "cursor_store.py",
        ("            await writer.append(core.encoded())\n        except BaseException:\n"),
        ("            pass\n        except BaseException:\n"),
        "S6",
        615,
    ),
    _planted(
        "what is sent on is sent in reverse (S2)",
        "appends.py",
        "self._waiting.extendleft(reversed(self._sent))",
        "self._waiting.extendleft(self._sent)",
        "S2",
        67,
    ),
    _planted(
        "a save covers what is acknowledged meanwhile (S6)",
        "cursor_saves.py",
        "            self._saved = save.covers\n",
        "            self._saved = core.changes\n",
        "S6",
        123,
    ),
)
