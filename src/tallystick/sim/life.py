"""The frame of a life on virtual time: it is lived to its end, and whoever found something broken is heard."""

from __future__ import annotations

import gc
from collections.abc import Coroutine
from typing import Any, Protocol

from tallystick.sim.invariants import Violation
from tallystick.sim.series import Outcome
from tallystick.sim.virtual.loop import Stuck, VirtualLoop
from tallystick.sim.virtual.trace import Trace


class Judge(Protocol):
    """``violation`` is the first that it found."""

    violation: str | None
    promise_count: int


def live(
    seed: int, work: Coroutine[Any, Any, None], loop: VirtualLoop, trace: Trace, judge: Judge, promise: str
) -> Outcome:
    """Run ``work`` on the loop. ``promise``: what it breaks when it does not come to its end."""
    violation = None
    gc.disable()  # when it would close what nobody holds, no seed decides
    try:
        loop.run_until_complete(work)
    except Violation as error:
        violation = str(error)
    except RuntimeError:
        if judge.violation is None:  # else it stopped the loop
            raise
    except Stuck as stuck:
        violation = f"{promise}: {stuck}"
    finally:
        violation = judge.violation or violation or next((f"{promise}: {error}" for error in loop.errors), None)
        trace.end()  # what comes now is only the clearing away
        loop.abandon()
        gc.enable()
    return Outcome(seed, violation, judge.promise_count, trace.fingerprint, tuple(trace.lines or ()))
