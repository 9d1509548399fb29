"""Which of a user's secrets somebody has used, found in a time that says neither how many there are nor whether any."""

from __future__ import annotations

from collections.abc import Callable, Sequence

MOST_SECRETS = 2  # of one user: the new one and the old one
NO_SECRET = "nobody has this secret"  # tried where there is none


def place_of_secret(secrets: Sequence[str], fits: Callable[[str], bool]) -> int | None:
    """Return the place of the first secret that ``fits``, 0 the newest; None if none does, after MOST_SECRETS trials
    in any case."""
    for place in range(MOST_SECRETS):
        is_one = place < len(secrets)
        if fits(secrets[place] if is_one else NO_SECRET) and is_one:
            return place
    return None
