"""Tables of Delta Lake, written by ``deltalake``: no jar is needed.

A commit of Delta can hold a transaction, (application, number): the last number of each is part of the table, and of
two commits with one application's that begin at the same version the second is refused. So are kept

::

    tallystick:<application>           the last batch
    tallystick:<application>:query:0   the id of its query, as two numbers of 64 bits
    tallystick:<application>:query:1
    tallystick:<application>:offsets   the digest of where the batch ends
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tallystick.errors import Unavailable, UsageError
from tallystick.pipeline.tables.record import TableRecord, query_halves, query_of_halves
from tallystick.pipeline.tables.target import CommitLost, TableState, error_words

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

    from tallystick.pipeline.tables.files import WrittenFile

_MIN_LOG_NAME = 20 + len(".json")


class DeltaTarget:
    """The table at one path or URI."""

    has_partitions_in_files = False  # the log says them
    can_compact = True

    def __init__(self, place: str) -> None:
        self.name = f"delta:{place}"
        self._place = place if "://" in place else Path(place).absolute().as_uri()
        self._table: DeltaTable | None = None

    def load(self, application: str) -> TableState | None:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError, TableNotFoundError

        if self._table is not None:
            with suppress(DeltaError):  # its folder was put back from a copy, or deleted: it is opened anew
                self._table.update_incremental()
                return self._state(application)
        try:
            with self._place_errors():
                self._table = DeltaTable(self._place)
        except TableNotFoundError:
            self._table = None
            return None
        return self._state(application)

    def _state(self, application: str) -> TableState:
        self._check_features()
        table = self._loaded()
        return TableState(
            str(table.version()),
            _arrow_schema(table),
            tuple(table.metadata().partition_columns),
            self._record(application),
            self._place,
        )

    def create(self, schema: pa.Schema, partitions: Sequence[str]) -> None:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError, TableNotFoundError

        with self._place_errors():
            try:
                DeltaTable.create(self._place, _delta_schema(schema), mode="ignore", partition_by=list(partitions))
            except TableNotFoundError as error:  # its folder cannot be made, or nobody knows such places
                raise DeltaError(str(error)) from error

    @contextmanager
    def _place_errors(self) -> Iterator[None]:
        """Raises UsageError for a place that can have no table, Unavailable for storage that does not answer."""
        from deltalake.exceptions import DeltaError, TableNotFoundError

        try:
            yield
        except TableNotFoundError:
            raise
        except (DeltaError, OSError) as error:
            kind = UsageError if isinstance(error, DeltaError) else Unavailable
            raise kind(f"the table cannot be opened at this place: {error_words(error)}", table=self.name) from error

    def commit(self, files: Sequence[WrittenFile], new: pa.Schema, application: str, written: TableRecord) -> str:
        from deltalake import CommitProperties, Transaction
        from deltalake.exceptions import CommitFailedError
        from deltalake.transaction import AddAction, RemoveAction

        table = self._loaded()
        high, low = query_halves(written.query)
        key = _key(application)
        properties = CommitProperties(
            custom_metadata={
                "tallystick": {"application": application, "query": written.query, "batch": written.batch}
            },
            app_transactions=[
                Transaction(key, written.batch),
                Transaction(f"{key}:query:0", high),
                Transaction(f"{key}:query:1", low),
                Transaction(f"{key}:offsets", written.offsets),
            ],
        )
        now_ms = int(time.time() * 1000)
        adds: list[AddAction | RemoveAction] = [
            AddAction(each.path, each.size, dict(each.partition), now_ms, True, json.dumps(each.stats))
            for each in files
        ]
        try:
            if len(new):
                # A commit of its own: a column that nobody fills yet.
                table.alter.add_columns(list(_delta_schema(new).fields))
                table.update_incremental()
                self._check_record(application, written)
            table.create_write_transaction(
                adds, "append", table.schema(), table.metadata().partition_columns, commit_properties=properties
            )
        except CommitFailedError as error:
            raise CommitLost(str(error)) from error
        table.update_incremental()
        return str(table.version())

    def compact(self, target_file_bytes: int) -> dict[str, int]:
        from deltalake.exceptions import CommitFailedError

        table = self._loaded()
        try:
            metrics = table.optimize.compact(target_size=target_file_bytes)
            # Of files that were replaced longer ago than delta.deletedFileRetentionDuration, a week by default.
            if table.vacuum(dry_run=True):
                table.vacuum(dry_run=False)
        except CommitFailedError as error:
            raise CommitLost(str(error)) from error
        return {"replaced": metrics["numFilesRemoved"], "by": metrics["numFilesAdded"]}

    def listed(self, files: Mapping[str, float]) -> set[str]:
        from pyarrow import fs

        filesystem, root = fs.FileSystem.from_uri(self._place)
        infos = filesystem.get_file_info(fs.FileSelector(f"{root}/_delta_log"))
        logs = {int(each.base_name[:20]): each for each in infos if _is_log(each.base_name)}
        # What versions listed whose logs are gone nobody can tell: all files that are older than the first log.
        first_s = logs[min(logs)].mtime_ns / 1e9 if logs and min(logs) > 0 else 0.0
        listed = {name for name, written_s in files.items() if not logs or written_s <= first_s}
        listed.update(path.rpartition("/")[2] for path in self._loaded().file_uris())
        oldest_s = min(files.values()) - 1
        for info in logs.values():
            if info.mtime_ns / 1e9 < oldest_s:  # no commit is older than its files
                continue
            with filesystem.open_input_file(info.path) as file:
                for line in file.read().splitlines():
                    if line.startswith(b'{"add"'):
                        listed.add(json.loads(line)["add"]["path"].rpartition("/")[2])
        return listed.intersection(files)

    def _record(self, application: str) -> TableRecord | None:
        table, key = self._loaded(), _key(application)
        batch, offsets = table.transaction_version(key), table.transaction_version(f"{key}:offsets")
        high, low = table.transaction_version(f"{key}:query:0"), table.transaction_version(f"{key}:query:1")
        if batch is None or high is None or low is None or offsets is None:
            return None
        return TableRecord(query_of_halves(high, low), batch, offsets)

    def _check_record(self, application: str, written: TableRecord) -> None:
        """Raises CommitLost if the application went on while a column was added: that commit has no transaction."""
        record = self._record(application)
        if record is not None and (record.query != written.query or record.batch >= written.batch):
            raise CommitLost

    def _check_features(self) -> None:
        """Raises UsageError for what a writer must hold and this one does not know."""
        table = self._loaded()
        configuration = table.metadata().configuration
        reasons = [key for key in configuration if key.startswith("delta.constraints.")]
        if configuration.get("delta.columnMapping.mode", "none") != "none":
            reasons.append("delta.columnMapping.mode")
        reasons += [
            f"{field.name}: {key}"
            for field in table.schema().fields
            for key in field.metadata
            if key in ("delta.invariants", "delta.generationExpression", "delta.identity.start")
        ]
        if reasons:
            raise UsageError(
                f"the table has rules that this writer does not hold ({', '.join(reasons)}): write one of its own",
                table=self.name,
            )

    def _loaded(self) -> DeltaTable:
        assert self._table is not None
        return self._table


def _key(application: str) -> str:
    return f"tallystick:{application}"


def _is_log(name: str) -> bool:
    return len(name) == _MIN_LOG_NAME and name[:20].isdecimal() and name.endswith(".json")


def _arrow_schema(table: DeltaTable) -> pa.Schema:
    import pyarrow as pa

    return pa.schema(table.schema().to_arrow())


def _delta_schema(schema: pa.Schema) -> Any:
    from deltalake.schema import Schema

    return Schema.from_arrow(schema)
