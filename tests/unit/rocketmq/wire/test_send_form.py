from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from support.frames import decode
from tallystick.rocketmq.wire.headers import SendHeader, read_send
from tallystick.rocketmq.wire.remoting import encode, request
from tallystick.rocketmq.wire.send_form import SendForm
from tallystick.rocketmq.wire.values import RequestCode

INT32, INT64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=8) | st.sampled_from([',"f":"', ',"i":""', 'a\x01"\x02', "\\"])


@given(TEXTS, TEXTS, TEXTS, INT32, st.booleans(), INT32, INT64, INT32, TEXTS)
def test_a_filled_form_is_the_whole_header_encoded(
    group: str, topic: str, broker: str, queue_id: int, batch: bool, sys_flag: int, born: int, flag: int, stored: str
) -> None:
    form = SendForm(
        producer_group=group,
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=queue_id,
        batch=batch,
        broker=broker,
    )
    header = SendHeader(
        producer_group=group,
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=queue_id,
        sys_flag=sys_flag,
        born_timestamp=born,
        flag=flag,
        properties=stored,
        reconsume_times=0,
        unit_mode=False,
        batch=batch,
        broker=broker,
    )
    filled = form.fill(sys_flag, born, flag, stored)
    assert bytes(filled) == msgspec.json.encode(header.to_letters())
    found = read_send(decode(encode(request(RequestCode.SEND_MESSAGE_V2, filled))))
    assert found.to_fields() == header.to_letters()
