"""Deliveries in any order: what may be committed is done, and all else is somewhere."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from support.deliveries import QUEUES, assign, core, found, take
from tallystick.rocketmq.client.pulling import PullPosition
from tallystick.rocketmq.client.received import ReceivedMessage
from tallystick.rocketmq.client.subscription import ALL_TAGS


class Consuming(RuleBasedStateMachine):
    """Whatever happens: below what may be committed all was done, and all else is somewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.one = core(count=12, span=20)
        self.now = 0.0
        self.end = 0
        self.done: set[int] = set()
        self.stored: set[int] = set()  # at the broker, for the retry topic
        self.queue = self.one.assigned(PullPosition(QUEUES[0], ALL_TAGS, 0), gives_back=True)
        self.out: list[ReceivedMessage] = []
        self.at_hand: ReceivedMessage | None = None

    @rule(count=st.integers(1, 5))
    def responded(self, count: int) -> None:
        if self.one.may_pull(self.queue):
            at = self.queue.pull.next_offset
            self.one.responded(self.queue.pull, found(self.queue.queue, at, at + count))
            self.end = max(self.end, at + count)

    @precondition(lambda self: self.one.ready)
    @rule()
    def next(self) -> None:
        if self.at_hand is not None and self.queue.has(self.at_hand):
            self.done.add(self.at_hand.offset)
        self.one.finish()
        self.at_hand = self.one.take()
        self.out.append(self.at_hand)

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        message = data.draw(st.sampled_from(self.out))
        expected = self.queue.has(message)
        assert self.one.ack(message) is expected
        if expected:
            self.done.add(message.offset)

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def nack(self, data: st.DataObject) -> None:
        message = data.draw(st.sampled_from(self.out))
        expected = self.queue.has(message)
        assert self.one.nack(message, self.now) is expected

    @rule(pass_s=st.sampled_from([0.5, 1.0, 10.0]), what=st.sampled_from(["taken", "late", "refused"]))
    def due(self, pass_s: float, what: str) -> None:
        self.now += pass_s
        for action in self.one.due(self.now):
            if what == "taken":
                self.stored.add(action.message.offset)
                self.one.given_back(action)
            elif what == "late":
                if not self.one.stored_late(action, 700, self.now):
                    self.stored.add(action.message.offset)
            else:
                self.one.not_given_back(action)

    @rule()
    def leave_the_loop(self) -> None:
        self.one.begin_loop()
        self.at_hand = None

    @rule(is_paused=st.booleans())
    def pause(self, is_paused: bool) -> None:
        if is_paused:
            self.one.pause([self.queue])
        else:
            self.one.resume(self.queue)

    @rule(data=st.data())
    def seek(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(0, self.queue.committable))
        self.one.seek(self.queue, offset)
        self.at_hand = None

    @invariant()
    def nothing_below_the_offset_is_undone(self) -> None:
        assert set(range(self.queue.committable)) <= self.done | self.stored

    @invariant()
    def all_else_is_somewhere(self) -> None:
        here = [message for _, message in self.one.ready] + list(self.queue.held_messages)
        assert len(here) == len({message.offset for message in here})
        assert self.one.unacked_bytes == sum(message.record.size for message in self.queue.unacked_messages.values())
        waiting = {id(message) for message in self.queue.unacked_messages.values()}
        assert {id(message) for message in here} <= waiting
        known = {id(one) for one in [*here, *self.out]} | {id(one[2].message) for one in self.one._give_backs}
        assert waiting <= known

    @invariant()
    def bounds_hold(self) -> None:
        assert len(self.queue.unacked_messages) < 12 + 5
        assert self.queue.pull.next_offset - self.queue.committable < 20 + 5


TestConsuming = Consuming.TestCase


@given(st.permutations(range(8)))
def test_any_order_of_acknowledgements_ends_at_the_end(order: list[int]) -> None:
    one = core(auto_ack=False)
    queue = assign(one, messages=8)
    messages = take(one, 8)
    left = set(range(8))
    for number in order:
        assert one.ack(messages[number])
        left.discard(number)
        assert queue.committable == min(left, default=8)
