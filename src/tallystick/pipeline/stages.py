"""How many tasks a stage has: Spark does not tell its Python workers, and a sink that repeats a batch must know.

``register`` begins a service beside the driver, and says in a setting where it is; settings go to every task. A task
asks it for its stage. The first answer stands: a stage that is run again in part has fewer tasks then.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import TYPE_CHECKING

from tallystick.errors import UsageError
from tallystick.pipeline.driver_port import DriverPort, listen
from tallystick.pipeline.tasks import this_task

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTING = "spark.tallystick.stages"
_PATIENCE_S = 10.0  # Spark's own list of stages lags
_TIMEOUT_S = 20.0
_QUESTION_S = 2.0  # who connects asks at once
AT_ONCE = 64  # are answered; others wait in the kernel's queue
_MOST_STAGES = 10_000  # are remembered: a query that follows a stream has one a batch
_LONGEST = 200
INSTEAD = (
    "give the option partitions, the number of the frame's partitions, or call tallystick.spark.register in the "
    "driver: a batch that is repeated in another number of partitions must be refused"
)


class StageService:
    """Answers for the stages of one Spark context, as long as the process runs."""

    def __init__(self, spark: SparkSession) -> None:
        self._tracker = spark.sparkContext.statusTracker()
        self._counts: dict[int, int] = {}  # by stage, in the order in which they were asked for
        self._lock = threading.Lock()  # of these
        self._places = threading.BoundedSemaphore(AT_ONCE)
        self._is_closed = False
        self._listener, self.port = listen(spark)
        self._thread = threading.Thread(target=self._serve, name="tally-stages", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Answer no more: of a context that is no more nobody asks."""
        self._is_closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # whoever waits for a connection is woken
        self._listener.close()
        self._thread.join()

    def _serve(self) -> None:
        while not self._is_closed:
            self._places.acquire()
            try:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._answer, args=(connection,), name="tally-stage", daemon=True).start()
            except (OSError, RuntimeError):  # it went already, or the process has no handle or thread left just now
                self._places.release()
                time.sleep(0.1)

    def _answer(self, connection: socket.socket) -> None:
        try:
            self._converse(connection)
        finally:
            self._places.release()

    def _converse(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            token, _, stage = _question(connection).decode("ascii", "replace").strip().partition(" ")
            if self.port.admits(token) and stage.isdecimal():
                connection.sendall(b"%d\n" % self._count(int(stage)))

    def _count(self, stage: int) -> int:
        """Returns how many tasks a stage has; 0 if Spark does not know it."""
        deadline = time.monotonic() + _PATIENCE_S
        while stage not in self._counts and time.monotonic() < deadline:
            info = self._tracker.getStageInfo(stage)
            if info is None:
                time.sleep(0.02)
            else:
                self._remember(stage, info.numTasks)
        return self._counts.get(stage, 0)

    def _remember(self, stage: int, count: int) -> None:
        with self._lock:
            self._counts.setdefault(stage, count)
            if len(self._counts) > _MOST_STAGES:
                del self._counts[next(iter(self._counts))]


def _question(connection: socket.socket) -> bytes:
    """Returns a line, or less. Raises TimeoutError when it does not come at once, however it trickles."""
    question, deadline = bytearray(), time.monotonic() + _QUESTION_S
    while not question.endswith(b"\n") and len(question) < _LONGEST:
        connection.settimeout(max(deadline - time.monotonic(), 0.001))  # 0 has another meaning
        more = connection.recv(_LONGEST - len(question))
        if not more:
            break
        question += more
    return bytes(question)


_services: dict[str, StageService] = {}  # by application: one, as a process has one context at a time


def serve_stages(spark: SparkSession) -> None:
    """Begin to answer for a session's context, once."""
    application = spark.sparkContext.applicationId
    if application not in _services:
        while _services:
            _services.popitem()[1].close()
        _services[application] = StageService(spark)
    spark.conf.set(SETTING, _services[application].port.setting())


def is_told() -> bool:
    """Whether a driver is there to tell this task how many tasks its stage has."""
    return DriverPort.parse(this_task().getLocalProperty(SETTING)) is not None


def tasks_of_stage() -> int:
    """Returns how many tasks the stage of this task has. Raises UsageError where nobody tells."""
    task = this_task()
    at = DriverPort.parse(task.getLocalProperty(SETTING))
    if at is None:
        raise UsageError(f"nobody tells the tasks of a sink how many they are: {INSTEAD}")
    answer = b""
    with contextlib.suppress(OSError), socket.create_connection((at.host, at.port), _TIMEOUT_S) as connection:
        connection.sendall(f"{at.token} {task.stageId()}\n".encode())
        answer = connection.makefile("rb").readline(_LONGEST)
    if not answer.strip().isdigit() or not int(answer):
        raise UsageError(
            f"the driver does not tell how many tasks this stage has: {INSTEAD}", driver=f"{at.host}:{at.port}"
        )
    return int(answer)
