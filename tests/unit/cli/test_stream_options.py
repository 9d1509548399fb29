"""A wrong option is named as it was typed."""

from __future__ import annotations

import math

import pytest

from tallystick import StreamSettings
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


def test_each_option_is_a_setting_of_the_stream() -> None:
    """Each is another value than the one without it."""
    owner = OwnerOptions(ensemble=5, write_quorum=4, ack_quorum=3)
    messages = OutMessages(compression="zlib")
    assert settings(owner, RollOver(7, 8, 9.0), messages) == StreamSettings(
        ensemble=5,
        write_quorum=4,
        ack_quorum=3,
        max_entries_per_ledger=7,
        max_ledger_bytes=8,
        max_ledger_age_s=9.0,
        compression="zlib",
    )
    assert settings(OwnerOptions(), RollOver(), OutMessages(raw=True)) == StreamSettings(entry_format="raw")
