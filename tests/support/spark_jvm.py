"""How a test starts a JVM of Spark: small, quiet, and from an archive of its classes.

Half of what a short Spark process computes is loading classes. The archive is made once for each Python environment,
in ``<environment>/cache``, and dies with it: it fits only the jars at the place where it was made. Java ignores one
that does not fit.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pyspark

SMALL = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off"
TRAINING = Path(__file__).with_name("spark_training.py")
PATIENCE_S = 300.0


@functools.cache
def fast_jvm() -> str:
    """The flags, for ``spark.driver.extraJavaOptions`` and the like. An environment's first call takes a minute."""
    archive = _archive()
    return f"{SMALL} -XX:SharedArchiveFile={archive}" if archive is not None else SMALL


def _archive() -> Path | None:
    """The archive, made if it is not there. It only saves time, so that it cannot be made is said and no more."""
    folder = Path(sys.prefix) / "cache"
    target = folder / f"spark-{_fingerprint()}.jsa"
    if target.exists():
        return target
    try:
        folder.mkdir(exist_ok=True)
        with open(folder / "spark.lock", "wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # of several processes that start now one makes it
            if not target.exists():
                _train(target)
    except (OSError, subprocess.SubprocessError) as error:
        print(f"no archive of Spark's classes (its processes start slower): {type(error).__name__}: {error}")
        return None
    return target


def _fingerprint() -> str:
    """It differs where an archive would not fit: another Java or Spark, or jars that lie elsewhere or are newer."""
    java = subprocess.run(["java", "-version"], capture_output=True, check=True).stderr
    jars = Path(pyspark.__file__).parent / "jars"
    told = f"{pyspark.__version__} {jars} {jars.stat().st_mtime_ns}".encode()
    return hashlib.sha256(java + told + TRAINING.read_bytes()).hexdigest()[:12]


def _train(target: Path) -> None:
    made = target.with_suffix(f".{os.getpid()}")
    options = f"{SMALL} -XX:ArchiveClassesAtExit={made}"
    try:
        subprocess.run([sys.executable, str(TRAINING), options], capture_output=True, timeout=PATIENCE_S, check=True)
        made.rename(target)
    finally:
        made.unlink(missing_ok=True)
