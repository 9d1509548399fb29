"""A store directory goes from one kind of broker to the other and back."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from support.broker_peers import OFFSETS, PAUSE_S, Broker
from support.clusters import KINDS, OTHER
from support.houses import House
from support.java import Java
from support.messages import expected
from support.waiting import until

TOPIC, GROUP, SIZE = "Moved", "moved_readers", 1000


@pytest.mark.rule("H11")
@pytest.mark.parametrize("end", ["stopped", "killed"])
@pytest.mark.parametrize("first", KINDS)
async def test_h11_a_directory_is_opened_by_the_other_kind_and_by_the_first_again(
    rocketmq: Java, tmp_path: Path, new_house: Callable[[str], Awaitable[House]], first: str, end: str
) -> None:
    house = await new_house("tally")
    clients = house.clients
    with ExitStack() as stack:
        sent = 0
        for turn, kind in enumerate((first, OTHER[first], first)):
            broker = Broker(
                kind, tmp_path, rocketmq if kind == "java" else None, house.ns, {}, store=tmp_path / "store"
            )
            stack.callback(broker.kill)
            await house.start(broker)
            if not turn:
                await house.make_topic(TOPIC)
            for how in ("batch", "sync"):
                answer = await clients[OTHER[kind]].ask(
                    "send",
                    ns=house.ns,
                    topic=TOPIC,
                    seed=5,
                    first=sent,
                    count=1200 if how == "batch" else 50,
                    size=SIZE,
                    how=how,
                )
                assert {name for name in answer if name.isupper()} == {"SEND_OK"}
                sent += 1200 if how == "batch" else 50
            await broker.serves(TOPIC, sent)
            for reader in KINDS:
                pulled = await clients[reader].ask("pull", ns=house.ns, topic=TOPIC, **{"from": 0})
                assert pulled["count"] == str(sent)
                assert pulled["sha256"] == expected(5, 0, sent - 1, SIZE)["sha256"]
            # The group goes on where it was under the broker before.
            polled = await clients[kind].ask("poll", ns=house.ns, topic=TOPIC, group=GROUP, count=1250, seconds=30)
            assert polled["sha256"] == expected(5, sent - 1250, sent - 1, SIZE)["sha256"]
            found = await house.admin(f"queryMsgByKey -t {TOPIC} -k k5-3")
            assert "b0" in found or re.search(r"(?m)^[0-9A-F]{32}\s+\d+\s+\d+", found), found
            if end == "stopped":
                broker.leave()
            else:
                await until(partial(_saved, broker, sent), pause=PAUSE_S)  # every five seconds
                broker.kill()
            assert broker.check() == []
            await house.name_server.has_lost(broker)
            await house.forget()


def _saved(broker: Broker, sent: int) -> bool:
    """Whether the group's offsets are on the disk; and where the original is next, what saves it the index."""
    offsets = broker.table(OFFSETS).get("offsetTable", {}).get(f"{TOPIC}@{GROUP}", {})
    return sum(offsets.values()) == sent and (broker.kind == "java" or broker.vouches())
