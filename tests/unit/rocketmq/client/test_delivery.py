from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import pytest

from support.deliveries import QUEUES, assign, core, found, moved, offsets, take
from tallystick.errors import BrokerError, UsageError
from tallystick.rocketmq.client import delivery
from tallystick.rocketmq.client.delivery import LATE_MOST_S, LATE_S, GiveBack
from tallystick.rocketmq.client.pulling import PullPosition
from tallystick.rocketmq.client.received import ReceivedMessage
from tallystick.rocketmq.client.subscription import ALL_TAGS
from tallystick.rocketmq.wire.own_headers import OffsetMovedResponse
from tallystick.rocketmq.wire.remoting import request
from tallystick.rocketmq.wire.values import MessageQueue, ResponseCode


def test_the_lowest_unacknowledged_message_is_committed_whatever_is_done_behind_it() -> None:
    one = core(auto_ack=False)
    queue = assign(one, messages=6)
    messages = take(one, 5)
    for number, committable in ((3, 0), (0, 1), (2, 1), (1, 4)):
        assert one.ack(messages[number])
        assert queue.committable == committable
    assert one.ack(messages[4])
    assert queue.committable == 5  # pulled, and not handed out
    assert one.ack(one.take())
    assert (queue.committable, one.unacked_bytes) == (6, 0)
    assert not one.ack(messages[0])  # twice


def test_what_a_loop_has_finished_is_acknowledged_and_what_it_was_left_with_comes_again() -> None:
    one = core()
    queue = assign(one, messages=4)
    for _ in range(3):
        one.finish()
        one.take()
    assert queue.committable == 2
    left = one._at_hand[0][1]
    one.begin_loop()
    assert offsets(one) == [2, 3]
    assert not one.ack(left)  # it is delivered again
    message = one.take()
    assert one.ack(message)
    one.begin_loop()  # it was left, but the message was acknowledged
    assert offsets(one) == [3]
    assert queue.committable == 3


def test_a_batch_is_finished_as_a_whole_but_for_what_was_given_back() -> None:
    one = core()
    queue = assign(one, messages=5)
    batch = one.take_batch(3)
    assert [message.offset for message in batch] == [0, 1, 2]
    assert queue.committable == 0
    assert one.nack(batch[1], 0.0)
    one.finish()
    assert queue.committable == 1
    assert [message.offset for message in one.take_batch(100)] == [3, 4]
    one.begin_loop()
    assert offsets(one) == [3, 4]


def test_without_automatic_acknowledgements_a_loop_acknowledges_nothing() -> None:
    one = core(auto_ack=False)
    queue = assign(one, messages=2)
    one.take()
    one.finish()
    one.begin_loop()
    assert (queue.committable, offsets(one)) == (0, [1])


def test_a_message_given_back_holds_the_offset_until_its_broker_has_it() -> None:
    one = core()
    queue = assign(one, messages=3)
    failed, *rest = take(one, 3)
    assert one.wake_at() is None
    assert one.nack(failed, 100.0)
    for message in rest:
        one.ack(message)
    assert not one.ack(failed)  # it was given back
    assert one.wake_at() == 101.0
    assert one.due(100.9) == []
    [action] = one.due(101.0)
    assert isinstance(action, GiveBack)
    assert (action.message.offset, action.delay_s, queue.committable) == (0, 0.0, 0)
    assert one.wake_at() is None
    one.given_back(action)
    assert queue.committable == 3


def test_a_message_that_disk_or_slaves_are_late_with_holds_the_offset_and_is_asked_for_again() -> None:
    one = core()
    queue = assign(one, messages=2)
    failed, other = take(one, 2)
    one.nack(failed, 0.0)
    one.ack(other)
    assert one.stored_late(one.due(1.0)[0], 700, 2.0)
    assert (queue.committable, one.wake_at(), one.leaving([queue], 3.0)) == (0, 2.0 + LATE_S, [])
    [again] = one.due(2.0 + LATE_S)
    assert one.stored_late(again, 700, 8.0)
    [at_the_end] = one.give_back_now([queue], 9.0)
    assert (again.message.offset, again.copy, at_the_end.copy) == (0, 700, 700)
    one.given_back(at_the_end)
    assert queue.committable == 2


