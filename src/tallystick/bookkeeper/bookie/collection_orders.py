"""An operator's order for a collection: the file ``ORDER_FILE`` in the ledger folder.

Who may write there may delete the data anyway. The bookie takes an order once, and only while it is fresh: no order
waits for months in a stopped bookie.
"""

from __future__ import annotations

import contextlib
import enum
import os

from tallystick.bookkeeper.bookie.cookies import folder_of
from tallystick.errors import StorageError
from tallystick.runtime.atomic import write_atomic
from tallystick.runtime.disk import Disk, read_file
from tallystick.runtime.events import Events

ORDER_FILE = "collect"
ORDER_FRESH_S = 3600.0


class Order(enum.Enum):
    """What the order file says: collect soon; and, with NOW, delete however many ledgers have no metadata."""

    SOON = "soon"
    NOW = "now"


class OrderFile:
    """The order for the bookie on a folder: another process ``place``s it, the bookie ``take``s it."""

    def __init__(self, disk: Disk, ledger_dir: str) -> None:
        self._disk, self._path = disk, os.path.join(folder_of(ledger_dir), ORDER_FILE)

    def place(self, order: Order, now_s: int) -> None:
        """Order a collection. Raises StorageError when the folder is not a bookie's.

        SOON leaves a fresh NOW that the bookie has not taken yet: that does all that SOON does.
        """
        if order is Order.SOON:
            with contextlib.suppress(StorageError, ValueError):  # a damaged or old one is replaced
                if self._read(now_s) is Order.NOW:
                    return
        try:
            write_atomic(self._disk, self._path, f"{order.value} {now_s}\n".encode())
        except OSError as error:
            raise StorageError(f"the order cannot be written: {error.strerror}", path=self._path) from error

    def take(self, now_s: float, events: Events) -> Order | None:
        """Remove the file. Returns its order, or None if there is none or it is damaged or old."""
        if not self._disk.exists(self._path):
            return None
        order = None
        try:
            order = self._read(now_s)
        except (StorageError, ValueError) as error:
            events.emit("order for a collection passed over", reason=str(error))
        self._disk.unlink(self._path)
        if order is not None:
            events.emit("collection ordered", order=order.value)
        return order

    def _read(self, now_s: float) -> Order | None:
        """Returns None if there is no file; raises StorageError, and ValueError for a damaged or old order."""
        if not self._disk.exists(self._path):
            return None
        text, ordered_s = read_file(self._disk, self._path).decode("ascii").split()
        order = Order(text)
        if abs(now_s - int(ordered_s)) > ORDER_FRESH_S:
            raise ValueError("it is old")
        return order
