"""Cookies: the text of the original, older layouts, and what does not belong together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.bookkeeper.wire.cookie import Cookie, decode, encode
from tallystick.errors import InvalidCookie, UsageError

COOKIE = Cookie("bookie-1", ("/journal",), ("/one", "/two"), "7d3a", ("/index",))
FOLDERS = st.lists(st.text(min_size=1).filter(lambda text: not set(text) & set(",\t\n")), min_size=1, max_size=3).map(
    tuple
)


@given(st.builds(Cookie, st.text(), FOLDERS, FOLDERS, st.none() | st.text(), st.none() | FOLDERS))
def test_what_was_written_is_read(cookie: Cookie) -> None:
    assert decode(encode(cookie)) == cookie


def test_layout_5_is_the_originals_text() -> None:
    assert encode(COOKIE).decode() == (
        '5\nbookieHost: "bookie-1"\njournalDir: "/journal"\nledgerDirs: "2\\t/one\\t/two"\ninstanceId: "7d3a"\n'
        'indexDirs: "1\\t/index"\n'
    )


def test_older_layouts_are_read() -> None:
    assert decode(b"3\n10.0.0.1:3181\n/journal\n1\t/one\n") == Cookie("10.0.0.1:3181", ("/journal",), ("/one",))
    text = b'4\nbookieHost: "b"\njournalDir: "/j1,/j2"\nledgerDirs: "1\\t/one"\n'
    assert decode(text) == Cookie("b", ("/j1", "/j2"), ("/one",))


def test_differences_are_named() -> None:
    assert COOKIE.differences(COOKIE) == []
    other = replace(COOKIE, host="bookie-2", instance_id="other")
    assert COOKIE.differences(other) == ["bookie: bookie-1, not bookie-2", "cluster: 7d3a, not other"]
    assert len(COOKIE.differences(replace(COOKIE, journal_dirs=("/x",), ledger_dirs=("/y",), index_dirs=("/z",)))) == 3


def test_indexes_without_folders_are_with_the_ledgers() -> None:
    without = replace(COOKIE, index_dirs=None)
    assert without.differences(replace(COOKIE, index_dirs=COOKIE.ledger_dirs)) == []
    assert COOKIE.differences(without)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"6\n",
        b"2\nx\ny\nz\n",
        b"\xff",
        b"3\nbookie\n",
        b"3\nbookie\n/journal\n2\t/one\n",
        b"5\n",
        b"5\njunk",
        b'5\nbookieHost: "b"\njournalDir: "/j"\nledgerDirs: "3\\t/one"\n',
        b'5\nbookieHost: "b"\njournalDir: "/j"\nledgerDirs: "/one"\n',
        b'5\nbookieHost: "b"\njournalDir: ""\nledgerDirs: "1\\t/one"\n',
    ],
)
def test_damaged_cookies_are_invalid(data: bytes) -> None:
    with pytest.raises(InvalidCookie) as caught:
        decode(data, where="/data/VERSION")
    assert caught.value.fields["where"] == "/data/VERSION"


@pytest.mark.parametrize("folder", ["", "a,b", "a\tb", "a\nb"])
def test_folders_that_the_format_cannot_hold(folder: str) -> None:
    changes: list[Callable[[], Cookie]] = [
        lambda: replace(COOKIE, journal_dirs=(folder,)),
        lambda: replace(COOKIE, ledger_dirs=(folder,)),
        lambda: replace(COOKIE, index_dirs=(folder,)),
    ]
    for change in changes:
        with pytest.raises(UsageError):
            change()
