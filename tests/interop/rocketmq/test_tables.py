"""The tables of a master at a slave of the other kind; a group goes on there when the master is gone."""

from __future__ import annotations

from functools import partial

import pytest

from support.broker_peers import GROUPS, OFFSETS, PAUSE_S, TOPICS, Broker
from support.messages import expected
from support.pairs import SIZE, SLAVE, TOPIC, Pair, PairOf
from support.waiting import until

GROUP = "copied_readers"
SECOND_HALF = {key: expected(3, 40, 79, SIZE)[key] for key in ("count", "sha256")}  # its queues come in any order


@pytest.mark.rule("H12")
async def test_h12_our_slave_has_the_tables_of_an_original_master(pair_of: PairOf) -> None:
    # It asks each ten seconds, and both save what a group has consumed five seconds later at the latest.
    assert await _polled_at_the_slave(await pair_of("java", "async"), "tally", seconds=40) == SECOND_HALF


@pytest.mark.rule("H6", "H12")
async def test_h12_an_original_slave_has_the_tables_of_our_master_and_keeps_an_idle_link(
    pair_of: PairOf,
) -> None:
    # It asks for the first time after 61 s; the link idles for longer than anybody listens in silence (20 s).
    assert await _polled_at_the_slave(await pair_of("tally", "async"), "java", seconds=90) == SECOND_HALF


async def _polled_at_the_slave(pair: Pair, kind: str, seconds: float) -> dict[str, str]:
    """Wait until the slave has the tables; then the master dies. Returns what the group gets at the slave."""
    await pair.send(40)
    slave = pair.broker(kind, SLAVE)
    await pair.house.start(slave)
    polled = await pair.house.clients["java"].ask(
        "poll", ns=pair.house.ns, topic=TOPIC, group=GROUP, count=40, seconds=20
    )
    assert polled["count"] == "40"
    await pair.house.admin(f"updateSubGroup -b {pair.master.address} -g made_by_command -r 3")

    unlike: list[str] = []
    try:
        await until(partial(_tables_equal, pair.master, slave, unlike), seconds, pause=PAUSE_S)
    except AssertionError:
        raise AssertionError(f"the slave's tables are not its master's within {seconds} s: {unlike}") from None
    assert set(await pair.send(40)) == {"SEND_OK"}
    await pair.copied(slave)
    pair.master.kill()
    await pair.house.name_server.has_lost(pair.master)
    # The group goes on at the slave where it was at the master.
    polled = await pair.house.clients["java"].ask(
        "poll", ns=pair.house.ns, topic=TOPIC, group=GROUP, count=40, seconds=30
    )
    return {key: polled[key] for key in SECOND_HALF}


def _tables_equal(master: Broker, slave: Broker, unlike: list[str]) -> bool:
    """Versions too. ``unlike`` gets what differs. A slave may have system topics that its master is set not to have."""
    theirs, ours = master.table(TOPICS), slave.table(TOPICS)
    topics, copied = theirs.get("topicConfigTable", {}), ours.get("topicConfigTable", {})
    groups = master.table(GROUPS), slave.table(GROUPS)
    offsets = [broker.table(OFFSETS).get("offsetTable", {}) for broker in (master, slave)]
    checks = {
        f"topics {theirs} {ours}": {name: copied.get(name) for name in topics} == topics,
        f"versions {theirs.get('dataVersion')} {ours.get('dataVersion')}": (
            theirs.get("dataVersion") == ours.get("dataVersion")
        ),
        f"groups {groups}": groups[0] == groups[1] != {},
        f"offsets {offsets}": offsets[0] == offsets[1],
        # The master has what was polled.
        f"polled {offsets[0]}": sum(offsets[0].get(f"{TOPIC}@{GROUP}", {}).values()) == 40,
        f"topic {topics}": TOPIC in topics,
        f"group {groups[0]}": "made_by_command" in groups[0].get("subscriptionGroupTable", {}),
    }
    unlike[:] = [what for what, holds in checks.items() if not holds]
    return not unlike
