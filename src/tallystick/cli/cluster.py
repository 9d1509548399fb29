"""``tally cluster``."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from tallystick.cli.options import Json

app = App(name="cluster", help="Make a new cluster.")


@app.command
def init(
    uri: Annotated[str, Parameter(help="sqlite:///path or zk+hierarchical://host:port/ledgers")],
    /,
    *,
    json: Json = False,
) -> None:
    """Make an empty cluster: its layout, instance id and list of bookies. Refuses a place where one exists.

    Example: `tally cluster init sqlite:///srv/tally/metadata.db`
    """
    import asyncio

    from tallystick.admin import cluster
    from tallystick.bookkeeper.metadata.uri import require_shared
    from tallystick.cli import output

    instance = asyncio.run(cluster.init(require_shared(uri)))
    if json:
        output.json_line({"uri": uri, "instance_id": instance})
    else:
        print(f"new cluster {instance} at {uri}")
