"""The compiled codec, which an installation can do without: all else is in pyproject.toml."""

import os
import sysconfig
import tempfile
from pathlib import Path

from setuptools import Extension, setup

FOLDER = Path("src/tallystick/codec/native")
LOWEST = "cp311"  # one binary for this Python and all that follow it (stable ABI)

compiled_codec = Extension(
    "tallystick.codec._compiled",
    sources=sorted(map(str, FOLDER.glob("*.c"))),
    depends=sorted(map(str, FOLDER.glob("*.h"))),
    define_macros=[("Py_LIMITED_API", "0x030b0000")],
    extra_compile_args=["-std=c11", "-O3", "-g0", "-Wall", "-Wextra", "-fvisibility=hidden"],
    py_limited_api=True,
    # No compiler, or one that fails: the installation goes on without it, unless it is demanded.
    optional=os.environ.get("TALLY_CODEC") != "compiled",
)

extensions, options = [compiled_codec], {"bdist_wheel": {"py_limited_api": LOWEST}}
if sysconfig.get_config_var("Py_GIL_DISABLED"):  # such a Python has no stable ABI
    extensions, options = [], {}

# Each build has a folder of its own. What another one left in build/ would be installed, too: modules that are gone
# since, and a compiled codec where there is no compiler any more.
with tempfile.TemporaryDirectory(prefix="tallystick-build-") as folder:
    setup(ext_modules=extensions, options={**options, "build": {"build_base": folder}})
