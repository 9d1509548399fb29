"""``tally message``."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from tallystick.cli.options import NAME_SERVERS, Hex, Json, NameServers

app = App(name="message", help="Send messages to a topic and read them.")

Topic = Annotated[str, Parameter(help="The topic's name.")]


@app.command
def send(
    topic: Topic,
    /,
    *bodies: Annotated[str, Parameter(help="Bodies; without any, each line of stdin is one.")],
    tags: Annotated[str | None, Parameter(help="The tag of each message, which consumers can choose by.")] = None,
    key: Annotated[tuple[str, ...], Parameter(help="A key to find each message by. Repeatable.")] = (),
    property_: Annotated[
        tuple[str, ...], Parameter(name="--property", help="A property of each message: name=value. Repeatable.")
    ] = (),
    group: Annotated[str, Parameter(help="The producer group.")] = "tally",
    quiet: Annotated[bool, Parameter(help="Print no places.")] = False,
    servers: NameServers = NAME_SERVERS,
    json: Json = False,
) -> None:
    """Send messages. Prints broker:queue:offset of each once it is stored.

    A topic that does not exist is created by the broker where it may (autoCreateTopicEnable). Behind the place stands
    the status where it is not SEND_OK: stored, but not as safe as the broker is set up to make it.
    """
    import asyncio

    from tallystick.cli import messages
    from tallystick.cli.options import pairs

    properties = pairs("--property", "name=value", property_)
    template = messages.Template(topic, tags, key, properties, group)
    asyncio.run(messages.send(servers.resolve(), template, bodies, quiet=quiet, json=json))


@app.command
def read(
    topic: Topic,
    /,
    *,
    queue: Annotated[str | None, Parameter(help="Only this queue: broker:number.")] = None,
    first: Annotated[int | None, Parameter(help="First offset in each queue. By default the oldest.")] = None,
    since: Annotated[
        str | None, Parameter(help="Begin with messages stored at this time: 2026-03-01T12:00, or ms since 1970.")
    ] = None,
    tags: Annotated[str, Parameter(help="Only messages with one of these tags: A || B.")] = "*",
    follow: Annotated[bool, Parameter(help="Go on with new messages as they come.")] = False,
    ids: Annotated[bool, Parameter(help="Put broker:queue:offset and a tab in front of each body.")] = False,
    hex_: Hex = False,
    servers: NameServers = NAME_SERVERS,
    json: Json = False,
) -> None:
    """Print the bodies of a topic's messages, one a line, queue by queue. Commits nothing for any group.

    With the master away its slaves are read.
    """
    import asyncio

    from tallystick.cli import messages

    selection = messages.Selection(topic, queue, first, since, tags, follow)
    show = messages.printer(ids=ids, hex_=hex_, json=json)
    asyncio.run(messages.read(servers.resolve(), selection, show))
