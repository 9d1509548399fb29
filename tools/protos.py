"""Make the protobuf modules anew after a .proto changed: ``python tools/protos.py``.

The compiler comes into a throw-away environment, as it pins a protobuf of its own. Its version is the oldest that the
package supports: generated code runs with its own and every newer runtime, never with an older one.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
COMPILER = "grpcio-tools==1.71.2"  # protobuf 5.29


def main() -> int:
    protos = sorted(str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.proto"))
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = str(Path(folder) / "bin" / "python")
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, COMPILER, "setuptools<81"], check=True)
        made = [f"--{kind}_out={SOURCE}" for kind in ("python", "pyi")]
        compiler = [python, "-m", "grpc_tools.protoc", f"--proto_path={SOURCE}", *made]
        return subprocess.run([*compiler, *protos], cwd=SOURCE, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
