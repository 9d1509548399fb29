"""Search for bytes of strangers that our decoders do not expect: ``make fuzz``, or ``python tools/fuzz.py [TARGET …]``.

Each target runs for some seconds in a process of its own, guided by the code that its bytes reach (atheris, libFuzzer),
from frames that originals sent. Where CI is set it begins with the commit's seed, and goes the same way for long, if
not for ever. A finding is kept as a file that the same command takes: ``--input FILE TARGET``.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fuzzing.targets import Target

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ["tallystick.bookkeeper", "tallystick.rocketmq", "tallystick.codec", "tallystick.pipeline"]
MAX_BYTES = 2048
MEMORY_MB = 1024
HANG_S = 20  # of one input: a busy machine, too
DEFAULT_SECONDS = 4


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="all, if none is named")
    parser.add_argument("--seconds", type=int, default=DEFAULT_SECONDS, help="for each target (default: %(default)s)")
    parser.add_argument("--input", type=Path, help="run one target on the bytes of this file alone")
    parser.add_argument("--seed", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)  # in this process
    given = parser.parse_args(arguments)
    if importlib.util.find_spec("atheris") is None:
        print("skipped: atheris is not installed (pip install 'tallystick[dev]'), or not made for this machine")
        return 1 if "CI" in os.environ else 0
    sys.path[:0] = [str(ROOT / "tests")]
    if given.here:
        return fuzz_here(given.targets[0], given.seconds, given.input, given.seed)
    from support.seeds import IN_CI, tree_seed

    known_names = [target.name for target in all_targets()]
    if unknown := set(given.targets) - set(known_names):
        print(f"unknown target {', '.join(sorted(unknown))}; known: {', '.join(known_names)}", file=sys.stderr)
        return 2
    seed = (tree_seed() or 1) if IN_CI else None  # to libFuzzer 0 is any
    if seed is not None:
        print(f"fuzz: seed {seed}", flush=True)
    return fuzz_all(given.targets or known_names, given.seconds, given.input, seed)


def all_targets() -> list[Target]:
    from fuzzing import broker_targets, ledger_targets, stream_targets

    return [*ledger_targets.TARGETS, *stream_targets.TARGETS, *broker_targets.TARGETS]


def fuzz_all(names: Iterable[str], seconds: int, data: Path | None, seed: int | None) -> int:
    """Run each target in a process of its own, two at a time; by a ``seed`` or by chance. Returns the exit code."""
    environment = os.environ if seed is None else {**os.environ, "PYTHONHASHSEED": "0"}

    def run(name: str) -> bool:
        command = [sys.executable, __file__, "--here", "--seconds", str(seconds), name]
        if data is not None:
            command += ["--input", str(data)]
        if seed is not None:
            command += ["--seed", str(seed)]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        lines = done.stdout.decode(errors="replace").splitlines()
        printed = "\n".join(line for line in lines if "Instrumenting" not in line)
        if done.returncode:
            print(f"{name}: FAILED\n{printed[-6000:]}", flush=True)
        else:
            runs = [line for line in printed.splitlines() if line.startswith("Done ")]
            print(f"{name}: {runs[-1] if runs else 'ok'}", flush=True)
        return done.returncode == 0

    with ThreadPoolExecutor(max_workers=2) as pool:
        results = list(pool.map(run, names))
    print(f"fuzz: {sum(results)} passed, {len(results) - sum(results)} failed")
    return 0 if all(results) else 1


def fuzz_here(name: str, seconds: int, data: Path | None, seed: int | None) -> int:
    """Run one target in this process; libFuzzer ends it."""
    import atheris

    with atheris.instrument_imports(include=PACKAGES):
        target = next(one for one in all_targets() if one.name == name)
    if data is not None:
        target.run(data.read_bytes())
        return 0
    findings = ROOT / "out" / "fuzz"
    findings.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as corpus:
        for number, example in enumerate(target.seeds):
            (Path(corpus) / f"seed-{number}").write_bytes(example)
        start = [] if seed is None else [f"-seed={seed}"]
        bounds = [f"-max_len={MAX_BYTES}", f"-rss_limit_mb={MEMORY_MB}", f"-timeout={HANG_S}"]
        search = [f"-max_total_time={seconds}", f"-artifact_prefix={findings / name}-", *start, *bounds, corpus]
        atheris.Setup([sys.argv[0], *search], target.run)
        atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
