"""The errors of reads to which a replica, or every replica, gave no entry (Q15, Q17)."""

from __future__ import annotations

from collections.abc import Mapping

from tallystick.bookkeeper.ledger.ranges import Range
from tallystick.bookkeeper.wire.codes import NO_CODES, Code
from tallystick.bookkeeper.wire.values import BookieId
from tallystick.errors import BookieUnavailable, NoSuchEntry, TallyError, Unauthorized, Unavailable


def about(piece: Range) -> dict[str, int]:
    """Return the fields of an error about the piece's first entry."""
    return {"ledger": piece.ledger, "entry": piece.first}


def check_code(code: Code, piece: Range, bookie: BookieId) -> None:
    """Raise the error of a read that got another code than OK."""
    if code == Code.OK:
        return
    if code in NO_CODES:
        raise NoSuchEntry("the bookies do not have this entry", bookie=bookie, **about(piece))
    if code == Code.UNAUTHORIZED:
        raise Unauthorized("it refuses to be read with this password, or by this user", bookie=bookie, **about(piece))
    raise Unavailable("it cannot read this entry now", bookie=bookie, answer=code.name, **about(piece))


def failure_of_all(failures: Mapping[BookieId, TallyError], piece: Range) -> TallyError:
    """Return the failure to report when no replica gave the entry, with the reason of each."""
    failure: TallyError | None = None
    for error in failures.values():
        failure = _weightier(failure, error)
    assert failure is not None, "an ensemble is never empty"
    replicas = "; ".join(f"{bookie}: {_cause(error)}" for bookie, error in failures.items())
    nowhere = isinstance(failure, NoSuchEntry)
    message = "no replica has this entry" if nowhere else "no replica gave this entry"
    return type(failure)(message, **about(piece), replicas=replicas)


def _cause(error: TallyError) -> str:
    """Return why one replica gave nothing."""
    return "it does not have the entry" if isinstance(error, NoSuchEntry) else error.message


def _weightier(first: TallyError | None, second: TallyError) -> TallyError:
    """Choose the failure to report: "no" gives way to any other, an unreachable bookie to what another one said."""
    if first is None or isinstance(first, NoSuchEntry):
        return second
    gives_way = isinstance(first, BookieUnavailable) and not isinstance(second, NoSuchEntry)
    return second if gives_way else first
