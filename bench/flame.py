"""Draws where the processes of a bench spend their time: a flame graph of it and of all that it starts in Python.

    python bench/flame.py NAME [--svg FILE] [OPTION …]

Runs ``bench/NAME.py`` with these options, or with ``--quick``, under ``py-spy``, which reads the stacks of other
processes a hundred times a second and costs them little. Each process has a column of its own: open the SVG in a
browser, and click on one. With ``--idle`` before the name also what waits is drawn.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
TIMES_A_SECOND = 100
SAMPLER = "py-spy"
# The sampler kills what it started when it is stopped by Ctrl-C, and does not tell how that ended. So it starts this,
# which writes the exit code of the bench into a pipe; the bench stops its servers, and ends in its own time.
LAUNCHER = """
import os, signal, subprocess, sys
signal.signal(signal.SIGINT, lambda *_: None)
pipe, *bench = sys.argv[1:]
os.write(int(pipe), str(subprocess.call(bench, pass_fds=[int(pipe)])).encode())
"""


def benches() -> list[str]:
    """The scripts of this folder that run."""
    scripts = (script for script in FOLDER.glob("*.py") if 'if __name__ == "__main__":' in script.read_text())
    return sorted(script.stem for script in scripts if script.stem not in ("flame", "summary", "counted_daemon"))


def sampler() -> str | None:
    """Its path, of this environment or of the machine; None where it is not installed."""
    here = Path(sysconfig.get_path("scripts")) / SAMPLER
    return str(here) if here.exists() else shutil.which(SAMPLER)


def command_of(program: str, name: str, svg: Path, options: list[str], *, pipe: int, idle: bool) -> list[str]:
    recorded = [program, "record", "--subprocesses", "--rate", str(TIMES_A_SECOND), "--output", str(svg)]
    launcher = [sys.executable, "-c", LAUNCHER, str(pipe)]
    bench = [sys.executable, str(FOLDER / f"{name}.py"), *(options or ["--quick"])]
    return [*recorded, *(["--idle"] if idle else []), "--", *launcher, *bench]


def sampled(command: list[str], writer: int, reader: int) -> str:
    """Run the sampler until it and the bench have ended. Returns the bench's exit code, or "" if it was stopped."""
    signal.signal(signal.SIGINT, lambda *_: None)  # Ctrl-C is for the sampler, which draws then, and for the bench
    with subprocess.Popen(command, pass_fds=[writer]), os.fdopen(reader) as codes:
        os.close(writer)
        return codes.read()  # its end comes when nobody has the pipe any more


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--idle", action="store_true", help="draw also what waits")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="where to (out/flame-NAME.svg)")
    parser.add_argument("name", choices=benches())
    parser.add_argument("options", nargs=argparse.REMAINDER, help="of the bench (--quick)")
    arguments = parser.parse_args()
    program = sampler()
    if program is None:
        print(f"{parser.prog}: {SAMPLER} is not installed: it comes with the extra dev (make setup)", file=sys.stderr)
        return 1
    svg: Path = arguments.svg or Path("out") / f"flame-{arguments.name}.svg"
    svg.parent.mkdir(parents=True, exist_ok=True)
    before = svg.stat().st_mtime_ns if svg.exists() else 0
    reader, writer = os.pipe()
    command = command_of(program, arguments.name, svg, arguments.options, pipe=writer, idle=arguments.idle)
    code = sampled(command, writer, reader)
    if not svg.exists() or svg.stat().st_mtime_ns == before:
        print(
            f"{parser.prog}: nothing was drawn. Where other processes may not be read (a container without "
            "SYS_PTRACE, or kernel.yama.ptrace_scope above 1), run it as root or allow that",
            file=sys.stderr,
        )
        return 1
    print(svg)
    if code != "0":
        how = f"ended with exit code {code}" if code else "was stopped"
        print(f"{parser.prog}: the bench {how}: what is drawn is no whole run", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
