"""Settings that cannot work are refused before anything is touched."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tallystick.bookkeeper.bookie.config import BookieSettings, addresses_of, interface_address
from tallystick.errors import UsageError


def settings(**changes: Any) -> BookieSettings:
    return BookieSettings(**{"metadata_uri": "memory://x", "journal_dirs": ("/j",), "ledger_dirs": ("/l",), **changes})


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"port": 70000}, "bookiePort"),
        ({"port": 0}, "bookieId"),
        ({"bookie_id": "a b"}, "bookieId"),
        ({"bookie_id": "readonly"}, "bookieId"),
        ({"journal_dirs": ("relative",)}, "absolute"),
        ({"ledger_dirs": ("/a", "/a")}, "none twice"),
        ({"disk_usage_threshold": 1.5}, "diskUsageThreshold"),
        ({"disk_usage_warn_threshold": 0.0}, "diskUsageWarnThreshold"),
        ({"high_priority_spare_bytes": -1}, "minUsableSizeForHighPriorityWrites"),
        ({"session_timeout_s": 0}, "zkTimeout"),
        ({"gc_wait_s": -1}, "gcWaitTime"),
        ({"max_batch_read_bytes": 0}, "maxBatchReadSize"),
        ({"max_frame_bytes": 10}, "nettyMaxFrameSizeBytes"),
        ({"http_port": -1}, "httpServerPort"),
    ],
)
def test_a_bad_value_is_refused_by_the_name_of_its_key(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        settings(**changes)


def test_a_bookie_listens_on_loopback_unless_told_otherwise() -> None:
    found = addresses_of(settings())
    assert (found.listen_host, found.advertised_host, found.bookie) == ("127.0.0.1", "127.0.0.1", "127.0.0.1:3181")
    assert found.is_loopback


def test_the_advertised_address_names_the_bookie() -> None:
    found = addresses_of(settings(advertised_host="bookie.example", port=9))
    assert (found.listen_host, found.bookie) == ("127.0.0.1", "bookie.example:9")
    assert addresses_of(settings(bookie_id="b1", port=0)).bookie == "b1"


def test_an_interface_is_listened_on() -> None:
    assert interface_address("lo") == "127.0.0.1"
    assert addresses_of(settings(interface="lo")).listen_host == "127.0.0.1"
    with pytest.raises(UsageError, match="listeningInterface"):
        addresses_of(settings(interface="none9"))


def test_allow_loopback_false_refuses_it() -> None:
    with pytest.raises(UsageError, match=re.escape("allowLoopback=false")):
        addresses_of(settings(allow_loopback=False))
