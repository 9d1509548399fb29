"""The line protocol between a test and a driver program of ours; the twin of tests/interop/java/Lines.java."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import quote, unquote_plus

from tallystick.errors import TallyError

Arguments = dict[str, str]
Answer = dict[str, Any]
Verbs = Mapping[str, Callable[[Arguments], Awaitable[Answer]]]


async def serve(verbs: Verbs) -> None:
    """Answer requests from standard input; when that ends, end at once and close nothing, as a crash would."""
    loop = asyncio.get_running_loop()
    print("ready", flush=True)
    while request := await loop.run_in_executor(None, sys.stdin.readline):
        print(await _answer(verbs, request.strip()), flush=True)
    os._exit(0)


async def _answer(verbs: Verbs, request: str) -> str:
    verb, *pairs = request.split(" ")
    given = {key: unquote_plus(value) for key, _, value in (pair.partition("=") for pair in pairs)}
    try:
        return _line("ok", await verbs[verb](given))
    except TallyError as error:
        return _line("error", {"code": error.code, "message": f"{type(error).__name__}: {error}"})
    except Exception as error:
        return _line("error", {"code": 0, "message": f"{type(error).__name__}: {error}"})


def _line(status: str, values: Answer) -> str:
    return " ".join([status, *(f"{key}={quote(str(value), safe='')}" for key, value in values.items())])
