"""The names that a streaming query reads, while those who tell them come and go."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from support.stores import SteppingClock
from tallystick.errors import MetadataUnavailable
from tallystick.pipeline.listing import LIST_S, PATIENCE_S, Listing


class Looks:
    """Lists as many names as it was asked times, unless it is away."""

    def __init__(self) -> None:
        self.count, self.is_away = 0, False

    async def look(self) -> Sequence[int]:
        self.count += 1
        if self.is_away:
            raise MetadataUnavailable("away")
        return range(self.count)


async def test_names_are_looked_up_again_when_they_are_old() -> None:
    clock, looks = SteppingClock(), Looks()
    listing = Listing(looks.look, clock, "format")
    assert len(await listing.names()) == len(await listing.names()) == 1
    clock.ms += int(LIST_S * 1000)
    assert len(await listing.names()) == 2


async def test_a_query_goes_on_for_a_while_when_nobody_tells(capsys: pytest.CaptureFixture[str]) -> None:
    clock, looks = SteppingClock(), Looks()
    listing = Listing(looks.look, clock, "format")
    looks.is_away = True
    with pytest.raises(MetadataUnavailable):
        await listing.names()
    looks.is_away = False
    names = await listing.names()
    looks.is_away = True
    for _ in range(int(PATIENCE_S / LIST_S)):
        clock.ms += int(LIST_S * 1000)
        before = looks.count
        assert await listing.names() is names and await listing.names() is names
        assert looks.count == before + 1, "who is away is not asked by each trigger"
    assert "what is new is not looked for now" in capsys.readouterr().err
    clock.ms += int(LIST_S * 1000)
    with pytest.raises(MetadataUnavailable):
        await listing.names()
    looks.is_away = False
    assert await listing.names() is not names
