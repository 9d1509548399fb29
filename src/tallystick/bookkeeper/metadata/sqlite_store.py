"""The statements behind ``sqlite://``: plain synchronous calls on one connection (``sqlite_file.py``).

The tables are in ``sqlite_schema.py``. A registration lives until its expiry, or until the end of its owner's lease
(``sqlite_leases.py``) if that is later. Both are on the clock that all processes of a machine share and nobody can set;
rows of another boot are expired, as all that wrote them are gone. Each change is a transaction, or a part of one that
the caller has begun.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tallystick.bookkeeper.metadata import ctoken, sqlite_schema
from tallystick.bookkeeper.metadata.driver import Bookies, Creation, Moment, Record, Version, Versioned
from tallystick.bookkeeper.metadata.sqlite_file import SqliteFile
from tallystick.bookkeeper.metadata.sqlite_leases import Lease, LeaseFiles, boot_now
from tallystick.bookkeeper.metadata.watch import BOOKIES
from tallystick.bookkeeper.wire import metadata as wire
from tallystick.bookkeeper.wire import registration
from tallystick.bookkeeper.wire.values import BookieId, LedgerId, LedgerMetadata
from tallystick.errors import LedgerExists, MetadataConflict, NoSuchLedger, UsageError

PAGE = 10_000  # ledger ids of one listing query
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Sight:
    """What watchers compare: the registrations, and when the first of them ends if it is not renewed."""

    bookies: tuple[tuple[object, ...], ...] = field(default_factory=tuple)
    next_expiry: float | None = None


class SqliteStore:
    """See the module. Everything that takes part in a transaction is undone with it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.file, self.leases = SqliteFile(path), LeaseFiles(path)
        self._changed: list[LedgerId | str] = []
        try:
            self._boot = BOOT_ID.read_text().strip()
        except OSError as error:
            raise UsageError("sqlite:// needs Linux: there is no boot id here", path=str(BOOT_ID)) from error

    def close(self) -> None:
        self.file.close()

    def _reading(self) -> contextlib.AbstractContextManager[sqlite3.Connection]:
        return self.file.reading()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        known = len(self._changed)
        try:
            with self.file.writing() as connection:
                yield connection
        except BaseException:
            del self._changed[known:]
            raise

    def transaction(self) -> contextlib.AbstractContextManager[sqlite3.Connection]:
        """All changes inside are one commit. Raises MetadataUnavailable while another process writes."""
        return self._writing()

    def take_changed(self) -> list[LedgerId | str]:
        """What was changed since the last time, as keys of watchers."""
        changed, self._changed = self._changed, []
        return changed

    # -- the cluster --------------------------------------------------------------------------------------------------

    def init_cluster(self) -> str:
        return self.file.make()

    def sync(self) -> Moment:
        """Reads of the file are never late, as long as it is the file of that name."""
        with self._reading() as connection:
            instance, newest = connection.execute("SELECT instance, creations FROM cluster").fetchone()
        self.file.require_same()
        return Moment(str(instance), 0, int(newest))

    def instance_id(self) -> str:
        with self._reading() as connection:
            return str(connection.execute("SELECT instance FROM cluster").fetchone()[0])

    # -- ledgers ------------------------------------------------------------------------------------------------------

    def create_ledger(self, metadata: LedgerMetadata, ledger: LedgerId | None) -> Versioned[LedgerId]:
        with self._writing() as connection:
            chosen = self._new_id(connection) if ledger is None else ctoken.check_ledger_id(ledger)
            row = connection.execute("SELECT data, version FROM ledgers WHERE id = ?", (chosen,)).fetchone()
            if row is None:
                creation = sqlite_schema.new_creation(connection)
                values = (chosen, time.time_ns() // 1_000_000, wire.encode(metadata), creation)
                statement = "INSERT INTO ledgers (id, version, ctime_ms, data, creation) VALUES (?, 0, ?, ?, ?)"
                connection.execute(statement, values)
                self._changed.append(chosen)
            elif not ctoken.is_own(row[0], metadata):
                raise LedgerExists(ledger=chosen)
            return Versioned(chosen, row[1] if row else 0)

    def _new_id(self, connection: sqlite3.Connection) -> LedgerId:
        """Never one that was given out before, even if that ledger is deleted."""
        chosen = int(connection.execute("SELECT next_ledger FROM cluster").fetchone()[0])
        while connection.execute("SELECT 1 FROM ledgers WHERE id = ?", (chosen,)).fetchone():
            chosen += 1
        connection.execute("UPDATE cluster SET next_ledger = ?", (chosen + 1,))
        return chosen

    def read_ledger(self, ledger: LedgerId) -> Versioned[LedgerMetadata]:
        found = self.read_ledgers([ledger])
        if ledger not in found:
            raise NoSuchLedger(ledger=ledger)
        return found[ledger]

    def read_ledgers(self, ledgers: Sequence[LedgerId]) -> dict[LedgerId, Versioned[LedgerMetadata]]:
        with self._reading() as connection:
            query = "SELECT id, data, ctime_ms, version FROM ledgers WHERE id IN (SELECT value FROM json_each(?))"
            rows = connection.execute(query, (json.dumps(ledgers),)).fetchall()
        where = f"{self.path} ledger "
        return {
            ledger: Versioned(wire.decode(data, where=f"{where}{ledger}", ctime_ms=ctime_ms), version)
            for ledger, data, ctime_ms, version in rows
        }

    def write_ledger(self, ledger: LedgerId, data: bytes, version: Version) -> Version:
        with self._writing() as connection:
            update = "UPDATE ledgers SET data = ?, version = version + 1 WHERE id = ? AND version = ?"
            if connection.execute(update, (data, ledger, version)).rowcount:
                self._changed.append(ledger)
                return version + 1
            row = connection.execute("SELECT version FROM ledgers WHERE id = ?", (ledger,)).fetchone()
        if row is None:
            raise NoSuchLedger(ledger=ledger)
        raise MetadataConflict(ledger=ledger, expected=version, stored=row[0])

    def delete_ledger(self, ledger: LedgerId) -> None:
        with self._writing() as connection:
            if not connection.execute("DELETE FROM ledgers WHERE id = ?", (ledger,)).rowcount:
                raise NoSuchLedger(ledger=ledger)
            self._changed.append(ledger)

    def look_up(self, ledgers: Sequence[LedgerId]) -> dict[LedgerId, Record | None]:
        records: dict[LedgerId, Record | None] = dict.fromkeys(ledgers)
        with self._reading() as connection:
            query = "SELECT id, data, creation FROM ledgers WHERE id IN (SELECT value FROM json_each(?))"
            for ledger, data, creation in connection.execute(query, (json.dumps(ledgers),)):
                records[ledger] = Record(wire.state_of(data), int(creation))
        return records

    def ledgers_after(self, ledger: LedgerId) -> list[LedgerId]:
        """The next page of ids, ascending; short at the end."""
        with self._reading() as connection:
            rows = connection.execute("SELECT id FROM ledgers WHERE id > ? ORDER BY id LIMIT ?", (ledger, PAGE))
            return [row[0] for row in rows]

    # -- registrations ------------------------------------------------------------------------------------------------

    def bookies(self) -> Bookies:
        living = list(self._living())
        found = {row[0]: (registration.decode_or_empty(row[1], row[0]), row[2]) for row, _ in living}
        return Bookies(
            {bookie: info for bookie, (info, read_only) in found.items() if not read_only},
            {bookie: info for bookie, (info, read_only) in found.items() if read_only},
        )

    def _living(self) -> Iterator[tuple[tuple[Any, ...], float]]:
        """Rows (bookie, info, read only, owner) of the living, by bookie, and when each one's time is over."""
        with self._reading() as connection:
            query = "SELECT bookie, info, read_only, owner, expires FROM registrations WHERE boot = ? ORDER BY bookie"
            rows = connection.execute(query, (self._boot,)).fetchall()
        now = boot_now()
        for *row, expires in rows:
            end = self._end(row[3], expires, now)
            if end > now:
                yield tuple(row), end

    def _end(self, owner: str, expires: float, now: float) -> float:
        return expires if expires > now else self.leases.end_of(owner)

    def take_place(self, lease: Lease, *, replace: bool) -> bool:
        """Take or renew a place; False when another living owner has it."""
        with self._writing() as connection:
            now = boot_now()
            query = "SELECT owner, expires FROM registrations WHERE bookie = ? AND boot = ?"
            row = connection.execute(query, (lease.bookie, self._boot)).fetchone()
            taken = row is not None and row[0] != lease.owner
            if taken and not replace and self._end(row[0], row[1], now) > now:
                return False
            values = (
                lease.bookie, lease.read_only, registration.encode(lease.info), lease.owner, self._boot,
                now + lease.seconds,
            )  # fmt: skip
            connection.execute("INSERT OR REPLACE INTO registrations VALUES (?, ?, ?, ?, ?, ?)", values)
            self._changed.append(BOOKIES)
            return True

    def owner(self, bookie: BookieId) -> str | None:
        """Who has a place, living or not; None when nobody has."""
        with self._reading() as connection:
            query = "SELECT owner FROM registrations WHERE bookie = ? AND boot = ?"
            row = connection.execute(query, (bookie, self._boot)).fetchone()
        return None if row is None else str(row[0])

    def leave_place(self, lease: Lease) -> None:
        with self._writing() as connection:
            connection.execute("DELETE FROM registrations WHERE bookie = ? AND owner = ?", (lease.bookie, lease.owner))
            self._changed.append(BOOKIES)

    # -- cookies ------------------------------------------------------------------------------------------------------

    def read_cookie(self, bookie: BookieId) -> Versioned[bytes] | None:
        with self._reading() as connection:
            row = connection.execute("SELECT data, version FROM cookies WHERE bookie = ?", (bookie,)).fetchone()
        return None if row is None else Versioned(row[0], row[1])

    def write_cookie(self, bookie: BookieId, cookie: bytes, version: Version | None) -> None:
        with self._writing() as connection:
            if version is None:
                statement = "INSERT OR IGNORE INTO cookies (bookie, version, data, creation) VALUES (?, 0, ?, ?)"
                values = bookie, cookie, sqlite_schema.new_creation(connection)
                written = connection.execute(statement, values).rowcount
            else:
                statement = "UPDATE cookies SET data = ?, version = version + 1 WHERE bookie = ? AND version = ?"
                written = connection.execute(statement, (cookie, bookie, version)).rowcount
        if not written:
            raise MetadataConflict("another process changed this cookie first", bookie=bookie)

    def delete_cookie(self, bookie: BookieId, version: Version) -> None:
        with self._writing() as connection:
            connection.execute("DELETE FROM cookies WHERE bookie = ? AND version = ?", (bookie, version))
            left = connection.execute("SELECT 1 FROM cookies WHERE bookie = ?", (bookie,)).fetchone()
        if left is not None:
            raise MetadataConflict("another process changed this cookie first", bookie=bookie)

    def bookie_creation(self, bookie: BookieId) -> Creation | None:
        with self._reading() as connection:
            self.file.require_same()
            row = connection.execute("SELECT creation FROM cookies WHERE bookie = ?", (bookie,)).fetchone()
        return None if row is None else int(row[0])

    def cookies(self) -> list[BookieId]:
        with self._reading() as connection:
            return [row[0] for row in connection.execute("SELECT bookie FROM cookies ORDER BY bookie")]

    # -- what watchers look at ----------------------------------------------------------------------------------------

    def data_version(self) -> int:
        """Changes when another connection commits; own commits do not show."""
        with self._reading() as connection:
            return int(connection.execute("PRAGMA data_version").fetchone()[0])

    def versions(self, ledgers: Sequence[LedgerId]) -> dict[LedgerId, Version | None]:
        """Of each ledger; None when it is not there."""
        versions: dict[LedgerId, Version | None] = dict.fromkeys(ledgers)
        with self._reading() as connection:
            query = "SELECT id, version FROM ledgers WHERE id IN (SELECT value FROM json_each(?))"
            versions.update(connection.execute(query, (json.dumps(ledgers),)).fetchall())
        return versions

    def sight(self) -> Sight:
        living = list(self._living())
        return Sight(tuple(row for row, _ in living), min((end for _, end in living), default=None))
