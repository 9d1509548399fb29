from __future__ import annotations

from support.stores import SteppingClock
from tallystick.rocketmq.broker.delays import Delays
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.bodies import DelayTable
from tallystick.rocketmq.wire.values import DataVersion


def test_a_master_without_any_has_the_empty_table() -> None:
    delays = Delays(SteppingClock(ms=5))
    assert delays.text == b'{"dataVersion":{"counter":0,"stateVersion":0,"timestamp":5},"offsetTable":{}}'
    assert not delays.dirty


def test_a_slave_keeps_the_masters_text_as_it_is() -> None:
    text = b'{ "dataVersion":{"counter":1},"offsetTable":{2:1}, "more":1 }'
    delays = Delays(SteppingClock())
    delays.take(text, dialect.read_as(text, DelayTable))
    assert (delays.text, delays.dirty) == (text, True)
    assert delays.table == DelayTable(DataVersion(0, 0, 1), {2: 1})
    delays.dirty = False
    delays.take(text, delays.table)
    assert not delays.dirty
