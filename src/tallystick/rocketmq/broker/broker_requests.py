"""Requests about the broker as a whole: its state, its settings, its replication.

Timers and delayed messages are not delivered here: the response to a request for their state is empty.
"""

from __future__ import annotations

from collections.abc import Mapping

from tallystick.rocketmq.broker.keys import SCHEMA
from tallystick.rocketmq.broker.parts import Parts
from tallystick.rocketmq.broker.responses import OK, refusal
from tallystick.rocketmq.broker.traffic import MINUTE_MS, SLOT_MS, SLOTS, Rate
from tallystick.rocketmq.remoting.dispatch import Handler, Reply
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.wire import dialect, headers
from tallystick.rocketmq.wire.bodies import KvTable, TimerCheckpoint, TimerMetrics
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import DataVersion, RequestCode, ResponseCode

VERSION_NAME = "V5_5_0"  # what VERSION stands for
# The original's queues between its threads, which its tools print: here a request is processed when it is read.
_POOLS = ("send", "pull", "litePull", "query", "ack")


class BrokerRequests:
    """See the module."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._started_ms = parts.clock.wall_ms()
        self._version = DataVersion(0, self._started_ms, 0)  # of what never changes while the broker runs
        self.handlers: Mapping[int, Handler] = {
            RequestCode.GET_BROKER_RUNTIME_INFO: self._runtime_info,
            RequestCode.GET_BROKER_CONFIG: self._config,
            RequestCode.UPDATE_BROKER_CONFIG: self._update_config,
            RequestCode.GET_BROKER_HA_STATUS: self._ha_status,
            RequestCode.GET_TIMER_CHECK_POINT: self._timer_checkpoint,
            RequestCode.GET_TIMER_METRICS: self._timer_metrics,
        }

    def _config(self, link: Link, command: Command, reply: Reply) -> Command:
        port = self._parts.identity.address.rpartition(":")[2]
        settings = SCHEMA.texts(self._parts.settings) | {"listenPort": port}
        text = "".join(f"{name}={settings[name]}\n" for name in sorted(settings))
        fields = headers.ConfigResponse(dialect.write(self._version).decode()).to_fields()
        return command.response(OK, None, fields, text.encode())

    def _update_config(self, link: Link, command: Command, reply: Reply) -> Command:
        remark = "The settings of this broker are read when it starts: change its file and start it again."
        raise refusal(ResponseCode.NO_PERMISSION, remark)

    def _ha_status(self, link: Link, command: Command, reply: Reply) -> Command:
        return command.response(OK, body=dialect.write(self._parts.ha_status()))

    def _timer_checkpoint(self, link: Link, command: Command, reply: Reply) -> Command:
        # A slave that becomes a master goes through its timers from this moment on, so it is now, not 1970.
        now_ms = self._parts.clock.wall_ms()
        checkpoint = TimerCheckpoint(last_read_time_ms=now_ms - now_ms % 1000, version=self._version)
        return command.response(OK, body=checkpoint.encode())

    def _timer_metrics(self, link: Link, command: Command, reply: Reply) -> Command:
        return command.response(OK, body=dialect.write(TimerMetrics(self._version)))

    def _runtime_info(self, link: Link, command: Command, reply: Reply) -> Command:
        table = self._clocks() | self._log() | self._traffic() | _idle()
        return command.response(
            OK, None, {}, dialect.write(KvTable({name: str(table[name]) for name in sorted(table)}))
        )

    # What the runtime information says, in the names and units that the original's tools take apart

    def _clocks(self) -> dict[str, object]:
        up_s = (self._parts.clock.wall_ms() - self._started_ms) // 1000
        days, hours, minutes, seconds = up_s // 86_400, up_s // 3600 % 24, up_s // 60 % 60, up_s % 60
        return {
            "brokerActive": "true",
            "brokerVersionDesc": VERSION_NAME,
            "bootTimestamp": self._started_ms,
            "runtime": f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]",
        }

    def _log(self) -> dict[str, object]:
        store = self._parts.store
        disk_ratio = f"{store.disk_used_percent / 100:.2f}"
        total, free = map(_readable, store.disk_bytes)
        return {
            f"commitLogDiskRatio_{self._parts.settings.store_dir}/commitlog": disk_ratio,
            "commitLogDirCapacity": f"Total : {total}, Free : {free}.",
            "startAcceptSendRequestTimeStamp": 0,
            "commitLogMinOffset": store.first,
            "commitLogMaxOffset": store.end,
            "commitLogDiskRatio": disk_ratio,
            "consumeQueueDiskRatio": disk_ratio,
            "dispatchBehindBytes": store.end - store.reput_offset,
            "remainHowManyDataToFlush": _readable(store.end - store.flushed),
            "earliestMessageTimeStamp": store.earliest_ms,
        }

    def _traffic(self) -> dict[str, object]:
        traffic, counts, now_ms = self._parts.traffic, self._parts.counts, self._parts.clock.wall_ms()
        table: dict[str, object] = {
            "putTps": _speeds(traffic.put_rate, now_ms),
            "getFoundTps": _speeds(traffic.get_rate, now_ms),
            "getMissTps": _speeds(traffic.miss_rate, now_ms),
            "getTotalTps": _speeds(traffic.pull_rate, now_ms),
            "putMessageTimesTotal": max(1, counts.messages_in),
            "putMessageSizeTotal": counts.bytes_in,
            "putMessageAverageSize": counts.bytes_in / max(1, counts.messages_in),
            "putMessageFailedTimes": counts.sends_refused,
            "getTransferredTps": _speeds(traffic.get_rate, now_ms),
        }
        for name, count in (("Put", traffic.puts), ("Get", traffic.gets)):
            count.turn(now_ms)
            table[f"msg{name}TotalTodayNow"] = count.total
            table[f"msg{name}TotalTodayMorning"] = count.today
            table[f"msg{name}TotalYesterdayMorning"] = count.yesterday
        return table


def _speeds(rate: Rate, now_ms: int) -> str:
    """Returns rates over ten seconds, a minute and ten minutes."""
    spans = (SLOT_MS, MINUTE_MS, SLOT_MS * (SLOTS - 1))
    return " ".join(f"{rate.per_second(now_ms, span)}" for span in spans)


def _readable(size: int) -> str:
    """Returns a size as the original writes it: 1.5 KiB."""
    if size < 1024:
        return f"{size} B"
    unit = min((size.bit_length() - 1) // 10, 6)
    return f"{size / 1024**unit:.1f} {'KMGTPE'[unit - 1]}iB"


def _idle() -> dict[str, object]:
    """Returns zeros for what the original measures and this broker does not have, as tools read them as numbers."""
    table: dict[str, object] = {"pageCacheLockTimeMills": 0, "timerReadBehind": 0, "timerOffsetBehind": 0}
    table |= {"timerCongestNum": 0, "timerEnqueueTps": 0.0, "timerDequeueTps": 0.0}
    for pool in _POOLS:
        table[f"{pool}ThreadPoolQueueSize"] = table[f"{pool}ThreadPoolQueueHeadWaitTimeMills"] = 0
        table[f"{pool}ThreadPoolQueueCapacity"] = 0
    table |= {"EndTransactionQueueSize": 0, "EndTransactionThreadPoolQueueCapacity": 0, "dispatchMaxBuffer": 0}
    table |= {"putMessageEntireTimeMax": 0, "getMessageEntireTimeMax": 0}
    table |= {"putLatency99": "0.00", "putLatency999": "0.00", "remainTransientStoreBufferNumbs": 0}
    table["putMessageDistributeTime"] = ""
    return table
