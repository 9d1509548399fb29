"""Search for bytes of strangers that our decoders do not expect: ``make fuzz``, or ``python tools/fuzz.py [TARGET …]``.

Each target runs for some seconds in a process of its own, guided by the code that its bytes reach (atheris, libFuzzer),
from frames that originals sent. These are forks of one process, which made our modules say what code is reached: that
takes twice as long as a search. Where CI is set it begins with the commit's seed, and goes the same way for long, if
not for ever. A finding is kept as a file that the same command takes: ``--input FILE TARGET``.

The target ``compiled-codec`` is another search: the C code, compiled with sanitizers, against the codec in Python.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import io
import os
import subprocess
import sys
import tempfile
import traceback
from collections import deque
from collections.abc import Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from random import randrange
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fuzzing.targets import Target

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ["tallystick.bookkeeper", "tallystick.rocketmq", "tallystick.codec", "tallystick.pipeline"]
MAX_BYTES = 2048
MEMORY_MB = 1024
HANG_S = 20  # of one input: a busy machine, too
AT_ONCE = 2
OUTPUT = "output"
DEFAULT_SECONDS = 4
COMPILED = "compiled-codec"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="all, if none is named")
    parser.add_argument("--seconds", type=int, default=DEFAULT_SECONDS, help="for each target (default: %(default)s)")
    parser.add_argument("--input", type=Path, help="run one target on the bytes of this file alone")
    parser.add_argument("--seed", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)  # in forks of this process
    given = parser.parse_args(arguments)
    sys.path[:0] = [str(ROOT / "tests")]
    if given.here:
        return fuzz_here(given.targets, Search(given.seconds, given.input, given.seed))
    from support.seeds import IN_CI, tree_seed

    known_names = [*(target.name for target in all_targets()), COMPILED]
    if unknown := set(given.targets) - set(known_names):
        print(f"unknown target {', '.join(sorted(unknown))}; known: {', '.join(known_names)}", file=sys.stderr)
        return 2
    seed = (tree_seed() or 1) if IN_CI else None  # to libFuzzer 0 is any
    if seed is not None:
        print(f"fuzz: seed {seed}", flush=True)
    names, results = list(given.targets or known_names), []
    if COMPILED in names:
        names.remove(COMPILED)
        results.append(fuzz_compiled(given.seconds, seed))
    if names and importlib.util.find_spec("atheris") is None:
        print("skipped: atheris is not installed (pip install 'tallystick[dev]'), or not made for this machine")
        results.append(1 if "CI" in os.environ else 0)
    elif names:
        results.append(fuzz_all(names, given.seconds, given.input, seed))
    return max(results)


def all_targets() -> list[Target]:
    from fuzzing import broker_targets, ledger_targets, stream_targets

    return [*ledger_targets.TARGETS, *stream_targets.TARGETS, *broker_targets.TARGETS]


def fuzz_compiled(seconds: int, seed: int | None) -> int:
    """Search with sanitizers what the compiled codec does with random bytes. Returns the exit code."""
    from fuzzing import codec_sanitized

    if (lack := codec_sanitized.what_lacks()) is not None:
        print(f"{COMPILED}: skipped: {lack}")
        return 1 if "CI" in os.environ else 0
    with tempfile.TemporaryDirectory() as folder:
        done = codec_sanitized.search(seconds, Path(folder), seed or randrange(1 << 32))
    if done.returncode:
        print(f"{COMPILED}: FAILED\n{done.stdout[-3000:]}{done.stderr[-6000:]}", flush=True)
        return 1
    print(f"{COMPILED}: {done.stdout.strip()} comparisons", flush=True)
    return 0


def fuzz_all(names: Sequence[str], seconds: int, data: Path | None, seed: int | None) -> int:
    """Run each target, by a ``seed`` or by chance. Returns the exit code."""
    environment = os.environ if seed is None else {**os.environ, "PYTHONHASHSEED": "0"}
    command = [sys.executable, __file__, "--here", "--seconds", str(seconds), *names]
    if data is not None:
        command += ["--input", str(data)]
    if seed is not None:
        command += ["--seed", str(seed)]
    return subprocess.run(command, env=environment, check=False).returncode


def fuzz_here(names: Sequence[str], search: Search) -> int:
    """Run targets in forks of this process, two at a time. Returns the exit code."""
    import atheris

    says_each = redirect_stderr(io.StringIO())  # module
    with says_each, atheris.instrument_imports(include=PACKAGES):
        targets = {target.name: target for target in all_targets()}
    waiting, running = deque(names), dict[int, tuple[str, Path]]()
    results = list[bool]()
    with tempfile.TemporaryDirectory() as folder:
        while waiting or running:
            while waiting and len(running) < AT_ONCE:
                name = waiting.popleft()
                place = Path(folder) / name
                place.mkdir()
                running[_fork(targets[name], search, place)] = name, place
            pid, status = os.wait()
            name, place = running.pop(pid)
            code = os.waitstatus_to_exitcode(status)
            _say(name, code, (place / OUTPUT).read_text(errors="replace"))
            results.append(code == 0)
    print(f"fuzz: {sum(results)} passed, {len(results) - sum(results)} failed")
    return 0 if all(results) else 1


def _fork(target: Target, search: Search, place: Path) -> int:
    """Returns the process that runs the target, whose output and corpus are in ``place``."""
    sys.stdout.flush()
    pid = os.fork()
    if not pid:
        _run_and_exit(target, search, place)
    return pid


def _run_and_exit(target: Target, search: Search, place: Path) -> None:
    code = 1
    try:
        output = os.open(place / OUTPUT, os.O_WRONLY | os.O_CREAT)
        os.dup2(output, 1)
        os.dup2(output, 2)
        search.run(target, place)  # libFuzzer ends the process itself
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        ctypes.CDLL(None).exit(code)  # libFuzzer's handler keeps what it found; Python's would end the parent's work


def _say(name: str, code: int, printed: str) -> None:
    if code:
        print(f"{name}: FAILED\n{printed[-6000:]}", flush=True)
    else:
        runs = [line for line in printed.splitlines() if line.startswith("Done ")]
        print(f"{name}: {runs[-1] if runs else 'ok'}", flush=True)


@dataclass(frozen=True)
class Search:
    """How each target is run: for so long, or on these bytes alone."""

    seconds: int
    data: Path | None
    seed: int | None

    def run(self, target: Target, place: Path) -> None:
        import atheris

        if self.data is not None:
            target.run(self.data.read_bytes())
            return
        findings, corpus = ROOT / "out" / "fuzz", place / "corpus"
        findings.mkdir(parents=True, exist_ok=True)
        corpus.mkdir()
        for number, example in enumerate(target.seeds):
            (corpus / f"seed-{number}").write_bytes(example)
        start = [] if self.seed is None else [f"-seed={self.seed}"]
        bounds = [f"-max_len={MAX_BYTES}", f"-rss_limit_mb={MEMORY_MB}", f"-timeout={HANG_S}"]
        limits = [f"-max_total_time={self.seconds}", f"-artifact_prefix={findings / target.name}-"]
        atheris.Setup([sys.argv[0], *limits, *start, *bounds, str(corpus)], target.run)
        atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
