"""Planted bugs in how damage of a bookie's disk is noticed and made good."""

from __future__ import annotations

from sim.mutants import BOOKIE, Mutant

REPAIR = "bookkeeper/repair/"
_MEND, _SCRUB = "tests/unit/bookkeeper/repair/test_mend.py", "tests/unit/bookkeeper/bookie/test_scrub.py"


def _planted(name: str, module: str, old: str, new: str, killer: str = _MEND) -> Mutant:
    return Mutant(name, module, old, new, killer=killer)


SCRUB_MUTANTS = (
    _planted(
        "a chunk that does not match its checksum is passed over by a scrub",
        BOOKIE + "log_scan.py",
        "            scan.bad = [BadPlace(place, error.message) for place in expected]\n",
        "            assert error\n",
    ),
    _planted(
        "a scrub compares no digest",
        BOOKIE + "scrubber.py",
        "            self._digests[ledger] = None\n",
        "            self._digests[ledger] = None\n            continue\n",
    ),
    _planted(
        "what was damaged is taken from another damaged copy",
        REPAIR + "mend.py",
        "            lacking += [entry for entry in bad if entry not in frames]\n",
        "            frames = frames or {entry: self._own.read(ledger, entry) or b'' for entry in bad}\n",
    ),
    _planted(
        "an entry that cannot be read counts as sound (Q15)",
        REPAIR + "mend.py",
        "        if data is None:\n            return False\n",
        "        if data is None:\n            return True\n",
    ),
    _planted(
        "a bad digest counts as sound",
        REPAIR + "mend.py",
        "        except DigestMismatch:\n            return False\n",
        "        except DigestMismatch:\n            return True\n",
    ),
    _planted(
        "a scrub begins anew with each start",
        BOOKIE + "scrubber.py",
        "        chunk = self._progress.chunk if log_id == self._progress.log else 0\n",
        "        chunk = 0\n",
        _SCRUB,
    ),
    _planted(
        "what is damaged is forgotten with the process",
        BOOKIE + "scrubber.py",
        "        damaged = tuple(self.damages.pairs())\n",
        "        damaged = ()\n",
    ),
    _planted(
        "what a client could not read is not noticed",
        BOOKIE + "reads.py",
        "            self._damages.add(ledger, entry)\n",
        "",
    ),
    _planted(
        "what was read before is taken for what is on the disk",
        BOOKIE + "storage.py",
        "            self._logs.forget_chunk(location)\n",
        "            pass\n",
    ),
    _planted(
        "a bookie fetches without its keys (N5)",
        REPAIR + "replicas.py",
        "            secured(ClientSettings()),\n",
        "            ClientSettings(),\n",
        "tests/unit/bookkeeper/repair/test_replicas.py",
    ),
    _planted(
        "the replicator has a budget beside that of limbo",
        "runtime/pace.py",
        "            await self._within.spend(size)\n",
        "            pass\n",
        "tests/unit/bookkeeper/repair/test_replicas.py",
    ),
)
