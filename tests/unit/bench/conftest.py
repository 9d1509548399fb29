"""The bench scripts' own logic: what they print is quoted, so it must be right."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "bench"))  # scripts, not a package
