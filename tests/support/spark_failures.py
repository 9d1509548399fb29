"""What Spark says of a query that fails: the text of its exception."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def failure_of(action: Callable[[], Any]) -> str:
    """The text of the exception that ``action`` must raise."""
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException) as caught:
        action()
    return str(caught.value)
