"""What the modules of requests share: answers that come later, refusals, and pages of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from tallystick.errors import BrokerError
from tallystick.rocketmq.broker.parts import Parts
from tallystick.rocketmq.remoting.dispatch import Reply
from tallystick.rocketmq.store.deletion import Deletion
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import ResponseCode

OK = ResponseCode.SUCCESS
NOT_SET = "not set any response code"  # the remark of some good answers of the original
MAX_BODY_BYTES = 16 * 1024 * 1024 - 1024  # a frame has 16 MiB, its header takes some of them
MAX_DELETIONS = 64  # that wait for the disk
MAX_LIST = 1000  # topics or groups that one request makes: it is done in one turn of the loop
MAX_LIST_BYTES = 1024 * 1024  # of such a list
MAX_TOLD = 100  # of a list that are told one by one


def refusal(code: ResponseCode, remark: str) -> BrokerError:
    """To raise: it becomes the answer."""
    return BrokerError(remark, response_code=code)


def check_is_master(parts: Parts) -> None:
    """Raises BrokerError on a slave: its tables are its master's, what is made here would go with the next copy."""
    if parts.standing.is_slave:
        remark = "Can't modify topic or subscription group from slave broker, please execute it from master broker."
        raise refusal(ResponseCode.SYSTEM_ERROR, remark)


def check_list(count: int, what: str) -> None:
    """Raises BrokerError for a list that is too long for one turn of the loop."""
    if count > MAX_LIST:
        remark = f"A list has at most {MAX_LIST} {what}, this one has {count}: send it in parts."
        raise refusal(ResponseCode.INVALID_PARAMETER, remark)


def left_to_master(command: Command) -> Command:
    """What a slave says to a deletion; nothing is changed here.

    The original's tools ask each broker in turn, so it is no refusal. Only the master knows which records are from
    before a deletion: what it tells of comes with the next copy of the tables, and of nothing else.
    """
    return command.response(OK, "This is a slave: it deletes what its master deletes.")


def check_deletions(parts: Parts) -> None:
    """Raises BrokerError while too many deletions wait for the disk. Call it before a topic is deleted."""
    if parts.deletions.waiting >= MAX_DELETIONS or parts.store.remembers_no_more:
        remark = "too many deletions wait for the disk: ask again later"
        raise refusal(ResponseCode.SYSTEM_BUSY, remark)


def answer_after(parts: Parts, deletion: Deletion, answer: Command, reply: Reply) -> None:
    """The answer when the deletion is durable; it says so if it cannot be."""

    def done(error: Exception | None) -> None:
        if error is not None:
            answer.code = ResponseCode.SYSTEM_ERROR
            answer.remark = f"it was done, but cannot be made durable: {error}"
        reply(answer)

    parts.deletions.finish(deletion, done)


def answer_behind(parts: Parts, answer: Command, steps: Iterable[None], reply: Reply) -> None:
    """The answer when these steps, which change something, are done; others have their turns in between. It says so if
    they are not: then the same can be asked again."""

    def done(made: list[None] | Exception) -> None:
        if isinstance(made, Exception):
            _failed(answer, made)
        reply(answer)

    parts.sliced(reply.steps(steps), done, reply.link.host)


def answer_in_slices(
    parts: Parts, answer: Command, pieces: Iterable[bytes], too_long: str, reply: Reply, *,
    failed: Callable[[str], None] = lambda _: None, then: Callable[[Command], None] | None = None,
) -> None:  # fmt: skip
    """The answer whose body are the pieces, each made in well under a millisecond; others have their turns in between.

    It is refused, with the remark ``too_long``, as soon as the pieces are more than a frame takes; and not made where
    nobody waits for it. ``failed`` hears the remark of an answer without a body. ``then`` gets the answer first, and
    gives it to ``reply``.
    """

    def made(pieces: list[bytes] | Exception) -> None:
        if not reply.is_wanted:
            return
        if isinstance(pieces, Exception):
            _failed(answer, pieces)
            failed(answer.remark or "")
        else:
            answer.body = b"".join(pieces)
        (then or reply)(answer)

    parts.sliced(_bounded(reply.steps(pieces), too_long, reply), made, reply.link.host)


def _failed(answer: Command, error: Exception) -> None:
    if isinstance(error, BrokerError):
        answer.code, answer.remark = error.response_code, error.message
    else:
        answer.code, answer.remark = ResponseCode.SYSTEM_ERROR, repr(error)


def _bounded(pieces: Iterable[bytes], too_long: str, reply: Reply) -> Iterator[bytes]:
    """They end when nobody waits for them. Raises BrokerError when they are more than a frame takes."""
    size = 0
    for piece in pieces:
        if not reply.is_wanted:
            return
        size += len(piece)
        if size > MAX_BODY_BYTES:
            raise refusal(ResponseCode.SYSTEM_ERROR, f"more than the {MAX_BODY_BYTES} bytes of a frame: {too_long}")
        yield piece
