"""What a task of Spark is told of itself and its query."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark import TaskContext

from tallystick.errors import BrokerError, UsageError


def this_task() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "Spark calls it in a task"
    return context


def told(name: str) -> str:
    """Returns what Spark tells its tasks of their query. Raises UsageError if it does not."""
    value = this_task().getLocalProperty(name)
    if not value:
        raise UsageError(f"Spark does not say {name}: this version of it is not supported")
    return value


def query_id() -> str:
    """Returns the id of a streaming query, which comes back with its checkpoint."""
    return told("sql.streaming.queryId")


def batch_id() -> int:
    return int(told("streaming.sql.batchId"))


@contextmanager
def of_rows(partition: int, taken: Callable[[], int]) -> Iterator[None]:
    """Have an error that a row is refused with say of which partition that is, and how many of its rows were ``taken``
    by then: it is one of the last of them."""
    try:
        yield
    except (UsageError, BrokerError) as error:
        raise type(error)(error.message, **{"partition": partition, "rows_taken": taken(), **error.fields}) from error
