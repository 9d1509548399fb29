"""Pulls of whole brokers: those that wait, their turns among others, what they commit and what is counted of them."""

from __future__ import annotations

import shutil
import time
from collections.abc import Container, Iterator
from pathlib import Path

import pytest

from support.brokers import TOPIC, benched, bodies, fill, pull_command, send_command
from support.waiting import until
from tallystick.rocketmq.broker import hold, pull, pull_rules
from tallystick.rocketmq.store.values import Arrival
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.headers import UpdateOffsetHeader
from tallystick.rocketmq.wire.remoting import request
from tallystick.rocketmq.wire.values import (
    ConsumerGroup,
    Heartbeat,
    PullFlag,
    RequestCode,
    ResponseCode,
    Subscription,
    TopicConfig,
)
from tallystick.runtime.turn_steps import TurnSteps

WAITING = PullFlag.SUBSCRIPTION | PullFlag.SUSPEND


async def test_a_pull_waits_for_the_message(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        broker = await bench.broker()
        peer = await bench.peer(broker)
        await fill(peer, 1)
        waiting = peer.send(pull_command(offset=1, flags=WAITING, suspend_ms=60_000))
        tagged = peer.send(pull_command(offset=1, flags=WAITING, suspend_ms=60_000, tags="wanted"))
        await until(lambda: broker._pulls.held_count == 2)
        await peer.ask(send_command(body=b"other", properties="TAGS\x01other\x02"))
        assert bodies(await peer.answer(waiting)) == [b"other"]
        assert broker._pulls.held_count == 1
        await peer.ask(send_command(body=b"it", properties="TAGS\x01wanted\x02"))
        answer = await peer.answer(tagged)
        assert (bodies(answer), answer.fields["nextBeginOffset"]) == ([b"it"], "3")


async def test_a_pull_that_waited_in_vain_is_answered_at_its_deadline(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        peer = await bench.peer(await bench.broker())
        await fill(peer, 1)
        started = time.monotonic()
        answer = await peer.ask(pull_command(offset=1, flags=WAITING, suspend_ms=100))
        assert (answer.code, answer.remark) == (19, "OFFSET_OVERFLOW_ONE")
        assert time.monotonic() - started >= 0.1


async def test_sends_have_their_turn_among_many_pulls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pull, "TURN_BYTES", 1)
    async with benched(tmp_path) as bench:
        broker = await bench.broker()
        reader, sender = await bench.peer(broker), await bench.peer(broker)
        await fill(sender, 3)
        await sender.ask(pull_command())  # makes the group: whoever does that waits longer than the others
        opaques = [reader.send(pull_command()) for _ in range(300)]
        await until(lambda: len(broker._pulls._late) > 0, pause=0)
        await sender.ask(send_command())
        assert broker._pulls._late, "one message a turn is read, and the send did not wait for all of them"
        assert broker._server.memory.kept_bytes > 0
        await reader.answer(opaques[-1])
        assert [answer.opaque for answer in reader.order] == opaques
        assert broker._server.memory.kept_bytes == 0


async def test_tags_are_read_in_the_turn_that_has_time_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[object] = []
    tags = "||".join(f"tag-{number}" for number in range(1000))
    monkeypatch.setattr(pull, "TURN_BYTES", 1)

    def counted(wanted: Subscription) -> frozenset[int] | None:
        parsed.append(wanted)
        return pull_rules.tag_codes(wanted)

    monkeypatch.setattr(pull, "tag_codes", counted)
    async with benched(tmp_path) as bench:
        broker = await bench.broker()
        reader, sender = await bench.peer(broker), await bench.peer(broker)
        await fill(sender, 3, properties="TAGS\x01tag-7\x02")
        await sender.ask(pull_command())
        parsed.clear()
        opaques = [reader.send(pull_command(tags=tags)) for _ in range(300)]
        await until(lambda: bool(broker._pulls._late), pause=0)
        assert len(parsed) == broker.counts.pulls - 1, "of pulls that are put off no tags are read"
        assert bodies(await reader.answer(opaques[-1])) == [b"0", b"1", b"2"]


async def test_tags_of_heartbeats_count_for_the_connection_that_waits(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        broker = await bench.broker()
        peer = await bench.peer(broker)
        await fill(peer, 1)
        subscription = Subscription(TOPIC, "said", codes=tuple(range(4000)), version=1)
        beat = Heartbeat("c", consumers=(ConsumerGroup("G", subscriptions=(subscription,)),))
        assert (await peer.code(RequestCode.HEART_BEAT, {}, dialect.write(beat))).code == 0
        before = broker._server.memory.kept_bytes
        peer.send(pull_command(offset=1, flags=PullFlag.SUSPEND, suspend_ms=60_000, tags=""))
        await until(lambda: broker._pulls.held_count == 1)
        assert broker._server.memory.kept_bytes - before > 4000 * 64
        await peer.ask(send_command())
        await until(lambda: broker._pulls.held_count == 0)
        assert broker._server.memory.kept_bytes == before


async def test_a_put_off_pull_commits_when_it_came(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would set back what its client commits meanwhile."""
    async with benched(tmp_path) as bench:
        broker = await bench.broker()
        peer = await bench.peer(broker)
        await fill(peer, 3)
        flags = PullFlag.SUBSCRIPTION | PullFlag.COMMIT_OFFSET
        await peer.ask(pull_command(flags=flags, commit_offset=0))  # makes the group, and saves where it begins
        monkeypatch.setattr(pull, "TURN_S", 0.0)
        opaque = peer.send(pull_command(flags=flags, commit_offset=1))
        update = UpdateOffsetHeader(consumer_group="G", topic=TOPIC, queue_id=0, commit_offset=2)
        committed = peer.send(request(RequestCode.UPDATE_CONSUMER_OFFSET, update.to_fields()))
        await peer.answer(committed)
        assert broker._pulls._late
        monkeypatch.setattr(pull, "TURN_S", 1.0)
        await peer.answer(opaque)
        assert broker.parts.offsets.get(TOPIC, "G", 0) == 2


async def test_a_pull_whose_time_is_up_in_a_turn_without_time_is_not_held_again(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        broker = await bench.broker()
        peer = await bench.peer(broker)
        await fill(peer, 1)
        waiting = peer.send(pull_command(offset=1, flags=WAITING, suspend_ms=60_000))
        await until(lambda: broker._pulls.held_count == 1)
        pulls = broker._pulls
        assert pulls._has_time()
        pulls._reads.bytes = pulls._turn_end_bytes
        for over in pulls._hold.tick(float("inf")):
            pulls._wake(over)
        assert pulls._late and not pulls.held_count
        await until(lambda: not pulls._late)
        assert not pulls.held_count
        assert (await peer.answer(waiting)).code == ResponseCode.PULL_NOT_FOUND


@pytest.mark.parametrize("by", ["messages", "a deleted topic"])
async def test_very_many_held_pulls_are_ended_over_many_turns(tmp_path: Path, by: str) -> None:
    """Those that the messages of one turn woke were ended in it: 120,000 took 0.8 s."""
    async with benched(tmp_path) as bench:
        broker = await bench.broker()
        pulls, queues = broker._pulls, 4
        pulls._waking = TurnSteps(5)
        peer = await bench.peer(broker)
        broker.tables.topics.put(TopicConfig(TOPIC, queues, queues))
        asked = [
            peer.send(pull_command(queue_id=number % queues, flags=WAITING, suspend_ms=60_000)) for number in range(40)
        ]
        await until(lambda: pulls.held_count == len(asked))
        if by == "messages":
            pulls.arrived([Arrival(TOPIC, queue_id, 1, [0]) for queue_id in range(queues)])
        else:
            broker.tables.topics.delete(TOPIC)
        assert len(asked) - 5 <= pulls.held_count < len(asked)
        for opaque in asked:
            await peer.answer(opaque)
        assert not pulls.held_count


def busy(ended: list[None]) -> Iterator[None]:
    """Work that others wait for."""
    while not ended:
        yield


async def test_all_messages_that_came_before_a_pull_was_woken_wake_it(tmp_path: Path) -> None:
    """One look at the pulls of a queue is for all of them: the one that is wanted may not be the last."""
    async with benched(tmp_path) as bench:
        broker = await bench.broker()
        peer, ended = await bench.peer(broker), list[None]()
        await fill(peer, 1)
        waiting = peer.send(pull_command(offset=1, flags=WAITING, suspend_ms=60_000, tags="wanted"))
        await until(lambda: broker._pulls.held_count == 1)
        broker._pulls._waking = TurnSteps(1)
        broker._pulls._waking.run(busy(ended))
        for tag in ("wanted", "other"):
            await peer.ask(send_command(body=tag.encode(), properties=f"TAGS\x01{tag}\x02"))
        assert broker._pulls.held_count == 1
        ended.append(None)
        assert bodies(await peer.answer(waiting)) == [b"wanted"]


@pytest.mark.parametrize("is_rebuilt_first", [False, True])
async def test_messages_that_a_queue_had_before_do_not_hide_later_ones(tmp_path: Path, is_rebuilt_first: bool) -> None:
    """A queue is rebuilt from its beginning while messages come at its end."""
    async with benched(tmp_path) as bench:
        broker = await bench.broker()
        pulls, peer, ended = broker._pulls, await bench.peer(broker), list[None]()
        await fill(peer, 1)
        waiting = peer.send(pull_command(offset=1, flags=WAITING, suspend_ms=60_000))
        await until(lambda: pulls.held_count == 1)
        pulls._waking = TurnSteps(1)
        pulls._waking.run(busy(ended))
        if is_rebuilt_first:
            pulls.rebuilt([Arrival(TOPIC, 0, 1, [0])])
        await peer.ask(send_command(body=b"new"))
        if not is_rebuilt_first:
            pulls.rebuilt([Arrival(TOPIC, 0, 1, [0])])
        ended.append(None)
        assert bodies(await peer.answer(waiting)) == [b"new"]


async def test_a_message_that_comes_while_its_queue_is_looked_through_wakes_who_wants_it(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        broker = await bench.broker()
        pulls, peer = broker._pulls, await bench.peer(broker)
        broker.tables.topics.put(TopicConfig(TOPIC, 1, 1))
        asked = [peer.send(pull_command(flags=WAITING, suspend_ms=60_000, tags=tag)) for tag in "aab"]
        await until(lambda: pulls.held_count == len(asked))
        pulls._waking = TurnSteps(1)
        pulls.arrived([Arrival(TOPIC, 0, 1, [ord("a")])])
        assert pulls.held_count == 2, "one is woken, and the others are still to be looked at"
        pulls.arrived([Arrival(TOPIC, 0, 2, [ord("b")])])
        await until(lambda: not pulls.held_count)
        for opaque in asked:
            await peer.answer(opaque)


async def test_a_deadline_that_is_nobodys_any_more_keeps_no_later_one_from_coming(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        broker = await bench.broker()
        peer = await bench.peer(broker)
        await fill(peer, 1)
        woken = peer.send(pull_command(offset=1, flags=WAITING, suspend_ms=100))
        in_vain = peer.send(pull_command(offset=1, flags=WAITING, suspend_ms=300, tags="wanted"))
        await until(lambda: broker._pulls.held_count == 2)
        await peer.ask(send_command(body=b"other", properties="TAGS\x01other\x02"))
        assert bodies(await peer.answer(woken)) == [b"other"]
        assert (await peer.answer(in_vain)).code == ResponseCode.PULL_RETRY_IMMEDIATELY


async def test_held_pulls_are_looked_through_when_a_topic_goes_and_not_when_one_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be 200,000 of them, and topics come often."""
    looked: list[None] = []
    gone = hold.HoldCore.topics_deleted

    def counted(core: hold.HoldCore[object], topics: Container[str]) -> Iterator[object]:
        looked.append(None)
        return gone(core, topics)

    monkeypatch.setattr(hold.HoldCore, "topics_deleted", counted)
    async with benched(tmp_path) as bench:
        topics = (await bench.broker()).tables.topics
        topics.put(TopicConfig("A"))
        topics.delete("A")
        assert len(looked) == 1
        topics.put(TopicConfig("B"))
        assert len(looked) == 1


async def test_pulls_that_wait_count_for_their_connection(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        broker = await bench.broker()
        peer = await bench.peer(broker)
        await fill(peer, 1)
        tags = "||".join(f"tag{number}" for number in range(1000))
        peer.send(pull_command(offset=1, flags=WAITING, suspend_ms=60_000, tags=tags))
        waiting = peer.send(pull_command(offset=1, flags=WAITING, suspend_ms=60_000))
        await until(lambda: broker._pulls.held_count == 2)
        held = broker._server.memory.kept_bytes
        assert held > 16 * len(tags)
        await peer.ask(send_command())
        await peer.answer(waiting)
        assert 0 < broker._server.memory.kept_bytes < held
        peer.writer.close()
        await until(lambda: broker._server.memory.kept_bytes == 0)


async def test_pulls_beyond_what_may_be_held_wait_too_and_that_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hold, "MAX_HELD", 1)
    monkeypatch.setattr(hold, "BRIEF_S", 0.05)
    async with benched(tmp_path) as bench:
        broker = await bench.broker()
        peer, other = await bench.peer(broker), await bench.peer(broker)
        await fill(peer, 1)
        first = peer.send(pull_command(offset=1, flags=WAITING, suspend_ms=60_000))
        await until(lambda: broker._pulls.held_count == 1)
        for _ in range(2):
            answer = await other.ask(pull_command(offset=1, flags=WAITING, suspend_ms=60_000))
            assert answer.code == 19
        assert broker.counts.brief_pulls == 2
        assert [event.kind for event in bench.told].count("pulls wait briefly") == 1
        await other.ask(send_command())
        assert (await peer.answer(first)).code == 0


async def test_who_is_gone_waits_no_more(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        broker = await bench.broker()
        peer, other = await bench.peer(broker), await bench.peer(broker)
        await fill(other, 1)
        peer.send(pull_command(offset=1, flags=WAITING, suspend_ms=60_000))
        await until(lambda: broker._pulls.held_count == 1)
        assert broker._server.memory.kept_bytes > 0
        peer.writer.close()
        await until(lambda: broker._pulls.held_count == 0)
        assert broker._server.memory.kept_bytes == 0
        reads = broker.counts.pulls
        await fill(other, 1)
        assert broker.counts.pulls == reads, "nothing is read for who is gone"
        assert bodies(await other.ask(pull_command(offset=1))) != []


async def test_a_pull_commits_once_and_only_when_it_says_so(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        broker = await bench.broker()
        peer = await bench.peer(broker)
        await fill(peer, 3)
        offsets = broker.parts.offsets
        await peer.ask(pull_command(offset=0, commit_offset=2))
        assert offsets.get(TOPIC, "G", 0) is None
        assert offsets.get_pull_offset(TOPIC, "G", 0) == 3
        committing = PullFlag.SUBSCRIPTION | PullFlag.COMMIT_OFFSET
        await peer.ask(pull_command(offset=0, commit_offset=2, flags=committing))
        assert offsets.get(TOPIC, "G", 0) == 2
        waiting = peer.send(pull_command(offset=3, commit_offset=3, flags=committing | WAITING, suspend_ms=60_000))
        await until(lambda: offsets.get(TOPIC, "G", 0) == 3)
        offsets.commit(TOPIC, "G", 0, 1)  # somebody goes back meanwhile
        await fill(peer, 1)
        await peer.answer(waiting)
        assert offsets.get(TOPIC, "G", 0) == 1


# Replication


async def test_a_pull_that_waits_hears_that_its_topic_is_deleted(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        broker = await bench.broker()
        peer = await bench.peer(broker)
        await fill(peer, 1)
        waiting = peer.send(pull_command(offset=1, flags=WAITING, suspend_ms=60_000))
        await until(lambda: broker._pulls.held_count == 1)
        await peer.code(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": TOPIC})
        assert (await peer.answer(waiting)).code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_reader_beyond_the_end_goes_on_where_its_group_stands_or_at_the_first(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        broker = await bench.broker()
        peer = await bench.peer(broker)
        await fill(peer, 10)
        for _ in range(2):
            moved = await peer.ask(pull_command(offset=100))
            assert (moved.code, moved.remark, moved.fields["nextBeginOffset"]) == (21, "OFFSET_OVERFLOW_BADLY", "0")
        broker.parts.offsets.commit(TOPIC, "G", 0, 4)
        assert (await peer.ask(pull_command(offset=100))).fields["nextBeginOffset"] == "4"
        broker.parts.offsets.commit(TOPIC, "G", 0, 99)
        assert (await peer.ask(pull_command(offset=100))).fields["nextBeginOffset"] == "0"
        [event] = [event for event in bench.told if event.kind == "reader beyond the end"]
        assert event.fields == {"topic": TOPIC, "group": "G", "queue": 0, "offset": 100, "end": 10, "to": 0}


async def test_a_pull_commits_nothing_beyond_the_end(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        broker = await bench.broker()
        peer = await bench.peer(broker)
        await fill(peer, 2)
        committing = PullFlag.SUBSCRIPTION | PullFlag.COMMIT_OFFSET
        await peer.ask(pull_command(offset=0, commit_offset=3, flags=committing))
        assert broker.parts.offsets.get(TOPIC, "G", 0) is None
        assert [event.fields["offset"] for event in bench.told if event.kind == "commit beyond the end"] == [3]


async def test_a_reader_of_messages_that_a_promoted_slave_never_had_goes_back(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        old = await bench.broker()
        await fill(await bench.peer(old), 3)
        await old.stop()
        shutil.copytree(tmp_path / "b0", tmp_path / "promoted")  # as a slave has it that lags
        peer = await bench.peer(await bench.broker())
        await fill(peer, 2)
        at_three = (await peer.ask(pull_command(count=3, mark=""))).fields["tallyMark"]
        at_five = (await peer.ask(pull_command(offset=3, mark=at_three))).fields["tallyMark"]
        new = await bench.broker(bench.settings("promoted"))
        peer = await bench.peer(new)
        assert (await peer.ask(pull_command(offset=3, mark=at_three))).code == ResponseCode.PULL_NOT_FOUND
        await fill(peer, 4)  # as long as those that the old master had there
        new.parts.offsets.commit(TOPIC, "G", 0, 2)
        moved = await peer.ask(pull_command(offset=5, mark=at_five))
        assert (moved.code, moved.fields["nextBeginOffset"]) == (21, "2")
        assert [event.fields["offset"] for event in bench.told if event.kind == "reader of another log"] == [5]
        assert len(bodies(await peer.ask(pull_command(offset=3, mark=at_three)))) == 4
        assert "tallyMark" not in (await peer.ask(pull_command(offset=5))).fields
