"""What is to happen in a life of clients and servers that show each other who they are."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tallystick.bookkeeper.wire.auth import DIGEST_MD5, SCRAM_SHA_256
from tallystick.sim.virtual.network import LinkFaults

BOTH = (SCRAM_SHA_256, DIGEST_MD5)  # the strongest first
LISTS = (BOTH, BOTH, (SCRAM_SHA_256,), (DIGEST_MD5,))
CHAOS = ("kill", "power loss", "stop", "reset", "reset", "cut", "cut in", "cut out")
SCRIPTS = ("asks nobody", "refuses", "other plugin", "repeats", "reflects", "made up")  # of an impostor
KINDS = ("late", "wrong", "unknown")  # of clients that do not get in, or not to the end


@dataclass(frozen=True)
class KeyedClientPlan:
    """``right``: its secret counts all along. ``late``: it keeps the old one when that ends. ``keeps``: its old secret
    stays beside the new one, and it uses that."""

    kind: str
    mechanisms: tuple[str, ...]
    wire: str
    keeps: bool = False

    def plugin(self, offered: tuple[str, ...]) -> str | None:
        """Return the strongest that both sides take, or None."""
        return next((name for name in BOTH if name in self.mechanisms and name in offered), None)


@dataclass(frozen=True)
class HandshakePlan:
    """``rotation``: when users get new secrets, when clients use them, and when the old ones end; ``impostors``: when
    one takes a bookie's address, for how long, and what it does."""

    storm_s: float
    sync_s: float
    links: LinkFaults
    chaos: tuple[tuple[float, str], ...]
    offered: tuple[str, ...]
    clients: tuple[KeyedClientPlan, ...]
    rotation: tuple[float, float, float]
    impostors: tuple[tuple[float, float, str], ...]
    replays: int

    @classmethod
    def draw(cls, rng: random.Random) -> HandshakePlan:
        """Return a plan."""
        storm_s, offered = 6.0 + 6.0 * rng.random(), rng.choice(LISTS)
        links = LinkFaults(
            latency_s=rng.choice((0.001, 0.02, 0.1)),
            slow=rng.choice((0.0, 0.02, 0.1)),
            split=rng.choice((0.1, 0.5)),
            reset=rng.choice((0.0, 0.01)),
        )
        first = KeyedClientPlan("right", rng.choice((offered, BOTH)), rng.choice(("auto", "v2", "v3")), True)
        others = [
            KeyedClientPlan(kind, rng.choice(LISTS), rng.choice(("auto", "v3")), rng.random() < 0.3)
            for kind in ("right", *rng.sample(KINDS, 2))
        ]
        began, switched, ended = sorted(rng.random() * 0.8 * storm_s for _ in range(3))
        return cls(
            storm_s,
            rng.choice((0.0, 0.01)),
            links,
            tuple((rng.random() * storm_s, rng.choice(CHAOS)) for _ in range(rng.randint(0, 4))),
            offered,
            (first, *others),
            (began, switched, ended),
            tuple(
                (rng.random() * storm_s, 1.0 + 2.0 * rng.random(), rng.choice(SCRIPTS))
                for _ in range(rng.randint(1, 3))
            ),
            rng.randint(10, 25),
        )
