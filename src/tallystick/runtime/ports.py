"""Ports that are kept for a server until it listens on them."""

from __future__ import annotations

import errno
import socket
from contextlib import ExitStack

from tallystick.errors import UsageError

TRIES = 100


class ReservedPort:
    """A free port of ``host``, or ``port`` where that is not 0, and the ports at ``offsets`` from it.

    They are bound and not listened on. So the system gives them to nobody who asks for any port, and who asks for this
    one gets it: with SO_REUSEADDR, as servers do. A free port, and those at its offsets, are nobody else's, reserved or
    not; ``port`` may be reserved already, by whoever starts the server. ``close`` it when the server listens. Raises
    UsageError if there is no such port.
    """

    def __init__(self, host: str, *offsets: int, port: int = 0, purpose: str = "") -> None:
        """``purpose`` is for the error: " for clients"."""
        self._sockets = ExitStack()
        error: OSError | None = None
        for _ in range(1 if port else TRIES):
            with ExitStack() as sockets:
                try:
                    self.port = _bind(sockets, host, port, alone=not port)
                    for offset in offsets:
                        _bind(sockets, host, self.port + offset, alone=not port)
                except OSError as failure:
                    error = failure
                    continue
                self._sockets = sockets.pop_all()
                return
        where: dict[str, object] = {"host": host}
        if port:
            where["ports"] = " and ".join(str(port + offset) for offset in (0, *offsets))
        raise UsageError(f"cannot listen{purpose}: {error.strerror if error else 'no port'}", **where) from error

    def close(self) -> None:
        self._sockets.close()


def _bind(sockets: ExitStack, host: str, port: int, *, alone: bool) -> int:
    """``alone``: with SO_REUSEADDR from the start the port could be one that another process has reserved, and of two
    servers one would not start. Set when it is bound, it lets the server in all the same."""
    if not 0 <= port < 1 << 16:
        raise OSError(errno.EADDRNOTAVAIL, "there is no such port")
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    bound = sockets.enter_context(socket.socket(family, kind, protocol))
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, not alone)
    bound.bind(address)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return int(bound.getsockname()[1])
