"""Several bookies on one machine, each a process with a disk of its own: which settings each of them has."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from tallystick.bookkeeper.bookie.keys import SCHEMA
from tallystick.errors import UsageError
from tallystick.runtime.instance import Pages, require_room


def bookie_instances(
    texts: Mapping[str, str], count: int, *, checked: Collection[str] = ()
) -> tuple[list[dict[str, str]], Pages | None]:
    """Return the settings of each of ``count`` bookies, to be put over those given, and where all are told of.

    Their ids end in ``-1``, ``-2``, …, where an id is given. The first has the port given, each other the next. The
    pages of all have the port of the pages given, those of each the ports behind it. Of folders each has an equal
    share, in order; of a single one a folder ``instance-1``, ``instance-2``, … in it. ``checked``: keys of others,
    which each instance reads for itself. Raises UsageError.
    """
    settings = replace(SCHEMA, checked=tuple(checked)).read(texts).settings
    pages = Pages(settings.http_host, settings.http_port) if settings.http_enabled else None
    ports = {"bookiePort": [settings.port + number if settings.port else 0 for number in range(count)]}
    if pages is not None:
        ports["httpServerPort"] = [pages.port + number if pages.port else 0 for number in range(1, count + 1)]
    require_room(ports, pages)
    instances = []
    for number in range(1, count + 1):
        own = {key: str(of_all[number - 1]) for key, of_all in ports.items()}
        if settings.bookie_id is not None:
            own["bookieId"] = f"{settings.bookie_id}-{number}"
        own["journalDirectories"] = _share("journalDirectories", settings.journal_dirs, number, count)
        own["ledgerDirectories"] = _share("ledgerDirectories", settings.ledger_dirs, number, count)
        instances.append(own)
    return instances, pages


def _share(key: str, folders: tuple[str, ...], number: int, count: int) -> str:
    if len(folders) == 1:
        return f"{folders[0].rstrip('/')}/instance-{number}"
    size, rest = divmod(len(folders), count)
    if rest or not size:
        raise UsageError(
            f"{key} has one folder for all instances, or the same number for each",
            folders=len(folders),
            instances=count,
        )
    return ",".join(folders[(number - 1) * size : number * size])
