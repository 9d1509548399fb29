"""``tally broker``."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from tallystick.cli.options import CONFIG, PATH, Config, Instances, Json

app = App(name="broker", help="Run a broker, a master or a slave; the users of one.")
acl = App(name="acl", help="Users of a broker and what they may do.")
app.command(acl)


@app.command
def run(*, instances: Instances = None, config: Config = CONFIG) -> int:
    """Run a broker until it is told to stop (SIGTERM, Ctrl-C).

    With --instances several: the settings are those of all, and each gets a name, ports and a folder of its own from
    them. Slaves follow the masters of the same names, where as many run.

    Example: `tally broker run --config broker.toml --set listenPort=11911`
    """
    from tallystick.node import broker_main, brokers_main

    if instances is not None:
        return brokers_main(config.config, config.overrides(), instances)
    return broker_main(config.config, config.overrides())


@acl.command(name="import")
def import_(
    file: Annotated[str, PATH, Parameter(help="The plain_acl.yml of an original 4.9.")],
    /,
    *,
    broker: Annotated[str, Parameter(help="The master that gets the users: host:port.")],
    allow_whitelist: Annotated[
        bool, Parameter(help="The file has white addresses: show what lets them in, instead of refusing it.")
    ] = False,
    json: Json = False,
) -> None:
    """Put the accounts of a plain_acl.yml (RocketMQ 4.9) into a broker, as users with policies.

    The command signs as a super user: TALLY_BROKER_CREDENTIALS names a file with accessKey= and secretKey=. SUB becomes
    Sub and Get, as a group that begins asks where its queues begin and end. White addresses let in who does not sign:
    they are settings of the broker, which the command does not change.

    Example: `tally broker acl import plain_acl.yml --broker 10.0.0.1:10911`
    """
    import asyncio

    from tallystick.admin import access
    from tallystick.admin.plain_acl import read_plain_acl
    from tallystick.cli import output
    from tallystick.errors import UsageError

    try:
        with open(file, encoding="utf-8") as opened:
            plain = read_plain_acl(opened.read())
    except OSError as error:
        raise UsageError(f"cannot read the file: {error.strerror}", path=file) from error
    except UnicodeDecodeError as error:
        raise UsageError("cannot read the file: it is no UTF-8", path=file) from error
    if plain.white_addresses and not allow_whitelist:
        raise UsageError(
            "the file has white addresses, from which nobody needs a key: take them out, or say --allow-whitelist",
            addresses=";".join(plain.white_addresses),
        )
    imported = asyncio.run(access.import_plain_acl(broker, plain))
    output.rows(
        [{"user": one.user, "type": one.user_type, "entries": one.entries, "new": one.is_new} for one in imported],
        json=json,
        empty="no accounts",
    )
    if plain.white_addresses and not json:
        print(f"in the broker's file: allowWhitelist=true and whiteAddresses={';'.join(plain.white_addresses)}")
