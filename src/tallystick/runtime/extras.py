"""Libraries that are not installed with tallystick itself, and the extra of it that brings each."""

from __future__ import annotations

from importlib.util import find_spec

from tallystick.errors import UsageError

EXTRAS = {"kazoo": "zk", "pyspark": "spark", "pyarrow": "spark", "pandas": "spark"}


def require(what: str, *libraries: str) -> None:
    """Raises UsageError, which names the extra to install, when ``what`` needs a library that is not there."""
    for library in libraries:
        if find_spec(library) is None:
            raise UsageError(f"{what} needs {library}: pip install 'tallystick[{EXTRAS[library]}]'")
