"""``tally broker``."""

from __future__ import annotations

from cyclopts import App

from tallystick.cli.options import CONFIG, Config

app = App(name="broker", help="Run a broker, a master or a slave.")


@app.command
def run(*, config: Config = CONFIG) -> int:
    """Run a broker until it is told to stop (SIGTERM, Ctrl-C).

    Example: `tally broker run --config broker.toml --set listenPort=11911`
    """
    from tallystick.node import broker_main

    return broker_main(config.config, config.overrides())
