"""Tables of Apache Iceberg, written by ``pyiceberg`` in any catalog that it knows.

The record of an application is a property of the table, ``tallystick.<application>``, which the commit of a batch sets
together with the snapshot that has its files: the catalog takes both or neither, and neither if the table was changed
since it was read. The snapshot says the batch, too, for who looks at it; snapshots expire, the property stays.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tallystick.errors import CorruptRecord, TallyError, Unavailable, UsageError
from tallystick.pipeline.tables.arrow_types import with_columns
from tallystick.pipeline.tables.record import TableRecord
from tallystick.pipeline.tables.target import CommitLost, TableState, error_words

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

    from tallystick.pipeline.tables.files import WrittenFile

# pyiceberg would bring a commit that lost onto the newer table by itself, and would not ask whose batch that has.
_NO_RETRIES = {"commit.retry.num-retries": "0"}
# Without the least and the largest values of columns, for which pyiceberg makes times of Python's.
_NO_BOUNDS = {"write.metadata.metrics.default": "counts"}


class IcebergTarget:
    """One table of a catalog."""

    has_partitions_in_files = True  # the partition of a file is read from its columns
    can_compact = False

    def __init__(self, identifier: str, properties: Mapping[str, str]) -> None:
        self.name = f"iceberg:{identifier}"
        self._identifier, self._properties = identifier, properties
        if "." not in identifier:
            raise UsageError("a table of Iceberg is named NAMESPACE.TABLE", given=identifier)
        self._opened: Catalog | None = None
        self._table: Table | None = None

    def load(self, application: str) -> TableState | None:
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        try:
            with self._catalog_errors():
                self._table = table = self._catalog().load_table(self._identifier)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None
        return TableState(
            str(table.metadata.current_snapshot_id or 0),
            table.schema().as_arrow(),
            self._partitions(table),
            _record(table.properties, application, self.name),
            f"{table.location().rstrip('/')}/data",
        )

    def create(self, schema: pa.Schema, partitions: Sequence[str]) -> None:
        from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError

        namespace = self._identifier.rpartition(".")[0]
        with self._catalog_errors():
            self._catalog().create_namespace_if_not_exists(namespace)
        try:
            with (
                self._catalog_errors(),
                self._catalog().create_table_transaction(self._identifier, schema=schema) as transaction,
            ):
                if partitions:
                    with transaction.update_spec() as spec:
                        for name in partitions:
                            spec.add_identity(name)
        except (CommitFailedException, TableAlreadyExistsError):  # somebody else has made it meanwhile
            return

    def commit(self, files: Sequence[WrittenFile], new: pa.Schema, application: str, written: TableRecord) -> str:
        try:
            return self._commit(files, new, application, written, _NO_RETRIES)
        except OverflowError:  # Python has no times before the year 1 and behind 9999
            return self._commit(files, new, application, written, {**_NO_RETRIES, **_NO_BOUNDS})

    def _commit(
        self,
        files: Sequence[WrittenFile],
        new: pa.Schema,
        application: str,
        written: TableRecord,
        properties: Mapping[str, str],
    ) -> str:
        from pyiceberg.exceptions import CommitFailedException

        table = self._table
        assert table is not None
        table.metadata = table.metadata.model_copy(update={"properties": {**table.properties, **properties}})
        record = json.dumps(asdict(written))
        folder = f"{table.location().rstrip('/')}/data"
        try:
            with table.transaction() as transaction:
                if len(new):
                    with transaction.update_schema() as update:
                        update.union_by_name(with_columns(table.schema().as_arrow(), new))
                transaction.set_properties({_key(application): record})
                transaction.add_files(
                    [f"{folder}/{each.path}" for each in files],
                    snapshot_properties={_key(application): record},
                    check_duplicate_files=False,  # they are new, by their names
                )
        except CommitFailedException as error:
            raise CommitLost(str(error)) from error
        return str(table.metadata.current_snapshot_id)

    def compact(self, target_file_bytes: int) -> dict[str, int]:
        raise UsageError("pyiceberg cannot compact", table=self.name)

    def listed(self, files: Mapping[str, float]) -> set[str]:
        assert self._table is not None
        paths = self._table.inspect.all_files().column("file_path").to_pylist()
        return {path.rpartition("/")[2] for path in paths}.intersection(files)

    def _partitions(self, table: Table) -> tuple[str, ...]:
        """Raises UsageError for partitions that are not the values of columns."""
        for field in table.spec().fields:
            if str(field.transform) != "identity":
                raise UsageError(
                    f"the table is partitioned by {field.transform} of a column: write one of its own",
                    table=self.name,
                )
        return tuple(table.schema().find_column_name(field.source_id) or "" for field in table.spec().fields)

    def _catalog(self) -> Catalog:
        """Raises UsageError for one that nobody has described."""
        from pyiceberg.catalog import load_catalog

        if self._opened is None:
            properties = dict(self._properties)
            name = properties.pop("name", None)
            try:
                self._opened = load_catalog(name, **properties)
            except ValueError as error:
                raise UsageError(
                    f"no catalog of Iceberg: {error}. Give its properties, as in uri=sqlite:///catalog.db and "
                    "warehouse=file:///folder",
                    table=self.name,
                ) from error
        return self._opened

    @contextmanager
    def _catalog_errors(self) -> Iterator[None]:
        """Raises UsageError for a catalog, or a name, that can have no table, Unavailable for one that does not answer.
        What the callers know passes."""
        from pyiceberg import exceptions
        from sqlalchemy.exc import OperationalError

        try:
            yield
        except (
            TallyError,
            exceptions.NoSuchTableError,
            exceptions.NoSuchNamespaceError,
            exceptions.CommitFailedException,
            exceptions.TableAlreadyExistsError,
        ):
            raise
        except Exception as error:
            silent = (OSError, OperationalError, exceptions.ServerError, exceptions.ServiceUnavailableError)
            wrong = (ValueError, FileNotFoundError, NotADirectoryError, PermissionError)
            kind = Unavailable if isinstance(error, silent) and not isinstance(error, wrong) else UsageError
            raise kind(
                f"the table cannot be opened in its catalog: {error_words(error)}. Are the properties of the catalog "
                "(type, uri, warehouse) and the name of the table right?",
                table=self.name,
            ) from error


def _key(application: str) -> str:
    return f"tallystick.{application}"


def _record(properties: Mapping[str, str], application: str, table: str) -> TableRecord | None:
    text = properties.get(_key(application))
    if text is None:
        return None
    try:
        stored: Any = json.loads(text)
        return TableRecord(str(stored["query"]), int(stored["batch"]), int(stored["offsets"]))
    except (ValueError, KeyError, TypeError):
        raise CorruptRecord(
            f"the table's property {_key(application)} is none of ours: give the application another name", table=table
        ) from None
