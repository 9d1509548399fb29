"""The fields of the messages of one producer to one queue, encoded as JSON but for those that differ between messages.

Most of the header of a send is the same each time, and a client that sends many has other work to do. ``fill`` returns
the fields of ``SendHeader.to_letters``, encoded.
"""

from __future__ import annotations

import msgspec

from tallystick.rocketmq.wire.headers import SendHeader

_encode = msgspec.json.Encoder().encode
# Where the fields begin and end that differ: system flag, born time, flag, properties. No text within the JSON holds
# these: a quote in a text is escaped.
_FIRST, _LAST = b',"f":"', b',"i":""'


class SendForm:
    """The header fields of SEND_MESSAGE_V2, or of SEND_BATCH_MESSAGE if ``batch``."""

    def __init__(
        self,
        *,
        producer_group: str,
        topic: str,
        default_topic: str,
        default_topic_queue_nums: int,
        queue_id: int,
        batch: bool,
        broker: str,
    ) -> None:
        header = SendHeader(
            producer_group=producer_group,
            topic=topic,
            default_topic=default_topic,
            default_topic_queue_nums=default_topic_queue_nums,
            queue_id=queue_id,
            sys_flag=0,
            born_timestamp=0,
            flag=0,
            properties="",
            reconsume_times=0,
            unit_mode=False,
            batch=batch,
            broker=broker,
        )
        text = _encode(header.to_letters())
        self._before, self._after = text[: text.index(_FIRST)], text[text.index(_LAST) + len(_LAST) :]

    def fill(self, sys_flag: int, born_timestamp: int, flag: int, properties: str) -> msgspec.Raw:
        """Returns the extFields of one message."""
        return msgspec.Raw(
            b'%b,"f":"%d","g":"%d","h":"%d","i":%b%b'
            % (self._before, sys_flag, born_timestamp, flag, _encode(properties), self._after)
        )
