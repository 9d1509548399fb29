"""The statements behind ``sqlite://``: plain synchronous calls on one connection, each one transaction.

The tables are in ``sqlite_schema.py``. A registration lives until its expiry unless renewed. Expiries are on the clock
that all processes of a machine share and nobody can set; rows of another boot are expired, as all that wrote them are
gone.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tallystick.bookkeeper.metadata import ctoken, sqlite_schema
from tallystick.bookkeeper.metadata.driver import Bookies, Creation, Moment, Record, Version, Versioned
from tallystick.bookkeeper.metadata.mounts import refuse_network
from tallystick.bookkeeper.wire import metadata as wire
from tallystick.bookkeeper.wire import registration
from tallystick.bookkeeper.wire.values import BookieId, BookieInfo, LedgerId, LedgerMetadata
from tallystick.errors import (
    LedgerExists,
    MetadataConflict,
    MetadataError,
    MetadataUnavailable,
    MetadataUncertain,
    NoSuchLedger,
    UsageError,
)

BUSY_TIMEOUT_S = 10.0  # how long a transaction waits for another process's
PAGE = 10_000  # ledger ids of one listing query
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_now() -> float:
    """Seconds since boot, time asleep included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True)
class Lease:
    """One registration as its owner knows it."""

    bookie: BookieId
    info: BookieInfo
    owner: str
    seconds: float
    read_only: bool = False


@dataclass(frozen=True)
class Sight:
    """What watchers compare: versions of the watched ledgers (None: not there), the registrations if watched."""

    ledgers: dict[LedgerId, Version | None] = field(default_factory=dict)
    bookies: tuple[tuple[object, ...], ...] | None = None
    next_expiry: float | None = None


