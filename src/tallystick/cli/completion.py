"""``tally completion``."""

from __future__ import annotations

from typing import Literal

from cyclopts import App

app = App(name="completion", help="Print the completion script of a shell.")


@app.default
def completion(shell: Literal["bash", "zsh", "fish"]) -> None:
    """Print the completion script of a shell; for bash: source <(tally completion bash)

    Parameters
    ----------
    shell
        The shell that will read it.
    """
    from tallystick.cli.app import app as tally

    print(tally.generate_completion(prog_name="tally", shell=shell))
