from __future__ import annotations

import random

from tallystick.rocketmq.broker.offset_keys import OffsetKeys


def test_keys_by_topic_and_by_group_are_those_of_a_plain_list() -> None:
    for seed in range(50):
        rng, keys, plain = random.Random(seed), OffsetKeys(), dict[str, None]()
        for _ in range(60):
            key = f"T{rng.randrange(4)}" + rng.choice(("", f"@g{rng.randrange(4)}"))
            if rng.random() < 0.6:
                keys.add(key)
                plain[key] = None
            else:
                keys.discard([key, "T9@g0"])
                plain.pop(key, None)
            assert {name: set(keys.of_topic(name)) for name in ("T0", "T1", "T2", "T3")} == {
                name: {key for key in plain if key.partition("@")[0] == name} for name in ("T0", "T1", "T2", "T3")
            }, seed
            for group in ("", "g0", "g1"):
                assert set(keys.of_group(group)) == {key for key in plain if key.partition("@")[2] == group}, seed
        assert sorted(keys.group_topics()) == sorted({key.partition("@")[2] for key in plain}), seed
