"""Names that peers send become names of files: none leads out of the broker's folder, which is its account's alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.brokers import benched, send_command
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.headers import CreateTopicHeader, TopicHeader
from tallystick.rocketmq.wire.values import RequestCode

NAMES = ("..", ".", "../out", "a/b", "/etc/out", "a\0b", "..\\out", "a\nb", "x" * 300, "\u2025", "T ")


def files_of(folder: Path) -> set[str]:
    return {os.path.join(place, name) for place, _, names in os.walk(folder) for name in names}


@pytest.mark.rule("N9")
@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
async def test_n9_no_name_leads_out_of_the_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "b0").mkdir()
    async with benched(tmp_path / "b0") as bench:
        broker = await bench.broker()
        peer = await bench.peer(broker)
        topics = set(broker.tables.topics.all)
        assert (await peer.ask(send_command(name))).code != 0
        header = CreateTopicHeader(
            topic=name,
            default_topic="TBW102",
            read_queue_nums=1,
            write_queue_nums=1,
            perm=6,
            topic_filter_type="SINGLE_TAG",
        )
        assert (await peer.code(RequestCode.UPDATE_AND_CREATE_TOPIC, header.to_fields())).code != 0
        group = dialect.write({"groupName": name})
        assert (await peer.code(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, group)).code != 0
        await peer.code(RequestCode.DELETE_TOPIC_IN_BROKER, TopicHeader(topic=name).to_fields())
        assert set(broker.tables.topics.all) == topics
        assert (await peer.ask(send_command("good"))).code == 0
        await broker.stop()
    assert all(path.startswith(f"{tmp_path}/b0/b0/") for path in files_of(tmp_path))
    assert {entry.name for entry in (tmp_path / "b0" / "b0" / "consumequeue").iterdir()} <= topics | {"good"}


@pytest.mark.rule("N9")
async def test_n9_what_a_broker_stores_is_for_its_account_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        async with benched(tmp_path) as bench:
            broker = await bench.broker()
            assert (await (await bench.peer(broker)).ask(send_command())).code == 0
            await broker.stop()
        for place, folders, names in os.walk(tmp_path / "b0"):
            for each in (*folders, *names):
                assert os.stat(os.path.join(place, each)).st_mode & 0o077 == 0, each
    finally:
        os.umask(before)
