"""What the modules of requests share: answers that come later, refusals, and pages of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from tallystick.errors import BrokerError
from tallystick.rocketmq.broker.parts import Parts
from tallystick.rocketmq.remoting.dispatch import Reply
from tallystick.rocketmq.store.deletion import Deletion
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import ResponseCode

OK = ResponseCode.SUCCESS
NOT_SET = "not set any response code"  # the remark of some successful responses of the original
MAX_BODY_BYTES = 16 * 1024 * 1024 - 1024  # a frame has 16 MiB, its header takes some of them
MAX_DELETIONS = 64  # that wait for the disk
MAX_LIST = 1000  # topics or groups that one request makes: it is done in one turn of the loop
MAX_LIST_BYTES = 1024 * 1024  # of such a list
MAX_EVENTS = 100  # entries of a list with an event each


def refusal(code: ResponseCode, remark: str) -> BrokerError:
    """Returns an error to raise: it becomes the response."""
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


def respond_unchanged(command: Command) -> Command:
    """Returns a slave's response to a deletion; nothing is changed here.

    The original's tools ask each broker in turn, so it is no refusal. Only the master knows which records are from
    before a deletion: its deletions come with the next copy of the tables.
    """
    return command.response(OK, "This is a slave: it deletes what its master deletes.")


def check_deletions(parts: Parts) -> None:
    """Raises BrokerError while too many deletions wait for the disk. Call it before a topic is deleted."""
    if parts.store.replicated.is_full:
        raise _too_many()
    check_pending(parts)


def check_pending(parts: Parts) -> None:
    """The same before anything else goes that is noted on the disk."""
    if parts.deletions.pending_count >= MAX_DELETIONS:
        raise _too_many()


def _too_many() -> BrokerError:
    return refusal(ResponseCode.SYSTEM_BUSY, "too many deletions wait for the disk: ask again later")


def respond_after(parts: Parts, deletion: Deletion, response: Command, reply: Reply) -> None:
    """Respond when the deletion is durable; the response says so if it cannot be."""
    parts.deletions.finish(deletion, partial(_respond_durable, response, reply))


def respond_when_noted(parts: Parts, note: Callable[[], None], response: Command, reply: Reply) -> None:
    """The same of anything else that ``note`` makes durable, on a thread."""
    parts.deletions.note(note, partial(_respond_durable, response, reply))


def _respond_durable(response: Command, reply: Reply, error: Exception | None) -> None:
    if error is not None:
        response.code = ResponseCode.SYSTEM_ERROR
        response.remark = f"it was done, but cannot be made durable: {error}"
    reply(response)


def respond_when_done(parts: Parts, response: Command, steps: Iterable[None], reply: Reply) -> None:
    """Respond when these steps, which change something, are done; others have their turns in between. The response
    says so if they fail: then the same can be asked again."""

    def done(outcome: list[None] | Exception) -> None:
        if isinstance(outcome, Exception):
            _failed(response, outcome)
        reply(response)

    parts.make_slices(reply.steps(steps), done, reply.link.host)


def respond_in_slices(
    parts: Parts,
    response: Command,
    pieces: Iterable[bytes],
    too_long: str,
    reply: Reply,
    *,
    failed: Callable[[str], None] = lambda _: None,
    then: Callable[[Command], None] | None = None,
) -> None:
    """Respond with the pieces as the body, each made in well under a millisecond; others have their turns in between.

    The request is refused, with the remark ``too_long``, as soon as the pieces are more than a frame takes; no body is
    made where nobody waits for it. ``failed`` gets the remark of a response without a body. ``then`` gets the response
    first, and passes it to ``reply``.
    """

    def done(outcome: list[bytes] | Exception) -> None:
        if not reply.is_wanted:
            return
        if isinstance(outcome, Exception):
            _failed(response, outcome)
            failed(response.remark or "")
        else:
            response.body = b"".join(outcome)
        (then or reply)(response)

    parts.make_slices(_bounded(reply.steps(pieces), too_long, reply), done, reply.link.host)


def _failed(response: Command, error: Exception) -> None:
    if isinstance(error, BrokerError):
        response.code, response.remark = error.response_code, error.message
    else:
        response.code, response.remark = ResponseCode.SYSTEM_ERROR, repr(error)


def _bounded(pieces: Iterable[bytes], too_long: str, reply: Reply) -> Iterator[bytes]:
    """Returns the pieces while somebody waits for them. Raises BrokerError when they are more than a frame takes."""
    size = 0
    for piece in pieces:
        if not reply.is_wanted:
            return
        size += len(piece)
        if size > MAX_BODY_BYTES:
            raise refusal(ResponseCode.SYSTEM_ERROR, f"more than the {MAX_BODY_BYTES} bytes of a frame: {too_long}")
        yield piece
