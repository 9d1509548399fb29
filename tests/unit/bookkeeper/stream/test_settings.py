"""Settings that cannot work are refused."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tallystick.bookkeeper.stream.settings import StreamClientSettings, StreamSettings
from tallystick.errors import UsageError


@pytest.mark.parametrize(
    "wrong",
    [
        {"ensemble": 2, "write_quorum": 3},
        {"ack_quorum": 3},
        {"max_entries_per_ledger": 0},
        {"max_ledger_age_s": 0},
        {"retention_s": -2},
        {"retention_s": "4"},
        {"retention_bytes": -2},
        {"retention_bytes": 1.5},
        {"backlog_quota_bytes": -2},
        {"backlog_policy": "hope"},
        {"ttl_s": 0},
        {"ttl_s": -2},
        {"ttl_s": 60, "entry_format": "raw"},
        {"entry_format": "json"},
        {"compression": "rar"},
        {"compression": "lz4", "entry_format": "raw"},
    ],
)
def test_settings_of_a_stream(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        StreamSettings(**wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"lease_s": 0},
        {"lease_s": 1e300},
        {"lease_s": 86_401},
        {"owner": b"me"},
        {"stream": {}},
        {"max_entries_per_cursor_ledger": 0},
        {"dedup_interval_entries": 0},
    ],
)
def test_settings_of_a_client(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        StreamClientSettings(**wrong)


def test_what_works() -> None:
    settings = StreamSettings(
        retention_s=0, retention_bytes=0, compression="zlib", ensemble=1, write_quorum=1, ack_quorum=1
    )
    assert settings.has_retention and not StreamSettings().has_retention
    assert StreamClientSettings(stream=settings).lease_s == 10


@pytest.mark.parametrize("name", ["lz4", "zstd", "snappy"])
def test_a_compression_whose_library_lacks_is_refused_before_a_stream_is_opened(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cramjam", None)
    assert StreamSettings(compression="zlib").compression == "zlib"
    with pytest.raises(UsageError, match="pip install 'cramjam"):
        StreamSettings(compression=name)
