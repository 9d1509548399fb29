"""The session that is made, without a Java: what stands for PySpark's JVM is a script."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


def script(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_an_interrupt_while_spark_starts_leaves_no_process(tmp_path: Path) -> None:
    """PySpark's JVM ignores Ctrl-C, would find the folder gone where it says its port, and stay for good."""
    pytest.importorskip("pyspark", reason="a session needs PySpark")
    script(tmp_path / "java" / "bin" / "java", "exit 1")
    script(
        tmp_path / "spark" / "bin" / "spark-submit",
        f"echo $$ > '{tmp_path}/pid'; kill -INT $PPID; exec sleep 600 >/dev/null 2>&1",
    )
    homes = {"JAVA_HOME": str(tmp_path / "java"), "SPARK_HOME": str(tmp_path / "spark"), "TMPDIR": str(tmp_path)}
    environment = {name: value for name, value in os.environ.items() if name != "PYSPARK_GATEWAY_PORT"} | homes
    foreground = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"  # it may be ignored
    done = subprocess.run(
        [sys.executable, "-c", f"{foreground}import tallystick.spark\ntallystick.spark.session()"],
        capture_output=True, text=True, timeout=120, env=environment,
    )  # fmt: skip
    pid = int((tmp_path / "pid").read_text())
    try:
        assert "KeyboardInterrupt" in done.stderr, done.stderr
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 9)
    finally:
        assert not list(tmp_path.glob("tmp*"))
