"""``tally completion``."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import App, Parameter

app = App(name="completion")


@app.default
def completion(shell: Annotated[Literal["bash", "zsh", "fish"], Parameter(help="Who will read it.")], /) -> None:
    """Print the completion script of a shell."""
    from tallystick.cli.app import app as tally

    print(tally.generate_completion(prog_name="tally", shell=shell))
