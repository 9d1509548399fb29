"""``tally nameserver``."""

from __future__ import annotations

from cyclopts import App

from tallystick.cli.options import CONFIG, Config

app = App(name="nameserver", help="Run a name server, which knows where each topic is.")


@app.command
def run(*, config: Config = CONFIG) -> int:
    """Run a name server until it is told to stop (SIGTERM, Ctrl-C).

    Example: `tally nameserver run --set listenPort=9876`
    """
    from tallystick.node import name_server_main

    return name_server_main(config.config, config.overrides())