class SqliteStore:
    """One connection; opened at the first use, on the thread that uses it. SQLite's errors come as MetadataError."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None  # device and inode of what is open
        try:
            self._boot = BOOT_ID.read_text().strip()
        except OSError as error:
            raise UsageError("sqlite:// needs Linux: there is no boot id here", path=str(BOOT_ID)) from error

    # -- connection ---------------------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        return self._connection is not None

    def _connect(self) -> sqlite3.Connection:
        if self._connection is None:
            if not os.path.exists(self.path):
                raise MetadataError("there is no cluster here; make one with `tally cluster init`", path=self.path)
            refuse_network(self.path)
            self._file = _file_id(self.path)
            self._connection = self._open()
        return self._connection

    def _require_same_file(self) -> None:
        """Raises MetadataError when the open file is no longer the one of its name: nobody else would see a change."""
        if _file_id(self.path) != self._file:
            raise MetadataError(
                "the metadata file was replaced or removed while it was in use: what is there now is another cluster; "
                "restart to use it",
                path=self.path,
            )

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
        try:
            connection.execute("PRAGMA synchronous = FULL")  # a commit is on the disk when it returns
            version = sqlite_schema.version(connection)
            if version == 1:
                version = sqlite_schema.upgrade(connection)
            tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        except sqlite3.Error:
            connection.close()
            raise
        if version != sqlite_schema.VERSION:
            connection.close()
            kind = (
                "there is no cluster in this file" if not tables else "this file was made by another program or version"
            )
            raise MetadataError(kind, path=self.path, schema=version)
        return connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @contextlib.contextmanager
    def _mapped(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            busy = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY  # the rest are details
            kind = MetadataUnavailable if busy else MetadataError
            raise kind(f"the metadata file cannot be used: {error}", path=self.path) from error

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._mapped():
            yield self._connect()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._mapped():
            connection = self._connect()
            self._require_same_file()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                self._commit(connection)
            except BaseException:
                # Some failures, a full disk among them, have rolled back by themselves.
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def _commit(self, connection: sqlite3.Connection) -> None:
        """Raises MetadataUncertain: what was written may still be found by whoever opens the file next."""
        try:
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise MetadataUncertain(f"the change may not be on the disk: {error}", path=self.path) from error

    # -- the cluster --------------------------------------------------------------------------------------------------

    def init_cluster(self) -> str:
        refuse_network(self.path)
        instance = str(uuid.uuid4())
        try:
            os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
            # SQLite gives its other files the same mode; ledger passwords are in them.
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        except OSError as error:
            raise MetadataError(f"the metadata file cannot be made: {error.strerror}", path=self.path) from error
        with self._mapped(), contextlib.closing(sqlite3.connect(self.path, timeout=BUSY_TIMEOUT_S)) as connection:
            connection.isolation_level = None
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("BEGIN IMMEDIATE")
            if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                raise UsageError("there is a cluster here already", path=self.path)
            sqlite_schema.create(connection, instance)
            connection.execute("COMMIT")
        return instance

    def sync(self) -> Moment:
        """Reads of the file are never late, as long as it is the file of that name."""
        instance = self.instance_id()
        self._require_same_file()
        return Moment(instance, 0)

    def instance_id(self) -> str:
        with self._reading() as connection:
            return str(connection.execute("SELECT instance FROM cluster").fetchone()[0])

    # -- ledgers ------------------------------------------------------------------------------------------------------

    def create_ledger(self, metadata: LedgerMetadata, ledger: LedgerId | None) -> Versioned[LedgerId]:
        with self._writing() as connection:
            chosen = self._new_id(connection) if ledger is None else ctoken.check_ledger_id(ledger)
            row = connection.execute("SELECT data, version FROM ledgers WHERE id = ?", (chosen,)).fetchone()
            if row is None:
                values = (
                    chosen,
                    time.time_ns() // 1_000_000,
                    wire.encode(metadata),
                    sqlite_schema.new_creation(connection),
                )
                statement = "INSERT INTO ledgers (id, version, ctime_ms, data, creation) VALUES (?, 0, ?, ?, ?)"
                connection.execute(statement, values)
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
        with self._reading() as connection:
            query = "SELECT data, version, ctime_ms FROM ledgers WHERE id = ?"
            row = connection.execute(query, (ledger,)).fetchone()
        if row is None:
            raise NoSuchLedger(ledger=ledger)
        return Versioned(wire.decode(row[0], where=f"{self.path} ledger {ledger}", ctime_ms=row[2]), row[1])

    def write_ledger(self, ledger: LedgerId, data: bytes, version: Version) -> Version:
        with self._writing() as connection:
            update = "UPDATE ledgers SET data = ?, version = version + 1 WHERE id = ? AND version = ?"
            if connection.execute(update, (data, ledger, version)).rowcount:
                return version + 1
            row = connection.execute("SELECT version FROM ledgers WHERE id = ?", (ledger,)).fetchone()
        if row is None:
            raise NoSuchLedger(ledger=ledger)
        raise MetadataConflict(ledger=ledger, expected=version, stored=row[0])

    def delete_ledger(self, ledger: LedgerId) -> None:
        with self._writing() as connection:
            if not connection.execute("DELETE FROM ledgers WHERE id = ?", (ledger,)).rowcount:
                raise NoSuchLedger(ledger=ledger)

    def look_up(self, ledgers: Sequence[LedgerId]) -> dict[LedgerId, Record | None]:
        query = "SELECT data, creation FROM ledgers WHERE id = ?"
        with self._reading() as connection:
            rows = {ledger: connection.execute(query, (ledger,)).fetchone() for ledger in ledgers}
        return {ledger: row and Record(wire.state_of(row[0]), int(row[1])) for ledger, row in rows.items()}

    def ledgers_after(self, ledger: LedgerId) -> list[LedgerId]:
        """The next page of ids, ascending; short at the end."""
        with self._reading() as connection:
            rows = connection.execute("SELECT id FROM ledgers WHERE id > ? ORDER BY id LIMIT ?", (ledger, PAGE))
            return [row[0] for row in rows]

    # -- registrations ------------------------------------------------------------------------------------------------

    def bookies(self) -> Bookies:
        with self._reading() as connection:
            query = "SELECT bookie, info, read_only FROM registrations WHERE boot = ? AND expires > ? ORDER BY bookie"
            rows = connection.execute(query, (self._boot, boot_now())).fetchall()
        found = {bookie: (registration.decode_or_empty(info, bookie), read_only) for bookie, info, read_only in rows}
        return Bookies(
            {bookie: info for bookie, (info, read_only) in found.items() if not read_only},
            {bookie: info for bookie, (info, read_only) in found.items() if read_only},
        )

    def take_place(self, lease: Lease, *, replace: bool) -> bool:
        """Take or renew a place; False when another living owner has it."""
        with self._writing() as connection:
            now = boot_now()
            query = "SELECT owner FROM registrations WHERE bookie = ? AND boot = ? AND expires > ?"
            row = connection.execute(query, (lease.bookie, self._boot, now)).fetchone()
            if row is not None and row[0] != lease.owner and not replace:
                return False
            values = (
                lease.bookie, lease.read_only, registration.encode(lease.info), lease.owner, self._boot,
                now + lease.seconds,
            )  # fmt: skip
            connection.execute("INSERT OR REPLACE INTO registrations VALUES (?, ?, ?, ?, ?, ?)", values)
            return True

    def leave_place(self, lease: Lease) -> None:
        with self._writing() as connection:
            connection.execute("DELETE FROM registrations WHERE bookie = ? AND owner = ?", (lease.bookie, lease.owner))

    # -- cookies ------------------------------------------------------------------------------------------------------

    def read_cookie(self, bookie: BookieId) -> Versioned[bytes] | None:
        with self._reading() as connection:
            row = connection.execute("SELECT data, version FROM cookies WHERE bookie = ?", (bookie,)).fetchone()
        return None if row is None else Versioned(row[0], row[1])

    def write_cookie(self, bookie: BookieId, cookie: bytes, version: Version | None) -> None:
        with self._writing() as connection:
            if version is None:
                statement = "INSERT OR IGNORE INTO cookies (bookie, version, data, creation) VALUES (?, 0, ?, ?)"
                written = connection.execute(
                    statement, (bookie, cookie, sqlite_schema.new_creation(connection))
                ).rowcount
            else:
                statement = "UPDATE cookies SET data = ?, version = version + 1 WHERE bookie = ? AND version = ?"
                written = connection.execute(statement, (cookie, bookie, version)).rowcount
        if not written:
            raise MetadataConflict("another process changed this cookie first", bookie=bookie)

    def delete_cookie(self, bookie: BookieId) -> None:
        with self._writing() as connection:
            connection.execute("DELETE FROM cookies WHERE bookie = ?", (bookie,))

    def bookie_creation(self, bookie: BookieId) -> Creation | None:
        with self._reading() as connection:
            self._require_same_file()
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

    def sight(self, ledgers: list[LedgerId], *, bookies: bool) -> Sight:
        with self._reading() as connection:
            versions: dict[LedgerId, Version | None] = dict.fromkeys(ledgers)
            for ledger in ledgers:
                row = connection.execute("SELECT version FROM ledgers WHERE id = ?", (ledger,)).fetchone()
                versions[ledger] = row[0] if row else None
            if not bookies:
                return Sight(versions)
            query = (
                "SELECT bookie, info, read_only, owner, expires FROM registrations WHERE boot = ? AND expires > ? "
                "ORDER BY bookie"
            )
            rows = connection.execute(query, (self._boot, boot_now())).fetchall()
        return Sight(versions, tuple(row[:4] for row in rows), min((row[4] for row in rows), default=None))


def _file_id(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
