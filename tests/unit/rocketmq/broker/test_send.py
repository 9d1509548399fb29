"""The sends of a tick: one append, one wait, an answer each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest

from support.brokers import send_command
from tallystick.errors import RemoteProtocolError
from tallystick.rocketmq.broker import send
from tallystick.rocketmq.broker.metrics import BrokerCounts
from tallystick.rocketmq.broker.refusals import Refusal
from tallystick.rocketmq.broker.role import Role, Standing
from tallystick.rocketmq.broker.saves import OnSaved, SendCommand
from tallystick.rocketmq.broker.send import PUT_BYTES, PUT_MESSAGES, Sends
from tallystick.rocketmq.broker.send_checks import MAX_BATCH, CheckedSend, SendChecks
from tallystick.rocketmq.broker.sendback import ExistingCopy, SendBack
from tallystick.rocketmq.broker.sink_checks import SinkChecks
from tallystick.rocketmq.ha.acks import Settle, Settled
from tallystick.rocketmq.remoting.dispatch import Reply
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.store.values import PutRequest, PutResult
from tallystick.rocketmq.wire.record import MAX_PROPERTIES_BYTES
from tallystick.rocketmq.wire.remoting import Command, encode, request
from tallystick.rocketmq.wire.sink_identity import SinkIdentity
from tallystick.rocketmq.wire.values import PutStatus, RequestCode, ResponseCode
from tallystick.runtime.events import Event, Events


class FakeLink:
    peer = "1.2.3.4:5"
    alive = True

    def __init__(self) -> None:
        self.sent: list[Command] = []

    def send(self, command: Command) -> None:
        self.sent.append(command)

    @property
    def codes(self) -> list[int]:
        return [int(command.code) for command in self.sent]


class FakeLog:
    """Stores what its statuses say; waits end as the test says."""

    waits = True

    def __init__(self) -> None:
        self.puts: list[int] = []  # how many requests each append had
        self.first_ends: list[int] = []  # of each wait
        self.ends: list[int] = []
        self.statuses: list[PutStatus] = []
        self.at_once: PutStatus | None = None

    def put(self, put_requests: Sequence[PutRequest], sink: SinkIdentity | None = None) -> list[PutResult]:
        self.puts.append(len(put_requests))
        statuses = self.statuses or [PutStatus.PUT_OK] * len(put_requests)
        return [PutResult(status, [100 * i], 100 * i + 100, i, 1) for i, status in enumerate(statuses)]

    def wait(self, first_end: int, end: int) -> Settled:
        self.first_ends.append(first_end)
        self.ends.append(end)
        ticket = len(self.ends)
        return Settled(ticket, (Settle(ticket, self.at_once),) if self.at_once else ())


class FakeSendChecks:
    key = "key"

    def check(self, command: Command, peer: str, host: bytes) -> CheckedSend | Refusal:
        match bytes(command.body):
            case b"bad":
                raise RemoteProtocolError("broken")
            case b"bug":
                raise ZeroDivisionError("ours")
            case b"no":
                return Refusal(ResponseCode.NO_PERMISSION, "no")
        return CheckedSend(PutRequest("T", 2, ((0, command.body, b""),), 0, host), command.body != b"now", self.key)


class FakeSendBack:
    """Each message that is given back is as long as one append may be, and stored already if the request says where."""

    def check(self, command: Command, peer: str) -> CheckedSend | ExistingCopy:
        if "tallyCopy" in command.fields:
            return ExistingCopy("T", int(command.fields["tallyCopy"]), 340)
        return CheckedSend(PutRequest("T", 2, ((0, bytes(PUT_BYTES), b""),), 0, bytes(8)), True, None)


class FakeSaves:
    changes = 1

    def __init__(self) -> None:
        self.held: list[tuple[Command, ResponseCode]] = []

    def send(
        self, send: SendCommand, answer: Command, change: int, unsaved: ResponseCode = ResponseCode.SYSTEM_ERROR
    ) -> None:
        assert change == self.changes
        self.held.append((answer, unsaved))

    def when_saved(self, done: OnSaved) -> None:
        raise AssertionError("a send asks for each answer")


class Desk:
    def __init__(
        self, *, role: Role = Role.ASYNC_MASTER, file_bytes: int = 4096, host: bytes = b"\x7f\0\0\1\0\0\x2a\x9f"
    ) -> None:
        self.log, self.link, self.told, self.counts = FakeLog(), FakeLink(), list[Event](), BrokerCounts()
        self.saves, self.fresh, self.standing = FakeSaves(), set[str](), Standing(role)
        self.sends = Sends(
            self.log,
            send_checks=cast("SendChecks", FakeSendChecks()),
            send_back=cast("SendBack", FakeSendBack()),
            sink_checks=cast("SinkChecks", None),
            saves=self.saves,
            counts=self.counts,
            events=Events(self.told.append),
            store_host=host,
            standing=self.standing,
            max_message_bytes=77,
            file_bytes=file_bytes,
            refusal=lambda: "the disk is 91 % full",
            fresh=self.fresh,
        )

    def handle(self, *bodies: bytes, one_way: bool = False) -> None:
        commands = [send_command(body=body, one_way=one_way) for body in bodies]
        for number, command in enumerate(commands):
            command.opaque = number
        for command in commands:
            self.take(command)
        self.sends.put()

    def take(self, command: Command) -> None:
        link = cast("Link", self.link)
        self.sends.take(link, command, Reply(link, command, Events(self.told.append)))


def test_all_sends_of_a_tick_are_one_append_and_one_wait() -> None:
    desk = Desk()
    desk.handle(b"a", b"b", b"now", b"c")
    assert (desk.log.puts, desk.log.first_ends, desk.log.ends) == ([4], [100], [400])
    assert [command.opaque for command in desk.link.sent] == [2]
    desk.sends.settled([Settle(1, PutStatus.PUT_OK)])
    assert [command.opaque for command in desk.link.sent] == [2, 0, 1, 3]
    first = desk.link.sent[1]
    assert first.fields == {
        "queueId": "2",
        "transactionId": "key",
        "msgId": "7F00000100002A9F0000000000000000",
        "TRACE_ON": "true",
        "MSG_REGION": "DefaultRegion",
        "queueOffset": "0",
    }
    assert (desk.counts.messages_in, desk.counts.bytes_in, desk.counts.sends_refused) == (4, 400, 0)


def test_an_append_ends_behind_so_many_bytes_or_messages_also_of_what_is_given_back() -> None:
    desk = Desk()
    half = bytes(PUT_BYTES // 2)
    desk.handle(half, half, b"a")
    assert desk.log.puts == [2, 1]
    for _ in range(3):
        desk.take(request(RequestCode.CONSUMER_SEND_MSG_BACK, body=b"x"))
    assert desk.log.puts == [2, 1, 1, 1, 1]
    desk.handle(*[b""] * (PUT_MESSAGES + 1))
    assert desk.log.puts[5:] == [PUT_MESSAGES, 1]


@pytest.mark.parametrize("host", [bytes(8), bytes(20)])
def test_the_answer_to_the_largest_batch_fits_a_header(monkeypatch: pytest.MonkeyPatch, host: bytes) -> None:
    """It was stored: nobody may hear that it was not, and send it again."""
    desk = Desk(host=host)
    monkeypatch.setattr(FakeSendChecks, "key", "\x01" * MAX_PROPERTIES_BYTES)
    offsets = [2**62] * MAX_BATCH
    monkeypatch.setattr(desk.log, "put", lambda put_requests, sink: [PutResult(PutStatus.PUT_OK, offsets, 100, 0, 1)])
    desk.handle(b"now")
    assert len(encode(desk.link.sent[0])) > 33 * MAX_BATCH and desk.link.codes == [0]


def test_a_bug_in_an_append_answers_those_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    monkeypatch.setattr(desk.log, "put", lambda put_requests, sink: 1 / 0)
    desk.handle(b"a", b"b")
    assert desk.link.codes == [1, 1] and [event.kind for event in desk.told] == ["request failed"]
    monkeypatch.undo()
    desk.handle(b"now")
    assert desk.link.codes == [1, 1, 0]


@pytest.mark.parametrize("ended", [False, True])
def test_nothing_is_kept_of_a_connection_that_has_ended(ended: bool) -> None:
    """Also when the send that it left behind is checked after its end."""
    desk = Desk()
    desk.link.alive = not ended
    desk.handle(b"a")
    assert len(desk.sends._hosts) == (not ended)
    desk.sends.closed(cast("Link", desk.link))
    assert not desk.sends._hosts


def test_a_bug_behind_an_append_answers_nobody_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    monkeypatch.setattr(desk.sends, "_count", lambda asked, puts: 1 / 0)
    desk.handle(b"now", b"wait")
    assert [(answer.opaque, answer.code) for answer in desk.link.sent] == [(0, 0), (1, 1)]


def test_what_was_stored_is_counted_by_messages_and_bytes_over_many_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    batch, refused = PutResult(PutStatus.PUT_OK, [0, 40], 100, 0, 2), PutResult(PutStatus.UNKNOWN_ERROR, [], 0, 0, 0)
    monkeypatch.setattr(desk.log, "put", lambda put_requests, sink: [batch, refused, batch])
    for _ in range(2):
        desk.handle(b"a", b"b", b"c")
    counts = desk.counts
    assert (counts.messages_in, counts.bytes_in, counts.sends_refused) == (8, 400, 2)
    assert counts.bytes_by_topic == {"T": 400}


@pytest.mark.rule("H9", "H10")
@pytest.mark.parametrize(
    ("status", "code"),
    [
        (PutStatus.FLUSH_DISK_TIMEOUT, 10),
        (PutStatus.SLAVE_NOT_AVAILABLE, 11),
        (PutStatus.FLUSH_SLAVE_TIMEOUT, 12),
    ],
)
def test_h9_what_is_stored_but_not_safe_says_so_and_has_its_ids(status: PutStatus, code: int) -> None:
    later, at_once = Desk(), Desk()
    later.handle(b"a")
    later.sends.settled([Settle(1, status), Settle(99, status)])
    at_once.log.at_once = status
    at_once.handle(b"a")
    for desk in (later, at_once):
        assert desk.link.codes == [code]
        assert desk.link.sent[0].fields["queueOffset"] == "0"
        assert desk.counts.late == {status: 1}


@pytest.mark.rule("H9", "H10")
@pytest.mark.parametrize("status", [PutStatus.PUT_OK, PutStatus.SLAVE_NOT_AVAILABLE, PutStatus.FLUSH_SLAVE_TIMEOUT])
def test_h9_a_message_given_back_is_answered_when_disk_and_slaves_have_it(status: PutStatus) -> None:
    later, at_once = Desk(), Desk()
    at_once.log.at_once = status
    for desk in (later, at_once):
        desk.take(request(RequestCode.CONSUMER_SEND_MSG_BACK, {}))
        desk.sends.put()
        assert desk.log.ends == [100]
    assert later.link.sent == []
    later.sends.settled([Settle(1, status)])
    for desk in (later, at_once):
        [answer] = desk.link.sent
        is_there = status is PutStatus.PUT_OK
        assert (answer.code, answer.remark) == (0, None if is_there else status.name)
        assert answer.fields == ({} if is_there else {"tallyCopy": "0"}), "that it is not asked to store it once more"


@pytest.mark.rule("H9", "H10")
def test_h9_of_a_message_given_back_is_said_that_the_disk_lacks_it_too() -> None:
    """The remark has room for one status; with neither disk nor slave its copy may be lost."""
    desk = Desk()
    desk.take(request(RequestCode.CONSUMER_SEND_MSG_BACK, {}))
    desk.sends.put()
    desk.sends.settled([Settle(1, PutStatus.SLAVE_NOT_AVAILABLE, disk_late=True)])
    [answer] = desk.link.sent
    assert (answer.remark, answer.fields) == ("SLAVE_NOT_AVAILABLE", {"tallyCopy": "0", "tallyDiskLate": "true"})


@pytest.mark.rule("H9", "H10")
def test_h9_what_was_stored_already_is_waited_for_and_not_what_was_sent_since() -> None:
    desk = Desk()
    desk.take(request(RequestCode.SEND_MESSAGE_V2, {}, b"a"))
    again = request(RequestCode.CONSUMER_SEND_MSG_BACK, {"tallyCopy": "300"})
    desk.take(again)
    assert (desk.log.puts, desk.log.first_ends, desk.log.ends) == ([], [340], [340])
    desk.sends.settled([Settle(1, PutStatus.FLUSH_SLAVE_TIMEOUT)])
    [answer] = desk.link.sent
    assert (answer.code, answer.remark, answer.fields) == (0, "FLUSH_SLAVE_TIMEOUT", {"tallyCopy": "300"})
    desk.log.waits = False
    desk.fresh.add("T")
    desk.take(again)
    assert [held.code for held, _ in desk.saves.held] == [0], "when its topic is saved"


def test_one_that_fails_leaves_the_others_of_its_tick_alone() -> None:
    desk = Desk()
    desk.log.waits = False
    desk.handle(b"bad", b"a", b"bug", b"no", b"b")
    assert [(command.opaque, int(command.code), command.remark) for command in desk.link.sent] == [
        (0, 1, "broken"),
        (2, 1, "ZeroDivisionError: ours"),
        (3, 16, "no"),
        (1, 0, None),
        (4, 0, None),
    ]
    assert desk.link.sent[2].fields == {"TRACE_ON": "true", "MSG_REGION": "DefaultRegion"}
    assert [event.kind for event in desk.told] == ["request refused", "request failed", "request refused"]
    assert desk.counts.sends_refused == 3


def test_a_message_that_is_longer_than_a_file_of_the_log_is_told_so() -> None:
    for file_bytes, told in ((77, True), (78, False)):
        desk = Desk(file_bytes=file_bytes)
        desk.log.statuses = [PutStatus.MESSAGE_ILLEGAL]
        desk.handle(b"x")
        remark = desk.link.sent[0].remark or ""
        assert (f"A file of the log has {file_bytes}B (mappedFileSizeCommitLog)" in remark) is told


@pytest.mark.parametrize(
    ("status", "code", "remark"),
    [
        (PutStatus.MESSAGE_ILLEGAL, 13, "body length limit 77B"),
        (PutStatus.PROPERTIES_SIZE_EXCEEDED, 13, "The properties, with the broker's own, have more than 32767 bytes"),
        (PutStatus.SERVICE_NOT_AVAILABLE, 14, "the disk is 91 % full"),
        (PutStatus.CREATE_MAPPED_FILE_FAILED, 1, "create mapped file failed"),
        (PutStatus.UNKNOWN_ERROR, 1, "UNKNOWN_ERROR"),
    ],
)
def test_what_was_not_stored_has_a_code_and_waits_for_nothing(status: PutStatus, code: int, remark: str) -> None:
    desk = Desk()
    desk.log.statuses = [status, PutStatus.PUT_OK]
    desk.handle(b"a", b"b")
    assert desk.link.codes == [code]
    assert remark in str(desk.link.sent[0].remark)
    desk.sends.settled([Settle(1, PutStatus.PUT_OK)])
    assert desk.link.codes == [code, 0]


def test_one_way_sends_are_stored_and_not_answered() -> None:
    desk = Desk()
    desk.handle(b"a", b"no", b"bad", one_way=True)
    assert (desk.log.puts, desk.log.ends, desk.link.sent) == ([1], [], [])


@pytest.mark.rule("H3")
def test_h3_a_slave_takes_no_message() -> None:
    desk = Desk(role=Role.SLAVE)
    desk.handle(b"a")
    assert (desk.link.codes, desk.log.puts) == ([2], [])
    assert str(desk.link.sent[0].remark).startswith("[REJECTREQUEST]")
    desk.standing.become(Role.ASYNC_MASTER)
    desk.handle(b"a")
    assert (desk.link.codes, desk.log.puts) == ([2], [1]), "what it is now counts"


def test_answers_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(send, "MAX_WAITING", 2)
    desk = Desk()
    desk.handle(b"a", b"b")
    desk.handle(b"c", b"now")
    assert desk.link.codes == [2, 2]
    desk.sends.settled([Settle(1, PutStatus.PUT_OK)])
    desk.handle(b"d")
    assert desk.log.puts == [2, 1]
    desk.handle(b"e")
    assert desk.log.puts == [2, 1, 1], "all that were answered have left room"
    desk.handle(b"f")
    assert desk.log.puts == [2, 1, 1] and desk.link.codes[-1] == 2


def test_a_message_in_a_topic_that_is_not_saved_yet_is_acknowledged_when_it_is() -> None:
    desk = Desk()
    desk.fresh.add("T")
    desk.handle(b"now", b"later")
    assert [answer.opaque for answer, _ in desk.saves.held] == [0]  # the other waits for slaves before that
    desk.sends.settled([Settle(1, PutStatus.PUT_OK)])
    assert [(answer.opaque, unsaved) for answer, unsaved in desk.saves.held] == [(0, 10), (1, 10)]
    assert not desk.link.sent
