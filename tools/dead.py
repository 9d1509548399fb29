"""Find names in src/ that nothing uses: what is dead is deleted, not kept.

A name at the top of a module is used where its module reads it outside of its own definition, or another module imports
it or reads it through the module, or a page of the docs has its full path. A member of a class is used where any
attribute of that name is read. Uses count in src/, bench/, examples/ and tools/: what only tests use is dead too.

Left alone are members of public classes, members of enumerations and fields of wire formats, which are as others want.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PUBLIC = (
    "tallystick",
    "tallystick.errors",
    "tallystick.sync",
    "tallystick.testing",
)  # the classes of these modules are for everybody
REGISTERS = frozenset({"command", "default", "fixture", "overload"})  # decorators that hand a function to somebody else
HOLDS = frozenset({"create_task"})  # whose outcome is kept for as long as it is stored
LOOKS_UP = frozenset({"attrgetter", "getattr", "hasattr", "methodcaller"})  # which name an attribute in a string
PLACE = re.compile(r"\b(tallystick[\w.]*)[.:](\w+)")  # as docs and the command line name a function
TYPE = re.compile(r"\b[A-Z]\w+")  # in an annotation that is a string

OUTSIDE = frozenset(
    {  # called or read by others, by name
        "reader",
        "streamReader",
        "streamWriter",  # Spark, of a data source
        "initialOffset",
        "prepareForTriggerAvailableNow",
        "latestOffset",
        "getDefaultReadLimit",
        "reportLatestOffset",  # Spark, of a stream reader
        "_missing_",  # enum
        "_call_soon",
        "_clock_resolution",
        "_process_events",
        "_run_once",
        "_selector",
        "run_in_executor",  # asyncio's loop
        "can_write_eof",
        "is_reading",  # asyncio's streams, of a transport
    }
)


@dataclass(frozen=True)
class Definition:
    """``first`` to ``last`` are the lines whose uses are its own."""

    place: str  # path and line
    owner: str  # the class; empty at the top of a module
    name: str
    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.place}: {self.owner}{'.' if self.owner else ''}{self.name}: nothing uses it"


@dataclass
class File:
    """What a file reads: names and attributes by line, and of other modules (module, name)."""

    path: str
    module: str
    tree: ast.Module
    names: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    attributes: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    places: set[tuple[str, str]] = field(default_factory=set)
    by_position: set[str] = field(default_factory=set)  # classes whose fields are matched without their names

    @property
    def is_wire(self) -> bool:
        return ".wire." in self.module


def read(path: str, text: str) -> File:
    module = path.removeprefix("src/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    file = File(path, module, ast.parse(text))
    aliases: dict[str, set[str]] = defaultdict(set)  # what a local name stands for, here or there in the file
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                aliases[alias.asname or alias.name.partition(".")[0]].add(alias.name if alias.asname else "")
        elif isinstance(node, ast.ImportFrom) and node.module:
            file.places |= {(node.module, alias.name) for alias in node.names}
            for alias in node.names:
                aliases[alias.asname or alias.name].add(f"{node.module}.{alias.name}")
    for node in ast.walk(file.tree):
        _note(file, node, aliases)
    return file


def _note(file: File, node: ast.AST, aliases: dict[str, set[str]]) -> None:
    match node:
        case ast.Name(name, ast.Load()):
            file.names[name].append(node.lineno)
        case ast.Attribute(value, name, ast.Load() | ast.Del()):
            file.attributes[name].append(node.lineno)
            home, _, rest = ast.unparse(value).partition(".")
            for target in aliases.get(home, ()):
                file.places.add((".".join(filter(None, (target or home, rest))), name))
            match value:
                case ast.Call(_, [ast.JoinedStr([ast.Constant(str(folder)), ast.FormattedValue()])]):
                    file.places.add((f"{folder}*", name))  # import_module(f"a.b.{c}").name
        case ast.MatchClass(kind, positional, names):
            file.by_position |= {last(kind)} if positional else set()
            for name in names:
                file.attributes[name].append(node.lineno)
        case ast.Call(function, arguments) if last(function) in LOOKS_UP:
            for argument in arguments:
                if isinstance(argument, ast.Constant):
                    file.attributes[str(argument.value)].append(node.lineno)
        case ast.Constant(str(text)) if len(text) < 100:
            file.places |= {(module, name) for module, name in PLACE.findall(text)}
            for name in TYPE.findall(text):
                file.names[name].append(node.lineno)


def last(node: ast.expr) -> str:
    """The name that a dotted or called one ends with."""
    node = node.func if isinstance(node, ast.Call) else node
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def definitions(file: File, body: Iterable[ast.stmt], owner: str = "") -> Iterator[Definition]:
    """Functions, classes and constants at the top; methods, constants, fields and attributes in classes."""
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield _definition(file, node, owner, node.name)
            bases = {last(base) for base in node.bases}
            is_table = any(base.endswith(("Enum", "Flag")) or base == "NamedTuple" for base in bases)
            inner = [each for each in node.body if not (is_table or file.is_wire) or not _assigned(each)]
            yield from definitions(file, inner, node.name)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if not any(last(each) in REGISTERS for each in node.decorator_list):
                yield _definition(file, node, owner, node.name)
            yield from _attributes(file, node, owner) if owner else ()
        else:
            yield from (_definition(file, node, owner, name) for name in _assigned(node))


def _attributes(file: File, method: ast.AST, owner: str) -> Iterator[Definition]:
    """What a method stores in ``self``. Of ``self.x = y = …`` a use on the same line counts: it goes to y."""
    for node in ast.walk(method):
        if not isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) or (
            node.value and last(node.value) in HOLDS
        ):
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for each in (each for target in targets for each in ast.walk(target)):
            if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store) and last(each.value) == "self":
                one = _definition(file, node, owner, each.attr)
                yield one if len(targets) == 1 else replace(one, last=0)


def _definition(file: File, node: ast.stmt, owner: str, name: str) -> Definition:
    return Definition(f"{file.path}:{node.lineno}", owner, name, node.lineno, node.end_lineno or node.lineno)


def _assigned(node: ast.stmt) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    names = [each for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)]
    return [each.id for each in names if isinstance(each.ctx, ast.Store)]


def public_classes(files: list[File]) -> set[str]:
    """Their names, with those of the classes that they are made of."""
    classes = [(file, node) for file in files for node in ast.walk(file.tree) if isinstance(node, ast.ClassDef)]
    public = {name for file in files if file.module in PUBLIC for _, name in file.places}
    public |= {node.name for file, node in classes if file.module in PUBLIC}
    bases = {node.name: {last(base) for base in node.bases} for _, node in classes}
    while more := {base for name in public for base in bases.get(name, ()) if base in bases} - public:
        public |= more
    return public


def unused(files: list[File], documented: set[tuple[str, str]]) -> Iterator[Definition]:
    """Definitions of modules in src/ that nothing uses, in order."""
    public, places = public_classes(files), documented.union(*(file.places for file in files))
    by_position = set().union(*(file.by_position for file in files))
    for home in files:
        for one in definitions(home, home.tree.body) if home.path.startswith("src/") else ():
            if one.name in OUTSIDE or re.fullmatch(r"__\w+__|_", one.name) or one.owner in by_position:
                continue
            if one.owner in public and not one.name.startswith("_"):
                continue
            if one.owner:
                uses = [(file, line) for file in files for line in file.attributes.get(one.name, ())]
            else:
                uses = [(home, line) for line in home.names.get(one.name, ())]
            is_used = any(file is not home or not one.first <= line <= one.last for file, line in uses)
            homes = {home.module, f"{home.module.rpartition('.')[0]}.*"}
            if not is_used and (one.owner or not any((each, one.name) in places for each in homes)):
                yield one


def main() -> int:
    paths = [path for folder in ("src", "bench", "examples", "tools") for path in sorted((ROOT / folder).rglob("*.py"))]
    paths_by_name = {str(path.relative_to(ROOT)): path for path in paths if not path.stem.endswith("_pb2")}
    files = [read(name, path.read_text(encoding="utf-8")) for name, path in paths_by_name.items()]
    pages = [path.read_text(encoding="utf-8") for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))]
    unused_names = [str(one) for one in unused(files, {place for page in pages for place in PLACE.findall(page)})]
    print("\n".join(unused_names) or f"dead: no name in {len(files)} files")
    return 1 if unused_names else 0


if __name__ == "__main__":
    sys.exit(main())
