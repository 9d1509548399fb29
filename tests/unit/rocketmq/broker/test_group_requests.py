from __future__ import annotations

from dataclasses import replace

from support.admin_desk import MASTER, SLAVE, Desk
from tallystick.rocketmq.broker.responses import MAX_LIST
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.bodies import GroupTable
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import DataVersion, GroupConfig, RequestCode

CREATE_MANY = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
CREATE, DELETE = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, RequestCode.DELETE_SUBSCRIPTIONGROUP


def test_a_group_is_made_changed_and_deleted() -> None:
    desk = Desk()
    assert desk.ask(CREATE, body=b'{"groupName":"g","retryMaxTimes":3}').code == 0
    assert desk.tables.groups.all["g"] == GroupConfig("g", retry_max_times=3)
    version = desk.tables.groups.version
    desk.ask(CREATE, body=dialect.write(GroupConfig("g", retry_max_times=3)))
    assert desk.tables.groups.version == version
    assert desk.read(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "g"})["retryMaxTimes"] == 3
    desk.tables.offsets.reset("T", "g", 0, 1)
    desk.tables.offsets.resets.pending.put("T@g", {0: 1})
    assert desk.ask(DELETE, {"groupName": "g"}).code == 0
    assert desk.tables.offsets.get("T", "g", 0) == 1 and not desk.tables.offsets.resets.pending
    assert desk.ask(DELETE, {"groupName": "g", "cleanOffset": "true"}).code == 0
    assert desk.tables.offsets.get("T", "g", 0) is None
    assert len(desk.said("group changed")) == len(desk.said("group deleted")) == 1


def test_groups_that_are_refused() -> None:
    desk = Desk()
    assert desk.ask(CREATE, body=b'{"groupName":"a b"}').code == 29
    assert desk.ask(CREATE, body=b'{"groupName":"g","attributes":{"+x":"1"}}').remark == "unsupported key: x"
    answer = desk.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "a b"})
    assert (answer.code, answer.remark) == (26, "No group in this broker")


def test_a_long_list_of_groups_is_told_as_one_and_a_longer_one_refused() -> None:
    """A list of 10,000 was a turn of the loop of 320 ms, and as many lines of the log."""
    desk = Desk()

    def create(count: int) -> Command:
        names = [{"groupName": f"g{number}"} for number in range(count)]
        return desk.ask(CREATE_MANY, body=dialect.write({"groupConfigList": names}))

    answer = create(MAX_LIST + 1)
    assert (answer.code, answer.remark) == (29, "A list has at most 1000 groups, this one has 1001: send it in parts.")
    assert "g0" not in desk.tables.groups.all
    version = desk.tables.groups.version.counter
    assert create(MAX_LIST).code == 0 and f"g{MAX_LIST - 1}" in desk.tables.groups.all
    assert desk.tables.groups.version.counter == version + 1
    assert desk.said("group changed") == []
    assert [(event["groups"], event["first"]) for event in desk.said("groups changed")] == [(MAX_LIST, "g0")]


def test_a_list_with_a_group_that_is_refused_makes_none() -> None:
    desk = Desk()
    for bad in ({"groupName": "a b"}, {"groupName": "g", "attributes": {"+x": "1"}}):
        body = dialect.write({"groupConfigList": [{"groupName": "good"}, bad]})
        assert desk.ask(CREATE_MANY, body=body).code != 0
        assert "good" not in desk.tables.groups.all


def test_a_slave_makes_no_groups_and_deletes_none_by_itself() -> None:
    desk = Desk(SLAVE)
    assert desk.ask(CREATE, body=b'{"groupName":"g"}').code == 1
    desk.tables.groups.replace(GroupTable(DataVersion(0, 1, 1), {"g": GroupConfig("g")}))
    desk.tables.offsets.commit("T", "g", 0, 1)
    assert desk.ask(DELETE, {"groupName": "g", "cleanOffset": "true"}).code == 0
    assert "g" in desk.tables.groups.all and desk.tables.offsets.get("T", "g", 0) == 1
    assert desk.tables.groups.version == DataVersion(0, 1, 1)


def test_a_page_has_what_is_forbidden_to_its_groups() -> None:
    desk = Desk()
    groups = {name: GroupConfig(name) for name in ("aa", "zz")}
    desk.tables.groups.replace(GroupTable(DataVersion(0, 1, 1), groups, {"aa": {"T": 1}, "zz": {"T": 2}}))
    whole = desk.read(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    assert whole["forbiddenTable"].keys() == {"aa", "zz"}
    version = dialect.write(DataVersion(0, 1, 1)).decode()
    fields = {"groupSeq": 8, "maxGroupNum": 1, "dataVersion": version}
    page = desk.read(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, fields)
    assert (list(page["subscriptionGroupTable"]), page["forbiddenTable"]) == (["aa"], {"aa": {"T": 1}})


def test_the_topics_of_a_group() -> None:
    desk = Desk()
    desk.tables.offsets.commit("T", "g", 0, 1)
    found = desk.read(RequestCode.QUERY_TOPICS_BY_CONSUMER, {"group": "g"})
    assert found == {"topicList": ["T"], "brokerAddr": "127.0.0.1:22500"}


def test_many_groups_at_once_or_none() -> None:
    desk = Desk()
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
    body = b'{"groupConfigList":[{"groupName":"G1","retryMaxTimes":3},{"groupName":"G2"}]}'
    assert desk.ask(code, body=body).code == 0
    assert desk.tables.groups.all["G1"].retry_max_times == 3
    assert "G2" in desk.tables.groups.all
    refused = desk.ask(code, body=b'{"groupConfigList":[{"groupName":"G3"},{"groupName":"a/b"}]}')
    assert refused.code == 29
    assert "G3" not in desk.tables.groups.all


def test_a_broker_that_has_all_its_groups_says_so() -> None:
    desk = Desk(replace(MASTER, max_groups=9))
    assert desk.ask(200, body=b'{"groupName":"g"}').code == 0
    refused = desk.ask(200, body=b'{"groupName":"h"}')
    assert (refused.code, refused.remark) == (1, "This broker has 9 groups: no more fit into 9 places (maxGroups).")
    assert desk.ask(200, body=b'{"groupName":"g","retryMaxTimes":3}').code == 0
