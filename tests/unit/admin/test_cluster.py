from pathlib import Path

import pytest

from tallystick.admin import cluster
from tallystick.errors import UsageError


async def test_a_cluster_is_made_once(tmp_path: Path) -> None:
    uri = f"sqlite://{tmp_path}/metadata.db"
    instance = await cluster.init(uri)
    async with cluster.metadata(uri) as driver:
        assert await driver.instance_id() == instance
    with pytest.raises(UsageError):
        await cluster.init(uri)
