"""One ZooKeeper session, from asyncio: kazoo runs on threads of its own, and nothing here waits for them on the loop.

A request whose connection breaks is asked again after the reconnect, for as long as the session may take; who asks for
a transaction is told of that. Watches are armed again after they fired and after every
break, and then say "changed": what happened in between cannot be known.
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
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    OperationTimeoutError,
    SessionExpiredError,
    SessionMovedError,
)
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.retry import KazooRetry

from tallystick.bookkeeper.metadata.store import Watch
from tallystick.bookkeeper.metadata.uri import ZooKeeperUri
from tallystick.errors import MetadataError, MetadataUnavailable, MetadataUncertain

RETRY_S = 0.1  # between attempts while there is no connection
Ask = Callable[[Any], Any]  # from a kazoo client to an AsyncResult of kazoo

_BROKEN = (ConnectionLoss, ConnectionClosedError, SessionExpiredError, SessionMovedError, OperationTimeoutError)
_RESPONSE_ERRORS = (NoNodeError, NodeExistsError, BadVersionError, NotEmptyError)

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
        self.ids: list[int] = []  # the owner of our ephemeral nodes comes last; the others expired

    @property
    def is_connected(self) -> bool:
        """Returns whether a ZooKeeper server answers for the session now."""
        return self._connected.is_set()

    async def start(self) -> None:
        """Connect. Raises MetadataUnavailable when no server answers within the session time."""
        self._client.start_async()
        try:
            async with asyncio.timeout(self.timeout_s):
                await self._connected.wait()
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

    async def close(self) -> None:
        """Ends the session: its ephemeral nodes vanish at once."""
        if not self.closed:
            self.closed = True
            for watch in list(self._watches):
                watch.cancel()
            await asyncio.to_thread(self._stop)

    def _stop(self) -> None:
        self._client.stop()
        self._client.close()

    async def call(self, name: str, *arguments: Any, **options: Any) -> Any:
        """Returns ZooKeeper's response to one of kazoo's requests (``create``, ``get``, …).

        Raises NoNodeError, NodeExistsError, BadVersionError, NotEmptyError as kazoo has them, and MetadataUncertain
        when there is no response for the session time: whatever the call would change may be changed.
        """
        response, _ = await self._call(_request(name, arguments, options))
        return response

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

    def later(self, function: Callable[[], None]) -> None:
        self._loop.call_later(RETRY_S, function)

    def forget(self, watch: _ZkWatch) -> None:
        with contextlib.suppress(ValueError):
            self._watches.remove(watch)

    def _on_loop(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call back on the loop, from any thread; does nothing when the loop is closed."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *arguments)

    def _on_kazoo_thread(self, state: str) -> None:
        # Told before any response within the new session, so a response never meets an older id here.
        connected = state == KazooState.CONNECTED and self._client.client_id
        self._on_loop(self._state_changed, connected[0] if connected else None)

    def _state_changed(self, session_id: int | None) -> None:
        self.generation += 1
        if session_id is None:
            self._connected.clear()
            return
        if session_id not in self.ids:
            self.ids.append(session_id)
        self._connected.set()


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
        has_failed = future.cancelled() or future.exception() is not None
        if self._cancelled:
            return
        if has_failed:
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
