"""``tally ha``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from tallystick.cli import NOT_WELL
from tallystick.cli.options import NAME_SERVERS, NUMBER, Json, NameServersOption

if TYPE_CHECKING:
    from tallystick.admin.ha import Replication

app = App(name="ha", help="How far the slaves are behind their masters.")

LONGEST_S = 86_400  # between two looks


@app.command
def status(
    *,
    watch: Annotated[bool, Parameter(help="Show it again and again, until interrupted.")] = False,
    every: Annotated[float, NUMBER, Parameter(help="Seconds between two looks with --watch.")] = 1.0,
    expect: Annotated[
        tuple[str, ...], Parameter(help="A broker set (its brokerName) that has to be registered. Repeatable.")
    ] = (),
    servers: NameServersOption = NAME_SERVERS,
    json: Json = False,
) -> int:
    """Show for each slave how far it is behind its master, whether it is in sync, and else why not.

    Exit code 3 when one is not, cannot copy its master's tables, or does not know where its master's queues end; when
    a SYNC_MASTER has no slave; when no broker is registered; and when nothing of a set is that --expect names.

    Behind is counted in bytes of the log, in messages that the slave's queues do not have yet, and in seconds since
    the master stored the first byte that the slave lacks. metadata_age is how long ago the slave last copied the
    topics, groups and consumer offsets. ends_known: whether the slave could be started as a master now and go on where
    the queues ended; else that takes queueEndsMayBeUnknown=true.

    Example: `tally ha status --watch --every 2`
    """
    import asyncio

    from tallystick.errors import UsageError

    if not 0 < every <= LONGEST_S:  # neither is nan
        raise UsageError(f"--every is above 0 seconds and at most {LONGEST_S}", given=every)
    return asyncio.run(_show(servers.resolve(), every if watch else None, expect, json))


async def _show(servers: str, every_s: float | None, expected_brokers: tuple[str, ...], json: bool) -> int:
    import asyncio
    import sys
    import time

    from tallystick.admin import brokers, ha
    from tallystick.cli import output

    async with brokers.operator(servers) as operator:
        while True:
            replications = await ha.ha_status(operator, expected_brokers)
            rows = [_row(one) for one in replications]
            if every_s is not None and json:
                rows = [{"at_ms": int(time.time() * 1000), **row} for row in rows]
            elif every_s is not None:
                output.clear()
            output.rows(rows, json=json, empty=brokers.no_brokers(servers))
            sys.stdout.flush()
            if every_s is None:
                return 0 if replications and all(map(is_well, replications)) else NOT_WELL
            await asyncio.sleep(every_s)


def is_well(one: Replication) -> bool:
    """Whether the slave answers, is in sync, has its master's tables and knows where its queues end; a master without
    slaves is well if it waits for none."""
    return one.answers and one.in_sync is not False and one.tables_copied and one.ends_known is not False


def _row(one: Replication) -> dict[str, Any]:
    return {
        "broker": one.broker,
        "slave": one.slave,
        "in_sync": one.in_sync,
        "behind_bytes": one.behind_bytes,
        "behind_messages": one.behind_messages,
        "behind_s": None if one.behind_s is None else round(one.behind_s, 2),
        "metadata_age_s": None if one.metadata_age_s is None else round(one.metadata_age_s, 1),
        "ends_known": one.ends_known,
        "why": one.why or None,
    }
