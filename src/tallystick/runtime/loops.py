"""On which event loop the handles of a client work: the one that it was made on."""

from __future__ import annotations

from asyncio import AbstractEventLoop, get_running_loop

from tallystick.errors import UsageError


def check_loop(loop: AbstractEventLoop) -> None:
    """Raises UsageError unless ``loop`` runs the caller: futures and connections of one loop are of no use on another,
    and no loop looks at them while another thread does."""
    try:
        if get_running_loop() is loop:
            return
    except RuntimeError:  # none runs
        pass
    raise UsageError("this belongs to the event loop that it was made on: use it there, or make another client here")
