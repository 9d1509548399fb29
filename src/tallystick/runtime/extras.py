"""Libraries that are not installed with tallystick itself.

A hint names them, and not the extra of tallystick that brings them: it is on no package index, where anybody may take
its name.
"""

from __future__ import annotations

from importlib.util import find_spec

from tallystick.errors import UsageError

INSTALLS = {
    "kazoo": "'kazoo>=2.10'",
    "cramjam": "'cramjam>=2.11'",
    "pyspark": "'pyspark>=4.2,<4.4'",
    "pyarrow": "'pyarrow>=17'",
    "numpy": "'numpy>=1.26'",
    "pandas": "'pandas>=2.2,<3'",
    "deltalake": "'deltalake>=1.6,<2'",
    "pyiceberg": "'pyiceberg>=0.12,<0.13'",
    "fastavro": "'fastavro>=1.9'",
    "sqlalchemy": "'sqlalchemy>=2'",
    "pytest_asyncio": "'pytest-asyncio>=0.25'",
}


def require(what: str, *libraries: str) -> None:
    """Raises UsageError, which says what to install, when ``what`` needs a library of these that is not there."""
    for library in libraries:
        if find_spec(library) is None:
            requirements = " ".join(INSTALLS[each] for each in libraries)
            raise UsageError(f"{what} needs {library}: pip install {requirements}")
