"""The routes of all topics in use: asked of a name server, cached, and asked for again now and then.

While a broker is missing that was in a route, the route is asked for again soon (``absences.py``).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from tallystick.errors import NoSuchTopic, TallyError
from tallystick.rocketmq.client.absences import AbsencesCore
from tallystick.rocketmq.client.name_servers import NameServers
from tallystick.rocketmq.client.outages import Outages
from tallystick.rocketmq.client.responses import require_success
from tallystick.rocketmq.client.settings import BrokerClientSettings
from tallystick.rocketmq.client.topic import TEMPLATE_TOPIC, Topic
from tallystick.rocketmq.remoting.client import RemotingClient
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.name_server_headers import RouteHeader
from tallystick.rocketmq.wire.values import MessageQueue, RequestCode, TopicRoute
from tallystick.runtime.clock import Clock
from tallystick.runtime.events import Events

FIRST_PAUSE_S = 0.05  # before an unknown topic is asked for again; twice as long each time
PAUSE_S = 0.5  # at most
SOON_S = 1.0  # between two requests after failures: there may be as many of those as messages


class TopicRoutes:
    """See the module."""

    def __init__(
        self,
        remoting: RemotingClient,
        *,
        name_servers: Sequence[str],
        settings: BrokerClientSettings,
        clock: Clock,
        events: Events,
        on_change: Callable[[], None],
    ) -> None:
        """``on_change`` is called when a topic's brokers are at other addresses."""
        self._settings, self._clock, self._events = settings, clock, events
        self._name_servers = NameServers(remoting, name_servers, settings.request_timeout_s)
        self._topics: dict[str, Topic] = {}
        self._queries: dict[str, asyncio.Task[Topic]] = {}
        self._asked_at: dict[str, float] = {}  # after a failure
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._absences = AbsencesCore(settings.route_refresh_s)
        self._absence_timers: dict[str, asyncio.TimerHandle] = {}  # of topics whose route lacks a broker
        self._outages = Outages()
        self._on_change = on_change
        self._closed = False

    @property
    def topics(self) -> list[Topic]:
        return list(self._topics.values())

    def cached(self, name: str) -> Topic | None:
        return self._topics.get(name)

    async def find(self, name: str) -> Topic:
        """Returns the cached route of a topic, or what ``await_known`` returns."""
        return self._topics.get(name) or await self.await_known(name)

    async def await_known(self, name: str) -> Topic:
        """Returns the route of a topic, which a new topic, or a name server that just started, may not have for some
        seconds.

        Raises as ``refresh``: NoSuchTopic after ``topic_wait_s``.
        """
        return await self.patiently(lambda: self.refresh(name), self._settings.topic_wait_s)

    async def patiently(self, search: Callable[[], Awaitable[Topic]], wait_s: float) -> Topic:
        """Returns what ``search`` returns. While it raises NoSuchTopic it is called again, for ``wait_s``."""
        ends, pause_s = self._clock.now() + wait_s, FIRST_PAUSE_S
        while True:
            try:
                return await search()
            except NoSuchTopic:
                left_s = ends - self._clock.now()
                if left_s <= 0:
                    raise
                await asyncio.sleep(min(pause_s, left_s))
                pause_s = min(2 * pause_s, PAUSE_S)

    async def refresh(self, name: str, *, may_be_missing: bool = False) -> Topic:
        """As a name server knows it now; those who ask meanwhile share the response. A failure is an event too,
        but for an unknown topic that ``may_be_missing``.

        Raises NoSuchTopic, BrokerError, Unavailable (no name server answers), RemoteProtocolError.
        """
        task = self._queries.get(name)
        if task is None:
            task = self._queries[name] = asyncio.create_task(self._ask(name))
            task.add_done_callback(lambda task: self._query_ended(name, task, may_be_missing=may_be_missing))
        return await asyncio.shield(task)

    def refresh_soon(self, name: str) -> None:
        """A request failed, so the route may be out of date: ask for it. Without a response nothing changes.

        ``SOON_S`` after the last request at the earliest, and later while name servers do not respond.
        """
        if self._closed or name in self._queries or name in self._timers:
            return
        now = self._clock.now()
        wait_s = max(self._asked_at.get(name, now - SOON_S) + SOON_S - now, self._outages.pause_s(name, now))
        if wait_s <= 0:
            self._ask_soon(name)
        else:
            self._timers[name] = asyncio.get_running_loop().call_later(wait_s, self._ask_soon, name)

    def _ask_soon(self, name: str) -> None:
        self._timers.pop(name, None)
        self._asked_at[name] = self._clock.now()
        if name not in self._queries:
            task = self._queries[name] = asyncio.create_task(self._ask(name))
            task.add_done_callback(lambda task: self._query_ended(name, task, soon=True))

    def stand_in(self, name: str, template: Topic, queues: int) -> Topic:
        """For a topic that does not exist yet: where the first message may create it, until it has a route."""
        writable = tuple(MessageQueue(name, q.broker, q.queue_id) for q in template.writable if q.queue_id < queues)
        return self._take(Topic(name, writable, writable, template.addresses))

    async def keep_fresh(self) -> None:
        """Ask for the routes of all topics in use again, for ever."""
        while True:
            await asyncio.sleep(self._settings.route_refresh_s)
            for name in tuple(self._topics):
                self.refresh_soon(name)

    async def close(self) -> None:
        self._closed = True
        for timer in (*self._timers.values(), *self._absence_timers.values()):
            timer.cancel()
        tasks = list(self._queries.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _query_ended(
        self, name: str, task: asyncio.Task[Topic], *, may_be_missing: bool = False, soon: bool = False
    ) -> None:
        del self._queries[name]
        error = None if task.cancelled() else task.exception()
        if error is None:
            self._outages.ended(name)
        elif not (may_be_missing and isinstance(error, NoSuchTopic)):
            # Who waits for this response gives up by himself; who failed tries for ever.
            failures = self._outages.failed(name, self._clock.now()) if soon else 1
            if failures:
                self._events.emit("route not found", topic=name, failures=failures, reason=str(error))
        self._look_again(name)

    def _look_again(self, name: str) -> None:
        """Ask again for a route that lacks brokers, if it does."""
        if timer := self._absence_timers.pop(name, None):
            timer.cancel()  # another broker may have left: it is looked for sooner
        pause_s = self._absences.pause_s(name, self._clock.now())
        if pause_s is not None and not self._closed:
            self._absence_timers[name] = asyncio.get_running_loop().call_later(pause_s, self._look, name)

    def _look(self, name: str) -> None:
        del self._absence_timers[name]
        self.refresh_soon(name)

    async def _ask(self, name: str) -> Topic:
        try:
            topic = await self._route(name)
        except NoSuchTopic:
            if name in self._topics:
                await self._relocate(name)
            raise
        former = self._topics.get(name)
        if topic.left_out and (former is None or former.left_out != topic.left_out):
            first = list(topic.left_out[:10])
            self._events.emit("queues left out", topic=name, sets=len(topic.left_out), brokers=first)
        return self._take(topic)

    def _take(self, topic: Topic) -> Topic:
        former, self._topics[topic.name] = self._topics.get(topic.name), topic
        self._absences.route_found(topic, former, self._clock.now())
        if former is None or former.addresses != topic.addresses:
            self._on_change()
        return topic

    async def _relocate(self, name: str) -> None:
        """A topic in use that name servers do not know is none yet, or was deleted: no route of its own will ever say
        where its brokers are by now. That of the template does."""
        with contextlib.suppress(TallyError):
            template, topic = await self._route(TEMPLATE_TOPIC), self._topics[name]
            self._take(replace(topic, addresses={**topic.addresses, **template.addresses}))

    async def _route(self, name: str) -> Topic:
        response = await self._name_servers.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, RouteHeader(name, True).to_fields())
        body = bytes(require_success(response, topic=name).body)
        return Topic.of_route(name, dialect.read_as(body, TopicRoute))
