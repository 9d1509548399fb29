"""What ``make fuzz`` searches."""

from __future__ import annotations

from fuzzing import broker_targets, ledger_targets, stream_targets


def test_each_target_has_a_name_of_its_own() -> None:
    """Of two of one name one would never be run."""
    names = [target.name for module in (ledger_targets, stream_targets, broker_targets) for target in module.TARGETS]
    assert len(set(names)) == len(names) > 20
