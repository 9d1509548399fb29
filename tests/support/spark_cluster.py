"""A real Spark cluster as processes of this machine: one master, two workers, all on loopback."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyspark

READY_S = 60.0


@dataclass(frozen=True)
class SparkCluster:
    master: str  # spark://host:port
    pids: tuple[int, ...]


@contextlib.contextmanager
def running(folder: Path, workers: int = 2) -> Iterator[SparkCluster]:
    """The cluster, for as long as it is needed. The processes' logs are in ``folder``."""
    with contextlib.ExitStack() as stack:
        start = functools.partial(_start, stack, folder)
        master, pid = start("master", r"Starting Spark master at (spark://\S+)", ["master.Master"])
        pids = [pid]
        for number in range(workers):
            options = ["worker.Worker", "--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"work-{number}")]
            pids.append(start(f"worker-{number}", r"Successfully registered with (master)", options, master)[1])
        yield SparkCluster(master, tuple(pids))


def _start(
    stack: contextlib.ExitStack, folder: Path, name: str, ready: str, options: list[str], *arguments: str
) -> tuple[str, int]:
    """Start a daemon, which ends with ``stack``, and wait for its log to say ``ready``; what that says, and its pid."""
    home = os.path.dirname(pyspark.__file__)
    environment = {
        **os.environ,
        "SPARK_HOME": home,
        # Without these the web pages and a REST port listen on every interface.
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_JAVA_OPTS": "-Dspark.master.rest.enabled=false -XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "SPARK_DAEMON_MEMORY": "128m",
    }
    kind, *rest = options
    log = folder / f"{name}.log"
    loopback = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    command = [f"{home}/bin/spark-class", f"org.apache.spark.deploy.{kind}", *loopback, *rest, *arguments]
    with open(log, "wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
    stack.callback(_end, process)
    deadline = time.monotonic() + READY_S
    while not (found := re.search(ready, log.read_text(errors="replace"))):
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"{name} did not start:\n{log.read_text(errors='replace')[-2000:]}")
        time.sleep(0.05)
    return found[1], process.pid  # the script becomes the JVM: it has the same pid


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
