from __future__ import annotations

import re
from typing import get_args

import pytest

from tallystick import cli
from tallystick.cli.sim import Kind
from tallystick.runtime.event_kinds import KINDS
from tallystick.sim import storage


@pytest.mark.parametrize("kind", get_args(Kind))
def test_every_kind_of_life_is_replayed_step_by_step(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["sim", "replay", "1", "--kind", kind]) == 0
    *steps, end = capsys.readouterr().out.splitlines()
    assert len(steps) > 10 and all(re.match(r" *\d+\.\d+ ", step) for step in steps)
    assert re.fullmatch(r"seed 1: every promise held \(trace [0-9a-f]{16}\)", end)


@pytest.mark.parametrize(
    ("kind", "told"), [("cluster", "ledger created"), ("brokers", "registered with a name server")]
)
def test_servers_and_clients_say_what_they_say_in_a_log(
    kind: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cli.main(["sim", "replay", "1", "--kind", kind])
    steps = capsys.readouterr().out.splitlines()
    assert told in KINDS
    assert any(re.fullmatch(rf" *\d+\.\d{{6}} \S+ {told} \w+=.*", step) for step in steps), steps[:60]


def test_the_first_seed_and_their_number_are_the_users(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["sim", "run", "--first", "3", "--seeds", "2", "--kind", "cluster", "--kind", "storage"]) == 0
    printed = capsys.readouterr().out
    assert re.match(r"seeds from 3\ncluster: 2 schedules, .*\nstorage: 2 schedules, .*\nevery promise held\n", printed)


def test_a_broken_promise_says_how_to_see_it_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lost = storage.StorageOutcome(3, "P1: an entry is lost", 1, "0" * 16)
    monkeypatch.setattr(storage, "run", lambda seed, keep_trace=False: lost)
    assert cli.main(["sim", "run", "--first", "3", "--seeds", "1", "--kind", "storage"]) == 1
    said = capsys.readouterr().out
    assert "  seed 3: P1: an entry is lost\n    again: tally sim replay 3 --kind storage\n" in said
    assert said.endswith("1 schedules broke a promise\n")
