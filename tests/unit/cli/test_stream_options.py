"""A wrong option is named as it was typed."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tallystick import StreamSettings
from tallystick.cli import streams
from tallystick.cli.stream_append import MessageTemplate, settings
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


@pytest.mark.parametrize(
    ("owner", "said"),
    [
        (OwnerOptions(wait_s=-1), "--wait-s is a number from 0"),
        (OwnerOptions(wait_s=math.inf), "--wait-s is a number"),
        (OwnerOptions(ensemble=0), "--ensemble is a whole number from 1"),
        (OwnerOptions(write_quorum=4), "of --ensemble, --write-quorum and --ack-quorum none is more"),
        (OwnerOptions(ack_quorum=0), "--ack-quorum is a whole number from 1"),
    ],
)
def test_a_wrong_option_of_an_owner_is_named_by_its_option(owner: OwnerOptions, said: str) -> None:
    with pytest.raises(UsageError, match=f"^{said}"):
        settings(owner, RollOver(), OutMessages())
    with pytest.raises(UsageError, match=f"^{said}"):
        streams.settings(owner)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"keep_s": -1.0}, "--keep-s is a number from 0"),
        ({"keep_s": math.nan}, "--keep-s is a number"),
        ({"keep_bytes": -1}, "--keep-bytes is a whole number from 0"),
        ({"ttl_s": 0.0}, "--ttl-s is a number above 0"),
        ({"backlog_bytes": -1}, "--backlog-bytes is a whole number from 0"),
    ],
)
def test_a_wrong_bound_is_named_by_its_option(given: dict[str, Any], said: str) -> None:
    """-1 is how a setting says that all of it is kept: nobody who types it means that."""
    with pytest.raises(UsageError, match=f"^{said}"):
        streams.settings(OwnerOptions(), **given)


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        (OutMessages(producer="p", sequence=-4), "--sequence is a whole number from 0"),
        (OutMessages(producer="p", sequence=1 << 63), "--sequence is a whole number from 0"),
        (OutMessages(producer="", sequence=4), "--producer needs a name"),
    ],
)
def test_a_wrong_number_of_a_producer_is_refused_before_a_message_is_there(messages: OutMessages, said: str) -> None:
    """Without input it was taken."""
    with pytest.raises(UsageError, match=f"^{said}"):
        MessageTemplate.of(messages)


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
