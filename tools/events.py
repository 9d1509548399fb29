"""Make docs/events.md from the registry of events; with ``--check`` say whether page, registry and code agree.

Fails when the code reports a kind that the registry lacks, or the registry has one that nobody reports.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from logging import getLevelName
from pathlib import Path

from tallystick.runtime.event_kinds import GROUPS, KINDS

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "events.md"
REGISTRY = ROOT / "src" / "tallystick" / "runtime" / "event_kinds.py"
REPORTERS = {"emit", "_emit", "_tell", "tell_outage", "Explain", "Event"}  # functions whose first argument is a kind
HEAD = """# Events

What clients and servers decide and why, as structured events: servers write them to standard error, clients to Python's
logger `tallystick`. [configuration.md](configuration.md#events-and-logs) tells how to choose level and format. Made by
`tools/events.py` from the registry.
"""


def strings(node: ast.expr) -> Iterator[str]:
    """The kinds that an argument can be: a text, or either side of a condition."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.IfExp):
        yield from strings(node.body)
        yield from strings(node.orelse)


def _called(node: ast.AST) -> str:
    if not isinstance(node, ast.Call):
        return ""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _bound(function: ast.AST, name: str) -> Iterator[ast.expr]:
    """The values of ``name = …`` in a function, also of ``name, reason = …``."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            target, value = node.targets[0], node.value
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                target, value = target.elts[0], value.elts[0]
            if isinstance(target, ast.Name) and target.id == name:
                yield value


def reported(path: Path) -> Iterator[str]:
    """The kinds that a module reports by name, or by a name that is bound in the same function."""
    tree = ast.parse(path.read_text())
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)):
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and node.args and _called(node) in REPORTERS:
                yield from strings(node.args[0])
                if isinstance(node.args[0], ast.Name):
                    for value in _bound(function, node.args[0].id):
                        yield from strings(value)


def page() -> str:
    lines = [HEAD]
    for group, kinds in GROUPS.items():
        lines += [f"## {group}", "", "| event | level | meaning |", "|---|---|---|"]
        lines += [f"| {kind} | {getLevelName(one.level).lower()} | {one.meaning} |" for kind, one in kinds.items()]
        lines.append("")
    return "\n".join(lines)


def main() -> int:
    sources = (path for path in (ROOT / "src").rglob("*.py") if path != REGISTRY)
    used = {kind for path in sources for kind in reported(path)}
    wrong = [f"reported, but not in the registry: {kind}" for kind in sorted(used - KINDS.keys())]
    wrong += [f"in the registry, but never reported: {kind}" for kind in sorted(KINDS.keys() - used)]
    if sum(map(len, GROUPS.values())) != len(KINDS):
        wrong.append("two groups of the registry have a kind of one name")
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(page())
    elif PAGE.read_text() != page():
        wrong.append(f"{PAGE.name} is not up to date: run tools/events.py")
    print("\n".join(wrong), file=sys.stderr, end="\n" if wrong else "")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
