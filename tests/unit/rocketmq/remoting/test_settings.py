from __future__ import annotations

import pytest

from tallystick.errors import UsageError
from tallystick.rocketmq.remoting.settings import RemotingSettings


@pytest.mark.parametrize("wrong", [{"idle_s": 0}, {"max_connections": -1}, {"held_limit_bytes": 0}, {"stalled_s": 0}])
def test_values_that_cannot_work_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        RemotingSettings(**wrong)
