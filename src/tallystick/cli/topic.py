"""``tally topic``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from tallystick.cli.options import NAME_SERVERS, WHOLE, Json, NameServersOption

if TYPE_CHECKING:
    from tallystick.admin.topics import TopicAt

app = App(name="topic", help="Create, show and delete topics.")

Name = Annotated[str, Parameter(help="The topic's name.")]


@app.command
def create(
    topic: Name,
    /,
    *,
    queues: Annotated[
        int | None, WHOLE, Parameter(help="How many queues are written at each broker; 4 for a new topic.")
    ] = None,
    cluster: Annotated[str | None, Parameter(help="Only at the masters of this cluster.")] = None,
    broker: Annotated[str | None, Parameter(help="Only at this master.")] = None,
    servers: NameServersOption = NAME_SERVERS,
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

    brokers_with_topic = asyncio.run(create())
    if json:
        output.json_line({"topic": topic, "brokers": [_row(one) for one in brokers_with_topic]})
        return
    for one in brokers_with_topic:
        more = f"; {one.read_queues} are read, as it had so many" if one.read_queues > one.write_queues else ""
        print(f"topic {topic} with {output.quantity(one.write_queues, 'queue', 'queues')} at {one.broker}{more}")


@app.command(name="list")
def list_(
    *,
    system: Annotated[bool, Parameter(help="Also topics that brokers have for themselves.")] = False,
    servers: NameServersOption = NAME_SERVERS,
    json: Json = False,
) -> None:
    """List the topics and the brokers that have them.

    Example: `tally topic list`
    """
    import asyncio

    from tallystick.admin import brokers, topics
    from tallystick.cli import output

    async def routes() -> tuple[list[TopicAt], str]:
        name_servers = servers.resolve()
        async with brokers.operator(name_servers) as operator:
            listed_topics = await topics.list_topics(operator, system=system)
            some = listed_topics or await brokers.list_processes(operator)
            return listed_topics, "no topics" if some else brokers.no_brokers(name_servers)

    listed_topics, empty = asyncio.run(routes())
    output.rows([_row(one) for one in listed_topics], json=json, empty=empty)


@app.command
def route(topic: Name, /, *, servers: NameServersOption = NAME_SERVERS, json: Json = False) -> None:
    """Show where a topic is: its queues at each broker, and where the master and its slaves answer.

    Example: `tally topic route Orders`
    """
    import asyncio

    from tallystick.admin import brokers, topics
    from tallystick.cli import output

    async def routes() -> list[TopicAt]:
        name_servers = servers.resolve()
        async with brokers.telling_no_brokers(name_servers), brokers.operator(name_servers) as operator:
            return await topics.topic_route(operator, topic)

    rows = [{**_row(one), "master": one.master, "slaves": list(one.slaves)} for one in asyncio.run(routes())]
    output.rows(rows, json=json, empty="no broker has it now")


@app.command
def show(topic: Name, /, *, servers: NameServersOption = NAME_SERVERS, json: Json = False) -> None:
    """Show what is in a topic: the first offset of each queue, its end, how many messages are between.

    Example: `tally topic show Orders`
    """
    import asyncio

    from tallystick.admin import brokers, topics
    from tallystick.cli import output

    async def offsets() -> list[topics.QueueOffsets]:
        name_servers = servers.resolve()
        async with brokers.telling_no_brokers(name_servers), brokers.operator(name_servers) as operator:
            return await topics.topic_queues(operator, topic)

    rows = [
        {"queue": f"{one.broker}:{one.queue}", "first": one.first, "end": one.end, "messages": one.end - one.first}
        for one in asyncio.run(offsets())
    ]
    output.rows(rows, json=json, empty="no broker has it now")


@app.command
def delete(
    topic: Name,
    /,
    *,
    yes: Annotated[bool, Parameter(help="Do not ask.")] = False,
    servers: NameServersOption = NAME_SERVERS,
    json: Json = False,
) -> None:
    """Delete a topic at all brokers, with its messages and where groups stand in it.

    Its masters must be there. Slaves follow within 10 s. A producer may make it anew with its next send.

    Example: `tally topic delete Orders --yes`
    """
    import asyncio
    import sys

    from tallystick.admin import brokers, topics
    from tallystick.cli import output
    from tallystick.errors import UsageError

    name_servers = servers.resolve()
    if not yes:  # asked while an event loop runs, Ctrl-C would not end it
        if not sys.stdin.isatty():
            raise UsageError("deleting cannot be undone: give --yes", topic=topic)
        try:
            answer = input(f"Delete topic {topic} at {name_servers} with its messages for good? [y/N] ")
        except EOFError:
            answer = ""
        if answer.strip().lower() not in ("y", "yes"):
            raise UsageError("not deleted", topic=topic)

    async def delete() -> list[str]:
        async with brokers.telling_no_brokers(name_servers), brokers.operator(name_servers) as operator:
            return await topics.delete_topic(operator, topic)

    deleted = asyncio.run(delete())
    if json:
        output.json_line({"topic": topic, "deleted": True, "brokers": deleted})
    else:
        print(f"topic {topic} deleted at {', '.join(deleted)}")


@app.command
def sinks(
    *,
    topic: Annotated[str | None, Parameter(help="Only of this topic.")] = None,
    servers: NameServersOption = NAME_SERVERS,
    json: Json = False,
) -> None:
    """List the applications whose messages are stored once (Spark's sinks): how far each has come at each master, when
    it sent last, and when it is forgotten if it sends no more.

    Example: `tally topic sinks --topic Orders`
    """
    import asyncio
    import dataclasses

    from tallystick.admin import brokers
    from tallystick.admin.sinks import SinkAt, list_sinks
    from tallystick.cli import output, times

    async def listed() -> list[SinkAt]:
        async with brokers.operator(servers.resolve()) as operator:
            return await list_sinks(operator, topic)

    rows = list[dict[str, Any]]()
    for one in asyncio.run(listed()):
        row = dataclasses.asdict(one)
        if not json:
            del row["stored_ms"], row["expires_ms"]
            row["sent"] = times.shown(one.stored_ms)
            row["expires"] = "" if one.expires_ms is None else times.shown(one.expires_ms)
        rows.append(row)
    output.rows(rows, json=json, empty="no application")


@app.command(name="forget-sink")
def forget_sink(
    topic: Name,
    application: Annotated[str, Parameter(help="The application's name, as `tally topic sinks` lists it.")],
    /,
    *,
    force: Annotated[bool, Parameter(help="Though it sent within ten minutes.")] = False,
    servers: NameServersOption = NAME_SERVERS,
    json: Json = False,
) -> None:
    """Forget how far an application has come in a topic, at all masters: its messages stay, and what it repeats is
    stored again.

    Slaves follow within 10 s; a power loss within the next seconds may bring it back.

    Example: `tally topic forget-sink Orders flights-to-orders`
    """
    import asyncio

    from tallystick.admin import brokers, sinks
    from tallystick.cli import output

    async def forget() -> list[str]:
        async with brokers.operator(servers.resolve()) as operator:
            return await sinks.forget_sink(operator, topic, application, force=force)

    names = asyncio.run(forget())
    if json:
        output.json_line({"topic": topic, "application": application, "forgotten": True, "brokers": names})
    else:
        print(f"application {application} forgotten in topic {topic} at {', '.join(names)}")


def _row(one: TopicAt) -> dict[str, Any]:
    from tallystick.rocketmq.wire.values import Perm

    return {
        "topic": one.topic,
        "broker": one.broker,
        "read_queues": one.read_queues,
        "write_queues": one.write_queues,
        "perm": ("R" if one.perm & Perm.READ else "-") + ("W" if one.perm & Perm.WRITE else "-"),
    }
