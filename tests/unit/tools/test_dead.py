"""What counts as a use of a name, and what does not."""

from __future__ import annotations

import pytest

from tools.dead import read, unused


def found(*documented: tuple[str, str], **texts: str) -> list[str]:
    """Names that nothing uses in modules of a package; ``bench`` is a file beside it."""
    paths = {name: "bench/b.py" if name == "bench" else f"src/tallystick/{name}.py" for name in texts}
    return [one.name for one in unused([read(paths[name], text) for name, text in texts.items()], set(documented))]


def test_functions_classes_and_constants_that_nothing_reads() -> None:
    text = "A = 1\nB: int = 2\nC, D = 3, 4\ndef f():\n    return f()\nclass G:\n    pass\nprint(C)\n"
    assert found(a=text) == ["A", "B", "D", "f", "G"]


@pytest.mark.parametrize(
    "text",
    [
        "from tallystick.a import f",
        "from tallystick import a\na.f()",
        "import tallystick.a\ntallystick.a.f()",
        "import tallystick.a as b\nb.f()",
        "def one():\n    from tallystick import a\n    a.f()\ndef two():\n    from tallystick import c as a\n    a.g()",
        "app.command('tallystick.a:f')",
        "importlib.import_module(f'tallystick.{kind}').f()",
    ],
)
def test_uses_in_other_modules(text: str) -> None:
    assert found(a="def f(): ...", bench=text) == []


def test_what_another_module_has_by_the_same_name_is_no_use() -> None:
    assert found(a="def f(): ...", bench="from tallystick.b import f\nf()") == ["f"]


def test_a_place_in_the_docs_and_a_registered_command_are_uses() -> None:
    text = "def f(): ...\n@app.command\ndef g(): ..."
    assert found(a=text) == ["f"]
    assert found(("tallystick.a", "f"), a=text) == []


def test_members_that_nothing_reads() -> None:
    text = """
class A:
    LIMIT = 1
    field: int

    def __init__(self):
        self.kept = self.read = 0
        self.task = loop.create_task(run())

    def method(self):
        self.kept += 1
        return self.method()

    @property
    def other(self):
        return self.read

    def said(self): ...
"""
    names = found(a=text, bench="from tallystick.a import A\nA().other\ngetattr(A(), 'said')")
    assert names == ["LIMIT", "field", "kept", "method", "kept"]


def test_a_number_that_only_counts_itself_is_not_read_but_one_that_goes_elsewhere_is() -> None:
    text = "class A:\n    def f(self):\n        {} = self.count + 1\nA().f()"
    assert found(a=text.format("self.count")) == ["count"]
    assert found(a=text.format("self.count = other")) == []


def test_members_that_others_fix_are_left_alone() -> None:
    assert found(a="class A(enum.IntEnum):\n    X = 1\nprint(A)") == []
    assert found(**{"wire/a": "class A(Struct):\n    x: int\nprint(A)"}) == []
    assert found(a="class A:\n    x: int\nmatch y:\n    case A(z): print(A)") == []
    assert found(__init__="from tallystick.a import A", a="class Base:\n    def f(self): ...\nclass A(Base): ...") == []
