from __future__ import annotations

import datetime
import zlib
from collections.abc import AsyncGenerator, Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.codec.pulled import scan_pulled
from tallystick.codec.records import encode_records, topic_field
from tallystick.errors import UsageError
from tallystick.pipeline.columns import BATCH_ROWS
from tallystick.pipeline.topic.arrow import SCHEMA, arrays_of, batches_of
from tallystick.pipeline.topic.brokers import Pulled
from tallystick.rocketmq.wire.message_ids import encode_host
from tallystick.rocketmq.wire.record import decode_properties, encode_properties
from tallystick.rocketmq.wire.values import MessageQueue, SysFlag

BORN, STORED = encode_host("10.0.0.1", 77), encode_host("::1", 10911)


def pulled(
    bodies: Sequence[bytes] = (b"body",),
    properties: Sequence[bytes] = (b"",),
    sys_flag: int = 0,
    queue: int = 0,
    born_ms: int = 1_000,
) -> Pulled:
    rows = [
        (topic_field("T"), queue, 5 + n, sys_flag, born_ms + n, BORN, 2, [(-7, body, stored)])
        for n, (body, stored) in enumerate(zip(bodies, properties, strict=True))
    ]
    buffer = encode_records(rows, 4096, 2_500, STORED)
    run = scan_pulled(buffer)
    assert len(run) == len(rows)
    return Pulled(MessageQueue("T", "b", queue), run, len(buffer))


def table(*parts: Pulled, decode: bool = True) -> pa.Table:
    return pa.Table.from_arrays(arrays_of(parts, SCHEMA.names, decode=decode), schema=SCHEMA)


def test_a_message_by_columns() -> None:
    properties = {"KEYS": "k1 k2", "TAGS": "t", "UNIQ_KEY": "U1", "own": "ä"}
    [row] = table(pulled([b"hello"], [encode_properties(properties)], queue=3)).to_pylist()
    times = [datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC) for ms in (1_000, 2_500)]
    assert row == {
        "topic": "T", "brokerName": "b", "queueId": 3, "queueOffset": 5, "body": b"hello", "keys": "k1 k2", "tags": "t",
        "properties": list(properties.items()), "bornTimestamp": times[0], "storeTimestamp": times[1], "msgId": "U1",
        "flag": -7, "sysFlag": SysFlag.STORE_HOST_V6, "reconsumeTimes": 2, "bornHost": "10.0.0.1:77",
        "storeHost": "[::1]:10911", "physicalOffset": 4096, "transactionId": None,
        "headers": [{"key": name, "value": value.encode()} for name, value in properties.items()],
    }  # fmt: skip


def test_what_a_message_does_not_say() -> None:
    [row] = table(pulled()).to_pylist()
    assert row["keys"] is row["tags"] is None and row["properties"] == [] and row["headers"] is None
    assert row["msgId"] == (STORED + (4096).to_bytes(8, "big")).hex().upper()


def test_a_time_of_other_units_is_null() -> None:
    assert table(pulled(born_ms=1_700_000_000_000_000_000))["bornTimestamp"].to_pylist() == [None]


def test_the_id_of_a_transaction_is_its_unique_key() -> None:
    stored = [encode_properties({"TRAN_MSG": said, "UNIQ_KEY": f"U{said}"}) for said in ("true", "false")]
    assert table(pulled([b"", b""], stored))["transactionId"].to_pylist() == ["Utrue", None]


texts = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), max_size=4)
odd = st.one_of(
    st.dictionaries(texts, texts, max_size=4).map(encode_properties),
    st.sampled_from([b"", b"\x02", b"\x01\x02", b"a\x02", b"a\x01", b"a\x01b\x01c\x02", b"\xff\x01\xfe\x02"]),
)


@given(st.lists(odd, min_size=1, max_size=6))
def test_properties_are_what_single_messages_say(stored: list[bytes]) -> None:
    found = table(pulled([b"x"] * len(stored), stored))
    assert [dict(pairs) for pairs in found["properties"].to_pylist()] == [decode_properties(each) for each in stored]
    assert found["keys"].to_pylist() == [decode_properties(each).get("KEYS") for each in stored]


def test_bodies_are_inflated_unless_they_are_wanted_as_they_are() -> None:
    packed = zlib.compress(b"long" * 100)
    part = pulled([packed], sys_flag=SysFlag.COMPRESSED)
    assert table(part, pulled([b"plain"]))["body"].to_pylist() == [b"long" * 100, b"plain"]
    assert table(part, decode=False)["body"].to_pylist() == [packed]
    with pytest.raises(UsageError, match="zlib"):
        table(pulled([packed], sys_flag=SysFlag.COMPRESSED | SysFlag.ZSTD))


def test_queues_of_different_brokers_share_a_batch() -> None:
    found = table(pulled([b"1", b"2"], [b"", b""]), pulled([b"3"], queue=1))
    assert found["queueId"].to_pylist() == [0, 0, 1] and found["body"].to_pylist() == [b"1", b"2", b"3"]


async def test_batches_are_as_many_pulls_as_make_one() -> None:
    async def pulls() -> AsyncGenerator[Pulled, None]:
        for _ in range(100):
            yield pulled([b"x"] * 100, [b""] * 100)

    sizes = [len(arrays[0]) async for arrays in batches_of(pulls(), ["queueOffset"], decode=True)]
    assert sum(sizes) == 10_000 and all(BATCH_ROWS <= size < BATCH_ROWS + 100 for size in sizes[:-1])


async def test_a_batch_has_no_more_bytes_than_it_may_however_few_its_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    part = pulled([b"x" * 1000] * 4, [b""] * 4)
    monkeypatch.setattr("tallystick.pipeline.topic.arrow.BATCH_BYTES", 2 * part.size)

    async def pulls() -> AsyncGenerator[Pulled, None]:
        for _ in range(5):
            yield part

    sizes = [len(arrays[0]) async for arrays in batches_of(pulls(), ["queueOffset"], decode=True)]
    assert sizes == [8, 8, 4]
