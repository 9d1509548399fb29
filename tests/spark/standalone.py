"""A real Spark cluster as processes of this machine: one master, two workers, all on loopback."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark

READY_S = 60.0


@contextlib.contextmanager
def running(folder: Path, workers: int = 2) -> Iterator[str]:
    """The master's ``spark://`` address, while the cluster runs. The processes' logs are in ``folder``."""
    with contextlib.ExitStack() as stack:
        address = _start(stack, folder / "master.log", r"Starting Spark master at (spark://\S+)", ["master.Master"])
        for number in range(workers):
            log, home = folder / f"worker-{number}.log", folder / f"worker-{number}"
            options = ["worker.Worker", "--cores", "1", "--memory", "1g", "--work-dir", str(home)]
            _start(stack, log, r"Successfully registered with master (spark://\S+)", options, address)
        yield address


def _start(stack: contextlib.ExitStack, log: Path, ready: str, options: list[str], *arguments: str) -> str:
    """Start a daemon, which ends with ``stack``, and wait for its log to say ``ready``; what that says."""
    home = os.path.dirname(pyspark.__file__)
    environment = {
        **os.environ,
        "SPARK_HOME": home,
        # Without these the web pages and a REST port listen on every interface.
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_JAVA_OPTS": "-Dspark.master.rest.enabled=false -XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "SPARK_DAEMON_MEMORY": "128m",
    }
    name, *rest = options
    loopback = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    command = [f"{home}/bin/spark-class", f"org.apache.spark.deploy.{name}", *loopback, *rest, *arguments]
    with open(log, "wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
    stack.callback(_end, process)
    deadline = time.monotonic() + READY_S
    while not (found := re.search(ready, log.read_text(errors="replace"))):
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"{name} did not start:\n{log.read_text(errors='replace')[-2000:]}")
        time.sleep(0.05)
    return found[1]


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
