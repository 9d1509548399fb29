"""Errors: what they are about, how they show, how they travel to another process."""

from __future__ import annotations

import copy
import importlib
import inspect
import pickle
import pkgutil
from collections.abc import Iterator
from typing import get_type_hints

import pytest

import tallystick
from tallystick import errors
from tallystick.errors import (
    BrokerError,
    LedgerFenced,
    LocalProtocolError,
    NoSuchEntry,
    NoSuchMessage,
    NotEnoughBookies,
    TallyError,
    UsageError,
)

KINDS = [one for one in vars(errors).values() if inspect.isclass(one) and issubclass(one, TallyError)]


def _kinds_of(kind: type[TallyError]) -> Iterator[type[TallyError]]:
    for one in kind.__subclasses__():
        yield one
        yield from _kinds_of(one)


def test_no_error_that_a_caller_may_get_is_of_a_class_that_only_the_package_knows() -> None:
    """In Spark the name of the class is the error's code, which is promised to be stable."""
    for module in pkgutil.walk_packages(tallystick.__path__, "tallystick."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    ours = {kind for kind in _kinds_of(TallyError) if kind.__module__.startswith("tallystick.")}
    private = {kind for kind in ours if kind.__module__ != errors.__name__}
    assert {kind for kind in private if not kind.__module__.startswith("tallystick.bookkeeper.bookie.")} == set()


def test_an_error_shows_its_kind_and_what_it_is_about() -> None:
    fenced = LedgerFenced(ledger=3)
    assert repr(fenced) == "LedgerFenced(ledger=3)"
    assert str(fenced).endswith("may or may not survive (ledger=3)")
    assert repr(UsageError("no such key", value="x")) == "UsageError('no such key', value='x')"
    assert str(UsageError("no such key", value="x")) == "no such key (value=x)"
    assert repr(LedgerFenced()) == "LedgerFenced()"


def test_what_is_very_long_is_not_shown_whole() -> None:
    """A checkpoint of 10,000 streams, or a list of as many, would be megabytes of the logs of whoever reads it."""
    offset = "x" * 100_000
    error = UsageError("the checkpoint has no offsets", offset=offset, at=7)
    for text in (str(error), repr(error)):
        assert len(text) < 1200 and "… (100,00" in text and "at=7" in text
    assert error.fields["offset"] == offset


def test_what_it_is_about_are_attributes_and_none_where_it_is_not_known() -> None:
    error = NoSuchEntry(ledger=3, entry=7)
    assert (error.ledger, error.entry, error.bookie) == (3, 7, None)
    assert dict(error.fields) == {"ledger": 3, "entry": 7}
    short = NotEnoughBookies(needed=3, available=2)
    assert (short.needed, short.available) == (3, 2)


def test_a_field_that_no_kind_declares_is_an_attribute_too() -> None:
    assert getattr(UsageError("which file?", path="/x"), "path") == "/x"  # noqa: B009  # no type declares it
    with pytest.raises(AttributeError, match="'UsageError' object has no attribute 'folder'"):
        getattr(UsageError("which file?"), "folder")  # noqa: B009


def test_a_field_never_hides_how_to_react() -> None:
    error = LocalProtocolError("bad", code=7, retriable=True)
    assert (error.code, error.message, error.retriable) == (-16, "bad", False)
    assert error.fields["code"] == 7


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_survives_a_copy_and_another_process(kind: type[TallyError]) -> None:
    declared = [name for name in get_type_hints(kind) if name not in get_type_hints(TallyError)]
    error = kind("why", **dict.fromkeys(declared, 5))
    error.ambiguous = True
    for other in (copy.copy(error), pickle.loads(pickle.dumps(error))):  # of ours
        assert (type(other), str(other), repr(other)) == (kind, str(error), repr(error))
        assert other.ambiguous
        assert [getattr(other, name) for name in declared] == [5] * len(declared)


def test_codes_are_the_originals() -> None:
    assert (BrokerError().response_code, NoSuchMessage().response_code, LedgerFenced.code) == (1, 21, -101)
