"""``tally group``."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from tallystick.cli.options import NAME_SERVERS, Json, NameServersOption

app = App(name="group", help="Groups of consumers, and how far they are behind.")


@app.command(name="list")
def list_(*, servers: NameServersOption = NAME_SERVERS, json: Json = False) -> None:
    """List the groups: how many members are connected, what they consumed, how many messages they are behind.

    Example: `tally group list`
    """
    import asyncio

    from tallystick.admin import brokers, groups
    from tallystick.cli import output

    async def statuses() -> list[groups.GroupStatus]:
        async with brokers.operator(servers.resolve()) as operator:
            return await groups.list_groups(operator)

    rows = [
        {"group": one.name, "members": one.members, "lag": one.behind, "topics": list(one.topics)}
        for one in asyncio.run(statuses())
    ]
    output.rows(rows, json=json, empty="no groups")


@app.command
def lag(
    group: Annotated[str, Parameter(help="The group's name.")],
    /,
    *,
    servers: NameServersOption = NAME_SERVERS,
    json: Json = False,
) -> None:
    """Show where a group stands in each queue: the next offset that it gets, where the queue ends, what is between.

    Offsets are those that members have committed, every 5 s by default; what they hold unacknowledged counts as behind.

    Example: `tally group lag billing`
    """
    import asyncio

    from tallystick.admin import brokers, groups
    from tallystick.cli import output

    async def offsets() -> list[groups.QueueBehind]:
        async with brokers.operator(servers.resolve()) as operator:
            return await groups.group_lag(operator, group)

    rows = [
        {"topic": one.topic, "queue": f"{one.broker}:{one.queue}", "offset": one.offset, "end": one.end, "lag": one.lag}
        for one in asyncio.run(offsets())
    ]
    output.rows(rows, json=json, empty="")
