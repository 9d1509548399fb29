"""Who hears what, in which turn."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from tallystick.bookkeeper.ledger.reports import OWNERS_A_TURN, Reports
from tallystick.bookkeeper.wire.codes import Code
from tallystick.codec.frames import Buffer
from tallystick.errors import BookieUnavailable, TallyError


class Hears:
    """An owner that keeps what it heard; ``fails``: and raises."""

    def __init__(self, *, fails: bool = False) -> None:
        self.heard: list[tuple[str, list[int], Sequence[Buffer] | Code]] = []
        self._fails = fails

    def _hear(self, what: str, entries: list[int], more: Sequence[Buffer] | Code) -> None:
        self.heard.append((what, entries, more))
        if self._fails:
            raise ZeroDivisionError("a bug")

    def received(self, entries: list[int], data: Sequence[Buffer]) -> None:
        self._hear("received", entries, data)

    def refused(self, entries: list[int], code: Code) -> None:
        self._hear("refused", entries, code)

    def failed(self, entries: list[int], error: TallyError) -> None:
        self._hear("failed", entries, ())


class Around:
    """Reports, and what went wrong with them."""

    def __init__(self) -> None:
        self.broken: list[Exception] = []
        self.owner_failures: list[int] = []
        self.reports = Reports()

    def tell(self) -> None:
        self.reports.tell(self.broken.append)

    def lose(self, *owners: Hears) -> None:
        self.reports.fail([(owner, [0]) for owner in owners], lambda: BookieUnavailable("gone"), self.note)

    def note(self, error: Exception, entries: int) -> None:
        self.owner_failures.append(entries)


async def test_adds_of_one_owner_and_code_are_told_together_and_reads_as_they_came() -> None:
    around, owner, other = Around(), Hears(), Hears()
    answered = around.reports.answered
    for entry in (0, 1):
        answered(owner, Code.OK, [entry])
    for entry in (2, 3):
        answered(owner, Code.FENCED, [entry])
    answered(owner, Code.OK, [4])
    answered(other, Code.OK, [7], [b"7"])
    answered(other, Code.OK, [8], [b"8"])
    assert owner.heard == []
    around.tell()
    assert owner.heard == [("received", [0, 1], ()), ("refused", [2, 3], Code.FENCED), ("received", [4], ())]
    assert other.heard == [("received", [7], [b"7"]), ("received", [8], [b"8"])]


async def test_some_owners_hear_in_a_turn_and_all_in_theirs() -> None:
    around, owners = Around(), [Hears() for _ in range(2 * OWNERS_A_TURN + 1)]
    for owner in owners:
        around.reports.answered(owner, Code.OK, [0])
    for told in (OWNERS_A_TURN, 2 * OWNERS_A_TURN, len(owners)):
        around.tell()  # of another read, which changes nothing
        assert sum(len(owner.heard) for owner in owners) == told
        await asyncio.sleep(0)
    around.lose(*owners)
    for told in (OWNERS_A_TURN, 2 * OWNERS_A_TURN, len(owners)):
        assert sum(len(owner.heard) - 1 for owner in owners) == told
        await asyncio.sleep(0)


async def test_at_the_end_answers_are_told_that_wait_for_their_turn_and_no_others() -> None:
    around, owners, late = Around(), [Hears() for _ in range(OWNERS_A_TURN + 5)], Hears()
    around.reports.answered(late, Code.OK, [0])
    assert around.reports.end() == [(late, [0])], "its socket read has ended in an error"
    for owner in owners:
        around.reports.answered(owner, Code.OK, [0])
    around.tell()
    assert around.reports.end() == []
    assert all(owner.heard == [("received", [0], ())] for owner in owners) and late.heard == []


async def test_who_fails_at_the_end_and_all_behind_it_have_not_heard_their_answers() -> None:
    around, bad, good = Around(), Hears(fails=True), Hears()
    for owner in (*(Hears() for _ in range(OWNERS_A_TURN)), Hears(), bad, good):
        around.reports.answered(owner, Code.OK, [0])
    around.tell()
    assert around.reports.end() == [(bad, [0]), (good, [0])]


async def test_who_fails_on_an_answer_has_not_heard_it() -> None:
    around, bad, good = Around(), Hears(fails=True), Hears()
    around.reports.answered(bad, Code.OK, [0])
    around.reports.answered(good, Code.OK, [0])
    with pytest.raises(ZeroDivisionError):
        around.tell()
    assert around.reports.end() == [(bad, [0]), (good, [0])]


async def test_who_fails_in_a_later_turn_breaks_the_connection() -> None:
    around, bad = Around(), Hears(fails=True)
    for _ in range(OWNERS_A_TURN):
        around.reports.answered(Hears(), Code.OK, [0])
    around.reports.answered(bad, Code.OK, [1])
    around.tell()
    await asyncio.sleep(0)
    assert [type(error) for error in around.broken] == [ZeroDivisionError]
    assert around.reports.end() == [(bad, [1])]


async def test_who_fails_on_a_failure_keeps_it_from_nobody() -> None:
    around, bad, good = Around(), Hears(fails=True), Hears()
    around.lose(bad, good)
    assert (around.owner_failures, good.heard) == ([1], [("failed", [0], ())])


async def test_all_failures_can_be_told_at_once() -> None:
    around, owners = Around(), [Hears() for _ in range(3 * OWNERS_A_TURN)]
    around.lose(*owners)
    around.reports.tell_all_failures(around.note)
    assert all(owner.heard for owner in owners)
