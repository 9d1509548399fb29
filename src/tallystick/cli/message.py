"""``tally message``."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from tallystick.cli import NOT_WELL
from tallystick.cli.options import NAME_SERVERS, WHOLE, Hex, Json, NameServersOption

app = App(name="message", help="Send messages to a topic and read them.")

Topic = Annotated[str, Parameter(help="The topic's name.")]


@app.command(usage="Usage: tally message send [OPTIONS] TOPIC [BODY...]")
def send(
    topic: Topic,
    /,
    *bodies: Annotated[str, Parameter(name="BODY", help="Bodies; without any, each line of stdin is one.")],
    tags: Annotated[str | None, Parameter(help="The tag of each message, which consumers can choose by.")] = None,
    key: Annotated[tuple[str, ...], Parameter(help="A key to find each message by. Repeatable.")] = (),
    property_: Annotated[
        tuple[str, ...], Parameter(name="--property", help="A property of each message: name=value. Repeatable.")
    ] = (),
    group: Annotated[str, Parameter(help="The producer group.")] = "tally",
    quiet: Annotated[bool, Parameter(help="Print no places.")] = False,
    servers: NameServersOption = NAME_SERVERS,
    json: Json = False,
) -> int:
    """Send messages. Prints broker:queue:offset of each once it is stored.

    A topic that does not exist is created by the broker where it may (autoCreateTopicEnable). Behind the place stands
    the status where it is not SEND_OK: stored, but not as safe as the broker is set up to make it. Exit code 3 then.

    Example: `tally message send Orders paid shipped --tags eu --key order-7`
    """
    import asyncio

    from tallystick.cli import messages
    from tallystick.cli.options import pairs

    properties = pairs("--property", "name=value", property_)
    template = messages.Template(topic, tags, key, properties, group)
    safe = asyncio.run(messages.send(servers.resolve(), template, bodies, quiet=quiet, json=json))
    return 0 if safe else NOT_WELL


@app.command
def read(
    topic: Topic,
    /,
    *,
    queue: Annotated[str | None, Parameter(help="Only this queue: broker:number.")] = None,
    first: Annotated[int | None, WHOLE, Parameter(help="First offset in each queue. By default the oldest.")] = None,
    since: Annotated[
        str | None,
        Parameter(
            help="Begin with messages stored at this time: 2026-03-01T12:00 by the clock of this machine, "
            "2026-03-01T12:00Z, or ms since 1970."
        ),
    ] = None,
    tags: Annotated[str, Parameter(help="Only messages with one of these tags: A || B.")] = "*",
    last: Annotated[int | None, WHOLE, Parameter(help="Begin so many messages before the end of each queue.")] = None,
    count: Annotated[int | None, WHOLE, Parameter(help="End after so many messages.")] = None,
    follow: Annotated[bool, Parameter(help="Go on with new messages as they come.")] = False,
    ids: Annotated[bool, Parameter(help="Put broker:queue:offset and a tab in front of each body.")] = False,
    hex_: Hex = False,
    servers: NameServersOption = NAME_SERVERS,
    json: Json = False,
) -> None:
    """Print the bodies of a topic's messages, one a line, queue by queue. Commits nothing for any group.

    With the master away its slaves are read.

    Example: `tally message read Orders --last 10 --follow`
    """
    import asyncio

    from tallystick.cli import following, messages
    from tallystick.errors import UsageError

    if sum(start is not None for start in (first, since, last)) > 1:
        raise UsageError("--first, --since and --last each say where to begin: give one")
    for option, number in (("--first", first), ("--last", last), ("--count", count)):
        if number is not None and number < 0:
            raise UsageError(f"{option} is a number from 0", given=number)
    selection = messages.MessageSelection(topic, queue, first, since, last, count, tags, follow)
    show = messages.printer(ids=ids, hex_=hex_, json=json)
    asyncio.run(following.while_read(messages.read(servers.resolve(), selection, show)))
