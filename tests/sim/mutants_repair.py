"""Bugs planted in auditors and replicators: what would lose a copy, or an entry, that is there."""

from __future__ import annotations

from sim.mutants import Mutant

REPAIR = "bookkeeper/repair/"
CORE = "tests/unit/bookkeeper/repair/test_auditor_core.py"
WHOLE = "tests/unit/bookkeeper/repair/test_repair.py tests/unit/bookkeeper/repair/test_stuck_places.py"
FINDINGS = "tests/unit/bookkeeper/repair/test_findings.py"
LOCKS = "tests/unit/bookkeeper/repair/test_lost_locks.py"
AUDITOR = "tests/unit/bookkeeper/repair/test_auditor.py"
AUDIT = "tests/unit/bookkeeper/repair/test_copy_audit.py"
GIVE_UP = "tests/unit/bookkeeper/repair/test_give_up.py"
PLACES = "tests/unit/bookkeeper/repair/test_shortfall.py"
TREE = "tests/conformance/test_metadata_underreplication.py -k memory"
ADMIN = "tests/unit/admin/test_repair.py"
MISPLACED = "tests/unit/bookkeeper/repair/test_misplaced.py"


def _planted(name: str, module: str, old: str, new: str, killer: str = WHOLE) -> Mutant:
    return Mutant(name, module, old, new, killer=killer)


