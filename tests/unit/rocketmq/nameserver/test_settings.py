from __future__ import annotations

import pytest

from tallystick.errors import UsageError
from tallystick.rocketmq.nameserver.settings import NameServerSettings


@pytest.mark.parametrize("wrong", [{"port": -1}, {"scan_interval_s": 0}, {"wait_for_service_s": -1}])
def test_values_that_cannot_work_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        NameServerSettings(**wrong)  # type: ignore[arg-type]
