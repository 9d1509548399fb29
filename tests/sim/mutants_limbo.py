"""Planted bugs in what a bookie says, and does, that came back without its disk (Q15)."""

from __future__ import annotations

from sim.mutants import BOOKIE, Mutant

REPAIR = "bookkeeper/repair/"
_TESTS = "tests/unit/bookkeeper/bookie/"
_FILL = "tests/unit/bookkeeper/repair/"


def _planted(name: str, module: str, old: str, new: str, killer: str) -> Mutant:
    return Mutant(name, module, old, new, killer=killer)


LIMBO_MUTANTS = (
    _planted(
        "a ledger in limbo says no (Q15)",
        BOOKIE + "limbo.py",
        "if code in NO_CODES and ledger in self._ledgers else code",
        "if code in () else code",
        _TESTS + "test_limbo.py",
    ),
    _planted(
        "a bookie in limbo says how far the ledger goes (Q15)",
        BOOKIE + "service.py",
        "is_unknown = read.entry == NO_ENTRY and read.ledger in self._limbo",
        "is_unknown = False",
        _TESTS + "test_limbo.py",
    ),
    _planted(
        "a client of Java is told a code that it does not know (Q15)",
        BOOKIE + "wire_v2.py",
        "return Code.IO_ERROR if code == Code.UNKNOWN_LEDGER_STATE else code",
        "return code",
        _TESTS + "test_limbo.py",
    ),
    _planted(
        "a writer is told that a ledger in limbo is fenced (Q11)",
        BOOKIE + "service.py",
        "if ordinary and ledger in self._limbo:",
        "if False:",
        _TESTS + "test_limbo.py",
    ),
    _planted(
        "limbo ends with the process (Q15)",
        BOOKIE + "checkpoints.py",
        "limbo=ledgers.limbo.copy()",
        "limbo=()",
        _TESTS + "test_limbo.py",
    ),
    _planted(
        "a ledger whose metadata cannot be read is in no limbo (Q15)",
        BOOKIE + "rejoin.py",
        "            except MetadataError:\n                named.append(NamedLedger(ledger, None, UNKNOWN))\n",
        "            except MetadataError:\n",
        _TESTS + "test_rejoin.py",
    ),
    _planted(
        "a bookie that rejoins has its cookie before its ledgers are in limbo (Q15)",
        BOOKIE + "rejoin.py",
        "            write_atomic(self._disk, mark, self._cookie)\n",
        "            write_atomic(self._disk, os.path.join(folder.path, FILE), self._cookie)\n",
        _TESTS + "test_rejoin.py",
    ),
    _planted(
        "a disk of an earlier start is believed (Q15)",
        BOOKIE + "progress.py",
        "        if self.start != known.start:\n            return self.start < known.start\n",
        "",
        _TESTS + "test_progress.py",
    ),
    _planted(
        "a disk with a shorter journal is believed (Q15)",
        BOOKIE + "progress.py",
        "return any(mine < theirs for",
        "return any(False and mine < theirs for",
        _TESTS + "test_progress.py",
    ),
    _planted(
        "a full disk makes older ones believed (Q15)",
        BOOKIE + "progress.py",
        "if rejoins or self._start < self._known.start:",
        "if rejoins:",
        _TESTS + "test_progress.py",
    ),
    _planted(
        "a rejoin on a full disk is not counted (Q15)",
        BOOKIE + "own_disk.py",
        "rejoins=self._rejoin is not None",
        "rejoins=False",
        _TESTS + "test_rejoin.py",
    ),
    _planted(
        "what a folder loses while its ledger is filled is believed to be here (Q15)",
        REPAIR + "fill.py",
        "                    stays[ledger] = stay\n",
        "                    stays[ledger] = self._bookie.stay(ledger)\n",
        _FILL + "test_fill.py",
    ),
    _planted(
        "marks that the metadata did not take are left for a day",
        REPAIR + "auditor.py",
        "            except (MetadataUnavailable, MetadataRefused):\n                raise\n",
        "",
        _FILL + "test_auditor.py",
    ),
    _planted(
        "a ledger leaves limbo while it is open (Q15)",
        REPAIR + "fill.py",
        "        return metadata.is_closed\n",
        "        return True\n",
        _FILL + "test_fill.py",
    ),
    _planted(
        "a ledger that lacks once is gone (Q15)",
        REPAIR + "fill_core.py",
        "return now - self._since.setdefault(ledger, now) >= GONE_S",
        "return True",
        _FILL + "test_fill_core.py",
    ),
    _planted(
        "who hung may get ledgers before a rejoin registers (Q15)",
        "bookkeeper/metadata/registration.py",
        "            if cookie is not None and self._since not in (None, cookie.version):\n",
        "            if False:\n",
        _TESTS + "test_rejoin.py",
    ),
    _planted(
        "the cookie of a rejoin is read behind the look at the registration (Q15)",
        BOOKIE + "rejoin.py",
        "            if (await self._driver.bookie_presence(self._bookie)).address is None:\n                return\n",
        "            if (await self._driver.bookie_presence(self._bookie)).address is None:\n"
        "                record = await self._driver.read_cookie(self._bookie)\n"
        "                self.version = None if record is None else record.version\n                return\n",
        _TESTS + "test_rejoin.py",
    ),
    _planted(
        "a bookie that rejoined loses its registration with its first session",
        "bookkeeper/metadata/registration.py",
        "        self._since = None\n",
        "",
        "tests/unit/bookkeeper/metadata/test_registration.py",
    ),
    _planted(
        "a rejoin that could not register leaves folders that start (Q15)",
        BOOKIE + "own_disk.py",
        "            await checkpoint()\n            reason",
        "            await checkpoint()\n            self._rejoin.finish()\n            reason",
        _TESTS + "test_rejoin.py",
    ),
    _planted(
        "a rejoin that was cut short cannot be asked for again",
        BOOKIE + "rejoin.py",
        "        self.lost = () if self._is_whole(folders) else self.bare\n",
        "        self.lost = self.bare\n",
        _TESTS + "test_rejoin.py",
    ),
    _planted(
        "a rejoin that was cut short between two cookies cannot be asked for again",
        BOOKIE + "rejoin.py",
        "        return all(folder.has_data for folder in self._bare) and len(starts) == 1\n",
        "        return False\n",
        _TESTS + "test_rejoin.py",
    ),
    _planted(
        "what a rejoin left before its limbo was durable is taken for a whole disk (Q15)",
        BOOKIE + "rejoin.py",
        "for folder in self._bare) and len(starts) == 1\n",
        "for folder in self._bare)\n",
        _TESTS + "test_rejoin.py",
    ),
    _planted(
        "who was registered since a rejoin that was cut short between two cookies is denied what it took (Q15)",
        BOOKIE + "own_disk.py",
        "        if bare and not self.lost:  # a rejoin",
        "        if False:  # a rejoin",
        _TESTS + "test_rejoin.py",
    ),
    _planted(
        "a bad copy is stored",
        REPAIR + "copying.py",
        "                self._digest.decode(self._ledger, entry, stored)\n",
        "",
        _FILL + "test_fill.py",
    ),
    _planted(
        "entries that no replica gave are passed over (Q15)",
        REPAIR + "fill.py",
        "        if failed:\n            raise _not_had(ledger, failed)\n",
        "",
        _FILL + "test_fill.py",
    ),
    _planted(
        "the first entry of each fragment is another one's",
        REPAIR + "fill_core.py",
        "range(max(first, fragment.first), end)",
        "range(max(first, fragment.first + 1), end)",
        _FILL + "test_fill_core.py",
    ),
)
