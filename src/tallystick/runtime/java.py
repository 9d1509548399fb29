"""Which Java runs Spark on this machine, and how one that was being started is ended."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import traceback
from collections.abc import Mapping

from tallystick.errors import UsageError

OLDEST = 17
_ANSWERS_S = 60.0


def java_command(environment: Mapping[str, str]) -> str:
    """Returns the path of ``java``: in ``JAVA_HOME``, else the first on the ``PATH``. Raises UsageError without one."""
    home = environment.get("JAVA_HOME")
    path = os.path.join(home, "bin") if home else environment.get("PATH", os.defpath)
    command = shutil.which("java", path=path)
    if command is not None:
        return command
    if home:
        raise UsageError("JAVA_HOME has no bin/java: set it to a Java 17 or newer, or unset it", java_home=home)
    raise UsageError(f"Spark needs Java {OLDEST} or newer: install it, or set JAVA_HOME")


def java_version(command: str) -> int:
    """Returns the version of a ``java``, which is started for it. Raises UsageError for one that Spark cannot use."""
    try:
        done = subprocess.run(
            [command, "-version"], capture_output=True, text=True, errors="replace", timeout=_ANSWERS_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"{command} does not run: {error}") from None
    match = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    if match is None or int(match[1]) < OLDEST:
        is_of = f"is {match[1]}" if match else "does not say its version"
        raise UsageError(f"{command} {is_of}: Spark needs Java {OLDEST} or newer; install it, set JAVA_HOME")
    return int(match[1])


def end_children(interrupt: BaseException) -> None:
    """Kill the processes that the code which was interrupted had started, and had handed to nobody yet.

    They are in the frames below the caller's that the interrupt went through, which is all that is left of them:
    PySpark gives out the process of its JVM no earlier than it responds.
    """
    below = interrupt.__traceback__.tb_next if interrupt.__traceback__ is not None else None
    for frame, _ in traceback.walk_tb(below):
        for value in frame.f_locals.values():
            # An interrupt may come while Popen itself starts one, which has no number before.
            if isinstance(value, subprocess.Popen) and value.pid is not None and value.poll() is None:
                value.kill()
                value.wait()
