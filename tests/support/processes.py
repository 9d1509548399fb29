"""Processes that a test knows to be there."""

from __future__ import annotations

from tallystick.admin.process import ProcessId, identify


def running(pid: int) -> ProcessId:
    """The process that has this number now."""
    process = identify(pid)
    assert process is not None, f"no process {pid}"
    return process
