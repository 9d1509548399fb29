"""Run something in a forked child of the test, which leaves without the test runner's clean-up."""

from __future__ import annotations

import faulthandler
import os
import sys
import traceback
from collections.abc import Callable


def in_child(work: Callable[[], object], *, seconds: float = 30.0) -> int:
    """The child's exit code: 0 when ``work`` returned, 1 when it raised or took too long (its stacks are printed)."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 1
    try:
        assert sys.__stderr__ is not None
        faulthandler.dump_traceback_later(seconds, exit=True, file=sys.__stderr__)
        work()
        code = 0
    except BaseException:
        traceback.print_exc(file=sys.__stderr__)
    finally:
        os._exit(code)
