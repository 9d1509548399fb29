"""Keys and tags of a record: their hashes equal those of the whole strings, however they were put together."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.codec.records import RecordRun, java_hash
from tallystick.rocketmq.store.keys import MAX_KEYS, KeyHashes
from tallystick.rocketmq.wire.record import decode_properties

TEXT = st.text("abcXYZ09 é\x01", max_size=40)
PROPERTIES = st.lists(
    st.tuples(st.sampled_from(["UNIQ_KEY", "KEYS", "TAGS", "other", "XKEYS", "TALLY_SINK"]), TEXT), max_size=6
)


def index_hash(key: str) -> int:
    value = abs(java_hash(key))
    return value if value < 1 << 31 else 0


def run_of(topic: str, *properties: bytes, stored_ms: int = 0) -> RecordRun:
    run = RecordRun()
    for number, stored in enumerate(properties):
        run.positions.append(number)
        run.topics.append(topic.encode())
        run.properties.append(stored)
        run.store_timestamps.append(stored_ms)
    return run


@settings(max_examples=150)
@given(st.sampled_from(["Topic", "Füße", "t"]), st.lists(PROPERTIES, max_size=6), st.booleans())
def test_hashes_equal_those_of_the_strings(topic: str, messages: list[list[tuple[str, str]]], ended: bool) -> None:
    texts: list[bytes] = []
    tags_codes: list[int] = []
    found: list[tuple[int, int]] = []
    for number, pairs in enumerate(messages):
        stored = "".join(f"{name}\x01{value}\x02" for name, value in dict(pairs).items())
        properties = decode_properties(stored)
        tags = properties.get("TAGS", "")
        keys = [f"{topic}#{properties['UNIQ_KEY']}"] if "UNIQ_KEY" in properties else []
        keys += [f"{topic}#{key}" for key in properties.get("KEYS", "").split(" ") if key]
        keys += [f"{topic}#T#{tags}"] if tags else []
        texts.append(stored.encode() if ended else stored.encode().removesuffix(b"\x02"))
        tags_codes.append(java_hash(tags))
        found += [(number, index_hash(key)) for key in keys]
    hashes = KeyHashes()
    for _ in range(2):  # what was kept from the first time says the same
        keys_of_run = hashes.of_run(run_of(topic, *texts))
        assert keys_of_run.tags_codes == tags_codes
        assert list(zip(keys_of_run.records, keys_of_run.hashes, strict=True)) == found


IDS = st.binary(min_size=3, max_size=40).map(lambda text: text.replace(b"\x01", b"-"))
ALIKE = st.sampled_from([b"", b"WAIT\x01true\x02", b"TAGS\x01red\x02WAIT\x01true\x02", b"KEYS\x01k\x02"])


@settings(max_examples=150)
@given(st.sampled_from(["Topic", "Füße"]), ALIKE, ALIKE, st.lists(IDS, min_size=16, max_size=40), st.data())
def test_many_records_have_the_hashes_of_each_alone(
    topic: str, before: bytes, after: bytes, ids: list[bytes], data: st.DataObject
) -> None:
    length = data.draw(st.sampled_from([3, 32, 33]))
    texts = [before + b"UNIQ_KEY\x01" + key.rjust(length, b"0")[:length] + b"\x02" + after for key in ids]
    if data.draw(st.booleans()):  # one differs, and is as long as the others
        number = data.draw(st.integers(0, len(texts) - 1))
        texts[number] = data.draw(
            st.sampled_from([texts[number].swapcase(), texts[number][::-1], texts[number].lower()])
        )
    hashes = KeyHashes()
    found = hashes.of_run(run_of(topic, *texts))
    alone = [hashes.of_run(run_of(topic, text)) for text in texts]
    assert found.tags_codes == [keys.tags_codes[0] for keys in alone]
    assert list(zip(found.records, found.hashes, strict=True)) == [
        (number, code) for number, keys in enumerate(alone) for code in keys.hashes
    ]


def test_messages_of_a_sink_are_alike_but_for_their_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has another identity: looked at one by one they cost a broker twice as much as other messages."""
    texts = [b"WAIT\x01true\x02UNIQ_KEY\x01%032d\x02" % number for number in range(40)]
    sent = [text + b"TALLY_SINK\x01app q 0 2 1 %d %08x b0\x02" % (number, number) for number, text in enumerate(texts)]
    expected = KeyHashes().of_run(run_of("T", *texts))
    monkeypatch.delattr(KeyHashes, "_of_any")
    assert KeyHashes().of_run(run_of("T", *sent)) == expected


def test_each_topic_has_its_own_hashes_of_equal_properties() -> None:
    run = run_of("A", b"UNIQ_KEY\x01id\x02TAGS\x01t\x02")
    run.positions.append(1)
    run.topics.append(b"B")
    run.properties.append(run.properties[0])
    run.store_timestamps.append(0)
    assert KeyHashes().of_run(run).hashes == [index_hash(key) for key in ("A#id", "A#T#t", "B#id", "B#T#t")]


def test_of_very_many_keys_of_a_message_the_first_are_in_the_index() -> None:
    """A message of 16,000 is dispatched in one turn of the loop, too: that was one of 80 ms."""
    keys = [f"k{number}" for number in range(MAX_KEYS + 100)]
    text = "UNIQ_KEY\x01id\x02KEYS\x01{}\x02TAGS\x01t\x02".format(" ".join(keys)).encode()
    hashes = KeyHashes().of_run(run_of("A", text)).hashes
    assert hashes == [index_hash(f"A#{key}") for key in ("id", *keys[:MAX_KEYS], "T#t")]


def test_delayed_messages_have_the_time_when_they_are_due() -> None:
    expected = {"1": 1000, "2": 5000, "5": 60_000, "18": 7_200_000, "99": 7_200_000}
    delayed = [f"DELAY\x01{level}\x02".encode() for level in expected]
    run = run_of("SCHEDULE_TOPIC_XXXX", *delayed, b"DELAY\x010\x02TAGS\x01t\x02", stored_ms=10**12)
    assert KeyHashes().of_run(run).tags_codes == [*(10**12 + ms for ms in expected.values()), java_hash("t")]


def test_what_is_kept_between_runs_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tallystick.rocketmq.store.keys._MAX_CACHED", 3)
    hashes = KeyHashes()
    for number in range(10):
        topic, tags = f"Topic{number % 5}", f"t{number}"
        stored = f"UNIQ_KEY\x01id\x02TAGS\x01{tags}\x02".encode()
        found = hashes.of_run(run_of(topic, stored, stored + b"long\x01" + bytes(600)))
        assert found.tags_codes == [java_hash(tags)] * 2
        assert found.hashes == [index_hash(f"{topic}#id"), index_hash(f"{topic}#T#{tags}")] * 2
        assert len(hashes._others) <= 3
        assert all(len(head) + len(tail) <= 512 for _, head, tail in hashes._others)
