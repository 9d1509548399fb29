"""``tally stream cursors`` and ``seek``."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter

from tallystick.cli.options import SERVICE, MetadataOption
from tallystick.cli.stream_options import CursorName, From, StreamExplain, StreamJson, StreamName, Takeover, Yes


def cursors(
    name: StreamName,
    /,
    *,
    create: Annotated[str | None, Parameter(help="Make a durable cursor of this name.")] = None,
    from_: From | None = None,
    delete: Annotated[str | None, Parameter(help="Delete the cursor of this name.")] = None,
    yes: Yes = False,
    takeover: Takeover = False,
    explain: StreamExplain = False,
    service: MetadataOption = SERVICE,
    json: StreamJson = False,
) -> None:
    """List the durable cursors of a stream, as they are stored: how far each is, and who has it. Or make or delete one.

    A new one begins where -o says, by default at the beginning. A cursor keeps from being trimmed what it has not
    acknowledged.

    Example: `tally stream cursors public/default/persistent/orders --create billing -o end`
    """
    import asyncio

    from tallystick.cli import output, streams
    from tallystick.cli.stream_places import Place
    from tallystick.errors import UsageError

    if create is not None and delete is not None:
        raise UsageError("--create and --delete: give one of them")
    if from_ is not None and create is None:
        raise UsageError("-o says where a new cursor begins: it goes with --create")
    if delete is None and (takeover or yes):
        raise UsageError(f"{'--takeover' if takeover else '--yes'} goes with --delete")
    uri = service.resolve()
    if create is not None:
        place = Place.parse("beginning" if from_ is None else from_)
        mark = asyncio.run(streams.create_cursor(uri, name, create, place, explain=explain))
        begin = "at the beginning" if mark.ledger < 0 else f"at {mark.ledger}:{mark.entry + 1}"
        _tell(f"cursor {create} of {name} begins {begin}", json=json, stream=name, cursor=create, mark=str(mark))
    elif delete is not None:
        streams.confirm(
            f"Delete cursor {delete} of stream {name} of {uri} for good?",
            "deleting",
            yes=yes,
            stream=name,
            cursor=delete,
        )
        asyncio.run(streams.delete_cursor(uri, name, delete, takeover=takeover, explain=explain))
        _tell(f"cursor {delete} of {name} deleted", json=json, stream=name, cursor=delete, deleted=True)
    else:
        rows = asyncio.run(streams.find_cursors(uri, name))
        output.rows(rows, json=json, empty=f"stream {name} has no durable cursors")


def seek(
    name: StreamName,
    cursor: CursorName,
    /,
    *,
    from_: From,
    takeover: Takeover = False,
    explain: StreamExplain = False,
    service: MetadataOption = SERVICE,
    json: StreamJson = False,
) -> None:
    """Move a cursor: all before the place is acknowledged, and nothing from there on.

    Example: `tally stream seek public/default/persistent/orders billing -o s@2026-03-01T12:00Z`
    """
    import asyncio

    from tallystick.cli import streams
    from tallystick.cli.stream_places import Place

    place = Place.parse(from_)
    work = streams.seek(service.resolve(), name, cursor, place, takeover=takeover, explain=explain)
    position = asyncio.run(work)
    text = f"cursor {cursor} of {name} goes on at {position}"
    _tell(text, json=json, stream=name, cursor=cursor, position=str(position))


def _tell(text: str, *, json: bool, **values: Any) -> None:
    from tallystick.cli import output

    if json:
        output.json_line(values)
    else:
        print(text)
