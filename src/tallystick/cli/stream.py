"""``tally stream``. Of all commands only those that become the owner fence: with --takeover, or one that is gone."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from tallystick.cli import stream_cursors, stream_messages, stream_sinks
from tallystick.cli.options import NUMBER, SERVICE, WHOLE, MetadataOption
from tallystick.cli.stream_options import OWNER, OwnerOptions, StreamExplain, StreamJson, StreamName, Takeover, Yes

app = App(name="stream", help="Append to streams, logs without an end, and read them.")

for _command in (
    stream_messages.read,
    stream_messages.tail,
    stream_cursors.cursors,
    stream_cursors.seek,
    stream_sinks.sinks,
    stream_sinks.forget_sink,
    stream_sinks.sweep,
):
    app.command(_command)
app.command(stream_messages.append, usage="Usage: tally stream append [OPTIONS] NAME [TEXT...]")


@app.command
def create(
    name: StreamName,
    /,
    *,
    pulsar: Annotated[
        bool, Parameter(help="Make also the tenant and the namespace that a Pulsar broker needs to load it.")
    ] = False,
    cluster: Annotated[str | None, Parameter(help="With --pulsar: the name of Pulsar's cluster.")] = None,
    service: MetadataOption = SERVICE,
    json: StreamJson = False,
) -> None:
    """Make an empty stream. One that exists stays as it is, and so do a tenant and a namespace.

    `tally stream append` makes it too. It has no ledger until somebody appends.

    Example: `tally stream create public/default/persistent/orders`
    """
    import asyncio

    from tallystick.cli import output, streams
    from tallystick.errors import UsageError

    if cluster is not None and not pulsar:
        raise UsageError("--cluster goes with --pulsar")
    if pulsar:
        made = asyncio.run(streams.create_for_pulsar(service.resolve(), name, cluster))
    else:
        made = asyncio.run(streams.create(service.resolve(), name))
    if json:
        output.json_line({"stream": name, "created": made})
    else:
        print("\n".join(f"{path} created" for path in made) if made else f"stream {name} exists already")


@app.command(name="list", usage="Usage: tally stream list [OPTIONS] [PREFIX]")
def list_(
    prefix: Annotated[str, Parameter(help="Only streams whose names begin so: tenant/namespace")] = "",
    /,
    *,
    service: MetadataOption = SERVICE,
    json: StreamJson = False,
) -> None:
    """List streams, and whose they are. Entries and bytes are those of closed ledgers.

    Example: `tally stream list public/default`
    """
    import asyncio

    from tallystick.cli import output, streams

    rows = asyncio.run(streams.find_all(service.resolve(), prefix))
    output.rows(rows, json=json, empty=f"no streams that begin with {prefix}" if prefix else "no streams")


@app.command
def show(
    name: StreamName,
    /,
    *,
    explain: Annotated[
        bool, Parameter(help="Say also why it is that owner's, or nobody's, and how the last one lost it.")
    ] = False,
    metadata: Annotated[
        bool, Parameter(help="Show what is stored of it and its cursors, as a Pulsar broker's internal-info.")
    ] = False,
    service: MetadataOption = SERVICE,
    json: StreamJson = False,
) -> None:
    """Show a stream: its owner, its ledgers, its first and last position. Nobody is disturbed.

    As JSON it is the state that a Pulsar broker has as internalStats, as far as anybody but the owner can know it.

    Example: `tally stream show public/default/persistent/orders --explain`
    """
    import asyncio

    from tallystick.cli import output, streams

    if metadata:
        return output.json_line(asyncio.run(streams.stored(service.resolve(), name)))
    status = asyncio.run(streams.find(service.resolve(), name))
    output.details(streams.json_details(status) if json else streams.details(status, explain=explain), json=json)


@app.command
def trim(
    name: StreamName,
    /,
    *,
    keep_s: Annotated[
        float | None, NUMBER, Parameter(help="Keep ledgers that were closed within so many seconds.")
    ] = None,
    keep_bytes: Annotated[int | None, WHOLE, Parameter(help="Keep so many bytes of newest ledgers.")] = None,
    ttl_s: Annotated[
        float | None, NUMBER, Parameter(help="Let cursors pass over messages that were published longer ago.")
    ] = None,
    backlog_bytes: Annotated[
        int | None, WHOLE, Parameter(help="Let cursors that are further behind pass over the oldest messages.")
    ] = None,
    owner: OwnerOptions = OWNER,
    explain: StreamExplain = False,
    service: MetadataOption = SERVICE,
    json: StreamJson = False,
) -> None:
    """Delete whole ledgers at the front of a stream that are too old, or too many. No cursor loses what it needs.

    With --ttl-s or --backlog-bytes what is beyond that is needed no more. With both other options a ledger goes that
    either of them does not keep, as in Pulsar's retention.

    Example: `tally stream trim public/default/persistent/orders --keep-s 604800`
    """
    import asyncio

    from tallystick.cli import output, streams

    work = streams.trim(
        service.resolve(), name, owner, keep_s, keep_bytes, ttl_s=ttl_s, backlog_bytes=backlog_bytes, explain=explain
    )
    dropped = asyncio.run(work)
    if json:
        output.json_line({"stream": name, "deleted_ledgers": dropped})
    else:
        total = f"{output.quantity(len(dropped), 'ledger', 'ledgers')} deleted"
        print(f"stream {name}: {total}{f', up to ledger {dropped[-1]}' if dropped else ''}")


@app.command
def roll(
    name: StreamName,
    /,
    *,
    owner: OwnerOptions = OWNER,
    explain: StreamExplain = False,
    service: MetadataOption = SERVICE,
    json: StreamJson = False,
) -> None:
    """Close the newest ledger of a stream: what comes next is in another one, and this one can be trimmed.

    Example: `tally stream roll public/default/persistent/orders`
    """
    import asyncio

    from tallystick.cli import output, streams

    ledger = asyncio.run(streams.roll(service.resolve(), name, owner, explain=explain))
    if json:
        output.json_line({"stream": name, "closed_ledger": ledger})
    else:
        print(f"stream {name}: " + ("it has no entries" if ledger is None else f"ledger {ledger} is closed"))


@app.command
def terminate(
    name: StreamName,
    /,
    *,
    yes: Yes = False,
    owner: OwnerOptions = OWNER,
    explain: StreamExplain = False,
    service: MetadataOption = SERVICE,
    json: StreamJson = False,
) -> None:
    """End a stream for good: it takes no more messages, and who follows it comes to its end.

    Example: `tally stream terminate public/default/persistent/orders --yes`
    """
    import asyncio

    from tallystick.cli import output, streams

    uri = service.resolve()
    streams.confirm(f"End stream {name} of {uri} for good?", "ending a stream", yes=yes, stream=name)
    last = asyncio.run(streams.terminate(uri, name, owner, explain=explain))
    if json:
        output.json_line({"stream": name, "terminated": str(last)})
    else:
        print(f"stream {name} terminated at {last}")


@app.command
def delete(
    name: StreamName,
    /,
    *,
    yes: Yes = False,
    takeover: Takeover = False,
    explain: StreamExplain = False,
    service: MetadataOption = SERVICE,
    json: StreamJson = False,
) -> None:
    """Delete a stream with its cursors and all its ledgers. Bookies give the space back later.

    Example: `tally stream delete public/default/persistent/orders --yes`
    """
    import asyncio

    from tallystick.cli import output, streams

    uri = service.resolve()
    streams.confirm(f"Delete stream {name} of {uri} for good?", "deleting", yes=yes, stream=name)
    asyncio.run(streams.delete(uri, name, takeover=takeover, explain=explain))
    if json:
        output.json_line({"stream": name, "deleted": True})
    else:
        print(f"stream {name} deleted")


@app.command
def hand_over(
    name: StreamName,
    /,
    *,
    force: Annotated[bool, Parameter(help="Also where a broker deletes some or all of it.")] = False,
    takeover: Takeover = False,
    explain: StreamExplain = False,
    service: MetadataOption = SERVICE,
    json: StreamJson = False,
) -> None:
    """Close a stream and leave it to a Pulsar broker, which loads it when a client asks there for the topic.

    Refused while a broker with its default settings would delete anything of it: says what, and what keeps it.

    Example: `tally stream hand-over public/default/persistent/orders`
    """
    import asyncio

    from tallystick.cli import output, streams

    deletions = asyncio.run(streams.hand_over(service.resolve(), name, force=force, takeover=takeover, explain=explain))
    if json:
        output.json_line({"stream": name, "handed_over": True, "broker_deletes": deletions})
    else:
        print(f"stream {name} handed over; the broker deletes {deletions}")


@app.command
def take_back(
    name: StreamName,
    /,
    *,
    owner: OwnerOptions = OWNER,
    explain: StreamExplain = False,
    service: MetadataOption = SERVICE,
    json: StreamJson = False,
) -> None:
    """Take a stream from a Pulsar broker: its newest ledger is recovered and closed. Then it is nobody's.

    Refused while a broker may write it: unload the topic there first, or fence the broker with --takeover. The broker
    loads it again when a client asks there for the topic.

    Example: `tally stream take-back public/default/persistent/orders`
    """
    import asyncio

    from tallystick.cli import output, streams

    last = asyncio.run(streams.take_back(service.resolve(), name, owner, explain=explain))
    if json:
        output.json_line({"stream": name, "last": str(last)})
    else:
        print(f"stream {name} taken back, the last entry at {last}")
