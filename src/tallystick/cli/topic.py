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
    queues: Annotated[int, Parameter(help="How many queues at each broker.")] = 4,
    cluster: Annotated[str | None, Parameter(help="Only at the masters of this cluster.")] = None,
    broker: Annotated[str | None, Parameter(help="Only at this master.")] = None,
    servers: NameServers = NAME_SERVERS,
    json: Json = False,
) -> None:
    """Create a topic at all masters, or change how many queues it has. Slaves copy it from their master.

    Example: `tally topic create Orders --queues 8`
    """
    import asyncio

    from tallystick.admin import brokers, topics
    from tallystick.cli import output

    async def create() -> list[brokers.Process]:
        async with brokers.operator(servers.resolve()) as operator:
            return await topics.create_topic(operator, topic, queues=queues, cluster=cluster, broker=broker)

    made = asyncio.run(create())
    if json:
        output.json_line({"topic": topic, "queues": queues, "brokers": [master.broker for master in made]})
    else:
        at = ", ".join(master.broker for master in made)
        print(f"topic {topic} with {output.counted(queues, 'queue', 'queues')} at {at}")


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
