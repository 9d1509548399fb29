"""``tally stream``: the applications that write a stream, exactly once, and what their tasks left."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from tallystick.cli.options import SERVICE, MetadataOption
from tallystick.cli.stream_options import StreamExplain, StreamJson, StreamName, Yes


def sinks(name: StreamName, /, *, service: MetadataOption = SERVICE, json: StreamJson = False) -> None:
    """List the applications that wrote a stream exactly once (Spark's sinks): query, newest batch and run.

    Each takes its place in the stream's list: `tally stream forget-sink` makes room.

    Example: `tally stream sinks public/default/persistent/orders`
    """
    import asyncio

    from tallystick.cli import output, streams

    output.rows(asyncio.run(streams.find_sinks(service.resolve(), name)), json=json, empty="no application")


def forget_sink(
    name: StreamName,
    application: Annotated[str, Parameter(help="The application's name, as `tally stream sinks` lists it.")],
    /,
    *,
    yes: Yes = False,
    explain: StreamExplain = False,
    service: MetadataOption = SERVICE,
    json: StreamJson = False,
) -> None:
    """Forget an application that writes a stream no more: its rows stay.

    One that still runs ends with its next batch, and a streaming query that is started again with its checkpoint is
    refused; without it, it writes all its rows once more.

    Example: `tally stream forget-sink public/default/persistent/orders flights-2024 --yes`
    """
    import asyncio

    from tallystick.cli import output, streams

    uri = service.resolve()
    question = f"Forget application {application} of stream {name} of {uri} for good?"
    streams.confirm(question, "forgetting an application", yes=yes, stream=name)
    record = asyncio.run(streams.forget_sink(uri, name, application, explain=explain))
    if json:
        output.json_line({"stream": name, "application": application, "forgotten": True, "batch": record.batch})
    else:
        print(f"stream {name}: application {application} forgotten, its newest batch was {record.batch}")


def sweep(
    name: StreamName, /, *, explain: StreamExplain = False, service: MetadataOption = SERVICE, json: StreamJson = False
) -> None:
    """Delete the ledgers of a stream that tasks of sinks wrote and no commit can list any more.

    Sinks do so after each commit: this is for what was left when the last of them ended. Those that run go on.

    Example: `tally stream sweep public/default/persistent/orders`
    """
    import asyncio

    from tallystick.cli import output, streams

    swept = asyncio.run(streams.sweep(service.resolve(), name, explain=explain))
    if json:
        output.json_line({"stream": name, "swept_ledgers": swept})
    else:
        print(f"stream {name}: {output.quantity(len(swept), 'ledger', 'ledgers')} of unfinished batches deleted")
