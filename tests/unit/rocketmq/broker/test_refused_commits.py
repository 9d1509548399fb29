from __future__ import annotations

from collections.abc import Collection

import pytest

from tallystick.rocketmq.broker import refused_commits as untaken_module
from tallystick.rocketmq.broker.offsets import OffsetCommit
from tallystick.rocketmq.broker.refused_commits import FIRST_S, MOST_S, RefusedCommitsCore


def commits(count: int, offset: int = 1) -> list[OffsetCommit]:
    return [OffsetCommit("T", "g", queue_id, offset) for queue_id in range(count)]


def told(
    refused_commits: RefusedCommitsCore, lacking: list[OffsetCommit], now: float, room: Collection[int] = ()
) -> list[int]:
    """One round with a master that takes the queues in ``room``; of which queues it was told."""
    refused_commits.began(now)
    wanted = [commit for commit in lacking if refused_commits.is_due(commit)]
    for commit in wanted:
        if commit.queue_id in room:
            refused_commits.taken(commit)
        else:
            refused_commits.refused(commit, "no room")
    list(refused_commits.ended(now))
    return [commit.queue_id for commit in wanted]


@pytest.fixture(autouse=True)
def probes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(untaken_module, "PROBES", 2)


def test_what_was_refused_is_told_again_a_few_at_a_time_and_ever_more_seldom() -> None:
    refused_commits, lacking = RefusedCommitsCore(), commits(5)
    assert refused_commits.why == ""
    assert told(refused_commits, lacking, 0) == [0, 1, 2, 3, 4]
    assert refused_commits.why == "the master does not take 5 offsets that were committed here: no room"
    assert told(refused_commits, lacking, 10) == [0, 1]
    now, gap_s, following = 10.0, FIRST_S, [[2, 3], [0, 4], [1, 2]]
    for probes in following:
        assert told(refused_commits, lacking, now + gap_s - 1) == []
        now += gap_s
        assert told(refused_commits, lacking, now) == probes
        gap_s *= 2
    for _ in range(10):
        now += MOST_S
        assert len(told(refused_commits, lacking, now)) == 2


def test_a_new_one_is_told_at_once_and_a_later_one_of_a_refused_queue_is_not() -> None:
    refused_commits = RefusedCommitsCore()
    told(refused_commits, commits(2), 0)
    told(refused_commits, commits(2), 10)
    assert told(refused_commits, commits(3, offset=9), 11, room=[2]) == [2]
    assert refused_commits.why.startswith("the master does not take 2 offsets")


def test_all_are_told_as_soon_as_the_few_are_taken() -> None:
    refused_commits, lacking = RefusedCommitsCore(), commits(6)
    told(refused_commits, lacking, 0)
    assert told(refused_commits, lacking, 10, room=range(6)) == [0, 1]
    assert told(refused_commits, lacking[2:], 11, room=range(6)) == [2, 3, 4, 5]
    assert refused_commits.why == ""


def test_while_some_are_taken_others_are_tried_in_each_round() -> None:
    refused_commits, lacking = RefusedCommitsCore(), commits(6)
    told(refused_commits, lacking, 0)
    assert told(refused_commits, lacking, 10, room=[1]) == [0, 1]
    del lacking[1]
    assert told(refused_commits, lacking, 11) == [2, 3]
    assert told(refused_commits, lacking, 12) == []


def test_of_those_beyond_the_end_here_all_are_told_once_more_and_given_up() -> None:
    refused_commits, lacking = RefusedCommitsCore(), commits(5)
    for now, is_given_up in ((0.0, False), (10.0, True)):
        refused_commits.began(now)
        assert all(refused_commits.is_due(commit) for commit in lacking)
        assert {refused_commits.refused(commit, "beyond", is_beyond=True) for commit in lacking} == {is_given_up}
        list(refused_commits.ended(now))
    assert refused_commits.why == "" and not refused_commits._beyond


def test_one_that_is_beyond_the_end_no_more_waits_as_the_others_do() -> None:
    refused_commits, (lacking,) = RefusedCommitsCore(), commits(1)
    for now, is_beyond in ((0.0, True), (10.0, False), (11.0, True)):
        refused_commits.began(now)
        assert refused_commits.is_due(lacking) == (now < 11)
        assert not refused_commits.refused(lacking, "beyond", is_beyond=is_beyond)
        list(refused_commits.ended(now))
    told(refused_commits, [], 12)
    assert not refused_commits._beyond


def test_what_the_master_lacks_no_more_is_no_longer_counted() -> None:
    refused_commits = RefusedCommitsCore()
    told(refused_commits, commits(5), 0)
    told(refused_commits, commits(1), 10)
    assert refused_commits.why.startswith("the master does not take 1 offsets")
    told(refused_commits, [], 11)
    assert refused_commits.why == ""


def test_a_round_with_very_many_ends_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(untaken_module, "STEP_PLACES", 10)
    refused_commits, lacking = RefusedCommitsCore(), commits(35)
    told(refused_commits, lacking, 0)
    refused_commits.began(1)
    for commit in lacking[::2]:
        refused_commits.is_due(commit)
    left = [35]
    for _ in refused_commits.ended(1):
        left.append(len(refused_commits._refused))
    assert left == [35, 30, 25, 20] and len(refused_commits._refused) == 18