def test_what_disk_or_slaves_are_late_with_for_long_is_as_safe_as_what_is_sent_and_its_queue_goes_on() -> None:
    one = core(span=2)
    queue = assign(one, messages=2)
    failed, other = take(one, 2)
    one.nack(failed, 0.0)
    one.ack(other)
    now, asked = 1.0, 1
    while asked < 100 and one.stored_late(one.due(now)[0], 700, now):
        assert not one.may_pull(queue)
        wake_at = one.wake_at()
        assert wake_at is not None
        now, asked = wake_at, asked + 1
    assert (now, asked, one.wake_at()) == (1.0 + LATE_MOST_S, 1 + LATE_MOST_S // LATE_S, None)
    assert (queue.committable, one.room_made, one.may_pull(queue)) == (2, True, True)


def test_what_no_broker_takes_is_delivered_here_again_before_all_others() -> None:
    one = core()
    queue = assign(one, messages=3)
    one.nack(one.take(), 0.0)
    one.finish()
    [action] = one.due(1.0)
    one.not_given_back(action)
    assert (offsets(one), queue.committable) == ([0, 1, 2], 0)
    again = one.take()
    assert (again.offset, again.reconsume_times) == (0, 1)
    one.finish()
    assert queue.committable == 1


def test_what_no_broker_takes_of_before_a_seek_is_not_delivered_here_again() -> None:
    one = core()
    queue = assign(one, messages=3)
    one.nack(one.take(), 0.0)
    one.finish()
    [action] = one.due(1.0)
    one.seek(queue, 0)
    one.not_given_back(action)
    assert offsets(one) == [], "it is pulled again"


def test_a_queue_that_gives_nothing_back_repeats_here_later_each_time() -> None:
    one = core()
    queue = assign(one, messages=1, gives_back=False)
    now = 0.0
    for delay_s in (1.0, 5.0, 10.0, 10.0):
        one.nack(one.take(), now)
        assert one.wake_at() == now + delay_s
        now += delay_s
        assert one.due(now) == []
        assert offsets(one) == [0]
    assert one.nack(one.take(), now, 0.5)  # as the caller wants it
    assert one.wake_at() == now + 0.5
    assert queue.committable == 0


def test_messages_given_back_are_due_one_after_the_other() -> None:
    one = core(auto_ack=False)
    assign(one, messages=3)
    messages = take(one, 3)
    for message, delay_s in zip(messages, (3.0, 1.0, 2.0), strict=True):
        one.nack(message, 0.0, delay_s)
    assert [action.message.offset for action in one.due(2.0)] == [1, 2]
    assert [action.message.offset for action in one.due(9.0)] == [0]


@pytest.mark.parametrize("ordered", [False, True])
def test_a_seek_leaves_nothing_of_before(ordered: bool) -> None:
    one = core(auto_ack=False, ordered=ordered)
    queue, other = assign(one, messages=6), assign(one, 1, messages=1)
    before = queue.pull
    at_hand = one.take()
    one.seek(queue, 3)
    assert (queue.committable, one.position(queue)) == (3, 3)
    assert not one.responded(before, found(queue.queue, 6, 9))  # it was asked for before the seek
    assert not one.ack(at_hand)
    assert not one.nack(at_hand, 0.0)
    assert one.responded(queue.pull, found(queue.queue, 3, 6))
    assert queue.committable == 3
    assert {message.queue for _, message in one.ready} == {queue.queue, other.queue}
    with pytest.raises(UsageError):
        one.seek(queue, -1)


def test_an_acknowledgement_of_before_a_seek_does_not_acknowledge_the_delivery_behind_it() -> None:
    one = core(auto_ack=False)
    queue = assign(one, messages=2)
    before = one.take()
    one.nack(one.take(), 0.0)
    one.seek(queue, 0)
    one.responded(queue.pull, found(queue.queue, 0, 2))
    assert not one.ack(before)
    assert one.due(99.0) == []  # nor is it given back
    assert queue.committable == 0
    assert one.ack(one.take())
    assert queue.committable == 1


def test_a_queue_that_is_taken_away_is_committed_and_then_forgotten() -> None:
    one = core(auto_ack=False)
    queue, other = assign(one, messages=3), assign(one, 1, messages=2)
    first, second = take(one, 2)
    one.revoking([queue])
    assert {message.queue for _, message in one.ready} == {other.queue}
    assert one.ack(first)  # while its listener is told
    assert queue.committable == 1
    one.revoked([queue])
    assert queue.is_revoked  # its offset is not to be committed: all that it had is forgotten
    assert not one.ack(second)
    assert not one.responded(queue.pull, found(queue.queue, 3, 4))
    assert one.unacked_bytes == sum(message.record.size for message in other.unacked_messages.values())


def test_nothing_is_handed_out_of_a_queue_that_is_about_to_go() -> None:
    one = core()
    queue = assign(one, messages=2, gives_back=False)
    one.nack(one.take(), 0.0)
    one.finish()
    one.take()
    one.revoking([queue])
    assert one.due(1.0) == []
    one.begin_loop()
    assert not one.ready


def test_what_waits_of_a_queue_that_goes_is_given_back_at_once() -> None:
    one = core(auto_ack=False)
    queue, other = assign(one, messages=2), assign(one, 1, messages=1)
    for message in take(one, 3):
        one.nack(message, 0.0, 8.0)
    actions = one.give_back_now([queue], 3.0)
    assert [(action.message.offset, action.delay_s) for action in actions] == [(0, 5.0), (1, 5.0)]
    assert [action.queue for action in one.due(8.0)] == [other]  # not a second time while they are being sent
    for action in actions:
        one.given_back(action)
    assert (queue.committable, other.committable) == (2, 0)


def test_an_ordered_queue_leaves_when_its_message_at_hand_is_done_or_after_a_while() -> None:
    one = core(auto_ack=False, ordered=True)
    idle, queue = assign(one, 0, messages=3), assign(one, 1, messages=3, gives_back=False)
    at_hand = [one.take() for _ in range(2)][1]
    one.ack(one.queues[QUEUES[0]].unacked_messages[0])
    assert not one.leaving([idle], 0.0)
    for now in (0.0, 1.0, 119.9):
        assert one.leaving([queue], now) and not one.may_pull(queue)
    assert not one.leaving([queue], 120.0)
    one.stays(queue)
    assert one.leaving([queue], 120.0) and one.ack(at_hand) and not one.leaving([queue], 120.0)
    assert offsets(one) == []
    one.stays(queue)
    assert offsets(one) == [1] and one.may_pull(queue) and one.room_made
    one.pause([queue])
    one.stays(queue)
    one.resume(idle)
    assert offsets(one) == [], "what the program paused is not resumed by a member that leaves"
    one.resume(queue)
    at_hand = one.take()
    one.nack(at_hand, 0.0)
    assert not one.leaving([queue], 0.0), "what waits to be repeated is worked on by nobody"


def test_what_was_given_back_before_a_seek_does_not_let_an_ordered_queue_leave_its_message_at_hand() -> None:
    one = core(auto_ack=False, ordered=True)
    queue = assign(one, messages=2, gives_back=False)
    one.nack(one.take(), 0.0, 100.0)
    one.seek(queue, 0)
    assert one.responded(queue.pull, found(queue.queue, 0, 2))
    at_hand = one.take()
    assert one.leaving([queue], 0.0)
    assert one.ack(at_hand) and not one.leaving([queue], 0.0)


def test_what_is_paused_is_neither_pulled_nor_handed_out() -> None:
    one = core()
    queue, other = assign(one, messages=3), assign(one, 1, messages=2)
    one.take()
    one.pause([queue])
    one.pause([queue])
    assert not one.may_pull(queue)
    assert one.may_pull(other)
    assert not one.is_stalled  # nobody waits for acknowledgements
    assert {message.queue for _, message in one.ready} == {other.queue}
    one.responded(queue.pull, found(queue.queue, 3, 5))  # asked for before
    assert one.position(queue) == 1
    one.nack(ReceivedMessage(queue.queue, queue.unacked_messages[0].record), 0.0)  # not the delivery that it has
    one.begin_loop()  # what was at hand waits too
    assert one.position(queue) == 0
    one.room_made = False
    one.resume(queue)
    assert one.room_made
    assert one.may_pull(queue)
    assert offsets(one) == [0, 1, 0, 1, 2, 3, 4]


def test_an_ordered_consumer_has_one_message_of_a_queue_under_way() -> None:
    one = core(auto_ack=False, ordered=True)
    queue, other = assign(one, messages=3, gives_back=False), assign(one, 1, messages=2, gives_back=False)
    assert offsets(one) == [0, 0]
    first = one.take()
    assert one.ack(one.take())
    assert [owner for owner, _ in one.ready] == [other]
    one.nack(first, 0.0)
    assert [owner for owner, _ in one.ready] == [other]  # nothing overtakes what was given back
    one.due(1.0)
    assert one.take().repeats == 1
    one.pause([queue])
    one.pause([other])
    assert not one.ready
    one.resume(other)
    assert offsets(one) == [1]


@pytest.mark.parametrize("ordered", [False, True])
def test_an_offset_that_the_broker_moved_back_is_pulled_again_and_one_moved_on_keeps_what_is_here(
    ordered: bool,
) -> None:
    one = core(auto_ack=False, ordered=ordered)
    queue = assign(one, messages=6)
    at_hand = one.take()
    one.responded(queue.pull, moved(4))
    assert [message.offset for message in queue.unacked_messages.values()] == [0, 1, 2, 3]
    one.responded(queue.pull, moved(9))
    assert (queue.committable, queue.pull.next_offset) == (0, 9)
    one.responded(queue.pull, moved(0))
    assert (queue.committable, one.unacked_bytes, len(one.ready)) == (0, 0, 0)
    assert not one.ack(at_hand)
    one.responded(queue.pull, found(queue.queue, 0, 2))
    assert one.take().offset == 0


@pytest.mark.rule("H13")
@pytest.mark.parametrize("to", [4, 6])
def test_h13_where_an_operator_set_the_group_what_is_here_from_below_is_dropped_too(to: int) -> None:
    """Else its next commit was one of below, though the group was to skip that; also where all was pulled already."""
    one = core(auto_ack=False)
    queue = assign(one, messages=6)
    at_hand = one.take()
    response = moved(to)
    response.ext = {**response.fields, **OffsetMovedResponse(reset=True).to_fields()}
    one.responded(queue.pull, response)
    assert (queue.committable, one.unacked_bytes, len(one.ready), one.ack(at_hand)) == (to, 0, 0, False)


def test_messages_and_offsets_of_a_queue_and_bytes_of_all_are_bounded() -> None:
    one = core(count=4, span=8, auto_ack=False)
    queue = assign(one, messages=4)
    assert not one.may_pull(queue)
    assert one.is_stalled
    first, *rest = take(one, 4)
    one.room_made = False
    one.ack(rest[0])
    assert one.room_made
    assert one.may_pull(queue)
    for message in rest[1:]:
        one.ack(message)
    one.responded(queue.pull, found(queue.queue, 4, 8))
    for _ in range(4):
        one.ack(one.take())
    assert not one.may_pull(queue)  # one message, and 8 offsets from it on
    one.room_made = False
    one.ack(first)
    assert one.room_made
    assert one.may_pull(queue)

    size = first.record.size
    one = core(size=3 * size, auto_ack=False)
    queue, other = assign(one, messages=2), assign(one, 1, messages=1)
    assert not one.may_pull(other)
    assert not one.may_pull(queue)
    one.room_made = False
    one.ack(one.take())
    assert one.room_made  # for both
    assert one.may_pull(queue)
    assert one.may_pull(other)


def test_what_a_loop_has_finished_of_one_queue_makes_room_for_the_reader_of_another() -> None:
    one = core(size=1)
    _, other = assign(one, messages=1), assign(one, 1)
    assert not one.may_pull(other)  # while the broker holds the pull of the first one
    one.take()
    one.room_made = False
    one.finish()


def test_what_is_dropped_of_one_queue_makes_room_for_the_reader_of_another() -> None:
    one = core(size=1, auto_ack=False)
    queue, other = assign(one, messages=1), assign(one, 1)
    one.responded(queue.pull, moved(5))
    assert not one.may_pull(other)
    one.room_made = False
    one.responded(queue.pull, moved(0))
    assert one.room_made and one.may_pull(other)


def test_a_refusal_changes_nothing() -> None:
    one = core()
    queue = assign(one, messages=1)
    with pytest.raises(BrokerError):
        one.responded(queue.pull, request(11).response(ResponseCode.NO_PERMISSION, "no"))
    assert (queue.committable, queue.pull.next_offset) == (0, 1)


class Looked(deque[object]):
    """Counts what was looked at."""

    looks = 0

    def __iter__(self) -> Iterator[object]:
        for one in super().__iter__():
            Looked.looks += 1
            yield one

    def __reversed__(self) -> Iterator[object]:
        for one in super().__reversed__():
            Looked.looks += 1
            yield one


@pytest.mark.parametrize("what", ["lost", "paused", "wanted by others", "sought"])
def test_what_is_ready_is_looked_through_once_for_all_queues(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "deque", Looked)
    one = core(auto_ack=False, ordered=what == "wanted by others")
    queues = [one.assigned(PullPosition(MessageQueue("T", "b", n), ALL_TAGS, 0), gives_back=True) for n in range(200)]
    for queue in queues:
        assert one.responded(queue.pull, found(queue.queue, 0, 3))
    Looked.looks, some = 0, queues[:150]
    if what == "lost":
        one.revoking(some)
        assert one.give_back_now(some, 0.0) == []
        one.revoked(some)
    elif what == "paused":
        one.pause(some)
    elif what == "wanted by others":
        assert one.leaving(some, 0.0) == one.at_work(some) == []
    else:
        for queue in some:
            one.seek(queue, 0)
    assert {queue.queue.queue_id for queue, _ in one.ready} == set(range(150, 200))
    assert Looked.looks < 6 * 600, "a few times what is ready, whatever the number of queues"
