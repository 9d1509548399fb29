"""A broker's processors ask what it is now: none of them keeps what it was when they were made."""

from __future__ import annotations

import pytest

from support.admin_desk import MASTER, SLAVE, Desk
from tallystick.rocketmq.broker.role import Role, Standing
from tallystick.rocketmq.broker.settings import BrokerSettings
from tallystick.rocketmq.wire.bodies import OffsetTable
from tallystick.rocketmq.wire.headers import CreateTopicHeader
from tallystick.rocketmq.wire.remoting import Command, request
from tallystick.rocketmq.wire.values import DataVersion, RequestCode, ResponseCode

OTHER = {Role.ASYNC_MASTER: Role.SLAVE, Role.SLAVE: Role.ASYNC_MASTER}


@pytest.mark.parametrize(
    ("role", "is_slave", "waits"),
    [(Role.ASYNC_MASTER, False, False), (Role.SYNC_MASTER, False, True), (Role.SLAVE, True, False)],
)
def test_what_a_role_means(role: Role, is_slave: bool, waits: bool) -> None:
    standing = Standing()
    standing.become(role)
    assert (standing.role, standing.is_slave, standing.waits_for_slaves) == (role, is_slave, waits)


def create(topic: str) -> Command:
    header = CreateTopicHeader(
        topic=topic,
        default_topic="TBW102",
        read_queue_nums=1,
        write_queue_nums=1,
        perm=6,
        topic_filter_type="SINGLE_TAG",
        order=False,
    )
    return request(RequestCode.UPDATE_AND_CREATE_TOPIC, header.to_fields())


@pytest.mark.parametrize("settings", [MASTER, SLAVE])
def test_processors_go_by_what_the_broker_is_now(settings: BrokerSettings) -> None:
    desk = Desk(settings)
    topics, groups, offsets = desk.tables.topics, desk.tables.groups, desk.tables.offsets
    for number, role in enumerate((settings.role, OTHER[settings.role], settings.role)):
        desk.standing.become(role)
        is_master, name = role is Role.ASYNC_MASTER, f"N{number}"
        assert (desk.handle(create(name)).code == ResponseCode.SUCCESS) is is_master
        assert (topics.get(name) is not None) is is_master
        groups.get(name, "127.0.0.1:1")
        assert (name in groups.all) is is_master, "a slave enters no group"
        deleted = desk.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": name})
        assert ("This is a slave" in (deleted.remark or "")) is not is_master
        assert offsets.commit("T", "g", number, 1)
        assert (
            number in {one.queue_id for one in offsets.lacking(OffsetTable(DataVersion(), {})) if one}
        ) is not is_master
