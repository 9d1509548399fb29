"""How many questions to clients may wait for their answers."""

from __future__ import annotations

from typing import Any, cast

from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.remoting.questions import MAX_OF_LINK, MAX_WAITING, Questions
from tallystick.rocketmq.wire.remoting import Command, request


class Client:
    def __init__(self) -> None:
        self.asked: list[int] = []

    def send(self, command: Command) -> None:
        self.asked.append(command.opaque)


class Bench:
    def __init__(self) -> None:
        self.questions, self.ended = Questions(), list[Any]()

    def ask(self, client: Client) -> bool:
        return self.questions.ask(cast("Link", client), request(307), 60.0, self.ended.append)


async def test_one_client_that_answers_nothing_is_asked_no_more() -> None:
    """400,000 questions once waited, and each connection that ended walked through all of them."""
    bench, silent, other = Bench(), Client(), Client()
    assert [bench.ask(silent) for _ in range(MAX_OF_LINK + 2)] == [True] * MAX_OF_LINK + [False] * 2
    assert len(silent.asked) == MAX_OF_LINK and bench.ask(other)
    answer = request(307).answer(0)
    answer.opaque = silent.asked[0]
    bench.questions.answered(cast("Link", other), answer)  # not asked of that one
    assert bench.ended == []
    bench.questions.answered(cast("Link", silent), answer)
    assert bench.ended == [answer] and bench.ask(silent)
    bench.questions.closed(cast("Link", silent))
    assert bench.ended == [answer] + [None] * MAX_OF_LINK and bench.questions.waiting == 1
    assert bench.ask(silent)


async def test_all_clients_together_are_asked_a_bounded_number() -> None:
    bench = Bench()
    clients = [Client() for _ in range(MAX_WAITING)]
    assert all(bench.ask(client) for client in clients)
    late = Client()
    assert not bench.ask(late) and late.asked == []
    bench.questions.closed(cast("Link", clients[0]))
    assert bench.ask(late)
    for client in [*clients, late]:
        bench.questions.closed(cast("Link", client))
    assert bench.questions.waiting == 0 and bench.questions._of_link == {}
