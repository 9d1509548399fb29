"""What ``make fuzz`` searches."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzzing import broker_targets, codec_sanitized, ledger_targets, stream_targets


def test_each_target_has_a_name_of_its_own() -> None:
    """Of two of one name one would never be run."""
    names = [target.name for module in (ledger_targets, stream_targets, broker_targets) for target in module.TARGETS]
    assert len(set(names)) == len(names) > 20


def test_the_compiled_codec_is_clean_under_sanitizers(tmp_path: Path) -> None:
    """It reads no byte outside of a buffer, overflows nothing, and does what the reference does: as ``make fuzz``."""
    if (lack := codec_sanitized.what_lacks()) is not None:
        pytest.skip(lack)
    done = codec_sanitized.search(3, tmp_path, seed=1)
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout) > 100
