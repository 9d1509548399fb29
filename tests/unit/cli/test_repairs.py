"""What the commands of repair hand on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tallystick.admin import decommission as decommissioning
from tallystick.admin.decommission import Decommission
from tallystick.bookkeeper.repair.settings import RepairSettings
from tallystick.cli import repairs


async def test_a_decommission_waits_as_long_for_writers_as_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[RepairSettings] = []

    async def decommission(client: Any, bookie: str, settings: RepairSettings, *_: Any, **__: Any) -> Decommission:
        given.append(settings)
        return Decommission(0, {}, is_registered=False, is_done=True)

    @asynccontextmanager
    async def connect(uri: str) -> AsyncIterator[None]:
        yield None

    monkeypatch.setattr(decommissioning, "decommission", decommission)
    monkeypatch.setattr(repairs, "connect", connect)
    await repairs.decommission("memory://x", "b0", 7.0, force=False)
    assert [settings.open_grace_s for settings in given] == [7.0]
