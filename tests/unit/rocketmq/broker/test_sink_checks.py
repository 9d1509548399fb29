"""What a sink sends to a broker: each message is stored once, and none is said to be stored that is not."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from support.brokers import SMALL, TOPIC, Bench, Peer, benched, bodies, fill, pull_command, send_command
from support.sinks import identities, newest_of, sink_command, sink_messages
from support.waiting import until
from tallystick.errors import StorageError
from tallystick.rocketmq.broker import responses
from tallystick.rocketmq.broker.broker import Broker
from tallystick.rocketmq.broker.role import Role
from tallystick.rocketmq.ha.acks import Settled
from tallystick.rocketmq.ha.settings import HaSettings
from tallystick.rocketmq.store.sink_table import SinkBatch
from tallystick.rocketmq.store.store import MessageStore
from tallystick.rocketmq.wire.headers import SinkStateHeader, SinkStateResponse
from tallystick.rocketmq.wire.operator_headers import ForgetSinkHeader
from tallystick.rocketmq.wire.record import IndexType, encode_batch
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.sink_identity import SINK, SinkIdentity
from tallystick.rocketmq.wire.values import RequestCode, ResponseCode

QUERY, GAP, DIFFERS = ResponseCode.SINK_QUERY, ResponseCode.SINK_GAP, ResponseCode.SINK_DIFFERS


class Sink:
    """Sends to one broker."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer

    async def send(self, some: list[SinkIdentity]) -> Command:
        return await self.peer.ask(sink_command(some, body=b"%d" % some[0].sequence))

    async def code(self, some: list[SinkIdentity]) -> int:
        return (await self.send(some)).code

    async def bodies(self) -> list[bytes]:
        return bodies(await self.peer.ask(pull_command()))

    async def state(self, partition: int = 0, application: str = "app") -> SinkStateResponse:
        header = SinkStateHeader(topic=TOPIC, application=application, partition=partition)
        return SinkStateResponse.of(await self.peer.code(RequestCode.GET_SINK_STATE, header.to_fields()))


async def sink(bench: Bench, broker: Broker | None = None) -> Sink:
    return Sink(await bench.peer(broker or await bench.broker()))


