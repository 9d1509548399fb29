"""``tally topic``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from tallystick.cli.options import NAME_SERVERS, Json, NameServers

if TYPE_CHECKING:
    from tallystick.admin.topics import TopicAt

app = App(name="topic", help="Create topics; show which brokers have them.")

Name = Annotated[str, Parameter(help="The topic's name.")]


@app.command
def create(
    topic: Name,
    /,
    *,
    queues: Annotated[
        int | None, Parameter(help="How many queues are written at each broker; 4 for a new topic.")
    ] = None,
    cluster: Annotated[str | None, Parameter(help="Only at the masters of this cluster.")] = None,
    broker: Annotated[str | None, Parameter(help="Only at this master.")] = None,
    servers: NameServers = NAME_SERVERS,
    json: Json = False,
) -> None:
    """Create a topic at all masters, or change how many of its queues are written. Slaves copy it from their master.

    A topic that is there stays as it is without --queues; queues that are there stay readable.

    Example: `tally topic create Orders --queues 8`
    """
    import asyncio

    from tallystick.admin import brokers, topics
    from tallystick.cli import output

    async def create() -> list[TopicAt]:
        async with brokers.operator(servers.resolve()) as operator:
            return await topics.create_topic(operator, topic, queues=queues, cluster=cluster, broker=broker)

    made = asyncio.run(create())
    if json:
        output.json_line({"topic": topic, "brokers": [_row(one) for one in made]})
        return
    for one in made:
        more = f"; {one.read_queues} are read, as it had so many" if one.read_queues > one.write_queues else ""
        print(f"topic {topic} with {output.counted(one.write_queues, 'queue', 'queues')} at {one.broker}{more}")


@app.command(name="list")
def list_(
    *,
    system: Annotated[bool, Parameter(help="Also topics that brokers have for themselves.")] = False,
    servers: NameServers = NAME_SERVERS,
    json: Json = False,
) -> None:
    """List the topics and the brokers that have them.

    Example: `tally topic list`
    """
    import asyncio

    from tallystick.admin import brokers, topics
    from tallystick.cli import output

    async def found() -> tuple[list[TopicAt], str]:
        name_servers = servers.resolve()
        async with brokers.operator(name_servers) as operator:
            found = await topics.list_topics(operator, system=system)
            some = found or await brokers.list_processes(operator)
            return found, "no topics" if some else brokers.no_brokers(name_servers)

    listed, empty = asyncio.run(found())
    output.rows([_row(one) for one in listed], json=json, empty=empty)


@app.command
def route(topic: Name, /, *, servers: NameServers = NAME_SERVERS, json: Json = False) -> None:
    """Show where a topic is: its queues at each broker, and where the master and its slaves answer.

    Example: `tally topic route Orders`
    """
    import asyncio

    from tallystick.admin import brokers, topics
    from tallystick.cli import output

    async def found() -> list[TopicAt]:
        name_servers = servers.resolve()
        async with brokers.telling_no_brokers(name_servers), brokers.operator(name_servers) as operator:
            return await topics.topic_route(operator, topic)

    rows = [{**_row(one), "master": one.master, "slaves": list(one.slaves)} for one in asyncio.run(found())]
    output.rows(rows, json=json, empty="no broker has it now")


def _row(one: TopicAt) -> dict[str, Any]:
    from tallystick.rocketmq.wire.values import Perm

    return {
        "topic": one.topic,
        "broker": one.broker,
        "read_queues": one.read_queues,
        "write_queues": one.write_queues,
        "perm": ("R" if one.perm & Perm.READ else "-") + ("W" if one.perm & Perm.WRITE else "-"),
    }
