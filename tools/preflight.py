"""Check what the machine must bring before anything is installed; say plainly what is missing."""

from __future__ import annotations  # an older Python must come as far as the check that refuses it

import re
import shutil
import subprocess
import sys

PYTHON = (3, 11)
JAVA = 17


def java_version(text: str) -> int | None:
    """17 of ``openjdk version "17.0.15" …`` and 8 of ``java version "1.8.0_292"``; None when there is no number."""
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match.group(1)) if match else None


def check_python() -> str | None:
    """A sentence when this interpreter is too old, else None."""
    if sys.version_info >= PYTHON:
        return None
    return f"Python 3.11 or newer is needed; {sys.executable} is older. Name another: make PYTHON=python3.12 …"


def check_java() -> str | None:
    """A sentence when there is no Java that Spark runs on, else None."""
    java = shutil.which("java")
    if java is None:
        return f"Java {JAVA} or newer is needed by Spark, and there is no `java` on the PATH. Install a JDK, try again."
    output = subprocess.run([java, "-version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False).stdout
    version = java_version(output.decode())
    if version is None or version < JAVA:
        return f"Java {JAVA} or newer is needed by Spark; {java} is {version or 'of unknown version'}."
    return None


def main(checks_to_run: list[str]) -> int:
    """Print what is missing; 1 when anything is."""
    checks = {"python": check_python, "java": check_java}
    problems = [problem for name in checks_to_run for problem in [checks[name]()] if problem]
    for problem in problems:
        print("tallystick: " + problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["python"]))
