"""The original's clients and tools that sign, of several versions, each a process of its own."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from tempfile import TemporaryDirectory

from support import java
from support.java import COMMON, ROCKETMQ, SMALL, SOURCES, Java

SOURCE = SOURCES / "keyed" / "Keyed.java"
RUN_S = 120
_QUIET = ("-Drocketmq.client.logUseSlf4j=false", "-Drocketmq.client.logLevel=ERROR")


def old_clients(version: str) -> Java:
    """The clients and tools of another version of the original."""
    parts = ("client", "tools", "acl")
    artifacts = tuple(("org.apache.rocketmq", f"rocketmq-{part}", version) for part in parts)
    return java.prepare_library(replace(ROCKETMQ, version=version, artifacts=artifacts, training=None))


async def keyed_admin(java: Java, credentials: tuple[str, str], *lines: str) -> list[str]:
    """What each of these admin commands printed."""
    printed = await _run(java, "admin", *credentials, given="\n".join(lines))
    return printed.split("-----\n")[: len(lines)]


async def keyed_run(
    java: Java, credentials: tuple[str, str], name_server: str, topic: str, count: int, *flags: str
) -> str:
    """Send messages, and consume them with a new group. Returns ``sent N came N``, or ``sent N refused``."""
    printed = await _run(java, "run", *credentials, name_server, topic, str(count), flags=flags)
    line = next(line for line in printed.splitlines() if line.startswith("sent "))
    return line.partition(" refused")[0] + " refused" if "refused" in line else line


async def _run(java: Java, *arguments: str, given: str = "", flags: tuple[str, ...] = ()) -> str:
    path = _class_path(java)
    with TemporaryDirectory() as home:
        command = ["java", *COMMON, *java.original.flags, *SMALL, *_QUIET, *flags, f"-Duser.home={home}",
                   f"-Drocketmq.home.dir={home}", "-cp", path, str(SOURCE), *arguments]  # fmt: skip
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe)
        try:
            async with asyncio.timeout(RUN_S):
                out, errors = await process.communicate(given.encode())
        finally:
            if process.returncode is None:
                process.kill()
        assert process.returncode == 0, errors.decode()[-2000:]
        return out.decode()


def _class_path(java: Java) -> str:
    return os.pathsep.join(sorted(str(jar) for jar in java.lib.glob("*.jar")))
