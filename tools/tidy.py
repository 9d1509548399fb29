"""Hold the habits that no linter knows: no left-over markers, overlong files, orphan modules or broken doc links."""

from __future__ import annotations

import re
import subprocess
import sys
from bisect import bisect_left
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MARKERS = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "X" + "XX", "HA" + "CK")) + r")\b")
LONGEST = 450
WORD = re.compile(r"\w+")
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
    problems = []
    if MARKERS.search(text):
        lines = enumerate(text.splitlines(), 1)
        problems = [f"{name}:{n}: left-over marker" for n, line in lines if MARKERS.search(line)]
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
    files_by_word: dict[str, list[Path]] = {}
    for path in paths:
        if path.suffix in {".py", ".toml", ".cfg"}:
            for word in set(WORD.findall(path.read_text(encoding="utf-8"))):
                files_by_word.setdefault(word, []).append(path)
    words = sorted(files_by_word)
    problems = []
    for path in paths:
        if path.suffix != ".py" or not path.is_relative_to(ROOT / "src") or path.name in {"__init__.py", "__main__.py"}:
            continue
        stem = path.stem.removesuffix("_pb2")
        alike = words[bisect_left(words, stem) : bisect_left(words, stem + chr(sys.maxunicode))]
        if all(files_by_word[word] == [path] for word in alike):
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
