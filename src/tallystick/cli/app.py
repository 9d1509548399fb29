"""The tree of commands. Commands are imported when one of them is used."""

from __future__ import annotations

from cyclopts import App, Parameter


def _version() -> str:
    from tallystick import __version__
    from tallystick.codec.implementation import in_use

    return f"tallystick {__version__} (codec: {in_use()})"


def _default(value: object) -> str | None:
    """Not worth a word in the help: a flag is off, a list or text empty, and what None means the text says."""
    return None if value is None or value is False or value in ((), "") else str(value)


app = App(
    name="tally",
    help="Replicated logs: ledgers and streams, as Apache BookKeeper and Pulsar have them, and topics, as "
    "Apache RocketMQ has them. Start with: tally dev up",
    version=_version,
    default_parameter=Parameter(negative=(), show_default=_default),
    suppress_keyboard_interrupt=False,  # the exit code of an interrupt is ours to give
)
for _name, _help in {
    "dev": "A cluster on this machine for development: start, stop, break and mend it.",
    "ledger": "Write, read, follow, inspect, recover and delete ledgers.",
    "stream": "Append to streams, logs without an end, and read them; their owners, cursors and retention.",
    "bookie": "Run a storage node; list and inspect those of a cluster.",
    "cluster": "Make a new cluster; see how it is, and look through its ledgers.",
    "autorecovery": "Make copies good that a lost bookie took away: run it, switch it, see it.",
    "auth": "Who still comes without a key, or with an old one.",
    "topic": "Create, show and delete topics.",
    "group": "Groups of consumers, and how far they are behind.",
    "message": "Send messages to a topic and read them.",
    "broker": "Run a broker, a master or a slave; the users of one.",
    "nameserver": "Run a name server, which knows where each topic is.",
    "ha": "How far the slaves are behind their masters.",
    "store": "Check the files of a broker.",
    "spark": "Keep tables up to date by Spark.",
    "sim": "Run whole servers and clients through seeded faults.",
    "doctor": "Say what tallystick needs of this machine, and whether it is there.\n\n"
    "Exit code 3 where something keeps a server or client from working.\n\nExample: `tally doctor`",
    "completion": "Print the completion script of a shell.\n\nExample: `source <(tally completion bash)`",
}.items():
    app.command(f"tallystick.cli.{_name}:app", name=_name, help=_help)
