"""Which Java runs Spark on this machine."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping

from tallystick.errors import UsageError


def java_command(environment: Mapping[str, str]) -> str:
    """Returns the path of ``java``: in ``JAVA_HOME``, else the first on the ``PATH``. Raises UsageError without one."""
    home = environment.get("JAVA_HOME")
    path = os.path.join(home, "bin") if home else environment.get("PATH", os.defpath)
    command = shutil.which("java", path=path)
    if command is not None:
        return command
    if home:
        raise UsageError("JAVA_HOME has no bin/java: set it to a Java 17 or newer, or unset it", java_home=home)
    raise UsageError("Spark needs Java 17 or newer: install it, or set JAVA_HOME")
