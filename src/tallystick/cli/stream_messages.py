"""``tally stream append``, ``read`` and ``tail``."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from tallystick.cli.options import SERVICE, MetadataOption
from tallystick.cli.stream_options import (
    OUT_MESSAGES,
    OWNER,
    READING,
    ROLL_OVER,
    From,
    OutMessages,
    OwnerOptions,
    ReadOptions,
    RollOver,
    StreamExplain,
    StreamJson,
    StreamName,
)


def append(
    name: StreamName,
    /,
    *bodies: Annotated[str, Parameter(name="TEXT", help="Payloads; without any, each line of stdin is one.")],
    messages: OutMessages = OUT_MESSAGES,
    owner: OwnerOptions = OWNER,
    roll_over: RollOver = ROLL_OVER,
    quiet: Annotated[bool, Parameter(help="Print no positions.")] = False,
    explain: StreamExplain = False,
    service: MetadataOption = SERVICE,
    json: StreamJson = False,
) -> None:
    """Own a stream and append messages. Prints ledger:entry of each once it is safe. A new name makes a stream.

    While another process owns the stream nothing is done. A stream that is taken over on the way says how many messages
    are stored, and which may be stored or not.

    Example: `seq 1 1000 | tally stream append public/default/persistent/orders --quiet`
    """
    import asyncio

    from tallystick.cli import stream_append

    chosen = stream_append.settings(owner, roll_over, messages)
    work = stream_append.append(
        service.resolve(), name, bodies, chosen, owner, messages, quiet=quiet, json=json, explain=explain
    )
    asyncio.run(work)


def read(
    name: StreamName,
    /,
    *,
    from_: From | None = None,
    to: Annotated[
        str | None, Parameter(help="Where to end, before it: s@TIME or LEDGER:ENTRY. By default the end as it is now.")
    ] = None,
    reading: ReadOptions = READING,
    explain: StreamExplain = False,
    service: MetadataOption = SERVICE,
    json: StreamJson = False,
) -> None:
    """Print the payloads of a stream, one a line, as far as they are confirmed. Never fences a stream.

    It begins at the beginning, or where -o says.

    Example: `tally stream read public/default/persistent/orders -o -10 -f '%o %k %s\\n'`
    """
    import asyncio

    from tallystick.cli import following, stream_read

    selection = stream_read.selection(reading, "beginning" if from_ is None else from_, to, follow=False)
    stream_read.require_one_place(reading.cursor, from_, to)
    show = stream_read.printer(name, reading, json=json)
    work = stream_read.run(service.resolve(), name, reading, selection, show, explain=explain)
    asyncio.run(following.while_read(work))


def tail(
    name: StreamName,
    /,
    *,
    from_: From | None = None,
    reading: ReadOptions = READING,
    explain: StreamExplain = False,
    service: MetadataOption = SERVICE,
    json: StreamJson = False,
) -> None:
    """Follow a stream across ledgers and owners, until it is terminated. Never fences a stream.

    It begins ten messages before the end, or where -o says. Messages appear as they are confirmed, the last one of an
    idle owner 100 ms later.

    Example: `tally stream tail public/default/persistent/orders -o end -J`
    """
    import asyncio

    from tallystick.cli import following, stream_read

    selection = stream_read.selection(reading, "-10" if from_ is None else from_, None, follow=True)
    stream_read.require_one_place(reading.cursor, from_, None)
    show = stream_read.printer(name, reading, json=json)
    work = stream_read.run(service.resolve(), name, reading, selection, show, explain=explain)
    asyncio.run(following.while_read(work))
