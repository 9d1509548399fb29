"""Keys, certificates and authorities in PEM files, and the TLS contexts made of them: again when a file has changed.

New handshakes have what the files say now; connections that exist keep what they began with. A file may hold two
authorities at once, so that certificates of the old and of the new one are taken while they are changed.
"""

from __future__ import annotations

import errno
import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass

from tallystick.errors import UsageError
from tallystick.runtime.clock import Clock

LOOK_S = 1.0  # files are looked at no more often
_OTHERS = 0o007  # of a file's mode

_FAULTS_OF_FILES = (errno.ENOENT, errno.EACCES, errno.EISDIR, errno.ENOTDIR)  # who mends them changes a stamp

Stamp = tuple[int, int, int, int]


@dataclass(frozen=True)
class TlsFiles:
    """Paths of PEM files. ``trust``: authorities of the other side; without them nobody has to show a certificate."""

    trust: str | None = None
    certificate: str | None = None  # with those between it and the authority behind it
    key: str | None = None
    key_password: str | None = None  # a file with it

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise UsageError("a TLS certificate and its key are given together")

    @property
    def paths(self) -> tuple[str, ...]:
        """The files that are given."""
        return tuple(path for path in (self.trust, self.certificate, self.key, self.key_password) if path is not None)


@dataclass
class WatchedFiles:
    """Files that are looked at again, once in ``every_s`` at most. ``note`` what they are, before they are read."""

    paths: tuple[str, ...]
    clock: Clock
    every_s: float = LOOK_S
    _stamps: tuple[Stamp | None, ...] = ()
    _looked_at: float = 0.0

    def note(self) -> None:
        """Look at the files."""
        self._stamps, self._looked_at = tuple(map(_stamp, self.paths)), self.clock.now()

    def changed(self) -> bool:
        """Look whether a file is another one than at the last look."""
        if self.clock.now() < self._looked_at + self.every_s:
            return False
        stamps = self._stamps
        self.note()
        return self._stamps != stamps

    def refused(self, error: UsageError) -> None:
        """A changed file was refused. If that is not its own fault, but that of a process without descriptors, say, the
        next look finds it changed once more."""
        cause = error.__cause__
        if isinstance(cause, OSError) and not isinstance(cause, ssl.SSLError) and cause.errno not in _FAULTS_OF_FILES:
            self._stamps = ()


class TlsContexts:
    """The context of one side. ``failed`` hears why a changed file is no good: what was read before counts then."""

    def __init__(
        self,
        files: TlsFiles,
        make: Callable[[TlsFiles], ssl.SSLContext],
        clock: Clock,
        failed: Callable[[str], None],
        *,
        every_s: float = LOOK_S,
    ) -> None:
        """Raises UsageError for files that cannot be used."""
        self._files, self._make, self._failed = files, make, failed
        self._watched = WatchedFiles(files.paths, clock, every_s)
        self._watched.note()
        self._context = make(files)

    def current(self) -> ssl.SSLContext:
        """Return the context for a new connection."""
        if self._watched.changed():
            try:
                self._context = self._make(self._files)
            except UsageError as error:
                self._watched.refused(error)
                self._failed(str(error))
        return self._context


def server_context(files: TlsFiles, *, require_peer: bool) -> ssl.SSLContext:
    """Return a server's context; a peer's certificate is verified if it shows one. Raises UsageError."""
    if files.certificate is None:
        raise UsageError("a TLS server needs a certificate and its key")
    if require_peer and files.trust is None:
        raise UsageError("a certificate of the other side is asked for, and no file says which authorities are trusted")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if files.trust is not None:
        context.verify_mode = ssl.CERT_REQUIRED if require_peer else ssl.CERT_OPTIONAL
    return _filled(context, files)


def client_context(files: TlsFiles) -> ssl.SSLContext:
    """Return a client's context: it asks who the server is, by its host. Raises UsageError."""
    if files.trust is None:
        raise UsageError("TLS needs the file of the authorities that are trusted: whoever answered would be believed")
    return _filled(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), files)


def secret_bytes(path: str) -> bytes:
    """Return what is in a file that nobody else may read. Raises UsageError."""
    _require_private(path)
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise UsageError(f"a file of secrets cannot be read: {error.strerror}", path=path) from error


def secret_text(path: str) -> str:
    """Return the text of a file that nobody else may read. Raises UsageError, which shows nothing of it."""
    try:
        return secret_bytes(path).decode().replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise UsageError("a file of secrets cannot be read: it is not in UTF-8", path=path) from None


def common_name(certificate: dict[str, object]) -> str:
    """Return the one common name of a certificate's subject, as ``ssl`` has it; "" if it has none, or several."""
    subject = certificate.get("subject", ())
    assert isinstance(subject, tuple)
    names = [value for part in subject for name, value in part if name == "commonName"]
    return names[0] if len(names) == 1 else ""


def _filled(context: ssl.SSLContext, files: TlsFiles) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    if context.protocol is ssl.PROTOCOL_TLS_SERVER:
        context.num_tickets = 0  # a session that goes on would not be asked who it is again
        context.options |= ssl.OP_NO_TICKET
    try:
        if files.trust is not None:
            context.load_verify_locations(files.trust)
        if files.certificate is not None and files.key is not None:
            _require_private(files.key)
            password = None if files.key_password is None else secret_text(files.key_password).strip()
            # Without a password OpenSSL would ask for one at the terminal.
            context.load_cert_chain(files.certificate, files.key, password or "")
    except OSError as error:  # of ssl, too
        reason = getattr(error, "reason", None) or error.strerror or str(error)
        raise UsageError(f"the files of TLS cannot be used: {reason}", files=", ".join(files.paths)) from error
    return context


def _require_private(path: str) -> None:
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        raise UsageError(f"a file of secrets cannot be read: {error.strerror}", path=path) from error
    if mode & _OTHERS:
        raise UsageError("a file of secrets can be read by everybody: chmod o-rwx", path=path)


def _stamp(path: str) -> Stamp | None:
    try:
        stat = os.stat(path)
    except OSError:
        return None
    # The time of the change, too: of a mode, say, for which a file of secrets was refused.
    return stat.st_mtime_ns, stat.st_size, stat.st_ino, stat.st_ctime_ns