async def test_what_is_stored_is_passed_over_and_the_rest_is_stored(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        own = await sink(bench)
        first = await own.send(identities(0, 2))
        assert (first.code, first.fields["queueOffset"]) == (0, "0")

        async def is_indexed() -> bool:
            again = await own.send(identities(0, 2))
            assert again.code == 0 and again.fields["queueOffset"] in ("-1", "0"), "-1 until the index has it"
            return again.fields["queueOffset"] == "0"

        await until(is_indexed)
        assert (await own.send(identities(1, 3))).fields["queueOffset"] == "2"
        assert await own.code(identities(0, 4)) == 0
        assert await own.bodies() == [b"0", b"0", b"1", b"1"]


async def test_no_message_is_taken_behind_a_gap(tmp_path: Path) -> None:
    """Those before it may be under way: once it was stored they would be taken for stored."""
    async with benched(tmp_path) as bench:
        own = await sink(bench)
        assert await own.code(identities(1, 2)) == GAP
        assert await own.code(identities(0, 1)) == 0
        assert await own.code(identities(2, 1)) == GAP
        assert await own.code(identities(0, 1, batch=1)) == 0
        assert await own.code(identities(2, 1, batch=2)) == GAP
        assert await own.bodies() == [b"0", b"0"]


async def test_a_replay_that_differs_is_refused(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        own = await sink(bench)
        assert await own.code(identities(0, 3)) == 0
        assert await own.code(identities(0, 3, crc=7)) == DIFFERS
        assert await own.code(identities(2, 3, crc=7)) == DIFFERS
        assert await own.code(identities(0, 2, crc=7)) == 0, "nobody knows any more, and the third one will tell"
        assert await own.bodies() == [b"0"] * 3


async def test_a_batch_has_one_number_of_partitions_and_one_query(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        own = await sink(bench)
        assert await own.code(identities(0, 1, batch=5)) == 0
        assert await own.code(identities(0, 1, batch=5, partitions=3)) == ResponseCode.SINK_PARTITIONS
        assert await own.code(identities(0, 1, batch=4)) == QUERY
        assert await own.code(identities(0, 1, batch=6, query="other")) == QUERY
        assert await own.code(identities(0, 1, batch=6, partitions=3)) == 0


async def test_how_far_a_sink_has_come_is_told(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        own = await sink(bench)
        assert await own.state() == SinkStateResponse()
        await own.send(identities(0, 3, batch=5, partition=1))
        assert await own.state(1) == SinkStateResponse(
            query="q", batch=5, partitions=2, brokers="b0", sequence=2, queue_id=0
        )
        assert await own.state(0) == SinkStateResponse(query="q", batch=5, partitions=2, brokers="b0")
        assert await own.state(0, "another") == SinkStateResponse()


async def test_messages_that_are_none_of_a_sink_are_refused(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        own = await sink(bench)
        apart = identities(0, 1) + identities(2, 1)
        assert await own.code(apart) == ResponseCode.SYSTEM_ERROR
        mixed = [identities(0, 2, partition=1)[0], identities(1, 1)[0]]
        assert await own.code(mixed) == ResponseCode.SYSTEM_ERROR, "of one partition each"
        plain = sink_command(identities(0, 1))
        plain.body = encode_batch([(0, b"x", b"KEYS\x01a\x02")])
        assert (await own.peer.ask(plain)).code == ResponseCode.SYSTEM_ERROR
        for text in (
            "app q 0 2 0 0 0",
            "app q 0 2 2 0 0 b",
            "app q x 2 0 0 0 b",
            "app q -1 2 0 0 0 b",
            f"{'a' * 2000} q 0 2 0 0 0 b",
        ):
            plain.body = encode_batch([(0, b"x", f"{SINK}\x01{text}\x02".encode())])
            assert (await own.peer.ask(plain)).code == ResponseCode.SYSTEM_ERROR
        assert await own.bodies() == []


async def test_no_more_sinks_than_allowed(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        settings = bench.settings(store=replace(SMALL, max_sink_partitions=1))
        own = await sink(bench, await bench.broker(settings))
        assert await own.code(identities(0, 1)) == 0
        assert await own.code(identities(0, 1, partition=1)) == ResponseCode.SINK_FULL
        assert await own.code(identities(1, 1)) == 0


async def test_the_next_batch_of_a_sink_has_the_places_of_its_last_one(tmp_path: Path) -> None:
    """Else whoever fills the table ends all queries that there are."""
    async with benched(tmp_path) as bench:
        settings = bench.settings(store=replace(SMALL, max_sink_partitions=2))
        own = await sink(bench, await bench.broker(settings))
        for batch in range(3):
            for partition in range(2):
                assert await own.code(identities(0, 1, batch=batch, partition=partition)) == 0
        three = identities(0, 1, batch=3, partition=2, partitions=3)
        assert await own.code(three) == 0, "it takes the place of two"
        assert await own.code(identities(0, 1, batch=3, partition=0, partitions=3)) == 0
        assert await own.code(identities(0, 1, batch=3, partition=1, partitions=3)) == ResponseCode.SINK_FULL


async def test_what_others_copied_with_an_identity_is_no_message_of_a_sink(tmp_path: Path) -> None:
    """Else a forwarder could make a slave believe that messages are stored which are not."""
    async with benched(tmp_path) as bench:
        own = await sink(bench)
        (copied,) = identities(9, 1)
        properties = f"KEYS\x01a\x02{SINK}\x01{copied.text}\x02"
        assert (await own.peer.ask(send_command(properties=properties))).code == 0
        batch = encode_batch([(0, b"y", properties.encode())])
        assert (await own.peer.ask(send_command(body=batch, batch=True))).code == 0
        answer = await own.peer.ask(pull_command())
        assert len(bodies(answer)) == 2 and SINK.encode() not in bytes(answer.body)
        assert b"KEYS" in bytes(answer.body)


async def test_a_broker_that_starts_again_knows(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        broker = await bench.broker()
        own = await sink(bench, broker)
        assert await own.code(identities(0, 3)) == 0
        await broker.stop()
        own = await sink(bench)
        assert await own.code(identities(1, 4)) == 0
        assert await own.bodies() == [b"0"] * 3 + [b"1"] * 2


async def pair(bench: Bench, **settings: object) -> tuple[Broker, Broker]:
    master = await bench.broker(bench.settings("master", **settings))
    slave = await bench.broker(bench.settings("slave", role=Role.SLAVE, broker_id=1))
    slave.log.follow("{}:{}".format(*master.ha_address or ()))
    return master, slave


async def test_a_slave_that_becomes_a_master_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with benched(tmp_path) as bench:
        master, slave = await pair(bench)
        own = await sink(bench, master)
        assert await own.code(identities(0, 3)) == 0
        await until(lambda: slave.parts.store.reput_offset == master.parts.store.end)
        learnt_on, learn = list[threading.Thread](), slave.parts.store.sinks.learn

        def noted(rows: Iterable[SinkBatch], end: int) -> None:
            learnt_on.append(threading.current_thread())
            learn(rows, end)

        monkeypatch.setattr(slave.parts.store.sinks, "learn", noted)
        await slave.sync.sync("{}:{}".format(*master.address))
        assert not slave.sync.status.failures
        assert learnt_on and threading.main_thread() not in learnt_on, "there may be very many"
        refused = await sink(bench, slave)
        assert await refused.code(identities(3, 1)) == ResponseCode.SYSTEM_BUSY
        header = SinkStateHeader(topic=TOPIC, application="app", partition=0)
        told = await refused.peer.code(RequestCode.GET_SINK_STATE, header.to_fields())
        assert told.code == ResponseCode.SYSTEM_BUSY, "it may lack what its master has"
        named = ForgetSinkHeader(topic=TOPIC, application="app", force=True)
        assert (await refused.peer.code(RequestCode.FORGET_SINK, named.to_fields())).code != 0
        assert ("T", "app") in newest_of(slave.parts.store.sinks), "only a master forgets"
        await master.stop()
        await slave.take_role(Role.ASYNC_MASTER, 0)
        own = await sink(bench, slave)
        assert await own.code(identities(1, 4)) == 0
        assert await own.bodies() == [b"0"] * 3 + [b"1"] * 2
        assert newest_of(slave.parts.store.sinks)["T", "app"][2] == {0: 4}


async def test_who_has_a_sink_forgotten_waits_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And who asks again, as it could not be made durable, does so too."""
    async with benched(tmp_path) as bench:
        own = await sink(bench)
        assert await own.code(identities(0, 3)) == 0
        noted_on, note = list[threading.Thread](), MessageStore.note_sinks

        def fails(store: MessageStore) -> None:
            raise StorageError("a disk that has no room")

        def notes(store: MessageStore) -> None:
            noted_on.append(threading.current_thread())
            note(store)

        fields = ForgetSinkHeader(topic=TOPIC, application="app", force=True).to_fields()
        monkeypatch.setattr(MessageStore, "note_sinks", fails)
        for _ in range(2):
            failed = await own.peer.code(RequestCode.FORGET_SINK, fields)
            assert failed.code == ResponseCode.SYSTEM_ERROR and "cannot be made durable" in str(failed.remark)
        monkeypatch.setattr(MessageStore, "note_sinks", notes)
        assert (await own.peer.code(RequestCode.FORGET_SINK, fields)).code == ResponseCode.QUERY_NOT_FOUND
        assert await own.code(identities(0, 3)) == 0
        assert (await own.peer.code(RequestCode.FORGET_SINK, fields)).code == 0
        assert len(noted_on) == 2 and threading.main_thread() not in noted_on
        fields["application"] = "nobody"
        assert (await own.peer.code(RequestCode.FORGET_SINK, fields)).code == ResponseCode.QUERY_NOT_FOUND
        assert len(noted_on) == 2, "each name that a stranger thinks of costs nothing"


async def test_no_sink_is_forgotten_while_too_much_waits_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with benched(tmp_path) as bench:
        own = await sink(bench)
        assert await own.code(identities(0, 3)) == 0
        fields = ForgetSinkHeader(topic=TOPIC, application="app", force=True).to_fields()
        with monkeypatch.context() as busy:
            busy.setattr(responses, "MAX_DELETIONS", 0)
            assert (await own.peer.code(RequestCode.FORGET_SINK, fields)).code == ResponseCode.SYSTEM_BUSY
        assert (await own.peer.code(RequestCode.FORGET_SINK, fields)).code == 0


async def test_a_repeated_send_waits_for_slaves_as_the_first_did(tmp_path: Path) -> None:
    """It is stored at the master alone: who hears of success would lose it with the master."""
    async with benched(tmp_path) as bench:
        ha = HaSettings(slave_timeout_ms=200)
        own = await sink(bench, await bench.broker(bench.settings(role=Role.SYNC_MASTER, ha=ha)))
        late = {ResponseCode.FLUSH_SLAVE_TIMEOUT, ResponseCode.SLAVE_NOT_AVAILABLE}
        assert await own.code(identities(0, 3)) in late
        assert await own.code(identities(0, 3)) in late
        assert await own.code(identities(1, 1)) in late
        assert await own.bodies() == [b"0"] * 3


async def test_the_rest_of_a_batch_waits_for_what_is_stored_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The response speaks for all of the batch: a slave that began between its two parts has the second one alone. So
    it is when the batch comes once more, of which all is stored by then."""
    async with benched(tmp_path) as bench:
        broker = await bench.broker(bench.settings(role=Role.SYNC_MASTER, ha=HaSettings(slave_timeout_ms=200)))
        own, spans, wait = await sink(bench, broker), list[tuple[int, int]](), broker.log.wait

        def counted(first_end: int, end: int) -> Settled:
            spans.append((first_end, end))
            return wait(first_end, end)

        monkeypatch.setattr(broker.log, "wait", counted)
        await own.code(identities(0, 2))
        await until(lambda: broker.log.store.reput_offset == broker.log.store.end)
        for _ in range(2):
            await own.code(identities(0, 4))
        (_, stored_end), *more = spans
        end = broker.log.store.end
        [record] = broker.log.store.query(TOPIC, "0-0-0", 1, 0, 1 << 62, IndexType.UNIQUE)
        assert more == [(len(record), end)] * 2 and stored_end < end
        await own.code(identities(1, 3))
        assert spans.pop() == (stored_end, end)


async def test_of_a_batch_that_may_not_be_found_yet_only_a_slave_with_all_of_the_log_is_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with benched(tmp_path) as bench:
        broker = await bench.broker(bench.settings(role=Role.SYNC_MASTER, ha=HaSettings(slave_timeout_ms=200)))
        own, first_ends, wait = await sink(bench, broker), list[int](), broker.log.wait

        def counted(first_end: int, end: int) -> Settled:
            first_ends.append(first_end)
            return wait(first_end, end)

        monkeypatch.setattr(broker.log, "wait", counted)
        await own.code(identities(0, 1))
        await own.peer.ask(send_command())  # so that the queue alone does not say where the first one is
        await own.code(identities(1, 1))
        end = broker.log.store.end
        monkeypatch.setattr(MessageStore, "look_for", lambda *args: iter(()))
        monkeypatch.setattr(MessageStore, "reput_offset", end - 1)
        await own.code(identities(0, 2))
        monkeypatch.setattr(MessageStore, "reput_offset", end)
        await own.code(identities(0, 2))
        assert first_ends[-2:] == [1, end], "what a whole index lacks is gone"
        monkeypatch.setattr(MessageStore, "has_whole_index", False)  # a part of it is being built again
        await own.code(identities(0, 2))
        assert first_ends[-1] == 1


@pytest.mark.parametrize("is_alone", [True, False])
async def test_without_an_index_a_slave_that_began_within_a_batch_is_no_copy_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_alone: bool
) -> None:
    """Nobody found where the batch begins, and its end stood for that: who had the end alone was a copy of all of it.
    A sink keeps to one queue, where its messages stand one after another, if nobody else sends there."""
    async with benched(tmp_path) as bench:
        settings = bench.settings(role=Role.SYNC_MASTER, ha=HaSettings(slave_timeout_ms=200))
        broker = await bench.broker(replace(settings, store=replace(settings.store, index=False)))
        own, spans, wait = await sink(bench, broker), list[tuple[int, int]](), broker.log.wait

        def counted(first_end: int, end: int) -> Settled:
            spans.append((first_end, end))
            return wait(first_end, end)

        monkeypatch.setattr(broker.log, "wait", counted)
        await own.code(identities(0, 1))
        if not is_alone:
            await own.peer.ask(send_command())
        await own.code(identities(1, 3))
        first_end, end = spans[0][0], broker.log.store.end
        await until(lambda: broker.log.store.reput_offset == end)
        await own.code(identities(0, 4))
        assert spans.pop() == (first_end if is_alone else 1, end)


async def test_what_retention_took_is_waited_for_by_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A query that is started again repeats its last message, however old that is: no slave will ever have it."""
    file_bytes = 64 * 1024
    async with benched(tmp_path) as bench:
        settings = bench.settings(role=Role.SYNC_MASTER, store=replace(SMALL, commit_log_file_bytes=file_bytes))
        master = await bench.broker(settings)
        own, late = await sink(bench, master), ResponseCode.SLAVE_NOT_AVAILABLE
        assert await own.code(identities(0, 2)) == late
        for _ in range(3):
            assert (await own.peer.ask(send_command(body=bytes(30_000)))).code == late
        slave = await bench.broker(bench.settings("slave", role=Role.SLAVE, broker_id=1, store=settings.store))
        slave.log.follow("{}:{}".format(*master.ha_address or ()))
        await until(lambda: slave.parts.store.end == master.parts.store.end)
        assert await own.code(identities(0, 2)) == late, "it began behind that"
        oldest = slave.parts.store.first
        monkeypatch.setattr(MessageStore, "first", oldest)
        assert await own.code(identities(0, 2)) == 0
        assert await own.code(identities(1, 3)) == 0, "the slave has all that the master has of it"


async def test_sends_of_one_turn_keep_their_order(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        own = await sink(bench)
        opaques = [own.peer.send(sink_command(identities(number, 1))) for number in (0, 1, 1, 2)]
        opaques.insert(2, own.peer.send(send_command(body=b"other")))
        assert [(await own.peer.answer(opaque)).code for opaque in opaques] == [0] * 5
        assert sorted(await own.bodies()) == [b"other", b"x", b"x", b"x"]


async def test_a_repeated_message_is_found_by_its_place_or_its_key(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        own = await sink(bench)
        await fill(own.peer, 2)
        for number in range(3):
            await own.send(identities(number, 1))
        await own.bodies()  # all is dispatched
        unknown = sink_command(identities(0, 1))
        unknown.body = encode_batch([(0, b"x", sink_messages(identities(0, 1))[0][2].replace(b"0-0-0", b"no"))])
        assert (await own.peer.ask(unknown)).fields["queueOffset"] == "2"
        await fill(own.peer, 1)
        await own.send(identities(3, 1))
        await own.bodies()
        assert (await own.send(identities(1, 1))).fields["queueOffset"] == "3", "by its key: one is in between"
        assert (await own.peer.ask(unknown)).fields["queueOffset"] == "-1"
