"""The znode tree of a cluster: its LAYOUT text, and where each ledger is (the original's hierarchical ledger managers).

::

    <root>/LAYOUT         "2" LF factory class ":" version, without a final LF
    <root>/INSTANCEID     UUID
    <root>/available/…    registrations; available/readonly/… those of read-only bookies
    <root>/cookies/…      made with the first cookie
    <root>/idgen/ID-…     see ledger_ids.py
    <root>/../tallystick/<name of the root>/bookies/…    how far the disk of each bookie of ours is (``progress.py``)
    <root>/../tallystick/<name of the root>/restored     what a restore did (``restored.py``)
    <root>/00/0000/L0001            ledger 1: ten digits as 2-4-4, for ids below 2^31 - 1
    <root>/000/0000/0002/1474/L8364 nineteen digits as 3-4-4-4-4, for all others

The long hierarchical manager has all ledgers at nineteen digits, also those with short ids.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from functools import lru_cache

from tallystick.bookkeeper.wire.values import LedgerId
from tallystick.errors import MetadataError

SHORT_IDS_END = (1 << 31) - 1  # the first id with a long path; the counter of short ids ends here, too
MANAGER_VERSION = "1"


class Manager(enum.Enum):
    """The part of the original that keeps a cluster's ledgers, named by its class."""

    HIERARCHICAL = "org.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory"
    LONG_HIERARCHICAL = "org.apache.bookkeeper.meta.LongHierarchicalLedgerManagerFactory"

    @property
    def layout_text(self) -> str:
        """The LAYOUT of a new cluster."""
        return f"2\n{self.value}:{MANAGER_VERSION}"


# What stands for a manager in a LAYOUT, by the version of that.
_NAMES = {"1": {"hierarchical": Manager.HIERARCHICAL}, "2": {manager.value: manager for manager in Manager}}


def manager_of(text: str, where: str) -> Manager:
    """Returns the manager that a LAYOUT names. Raises MetadataError unless it is one that this module knows."""
    version, _, named = text.strip().partition("\n")
    name, _, manager_version = named.rpartition(":")
    if version not in _NAMES or not name:
        raise MetadataError("the cluster's LAYOUT cannot be read", where=where, layout=text[:80])
    manager = _NAMES[version].get(name)
    if manager is None or manager_version != MANAGER_VERSION:
        raise MetadataError(
            f"the cluster keeps its ledgers with {name.rpartition('.')[2]} version {manager_version}; "
            "only the hierarchical and the long hierarchical manager are supported",
            where=where,
        )
    return manager


def ledger_path(root: str, ledger: LedgerId, manager: Manager = Manager.HIERARCHICAL) -> str:
    if ledger < SHORT_IDS_END and manager is Manager.HIERARCHICAL:
        return f"{_short_folder(root, ledger // 10_000)}/L{ledger % 10_000:04d}"
    digits = f"{ledger:019d}"
    return f"{root}/{digits[:3]}/{digits[3:7]}/{digits[7:11]}/{digits[11:15]}/L{digits[15:]}"


@lru_cache(maxsize=1024)
def _short_folder(root: str, number: int) -> str:
    """Returns the folder of ten thousand ledgers with short ids."""
    return f"{root}/{number // 10_000:02d}/{number % 10_000:04d}"


def own_folder(root: str) -> str:
    """Returns the folder of what only our programs keep, beside the ledgers: the original lists all below the root."""
    folder, _, name = root.rpartition("/")
    return f"{folder}/tallystick/{name}"


def tops(root: str) -> tuple[str, ...]:
    """Returns below which nodes a cluster's are: ledgers, what only our programs keep, and streams."""
    base = root.rpartition("/")[0]
    mine = (root, f"{base}/tallystick", f"{base}/managed-ledgers")
    return (*mine, f"/tallystick{root}") if base else mine


def folders_of(root: str, path: str) -> Iterator[str]:
    """Yields the folders between a node and the root, the innermost first."""
    path = path.rpartition("/")[0]
    while len(path) > len(root):
        yield path
        path = path.rpartition("/")[0]
