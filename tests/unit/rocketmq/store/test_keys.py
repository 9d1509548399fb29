"""Keys and tags of a record: their hashes equal those of the whole strings, however they were put together."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.codec.records import java_hash
from tallystick.rocketmq.store.keys import KeyHashes
from tallystick.rocketmq.wire.record import decode_properties

TEXT = st.text("abcXYZ09 é\x01", max_size=40)
PROPERTIES = st.lists(
    st.tuples(st.sampled_from(["UNIQ_KEY", "KEYS", "TAGS", "other", "XKEYS"]), TEXT), max_size=6
)  # fmt: skip


def index_hash(key: str) -> int:
    value = abs(java_hash(key))
    return value if value < 1 << 31 else 0


@settings(max_examples=100)
@given(st.sampled_from(["Topic", "Füße", "t"]), st.lists(PROPERTIES, min_size=1, max_size=4), st.booleans())
def test_hashes_equal_those_of_the_strings(topic: str, messages: list[list[tuple[str, str]]], ended: bool) -> None:
    hashes = KeyHashes()
    for pairs in messages:
        stored = "".join(f"{name}\x01{value}\x02" for name, value in dict(pairs).items())
        properties = decode_properties(stored)
        tags = properties.get("TAGS", "")
        keys = [f"{topic}#{properties['UNIQ_KEY']}"] if "UNIQ_KEY" in properties else []
        keys += [f"{topic}#{key}" for key in properties.get("KEYS", "").split(" ") if key]
        keys += [f"{topic}#T#{tags}"] if tags else []
        data = stored.encode() if ended else stored.encode().removesuffix(b"\x02")
        found = hashes.describe(hashes.of_topic(topic.encode()), data, 0)
        assert found == (java_hash(tags), [index_hash(key) for key in keys])


def test_a_clients_ids_are_hashed_alike_whatever_came_before() -> None:
    hashes = KeyHashes()
    topic = hashes.of_topic(b"Topic")
    for key in (
        "7F000001" * 4,
        "7F000001" * 3 + "0A0B0C0D",
        "7F000001",
        "short",
        "7F000001" * 3 + "ÄÄÄÄ",
        "7F000001" * 4,
    ):
        stored = f"UNIQ_KEY\x01{key}\x02".encode()
        assert hashes.describe(topic, stored, 0) == (0, [index_hash(f"Topic#{key}")])


def test_delayed_messages_have_the_time_when_they_are_due() -> None:
    hashes = KeyHashes()
    topic = hashes.of_topic(b"SCHEDULE_TOPIC_XXXX")
    expected = {"1": 1000, "2": 5000, "5": 60_000, "18": 7_200_000, "99": 7_200_000}
    for level, delay_ms in expected.items():
        assert hashes.describe(topic, f"DELAY\x01{level}\x02".encode(), 10**12)[0] == 10**12 + delay_ms
    assert hashes.describe(topic, b"DELAY\x010\x02TAGS\x01t\x02", 10**12)[0] == java_hash("t")
