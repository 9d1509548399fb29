"""A real Spark cluster as processes of this machine: one master, two workers, all on loopback.

Each worker has an address of its own: Spark takes them for two hosts, and speculation wants another one.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pyspark

from support.process_tree import children_of, command_of
from support.spark_jvm import fast_jvm

READY_S = 60.0
EXECUTOR = b"CoarseGrainedExecutorBackend"


@dataclass(frozen=True)
class SparkCluster:
    master: str  # spark://host:port
    pids: tuple[int, ...]

    @property
    def executors(self) -> list[int]:
        """The processes in which tasks run; the workers started them."""
        return [child for pid in self.pids for child in children_of(pid) if EXECUTOR in command_of(child)]


@contextlib.contextmanager
def running(folder: Path, workers: int = 2) -> Iterator[SparkCluster]:
    """The cluster, for as long as it is needed. The processes' logs are in ``folder``."""
    with contextlib.ExitStack() as stack:
        master = stack.enter_context(_Daemon(folder / "master.log", "master.Master"))
        url = master.says(r"Starting Spark master at (spark://\S+)")
        started = []  # all together: each spends seconds in starting Java
        for number in range(workers):
            options = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"work-{number}"), url)
            log, host = folder / f"worker-{number}.log", f"127.0.0.{number + 2}"
            started.append(stack.enter_context(_Daemon(log, "worker.Worker", *options, host=host)))
        for worker in started:
            worker.says(r"(Successfully registered with master)")
        yield SparkCluster(url, tuple(daemon.pid for daemon in (master, *started)))


class _Daemon:
    """One process of the cluster, which ends with its context."""

    def __init__(self, log: Path, kind: str, *arguments: str, host: str = "127.0.0.1") -> None:
        home = os.path.dirname(pyspark.__file__)
        environment = {
            **os.environ,
            "SPARK_HOME": home,
            # Without these the web pages and a REST port listen on every interface.
            "SPARK_LOCAL_IP": host,
            "SPARK_DAEMON_JAVA_OPTS": f"-Dspark.master.rest.enabled=false {fast_jvm()}",
            "SPARK_DAEMON_MEMORY": "128m",
        }
        loopback = ("--host", host, "--port", "0", "--webui-port", "0")
        command = [f"{home}/bin/spark-class", f"org.apache.spark.deploy.{kind}", *loopback, *arguments]
        self._log = log
        with open(log, "wb") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)

    @property
    def pid(self) -> int:
        return self._process.pid  # the script becomes the JVM: it has the same pid

    def says(self, pattern: str) -> str:
        """Wait until the log has the pattern; its first group."""
        deadline = time.monotonic() + READY_S
        while not (found := re.search(pattern, text := self._log.read_text(errors="replace"))):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"a Spark process did not start:\n{text[-2000:]}")
            time.sleep(0.05)
        return found[1]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