REPAIR_MUTANTS = (
    Mutant(
        "the metadata names a bookie that has no copy",
        REPAIR + "ledger_repair.py",
        "        outcome = await self._transfer(copying, versioned, place, target, belief, own)\n",
        "        outcome = None\n",
        killer="sim repairs",
        schedules=12,
        promise="R1",
    ),
    Mutant(
        "some entries of a place are left out",
        REPAIR + "copying.py",
        "            at += count\n",
        "            at += count + (count == 4)\n",
        killer="sim repairs",
        schedules=60,
        promise="R1",
    ),
    Mutant(
        "a marked ledger is never tried again",
        REPAIR + "deferrals.py",
        "return waiting is None or waiting.retry_at <= now",
        "return waiting is None",
        killer=WHOLE,
    ),
    _planted(
        "a bad copy is copied",
        REPAIR + "copying.py",
        "                self._digest.decode(self._ledger, entry, stored)\n                good",
        "                good",
    ),
    _planted(
        "silence is missing (Q15)",
        REPAIR + "copying.py",
        "(result.unknown if entry in doubtful else result.missing).append(entry)",
        "result.missing.append(entry)",
    ),
    _planted(
        "an error of a bookie is a no (Q15)",
        REPAIR + "copying.py",
        "        unknown += [entry for entry, code in run.codes.items() if code not in NO_CODES]\n",
        "        assert NO_CODES\n",
    ),
    _planted(
        "a copy is not read back",
        REPAIR + "copying.py",
        "if any(stored.frames.get(entry) != frame for entry, frame in frames.items()):",
        "if not frames:",
    ),
    _planted(
        "a bookie that alone may have an entry loses its place",
        REPAIR + "ledger_repair.py",
        "        return Lost(read.missing.all(), bookie)\n",
        "        return None\n",
    ),
    _planted(
        "a bookie in limbo gets copies",
        REPAIR + "ledger_repair.py",
        "never = [*limbo, *versioned",
        "never = [*versioned",
    ),
    _planted(
        "an open ledger is fenced though nobody can take a copy",
        REPAIR + "ledger_repair.py",
        (
            "            await self._target(versioned, gone, metadata.ensemble, limbo_of(bookies))\n"
            "        except NotEnoughBookies as error:\n            return Deferred(str(error))\n"
            "        there"
        ),
        "            pass\n        finally:\n            pass\n        there",
    ),
    _planted(
        "an open ledger that no recovery can fence is taken from its writer",
        REPAIR + "ledger_repair.py",
        "if metadata.state is LedgerState.OPEN and not Striping.of(metadata).covered(there):",
        "if metadata.state is LedgerState.OPEN and not Striping.of(metadata):",
    ),
    _planted("an open ledger is fenced at once", REPAIR + "steps.py", "if still_s >= open_grace_s:", "if True:"),
    _planted(
        "an open ledger that a living bookie damaged is fenced",
        REPAIR + "steps.py",
        "    if shortfall.is_open_at(metadata, absent):",
        "    if shortfall.is_open_at(metadata, named):",
        killer=PLACES,
    ),
    _planted(
        "a lost entry keeps all other places of its ledger from repair",
        REPAIR + "ledger_repair.py",
        "if isinstance(outcome, Lost) and isinstance(step, Copy | Check):",
        "if isinstance(outcome, Lost) and step is None:",
    ),
    _planted(
        "a mark is dropped unread",
        REPAIR + "steps.py",
        "        if place not in checked and",
        "        if place.slot < 0 and",
    ),
    _planted(
        "a finding is dropped unread",
        REPAIR + "shortfall.py",
        "entry for first, last in runs for entry in",
        "entry for first, last in runs[:0] for entry in",
        killer=FINDINGS,
    ),
    _planted(
        "a finding goes with what was found meanwhile",
        "bookkeeper/metadata/findings.py",
        "await self._store.change(Delete(self._path(ledger), version))",
        "await self._store.change(Delete(self._path(ledger)))",
        killer=FINDINGS,
    ),
    _planted(
        "a bookie that gives no list has nothing (Q15)",
        REPAIR + "copy_check.py",
        "        except NoSuchLedger:\n            listed = None\n",
        "        except TallyError:\n            listed = None\n",
        killer=AUDIT,
    ),
    _planted(
        "what a bookie says it lacks is passed over",
        REPAIR + "copy_check.py",
        "if listed is None or entry not in listed]",
        "if listed is None]",
        killer=AUDIT,
    ),
    _planted(
        "who was not elected audits",
        REPAIR + "auditor.py",
        "return self.is_elected and self._is_enabled",
        "return self._is_enabled",
        killer=AUDIT,
    ),
    _planted(
        "the copies of a bookie that is back are not looked at",
        REPAIR + "auditor.py",
        "                self._returned[action.bookie] = None\n",
        "",
        killer=AUDIT,
    ),
    _planted(
        "who is no administrator forces",
        "admin/decommission.py",
        "                if not await client.context.bookies.may_administer(other):",
        "                if not await client.context.bookies.may_administer(other) and allowed < 0:",
        killer=ADMIN,
    ),
    _planted(
        "a reader passes over what was given up",
        "bookkeeper/ledger/ranges.py",
        "bookies, quorum, digest_type, password, lost, mean_bytes))",
        "bookies, quorum, digest_type, password, (), mean_bytes))",
        killer=GIVE_UP,
    ),
    _planted(
        "what a silent bookie may have is given up (Q15)",
        REPAIR + "give_up.py",
        "    if read.unknown:\n",
        "    if read.unknown and not read.missing:\n        return list(read.unknown)\n    if read.unknown:\n",
        killer=GIVE_UP,
    ),
    _planted(
        "a ledger is closed though a bookie that is left may have more",
        "bookkeeper/ledger/recover.py",
        "no_needed=base.value.write_quorum)",
        "no_needed=1)",
        killer=GIVE_UP,
    ),
    _planted(
        "what another entry says to be confirmed is dropped",
        "bookkeeper/repair/give_up.py",
        "        return max(self._lac, first - 1), top\n",
        "        return first - 1, top\n",
        killer=GIVE_UP,
    ),
    _planted(
        "more is given up than was shown",
        REPAIR + "give_up.py",
        "        if more or (loss.closes",
        "        if (loss.closes",
        killer=GIVE_UP,
    ),
    _planted(
        "a finding at a bookie that is gone begins a copying",
        REPAIR + "replicator.py",
        "        present = [fault for fault in faults if bookies.find(fault.bookie) is not None]\n",
        "        present = list(faults)\n",
        killer=FINDINGS,
    ),
    _planted(
        "a degraded writer leaves without a word",
        "bookkeeper/ledger/writer.py",
        "await note_unsent(context, state.id, unsent_bookies)",
        "await note_unsent(context, state.id, ())",
        killer=FINDINGS,
    ),
    _planted(
        "who failed an entry behind its quorum is not told of",
        "bookkeeper/ledger/add_session.py",
        "*self.unsent_bookies, *self._core.failed_bookies, *self._replicas.silent",
        "*self.unsent_bookies, *self._replicas.silent",
        killer=FINDINGS,
    ),
    _planted(
        "who is silent when a ledger is closed is not told of",
        "bookkeeper/ledger/add_session.py",
        "*self.unsent_bookies, *self._core.failed_bookies, *self._replicas.silent",
        "*self.unsent_bookies, *self._core.failed_bookies",
        killer=FINDINGS,
    ),
    _planted(
        "an idle writer forgets who failed",
        "bookkeeper/ledger/writer.py",
        "session.unsent_bookies if session is not None else state.failed_bookies",
        "session.unsent_bookies if session is not None else ()",
        killer=FINDINGS,
    ),
    _planted(
        "a second copy on one bookie is taken for one on another",
        REPAIR + "steps.py",
        ", *shortfall.doubles(metadata, named)):",
        ",):",
        killer=FINDINGS,
    ),
    _planted(
        "the entries of an open fragment are copied",
        REPAIR + "shortfall.py",
        "    if metadata.is_closed:\n        ends.append(metadata.last_entry)",
        "    if True:\n        ends.append(metadata.last_entry)",
        killer=PLACES,
    ),
    _planted(
        "two copies come to one bookie",
        REPAIR + "shortfall.py",
        "            if target in fragment.bookies:\n                return None\n",
        "",
        killer=PLACES,
    ),
    _planted(
        "a place is given whatever was copied",
        REPAIR + "shortfall.py",
        "    if place not in places(_as_copied(metadata, place), [place.bookie]):\n        return None\n",
        "",
        killer=PLACES,
    ),
    _planted(
        "a mark goes with what was marked meanwhile",
        "bookkeeper/metadata/underreplication.py",
        "await self._store.change(Delete(path, version))",
        "await self._store.change(Delete(path))",
        killer=TREE,
    ),
    _planted(
        "marking again forgets who was marked",
        "bookkeeper/wire/underreplication.py",
        "Mark((*self.bookies, *new_bookies), now_ms)",
        "Mark((*new_bookies,), now_ms)",
        killer=TREE,
    ),
    _planted(
        "many are lost at once",
        REPAIR + "auditor_core.py",
        "if together > 1 and 3 * together > known:",
        "if together > known:",
        killer=CORE,
    ),
    _planted(
        "who comes back keeps its time",
        REPAIR + "auditor_core.py",
        "actions.append(Return(bookie, now - self._since.pop(bookie)))",
        "actions.append(Return(bookie, now - self._since[bookie]))",
        killer=CORE,
    ),
    _planted(
        "a new auditor believes what the last one saw",
        REPAIR + "auditor.py",
        "            self._core = AuditorCore(self._settings.grace_s)\n            self._audit_at",
        "            self._audit_at",
    ),
    _planted(
        "a new auditor marks whom it lost before",
        REPAIR + "auditor.py",
        "            self._unmarked.clear()\n            await",
        "            await",
        killer=AUDITOR,
    ),
    _planted(
        "a bookie that came back is marked as soon as it is away",
        REPAIR + "auditor.py",
        "                self._unmarked.pop(action.bookie, None)\n",
        "",
        killer=AUDITOR,
    ),
    _planted(
        "the metadata name a bookie that lost its first copies meanwhile (Q15)",
        REPAIR + "ledger_repair.py",
        "            await copying.require(target, stripe)\n",
        "            pass\n",
    ),
    _planted(
        "what a bookie has that came back in the look before it is given up",
        REPAIR + "give_up.py",
        "            await check()  # to read a whole ledger takes its time\n",
        "",
        killer=GIVE_UP,
    ),
    _planted(
        "who lost its lock names a bookie that may have dropped its copies",
        REPAIR + "ledger_repair.py",
        "        if not await self.holds():\n",
        "        if False:\n",
        killer=LOCKS,
    ),
    _planted(
        "a bookie that came and went while ledgers were looked at is forgotten",
        "bookkeeper/metadata/registration.py",
        "            parts.append(Update(self._cookie, cookie.data, cookie.version))\n",
        "            pass\n",
        killer="tests/unit/admin/test_bookies.py",
    ),
    _planted(
        "a bookie that came back after the last look is forgotten",
        "bookkeeper/metadata/cluster.py",
        "        places = self._no_places(bookie) if is_down else []\n",
        "        places = list[Absent]()\n",
        killer="tests/unit/admin/test_bookies.py",
    ),
    _planted(
        "a look after the listing is left out",
        REPAIR + "auditor.py",
        "absent = [bookie for bookie in lost_bookies if bookies.find(bookie) is None]",
        "absent = [*lost_bookies][: len(bookies.writable) * 99]",
    ),
    _planted(
        "a bookie that is taken out is not asked for what it alone has",
        REPAIR + "ledger_repair.py",
        "own = [] if bookies.find(place.bookie) is None else [place.bookie]",
        "own = list[BookieId]()",
        killer=ADMIN,
    ),
    _planted(
        "a bookie that ledgers name is forgotten",
        "admin/decommission.py",
        "        if left or is_registered:\n",
        "        if is_registered:\n",
        killer=ADMIN,
    ),
    _planted(
        "a bookie is taken out though too few stay",
        "admin/decommission.py",
        "    if len(staying) < largest and not force:",
        "    if len(staying) < 0:",
        killer=ADMIN,
    ),
    _planted(
        "copies on one machine stay there",
        REPAIR + "replicator.py",
        "fault.kind is FaultKind.MISPLACED)",
        "fault.kind is FaultKind.DOUBLE)",
        killer=MISPLACED,
    ),
    _planted(
        "a copy is moved where it lies no better",
        "bookkeeper/ledger/placement.py",
        "spread.kept(moved, rules, quorum) > spread.kept(placed, rules, quorum)",
        "spread.kept(moved, rules, quorum) >= spread.kept(placed, rules, quorum)",
        killer=MISPLACED,
    ),
    _planted(
        "a copy is moved to a bookie in limbo",
        REPAIR + "ledger_repair.py",
        "    unwanted = [*limbo_of(bookies), *metadata.avoided, *never]\n",
        "    unwanted = [*metadata.avoided, *never]\n",
        killer=MISPLACED,
    ),
    _planted(
        "racks count for nobody whose copies lie there already",
        "bookkeeper/ledger/policies.py",
        "lasting=levels[1])",
        "lasting=[machines_apart])",
        killer=MISPLACED,
    ),
)
