"""The place of a secret among those of a user, by trials whose number says nothing."""

from __future__ import annotations

import pytest

from tallystick.codec.secret_places import MOST_SECRETS, NO_SECRET, place_of_secret


@pytest.mark.rule("N3")
@pytest.mark.parametrize(
    ("secrets", "given", "place"),
    [
        (("new", "old"), "new", 0),
        (("new", "old"), "old", 1),
        (("new", "old"), "another", None),
        (("new",), "another", None),
        (("new",), NO_SECRET, None),
        ((), "new", None),
        ((), NO_SECRET, None),
    ],
)
def test_n3_who_is_refused_is_refused_in_the_same_time(secrets: tuple[str, ...], given: str, place: int | None) -> None:
    tried = []

    def fits(secret: str) -> bool:
        tried.append(secret)
        return secret == given

    assert place_of_secret(secrets, fits) == place
    assert len(tried) == (MOST_SECRETS if place is None else place + 1)
