"""May a slave take its master's tables now? Only from a master whose log is its own log's continuation (H12, R3).

A master that lost its disk comes back with empty tables at the address of the one before; so does one that a name
server names by mistake. What it has is taken only

- while the HA link that is up now carries a log that this master proved to be the slave's (it named its process in the
  hello, and answers for tables only to whoever names it);
- from an original master, which proves nothing, while its log reaches at least as far as the slave's; a master of ours
  whose hello came too late is followed as an original is, but refuses requests that name it ``UNPROVEN``;
- at once, if the slave has no message yet: then nothing is lost.

All of it is looked at before a table is asked for, and again before it replaces anything.
"""

from __future__ import annotations

from dataclasses import dataclass

from tallystick.rocketmq.ha.status import FollowStatus

UNPROVEN = "unproven"  # no process has that name


@dataclass(frozen=True)
class Proof:
    """The evidence for the master when a round begins."""

    link: int  # of the HA link, 0: none is needed
    by_end: bool  # the end of the master's log is all that can be compared
    instance: str  # the name of the master's process in requests; empty: whoever is there may respond


def proof_of(status: FollowStatus) -> Proof | str:
    """Returns what must hold during a round, or why none may begin."""
    if status.end == 0:
        return Proof(0, by_end=False, instance="")
    if not status.link:
        why = status.why or status.state
        return f"the master's log is not known to be this one's continuation: {why}"
    if not status.proven:
        return Proof(status.link, by_end=True, instance=UNPROVEN)
    instance = status.master_hello.instance if status.master_hello is not None else ""
    return Proof(status.link, by_end=False, instance=instance)


def objection(proof: Proof, status: FollowStatus, master_end: int | None) -> str | None:
    """Returns why a table that came is not taken, or None if nothing speaks against it.

    ``master_end`` is where the master's log ends, asked after the table came; None if the proof does not need it.
    """
    if not proof.link and status.end:
        return "the first messages came while the tables did: tables are copied in seconds, once the log is proven"
    if proof.link and status.link != proof.link:
        return "the master's log was lost sight of while its tables came"
    if master_end is not None and master_end < status.end:
        return f"the master's log ends at {master_end}, before this one's end {status.end}: it lost messages"
    return None
