"""The Spark driver as the story has it: a process that is given orders, killed in the middle of a batch, started again.

What a streaming query has done stands in its checkpoint: ``offsets/N`` is there once batch N is planned, ``commits/N``
once it is done.
"""

from __future__ import annotations

import contextlib
import json
import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

from examples.flights.processes import STOP_S, Patience, Program
from examples.flights.spark_program import DONE

ORDER_S = 600.0  # for an order: a table of all rows takes a minute or two on a busy machine
BATCH_S = 300.0  # for a batch, and for the first one Java and Spark start first
INTO_BATCH_S = 0.05  # a batch takes longer, also on a machine that has nothing else to do


def last_batch(folder: Path) -> int:
    """Returns the highest number of a batch in ``offsets`` or ``commits`` of a checkpoint, -1 for none."""
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return max((int(name) for name in names if name.isdecimal()), default=-1)


class SparkProcess(Program):
    """Spark, which starts at once and waits for orders. ``log``: what it and Java say on stderr."""

    name = "Spark program"
    module = "examples.flights.spark_program"

    def __init__(self, folder: Path) -> None:
        log = folder / "spark.log"
        super().__init__(log, self.module, folder / "spark", stderr=log)
        self._said: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        stdout = self._process.stdout
        assert stdout is not None
        for line in stdout:
            self._said.put(line.strip() or " ")
        self._said.put("")

    def _close(self) -> None:
        self._listener.join(STOP_S)
        if not self._listener.is_alive():  # else a process that Spark left has the other end, and closing would wait
            super()._close()

    def order(self, order: dict[str, object]) -> None:
        """Give an order; see ``spark_program``."""
        stdin = self._process.stdin
        assert stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended, as ``wait`` will say
            stdin.write(json.dumps(order) + "\n")
            stdin.flush()

    def wait(self) -> None:
        """Until the oldest open order is done."""
        deadline = time.monotonic() + ORDER_S
        said = None
        while said != DONE:  # Java may print something too
            try:
                said = self._said.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise SystemExit(f"Spark took more than {ORDER_S:.0f} s for an order; its log: {self.log}") from None
            if said == "":
                self.check()
                self.finish()
                raise SystemExit(f"the Spark program ended early; its log: {self.log}")

    def check(self) -> None:
        """Raise SystemExit if it has ended."""
        if self._process.poll():
            raise SystemExit(f"the Spark program ended with exit code {self._process.returncode}; its log: {self.log}")


class SparkDriver:
    """The process of now, with the query that it has been told to keep running."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process = SparkProcess(folder)
        self._open = 0  # orders that it has not said it did
        self._query: dict[str, object] = {}
        self.checkpoint = folder

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.__exit__(*exception)

    def order(self, **order: object) -> None:
        """Give an order; it is carried out behind those that are open."""
        self._process.order(order)
        self._open += 1

    def wait(self) -> None:
        """Until all orders are done."""
        for _ in range(self._open):
            self._process.wait()
        self._open = 0

    def follow(self, checkpoint: Path, **order: object) -> None:
        """Have a query started, and started again after a kill."""
        self.checkpoint, self._query = checkpoint, {**order, "checkpoint": str(checkpoint)}
        self.order(**self._query)

    def catch_up(self) -> None:
        """Have the query read all that there is, and end it."""
        self.order(do="catch up")
        self.wait()

    def kill_in_batch(self, idle: Callable[[], None]) -> int:
        """Kill it while a batch is under way that is not its first; the number of that batch, which must come again.
        ``idle`` is called when it has nothing to do, and gives it something."""
        patience = Patience(f"the query of {self.checkpoint} (Spark's log: {self._process.log})", BATCH_S)
        while True:
            planned, done = self._batches()
            patience.tell((planned, done))
            if done >= 0 and planned > done:
                time.sleep(INTO_BATCH_S)
                if self._batches() == (planned, done):
                    self._process.kill()
                    if self._batches() == (planned, done):
                        return planned
                    self.restart()  # its last word was that it had done it
            elif done >= 0:
                idle()
            self._process.check()
            time.sleep(0.01)

    def _batches(self) -> tuple[int, int]:
        return last_batch(self.checkpoint / "offsets"), last_batch(self.checkpoint / "commits")

    def restart(self) -> None:
        """Start it again, with its query: the checkpoint says where that goes on."""
        self._process.__exit__()
        self._process, self._open = SparkProcess(self._folder), 0
        self.order(**self._query)

    def finish(self) -> None:
        """Wait for its end."""
        self._process.finish()
