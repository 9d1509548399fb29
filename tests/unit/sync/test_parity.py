"""The blocking clients have what the asynchronous ones have, under the same names, with the same arguments."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import tallystick
from tallystick import sync

PAIRS: list[tuple[Any, Any]] = [
    (tallystick.BookKeeper, sync.BookKeeper),
    (tallystick.LedgerWriter, sync.LedgerWriter),
    (tallystick.LedgerReader, sync.LedgerReader),
    (tallystick.Stream, sync.Stream),
    (tallystick.StreamReader, sync.StreamReader),
    (tallystick.Cursor, sync.Cursor),
    (tallystick.StreamSink, sync.StreamSink),
    (tallystick.SinkAttempt, sync.SinkAttempt),
    (tallystick.RocketMQ, sync.RocketMQ),
    (tallystick.Producer, sync.Producer),
    (tallystick.Consumer, sync.Consumer),
]
BLOCKING = {"__aenter__": "__enter__", "__aexit__": "__exit__", "__aiter__": "__iter__"}
INSIDE = {  # what the house itself uses of the asynchronous classes, and makes no sense from another thread
    "BookKeeper": {"context", "placement", "stream_context"},
    "LedgerWriter": {"append_batch_nowait", "drop_session", "explicit_lac", "give_up", "has_any", "replace_absent"},
    "LedgerReader": {"open"},
    "Stream": {"append_encoded", "check_size", "end_with_client"},
    "Cursor": {"end_with_client"},
}


def surface(of: Any) -> dict[str, Any]:
    """The public members of a class, by their name in the blocking one."""
    members = {name: getattr(of, name) for one in reversed(of.__mro__[:-1]) for name in vars(one)}
    shown = {*BLOCKING, *BLOCKING.values()}
    return {BLOCKING.get(name, name): one for name, one in members.items() if name in shown or name[0] != "_"}


def arguments(of: Any) -> list[tuple[str, Any, Any]]:
    parameters = inspect.signature(of).parameters.values()
    return [(one.name, one.kind, one.default) for one in parameters]


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair[0].__name__)
def test_members_and_arguments_are_the_same(pair: tuple[Any, Any]) -> None:
    ours, blocking = (surface(one) for one in pair)
    assert set(ours) - set(blocking) == INSIDE.get(pair[0].__name__, set())
    for name, member in ours.items():
        if name in blocking and callable(member):
            assert arguments(blocking[name]) == arguments(member), name


@pytest.mark.parametrize("blocking", [blocking for _, blocking in PAIRS])
def test_each_shows_its_fields(blocking: Any) -> None:
    assert blocking.__repr__ is not object.__repr__


@pytest.mark.parametrize("name", ["connect", "topics"])
def test_functions_have_the_same_arguments(name: str) -> None:
    assert arguments(getattr(sync, name)) == arguments(getattr(tallystick, name))


@pytest.mark.parametrize("of", [one for pair in PAIRS for one in pair], ids=lambda of: f"{of.__module__}.{of.__name__}")
def test_every_member_says_what_it_does(of: Any) -> None:
    """In words of its own: whoever asks ``help()`` is not sent elsewhere."""
    for name in (one for one in surface(of) if not one.startswith("__")):
        member = inspect.getattr_static(of, name)
        if inspect.ismemberdescriptor(member):
            continue
        text = inspect.getdoc(member.fget if isinstance(member, property) else member)
        assert text and not text.startswith("See "), name
