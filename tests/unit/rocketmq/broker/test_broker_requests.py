from __future__ import annotations

from dataclasses import replace

from support.admin_desk import MASTER, SLAVE, Desk
from tallystick.rocketmq.broker.keys import SCHEMA
from tallystick.rocketmq.wire.bodies import TimerCheckpoint
from tallystick.rocketmq.wire.values import RequestCode
from tallystick.runtime import keyfile


def test_the_settings_are_those_that_would_give_this_broker() -> None:
    settings = replace(MASTER, name_servers=("127.0.0.1:9876", "127.0.0.1:9877"), http_enabled=True, ha_port=22501)
    answer = Desk(settings).ask(RequestCode.GET_BROKER_CONFIG)
    text = bytes(answer.body).decode()
    assert "flushDiskType=ASYNC_FLUSH\n" in text
    assert "namesrvAddr=127.0.0.1:9876;127.0.0.1:9877\n" in text
    assert text.split("\n") == [*sorted(text.split("\n"))[1:], ""]
    loaded = SCHEMA.read(keyfile.parse_properties(text))
    assert (loaded.settings, loaded.ignored) == (settings, ())


def test_the_settings_do_not_change_while_it_runs() -> None:
    answer = Desk().ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerPermission=4")
    assert answer.code == 16
    assert "start it again" in (answer.remark or "")


def test_replication_as_tools_see_it() -> None:
    desk = Desk(SLAVE)
    assert desk.read(RequestCode.GET_BROKER_HA_STATUS)["master"] is False


def test_timers_stand_at_this_moment() -> None:
    desk = Desk()
    desk.clock.ms += 1234
    checkpoint = TimerCheckpoint.decode(bytes(desk.ask(RequestCode.GET_TIMER_CHECK_POINT).body))
    assert checkpoint.last_read_time_ms == desk.clock.ms - 234
    assert checkpoint.master_queue_offset == 0


ORIGINAL_KEYS = {  # of 5.5.0, but for the disk ratio by path
    "EndTransactionQueueSize", "EndTransactionThreadPoolQueueCapacity", "ackThreadPoolQueueCapacity",
    "ackThreadPoolQueueHeadWaitTimeMills", "ackThreadPoolQueueSize", "bootTimestamp", "brokerActive",
    "brokerVersionDesc", "commitLogDirCapacity", "commitLogDiskRatio", "commitLogMaxOffset", "commitLogMinOffset",
    "consumeQueueDiskRatio", "dispatchBehindBytes", "dispatchMaxBuffer", "earliestMessageTimeStamp", "getFoundTps",
    "getMessageEntireTimeMax", "getMissTps", "getTotalTps", "getTransferredTps", "litePullThreadPoolQueueCapacity",
    "litePullThreadPoolQueueHeadWaitTimeMills", "litePullThreadPoolQueueSize", "msgGetTotalTodayMorning",
    "msgGetTotalTodayNow", "msgGetTotalYesterdayMorning", "msgPutTotalTodayMorning", "msgPutTotalTodayNow",
    "msgPutTotalYesterdayMorning", "pageCacheLockTimeMills", "pullThreadPoolQueueCapacity",
    "pullThreadPoolQueueHeadWaitTimeMills", "pullThreadPoolQueueSize", "putLatency99", "putLatency999",
    "putMessageAverageSize", "putMessageDistributeTime", "putMessageEntireTimeMax", "putMessageFailedTimes",
    "putMessageSizeTotal", "putMessageTimesTotal", "putTps", "queryThreadPoolQueueCapacity",
    "queryThreadPoolQueueHeadWaitTimeMills", "queryThreadPoolQueueSize", "remainHowManyDataToFlush",
    "remainTransientStoreBufferNumbs", "runtime", "sendThreadPoolQueueCapacity",
    "sendThreadPoolQueueHeadWaitTimeMills", "sendThreadPoolQueueSize", "startAcceptSendRequestTimeStamp",
    "timerCongestNum", "timerDequeueTps", "timerEnqueueTps", "timerOffsetBehind", "timerReadBehind",
}  # fmt: skip


def test_runtime_information() -> None:
    desk = Desk()
    stored_ms = desk.clock.ms
    desk.shelf.send(b"x")
    desk.shelf.settle()
    desk.parts.traffic.stored("Topic", 600, desk.clock.ms)
    desk.parts.traffic.read("Topic", "g", 60, 0, desk.clock.ms)
    desk.clock.ms += 90_061_000
    table = desk.read(RequestCode.GET_BROKER_RUNTIME_INFO)["table"]
    assert table["runtime"] == "[ 1 days, 1 hours, 1 minutes, 1 seconds ]"
    assert table["earliestMessageTimeStamp"] == str(stored_ms)
    assert (table["commitLogMinOffset"], table["commitLogMaxOffset"]) == ("0", str(desk.shelf.store.end))
    assert (table["msgPutTotalTodayNow"], table["msgPutTotalTodayMorning"]) == ("600", "600")
    assert (table["putTps"], table["dispatchBehindBytes"]) == ("0.0 0.0 0.0", "0")
    assert table["commitLogDirCapacity"].startswith("Total : ")
    assert table.keys() >= ORIGINAL_KEYS
    for number in (
        "putMessageAverageSize",
        "timerReadBehind",
        "timerDequeueTps",
        "sendThreadPoolQueueSize",
        "commitLogDiskRatio",
    ):
        float(table[number])


def test_a_broker_without_messages_has_no_earliest_one() -> None:
    assert Desk().read(RequestCode.GET_BROKER_RUNTIME_INFO)["table"]["earliestMessageTimeStamp"] == "-1"
