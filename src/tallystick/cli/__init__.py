"""The command ``tally``: a table for a person or JSON lines for a program, and an exit code that says how it went.

::

    0    done
    1    it failed; one line on stderr says why and what to do
    2    the command line or the settings are wrong; nothing was done
    3    done, but not all is well: a dead node, a slave that is not in sync, a message that is less safe than set
    130  interrupted; 143 by SIGTERM, 129 by SIGHUP
    141  the reader of our output went away

Imports are late on purpose: ``tally --help`` loads neither the event loop nor a wire format, and what is loaded before
``main`` runs is loaded before a Ctrl-C is caught.
"""

from __future__ import annotations

import io
import os
import sys

TYPE_CHECKING = False  # type checkers take it for true, and ``typing`` need not be loaded

if TYPE_CHECKING:
    from collections.abc import Sequence

# Commands that change what is stored; all others may be tried again without a thought.
_CHANGES = frozenset(
    (
        "append",
        "create",
        "decommission",
        "delete",
        "forget",
        "forget-sink",
        "hand-over",
        "init",
        "recover",
        "repair",
        "roll",
        "seek",
        "send",
        "sweep",
        "take-back",
        "terminate",
        "trim",
    )
)
FAILED, WRONG_USAGE, NOT_WELL, INTERRUPTED, BROKEN_PIPE = 1, 2, 3, 130, 141


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; the exit code."""
    try:
        return _main(arguments)
    except KeyboardInterrupt:  # before anything was begun
        return INTERRUPTED


def _main(arguments: Sequence[str] | None) -> int:
    from tallystick.cli.stop_signals import StopSignals

    _open_streams()
    with StopSignals() as stopped:
        try:
            return _run(sys.argv[1:] if arguments is None else arguments)
        except KeyboardInterrupt:
            return stopped.status
        except BrokenPipeError:
            _drop_output()
            return BROKEN_PIPE
        except SystemExit as ended:
            if isinstance(ended.__context__, BrokenPipeError):  # how rich ends, which prints our help and tables
                return BROKEN_PIPE
            raise
        except RuntimeError as error:  # how Python 3.11 ends a class statement that was interrupted, in an import
            if isinstance(error.__cause__, KeyboardInterrupt):
                return stopped.status
            raise


def _run(arguments: Sequence[str]) -> int:
    from cyclopts import CycloptsError, UnusedCliTokensError

    from tallystick.cli.app import app
    from tallystick.errors import TallyError, UsageError

    if os.environ.get("NO_COLOR"):  # means no bold letters too
        from rich.console import Console

        app.console = Console(color_system=None)
    try:
        status = app(arguments, exit_on_error=False, print_error=False, result_action="return_value")
        sys.stdout.flush()
        return status if isinstance(status, int) else 0
    except UnusedCliTokensError as error:
        tokens = " ".join(error.unused_tokens or ())
        return _complain(f"unexpected on the command line: {tokens}. Try: {_command(arguments)} --help", WRONG_USAGE)
    except CycloptsError as error:
        return _complain(f"{error} Try: {_command(arguments)} --help", WRONG_USAGE)
    except TallyError as error:
        from tallystick.cli.output import advice, text_of

        changes = not _CHANGES.isdisjoint(_command(arguments).split())
        return _complain(
            f"{text_of(error)}{advice(error, changes=changes)}",
            WRONG_USAGE if isinstance(error, UsageError) else FAILED,
        )
    except (BrokenPipeError, KeyboardInterrupt):
        raise
    except Exception as error:
        if os.environ.get("TALLY_DEBUG"):
            raise
        if isinstance(error, OSError):  # the world's fault: above all, a full disk behind our output
            _drop_output()
            return _complain(f"{error}{'' if error.filename else ' while reading input or writing output'}", FAILED)
        text = f"{type(error).__name__}: {error}"
        return _complain(f"unexpected {text}. This is a bug; TALLY_DEBUG=1 shows where.", FAILED)


def _open_streams() -> None:
    """Who closed our standard output or error (``>&-``) wants nothing from there, and who closed the input has nothing
    to give. Before any other file is opened: that one would be printed to, and read."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115  it stays open
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  it stays open
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):  # a sign that the locale lacks is shown by its number, as on stderr
        sys.stdout.reconfigure(errors="backslashreplace")


def _drop_output() -> None:
    """Python flushes stdout once more at exit: let that go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _command(arguments: Sequence[str]) -> str:
    """The words before the first option, which are at least the command."""
    from tallystick.cli.app import app

    words, at = ["tally"], app
    for word in arguments:
        if word.startswith("-") or word not in at:
            break
        words.append(word)
        at = at[word]
    return " ".join(words)


def _complain(message: str, status: int) -> int:
    from tallystick.cli.output import line_text, shortened

    print(f"tally: {shortened(line_text(message))}", file=sys.stderr)
    return status
