"""The demo's own parts: they prove the product, so they are proved too."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))  # for ``examples``, which is not installed
