"""The names of producers whose appends nobody repeats by their numbers: an owner's own, those of sinks, and very long
ones.

Numbers of owners and of sinks begin anew with each owner and each attempt, so they say nothing of what is stored, and
nobody who numbers appends has such a name. To a Pulsar broker they are producers like others, a new one an owner and
one an application. Names are kept with their numbers, in one node: what is longer than any that is given has none.
"""

from __future__ import annotations

import re

from tallystick.runtime.rng import Random

LONGEST_NAME = 1024  # characters

_OWNER = re.compile(r"tallystick-[0-9a-f]{16}", re.ASCII)
_SINK = "tallystick/sink/"


def owner_producer(random: Random) -> str:
    """Returns the name of an owner, which no other owner has."""
    return f"tallystick-{random.getrandbits(64):016x}"


def sink_producer(application: str) -> str:
    """Returns the name of all attempts of an application."""
    return _SINK + application


def has_numbers(producer: str) -> bool:
    """Whether a number of this producer says which of its appends are stored."""
    return len(producer) <= LONGEST_NAME and not producer.startswith(_SINK) and _OWNER.fullmatch(producer) is None
