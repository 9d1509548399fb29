"""A wrong option is named as it was typed."""

from __future__ import annotations

import math

import pytest

from tallystick.cli.stream_append import settings
from tallystick.cli.stream_options import OutMessages, OwnerOptions, RollOver
from tallystick.errors import UsageError


@pytest.mark.parametrize(
    ("roll_over", "option"),
    [
        (RollOver(max_entries=0), "--max-entries"),
        (RollOver(max_bytes=-1), "--max-bytes"),
        (RollOver(max_age_s=math.nan), "--max-age-s"),
        (RollOver(max_age_s=0.0), "--max-age-s"),
    ],
)
def test_a_wrong_limit_of_a_ledger_is_named_by_its_option(roll_over: RollOver, option: str) -> None:
    with pytest.raises(UsageError, match=f"^{option} is a"):
        settings(OwnerOptions(), roll_over, OutMessages())
