"""What a broker looks for in the properties of a send; both codecs are compared in test_implementation.py, too."""

from __future__ import annotations

import random

import pytest

from tallystick.codec.sent_properties import usual_properties, value_of
from tallystick.rocketmq.wire.record import decode_properties

BROKERS = b"CLUSTER\x01c\x02"


def test_finding_one_property_is_as_parsing_all() -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    chance = random.Random(seed)
    for _ in range(3000):
        names = [chance.choice(("A", "XA", "AX", "B", "AA")) for _ in range(chance.randrange(5))]
        stored = "".join(f"{name}\x01{chance.choice(('1', 'A', 'XA'))}\x02" for name in dict.fromkeys(names))
        if chance.random() < 0.3:
            stored = stored.removesuffix("\x02")
        assert value_of(stored, "A\x01") == decode_properties(stored).get("A"), stored


@pytest.mark.parametrize("end", ["", "\x02"])
def test_usual_properties_are_stored_with_the_brokers_behind_them(end: str) -> None:
    sent = f"ä\x01ö\x02UNIQ_KEY\x01ABC{end}"
    assert usual_properties(sent, BROKERS) == ("ä\x01ö\x02UNIQ_KEY\x01ABC\x02".encode() + BROKERS, "ABC", True)


@pytest.mark.parametrize(
    ("wait", "waits"), [("true", True), ("TrUe", True), ("false", False), ("", False), ("t", False)]
)
def test_a_response_waits_unless_the_message_says_no(wait: str, waits: bool) -> None:
    usual = usual_properties(f"XWAIT\x01no\x02WAIT\x01{wait}\x02UNIQ_KEY\x01A\x02", b"")
    assert usual is not None and usual[2] is waits


@pytest.mark.parametrize("name", ["DELAY", "TRAN_MSG", "POP_CK", "CLUSTER", "TALLY_SINK", "TIMER_DELIVER_MS", "XDELAY"])
def test_what_may_mean_something_to_a_broker_is_not_usual(name: str) -> None:
    assert usual_properties(f"UNIQ_KEY\x01A\x02{name}\x011\x02", BROKERS) is None
    assert usual_properties(f"UNIQ_KEY\x01A\x02{name[:-1]}\x03\x011\x02", BROKERS) is not None or name.startswith(
        "TIMER"
    )


@pytest.mark.parametrize("sent", ["", "UNIQ_KEY\x01", "UNIQ_KEY\x01\x02", "XUNIQ_KEY\x01A\x02", "WAIT\x01true\x02"])
def test_properties_without_an_id_are_not_usual(sent: str) -> None:
    assert usual_properties(sent, BROKERS) is None
