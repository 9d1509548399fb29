"""``tally doctor``."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from tallystick.cli.options import PATH, SERVICE, Json, MetadataOption

app = App(name="doctor")


@app.default
def doctor(
    *,
    folder: Annotated[
        str | None,
        PATH,
        Parameter(help="Where data shall lie: its disk is written to and synced. By default that of tally dev up."),
    ] = None,
    service: MetadataOption = SERVICE,
    json: Json = False,
) -> int:
    """Say what tallystick needs of this machine, whether it is there, and what to do where it is not."""
    import asyncio
    import os
    import resource

    from tallystick.admin import dev_lookup
    from tallystick.admin import doctor as examinations
    from tallystick.cli import NOT_WELL, output
    from tallystick.runtime.disk import OsDisk

    where = os.path.abspath(folder or dev_lookup.default_directory(os.environ))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    diagnoses = asyncio.run(examinations.diagnose(OsDisk(), where, _uri(service), limits))
    output.rows([{"what": one.name, "state": one.state, "says": one.text} for one in diagnoses], json=json, empty="")
    return NOT_WELL if any(one.state == "amiss" for one in diagnoses) else 0


def _uri(service: MetadataOption) -> str | None:
    """Returns None if nothing says which cluster: who installs tallystick has none yet. Raises UsageError for a wrong
    one."""
    import os

    from tallystick.admin import dev_lookup

    is_named = service.uri is not None or os.environ.get("TALLY_URI")
    directory = dev_lookup.default_directory(os.environ)
    return service.resolve() if is_named or dev_lookup.running_uri(directory) else None
