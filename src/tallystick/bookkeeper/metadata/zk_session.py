"""One ZooKeeper session, from asyncio: kazoo runs on threads of its own, and nothing here waits for them on the loop.

A request whose connection breaks is asked again after the reconnect, for as long as the session may take; who asks for
a transaction is told of that. What a server refuses to an identity is not asked again. Watches are armed again after
they fired and after every break, and then say "changed": what happened in between cannot be known.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import (
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    OperationTimeoutError,
    SessionExpiredError,
    SessionMovedError,
)
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from tallystick.bookkeeper.metadata.layout import tops
from tallystick.bookkeeper.metadata.store import Watch, parent_of
from tallystick.bookkeeper.metadata.uri import ZooKeeperUri
from tallystick.bookkeeper.metadata.zk_identity import WHAT_TO_DO
from tallystick.bookkeeper.metadata.zk_login import ZkLogin
from tallystick.errors import MetadataError, MetadataRefused, MetadataUnavailable, MetadataUncertain

RETRY_S = 0.1  # between attempts while there is no connection
REFUSED_RETRY_S = 5.0  # before a watch that was refused is asked for again: somebody may give the node back
Ask = Callable[[Any], Any]  # from a kazoo client to an AsyncResult of kazoo

_BROKEN = (ConnectionLoss, ConnectionClosedError, SessionExpiredError, SessionMovedError, OperationTimeoutError)
_RESPONSE_ERRORS = (NoNodeError, NodeExistsError, BadVersionError, NotEmptyError, NoAuthError)

# kazoo reports every reconnect; without a handler of the program's own that would go to stderr.
logging.getLogger("kazoo").addHandler(logging.NullHandler())


class _Threads(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """kazoo's threads, with no wait longer than a third of the session.

    A server that is just starting accepts connections and may never answer on them. kazoo would wait for it as long as
    the session lives, and lose the session by that; so long it waits for nothing else (pings go out at this pace).
    """

    def __init__(self, session_s: float) -> None:
        super().__init__()
        self._longest_s = session_s / 3

    def select(self, read: Any, write: Any, other: Any, timeout: float) -> Any:
        return super().select(read, write, other, min(timeout, self._longest_s))

    def create_connection(self, *arguments: Any, timeout: float, **options: Any) -> Any:
        return super().create_connection(*arguments, timeout=min(timeout, self._longest_s), **options)


class ZkSession:
    """A session of ZooKeeper, for the event loop on which it was made."""

    def __init__(self, uri: ZooKeeperUri, timeout_s: float) -> None:
        self.uri, self.servers, self.timeout_s = uri, uri.servers, timeout_s
        self._loop = asyncio.get_running_loop()
        self._connected, self.closed = asyncio.Event(), False
        self.generation = 0  # grows with each break of the connection and each new one
        self._watches: list[_ZkWatch] = []
        reconnect = KazooRetry(max_tries=-1, delay=RETRY_S, max_delay=RETRY_S)
        self._client = KazooClient(
            uri.servers, timeout=timeout_s, connection_retry=reconnect, handler=_Threads(timeout_s)
        )
        self._client.add_listener(self._on_kazoo_thread)
        self._login: ZkLogin | None = None
        self.refusal: str | None = None  # why the last login failed
        self._settled = asyncio.Event()  # the first connect has led to something: a session or a refusal
        if uri.identity is not None:
            self._login = ZkLogin(uri.identity, self._client, self._logged_in, self._login_failed)
        if uri.is_secured:
            self._client.default_acl = CREATOR_ALL_ACL
        self.ids: list[int] = []  # the owner of our ephemeral nodes comes last; the others expired

    @property
    def is_connected(self) -> bool:
        """Returns whether a ZooKeeper server answers for the session now."""
        return self._connected.is_set()

    async def start(self) -> None:
        """Connect. Raises MetadataUnavailable when no server answers within the session time, MetadataRefused when one
        does not let the identity in, UsageError when its secrets cannot be read."""
        if self._login is not None:
            self._login.read()
        self._client.start_async()
        try:
            async with asyncio.timeout(self.timeout_s):
                await self._settled.wait()
        except asyncio.CancelledError:
            await self.close()  # its threads would try for ever
            raise
        except TimeoutError:
            await self.close()
            raise MetadataUnavailable(
                "ZooKeeper does not answer: is it running, and are host and port right?",
                servers=self.servers,
                waited_s=self.timeout_s,
            ) from None
        if not self.is_connected and self.refusal is not None:
            await self.close()
            raise MetadataRefused(self.refusal, servers=self.servers)

    async def close(self) -> None:
        """Ends the session: its ephemeral nodes vanish at once."""
        if not self.closed:
            self.closed = True
            for watch in list(self._watches):
                watch.cancel()
            await asyncio.to_thread(self._stop)

    def _stop(self) -> None:
        if self._login is not None:
            self._login.stop()
        self._client.stop()
        self._client.close()

    async def call(self, name: str, *arguments: Any, **options: Any) -> Any:
        """Returns ZooKeeper's response to one of kazoo's requests (``create``, ``get``, …).

        Raises NoNodeError, NodeExistsError, BadVersionError, NotEmptyError as kazoo has them, MetadataRefused for what
        is of another identity, and MetadataUncertain when there is no response for the session time: whatever the call
        would change may be changed.
        """
        try:
            response, _ = await self._call(_request(name, arguments, options))
        except NoAuthError as error:
            raise MetadataRefused(WHAT_TO_DO, path=arguments[0]) from error
        return response

    async def ensure(self, path: str) -> None:
        """Make a folder and those around it, unless they are there. Those around the cluster stay everybody's: others
        may have things there, too. Raises as ``call``."""
        top = next((top for top in tops(self.uri.root) if f"{path}/".startswith(f"{top}/")), None)
        if top is None or parent_of(top):
            await self.call("ensure_path", path if top is None else parent_of(top), acl=OPEN_ACL_UNSAFE)
        if top is not None:
            await self.call("ensure_path", path)

    async def sync(self, path: str) -> int:
        """Let the server that we are connected to catch up with its leader. Returns the generation of this connection.

        Reads that follow while ``generation`` stays the same see all that was stored before this call. Raises as
        ``call``.
        """
        while True:
            generation = self.generation
            await self.call("sync", path)
            if generation == self.generation:
                return generation

    @property
    def newest(self) -> int:
        """The transaction up to which the server was that sent the last response.

        A restored ensemble begins a new epoch above all that it had: only a single server shows by this that it was
        restored.
        """
        return int(self._client.last_zxid)

    async def transaction(self, fill: Callable[[Any], object], *, repeats: bool = True) -> tuple[list[Any], bool]:
        """Commit what ``fill`` puts into kazoo's transaction; a result for each part, errors among them, and whether
        the response to an earlier attempt was lost: then errors may tell of its effect.

        Unless it ``repeats`` there is one attempt: raises MetadataUncertain when its response is lost.
        """

        def ask(client: Any) -> Any:
            parts = client.transaction()
            fill(parts)
            return parts.commit_async()

        return await self._call(ask, repeats=repeats)

    def post(self, name: str, *arguments: Any) -> None:
        """Send a request whose response nobody needs; it is tried once."""
        with contextlib.suppress(MetadataError):
            response = self._ask(_request(name, arguments, {}))
            response.add_done_callback(lambda future: future.cancelled() or future.exception())

    async def _call(self, ask: Ask, *, repeats: bool = True) -> tuple[Any, bool]:
        """Returns the response, and whether the response to an earlier attempt was lost."""
        deadline, was_lost = self._loop.time() + self.timeout_s, False
        try:
            async with asyncio.timeout_at(deadline):
                while True:
                    try:
                        return await self._ask(ask), was_lost
                    except _BROKEN:
                        if not repeats:
                            text = "the connection to ZooKeeper broke before its answer"
                            raise MetadataUncertain(text, servers=self.servers) from None
                        was_lost = True
                        await asyncio.sleep(RETRY_S)
                        await self._connected.wait()
        except TimeoutError:
            raise MetadataUncertain(
                "ZooKeeper does not answer, so nobody knows whether a change that was under way was made",
                **({"refused": self.refusal} if self.refusal else {}),
                servers=self.servers,
                waited_s=self.timeout_s,
            ) from None
        except _RESPONSE_ERRORS:
            raise
        except KazooException as error:
            reason = f"ZooKeeper refuses: {type(error).__name__} {error}"
            raise MetadataError(reason, servers=self.servers) from error

    def _ask(self, ask: Ask) -> asyncio.Future[Any]:
        """Send a request once. Raises kazoo's errors."""
        if self.closed:
            raise MetadataError("this metadata connection is closed", servers=self.servers)
        future: asyncio.Future[Any] = self._loop.create_future()
        ask(self._client).rawlink(lambda result: self._on_loop(_settle, future, result))
        return future

    def watch_node(self, path: str, changed: Callable[[], None]) -> Watch:
        """Call ``changed`` on the loop after a node was made, changed or deleted."""
        return self._watch("exists", path, changed)

    def watch_children(self, path: str, changed: Callable[[], None]) -> Watch:
        """Call ``changed`` on the loop after a child was made or deleted."""
        return self._watch("get_children", path, changed)

    def _watch(self, name: str, path: str, changed: Callable[[], None]) -> Watch:
        watch = _ZkWatch(self, name, path, changed)
        self._watches.append(watch)
        watch.arm(tell=False)
        return watch

    def arm(self, name: str, path: str, fired: Callable[[], None]) -> asyncio.Future[Any]:
        """One request with a watch; kazoo drops the watch when it fires, and fires all when the connection breaks."""
        options = {"watch": lambda _: self._on_loop(fired)}
        return self._ask(_request(name, (path,), options))

    def later(self, function: Callable[[], None], delay_s: float = RETRY_S) -> None:
        self._loop.call_later(delay_s, function)

    def forget(self, watch: _ZkWatch) -> None:
        with contextlib.suppress(ValueError):
            self._watches.remove(watch)

    def _on_loop(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call back on the loop, from any thread; does nothing when the loop is closed."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *arguments)

    def _on_kazoo_thread(self, state: str) -> None:
        # Told before any response within the new session, so a response never meets an older id here.
        if state != KazooState.CONNECTED:
            self._on_loop(self._state_changed, None)
        elif self._login is None:  # else it is connected when it has said who it is
            self._logged_in()

    def _logged_in(self) -> None:
        self._on_loop(self._state_changed, self._client.client_id[0])

    def _login_failed(self, reason: str) -> None:
        self._on_loop(self._refuse, reason)

    def _refuse(self, reason: str) -> None:
        self.refusal = reason
        self._settled.set()

    def _state_changed(self, session_id: int | None) -> None:
        self.generation += 1
        if session_id is None:
            self._connected.clear()
            return
        if session_id not in self.ids:
            self.ids.append(session_id)
        self.refusal = None
        self._connected.set()
        self._settled.set()


class _ZkWatch:
    """A watch of one node or its children."""

    def __init__(self, session: ZkSession, name: str, path: str, changed: Callable[[], None]) -> None:
        self._session, self._name, self._path, self._changed = session, name, path, changed
        self._cancelled = False

    def arm(self, *, tell: bool) -> None:
        """``tell``: say "changed" once the watch is in place, for what it may have missed."""
        if not self._cancelled:
            armed = self._session.arm(self._name, self._path, self._arm_again)
            armed.add_done_callback(lambda future: self._armed(future, tell))

    def _arm_again(self) -> None:
        self.arm(tell=True)

    def _armed(self, future: asyncio.Future[Any], tell: bool) -> None:
        error = None if future.cancelled() else future.exception()
        if self._cancelled:
            return
        if isinstance(error, NoAuthError):
            self._session.later(self._arm_again, REFUSED_RETRY_S)
        elif future.cancelled() or error is not None:
            self._session.later(self._arm_again)
        elif tell:
            self._changed()

    def cancel(self) -> None:
        self._cancelled = True
        self._session.forget(self)


def _request(name: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Ask:
    return lambda client: getattr(client, f"{name}_async")(*arguments, **options)


def _settle(future: asyncio.Future[Any], result: Any) -> None:
    if future.done():  # its caller was cancelled
        return
    if result.exception is not None:
        future.set_exception(result.exception)
    else:
        future.set_result(result.value)
