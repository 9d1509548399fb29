"""The compiled codec under the address and undefined-behaviour sanitizers, compared with the reference on random bytes.

``search`` compiles it anew, as a process for itself can load it alone: the sanitizers' library must be there before
Python is. Run as a program this is that process.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from random import Random

ROOT = Path(__file__).resolve().parents[2]
NATIVE = ROOT / "src" / "tallystick" / "codec" / "native"
MODULE = "_compiled.abi3.so"
FLAGS = ["-std=c11", "-g", "-O1", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror", "-DPy_LIMITED_API=0x030b0000"]
FLAGS += ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]
# Python keeps what it needs to its end, and has freed memory for itself unless told to use the system's.
ENVIRONMENT = {
    "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "PYTHONMALLOC": "malloc",
}


def what_lacks() -> str | None:
    """Says why the sanitizers cannot be used here; None if they can."""
    compiler = _compiler()
    if shutil.which(compiler[0]) is None:
        return f"there is no C compiler ({compiler[0]})"
    if not (Path(sysconfig.get_path("include")) / "Python.h").is_file():
        return "the headers of Python are not installed"
    if _preloaded(compiler) is None:
        return f"{compiler[0]} has no address sanitizer that can be loaded before Python"
    return None


def search(seconds: float, folder: Path, seed: int) -> subprocess.CompletedProcess[str]:
    """Compile into ``folder``, and compare for so long. What it prints ends with the number of comparisons."""
    compiler, sources = _compiler(), sorted(map(str, NATIVE.glob("*.c")))
    includes = ["-I", sysconfig.get_path("include")]
    subprocess.run([*compiler, *FLAGS, *includes, "-o", str(folder / MODULE), *sources], check=True)
    paths = os.pathsep.join([str(ROOT / "tests"), str(ROOT / "src"), *filter(None, sys.path)])
    environment = {**os.environ, **ENVIRONMENT, "PYTHONPATH": paths, "LD_PRELOAD": _preloaded(compiler) or ""}
    command = [sys.executable, __file__, str(folder / MODULE), str(seconds), str(seed)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def _compiler() -> list[str]:
    return shlex.split(os.environ.get("CC") or "cc")


def _preloaded(compiler: list[str]) -> str | None:
    """The sanitizers' libraries of this compiler, as LD_PRELOAD has them."""
    libraries = []
    for name in ("libasan.so", "libubsan.so"):
        command = [*compiler, f"-print-file-name={name}"]
        place = Path(subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip())
        if not place.is_absolute() or not place.is_file():
            return None
        libraries.append(str(place))
    return " ".join(libraries)


def _compare(module: Path, seconds: float, seed: int) -> int:
    """Returns how many comparisons there were; an AssertionError or the end of the process says what is wrong."""
    import importlib.machinery
    import importlib.util

    name = "tallystick.codec._compiled"
    loader = importlib.machinery.ExtensionFileLoader(name, str(module))
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None
    sys.modules[name] = importlib.util.module_from_spec(spec)
    loader.exec_module(sys.modules[name])
    from support import codec_twins, message_twins, record_twins, request_twins, stored_twins, v3_twins

    assert codec_twins.COMPILED is sys.modules[name]
    modules = (codec_twins, message_twins, record_twins, request_twins, stored_twins, v3_twins)
    comparisons = [comparison for module in modules for comparison in module.COMPARISONS.values()]
    end, count = time.monotonic() + seconds, 0
    while count < len(comparisons) or time.monotonic() < end:
        for comparison in comparisons:
            try:
                comparison(Random(seed + count))
            except AssertionError as error:
                raise AssertionError(f"seed {seed + count}") from error
            count += 1
    return count


if __name__ == "__main__":
    print(_compare(Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])))
