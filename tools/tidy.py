"""Hold the habits that no linter knows: no left-over markers, overlong files, orphan modules or broken doc links."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MARKERS = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "X" + "XX", "HA" + "CK")) + r")\b")
LONGEST = 450
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)")


def tracked() -> list[Path]:
    """Files that git knows or would add."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [path for name in listing.stdout.splitlines() if (path := ROOT / name).is_file()]


def in_code(path: Path, text: str) -> list[str]:
    name = path.relative_to(ROOT)
    problems = [f"{name}:{n}: left-over marker" for n, line in enumerate(text.splitlines(), 1) if MARKERS.search(line)]
    if text.count("\n") > LONGEST and not path.name.endswith("_pb2.py"):
        problems.append(f"{name}: {text.count(chr(10))} lines; files stay near 300")
    return problems


def in_docs(path: Path, text: str) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}: link to {target}, which does not exist"
        for target in LINK.findall(text)
        if not (path.parent / target).exists()
    ]


def orphans(paths: list[Path]) -> list[str]:
    """Modules of the package that nothing names, in code or configuration."""
    sources = {path: path.read_text(encoding="utf-8") for path in paths if path.suffix in {".py", ".toml", ".cfg"}}
    problems = []
    for path in sources:
        if not path.is_relative_to(ROOT / "src") or path.name in {"__init__.py", "__main__.py"}:
            continue
        stem = path.stem.removesuffix("_pb2")
        if not any(re.search(rf"\b{re.escape(stem)}", text) for other, text in sources.items() if other != path):
            problems.append(f"{path.relative_to(ROOT)}: nothing uses this module")
    return problems


def main() -> int:
    paths = tracked()
    problems = orphans(paths)
    for path in paths:
        if path.suffix in {".py", ".c", ".h"}:
            problems += in_code(path, path.read_text(encoding="utf-8"))
        elif path.suffix == ".md":
            problems += in_docs(path, path.read_text(encoding="utf-8"))
    print("\n".join(problems) or f"tidy: {len(paths)} files")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
