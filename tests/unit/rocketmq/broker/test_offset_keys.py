from __future__ import annotations

import random

from tallystick.rocketmq.broker.offset_keys import OffsetKeys, split


def test_keys_by_topic_and_by_group_are_those_of_a_plain_list() -> None:
    for seed in range(50):
        rng, keys, plain = random.Random(seed), OffsetKeys(), dict[str, None]()
        for _ in range(60):
            topic, group = f"T{rng.randrange(4)}", f"g{rng.randrange(4)}"
            chance = rng.random()
            if chance < 0.8:
                key = topic + rng.choice(("", "@" + group))
                keys.add(key)
                plain[key] = None
            else:
                place, name = (0, topic) if chance < 0.9 else (1, rng.choice((group, "")))
                gone = keys.of_topic(name) if place == 0 else keys.of_group(name)
                assert set(gone) == {key for key in plain if split(key)[place] == name}, seed
                for key in gone:
                    keys.discard(key)
                plain = {key: None for key in plain if split(key)[place] != name}
            for name in ("T0", "T1", "T2", "T3"):
                assert set(keys.groups_of(name)) == {split(key)[1] for key in plain if split(key)[0] == name}, seed
            for name in ("", "g0", "g1"):
                assert set(keys.topics_of(name)) == {split(key)[0] for key in plain if split(key)[1] == name}, seed
        assert sorted(keys.group_topics()) == sorted({split(key)[1] for key in plain}), seed
        for most in (0, 3, 99):
            assert keys.first(most) == sorted(plain, key=split)[:most], seed


def test_the_topics_of_groups_are_not_copied() -> None:
    keys = OffsetKeys(["T@g"])
    topics = keys.group_topics()
    keys.add("U@g")
    assert list(topics["g"]) == ["T", "U"]
