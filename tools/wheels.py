"""Make wheels with the compiled codec for Linux on x86-64 and on ARM: ``make wheels``, or ``python tools/wheels.py``.

Each is for Python 3.11 and all that follow it, and for any distribution with glibc 2.17 (manylinux2014). Both are made
here: the compiler is clang as the package ``ziglang`` has it, which knows that glibc's symbols for both machines. It is
installed into a folder that is gone afterwards.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MACHINES = ("x86_64", "aarch64")
NEEDS = ("setuptools>=77", "ziglang>=0.13")
CANNOT_PREPARE = (
    f"no environment with {' and '.join(NEEDS)}: they come from pip's index, some 90 MB, and the environment from "
    "this Python's venv (Debian: apt-get install python3-venv)"
)
MODULE = "tallystick/codec/_compiled.abi3.so"
ELF_MACHINES = {"x86_64": 62, "aarch64": 183}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder for the wheels (default: dist)")
    out: Path = parser.parse_args(arguments).out.resolve()
    with tempfile.TemporaryDirectory() as folder:
        try:
            python = make_environment(Path(folder) / "environment")
        except subprocess.CalledProcessError as error:
            print(f"wheels: {CANNOT_PREPARE}: {error}", file=sys.stderr)
            return 1
        for machine in MACHINES:
            print(make_wheel(machine, python, Path(folder) / machine, out), flush=True)
    return 0


def make_environment(folder: Path) -> str:
    """Returns the Python that has what is needed."""
    venv.create(folder, with_pip=True)
    python = str(folder / "bin" / "python")
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *NEEDS], check=True)
    return python


def make_wheel(machine: str, python: str, folder: Path, out: Path) -> Path:
    """Compile for a machine. Returns the wheel; raises CalledProcessError or AssertionError if there is no good one."""
    folder.mkdir()
    compiler = f"{python} -m ziglang cc -target {machine}-linux-gnu.2.17"
    environment = {
        **os.environ,
        "CC": compiler,
        "LDSHARED": f"{compiler} -shared",
        "TALLY_CODEC": "compiled",  # a wheel of this name without it would be a lie
        "ZIG_GLOBAL_CACHE_DIR": str(folder / "cache"),
    }
    command = [python, "setup.py", "-q", "egg_info", "--egg-base", str(folder), "build", "--build-base", str(folder)]
    command += ["bdist_wheel", "--plat-name", f"manylinux2014_{machine}", "--dist-dir", str(folder / "dist")]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.DEVNULL)
    (made,) = (folder / "dist").glob("*.whl")
    with zipfile.ZipFile(made) as wheel:
        machine_number = int.from_bytes(wheel.read(MODULE)[18:20], "little")  # ELF's e_machine
    assert machine_number == ELF_MACHINES[machine], f"{made.name} is for another machine: {machine_number}"
    if machine == platform.machine():
        require_instructions(made, folder)
    out.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy(made, out))


def require_instructions(made: Path, folder: Path) -> None:
    """Raises AssertionError if the wheel's codec does not use the instructions that this machine's processor has."""
    with zipfile.ZipFile(made) as wheel:
        path = wheel.extract(MODULE, folder)
    spec = importlib.util.spec_from_file_location("tallystick.codec._compiled", path)
    assert spec is not None and spec.loader is not None
    codec = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(codec)
    flags = set(Path("/proc/cpuinfo").read_text(encoding="utf-8").split())
    assert codec.CRC32C != "table" or flags.isdisjoint({"sse4_2", "crc32"}), f"{made.name} computes CRC32C by table"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
