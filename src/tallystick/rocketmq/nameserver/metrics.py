"""The metrics of a name server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from tallystick.rocketmq.nameserver.routes import RoutesCore
from tallystick.rocketmq.remoting.server import RemotingServer
from tallystick.runtime.health import process_registry

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Metric


class _Collector:
    def __init__(
        self, routes: RoutesCore, server: RemotingServer, requests: dict[int, int], refused_count: Callable[[], int]
    ) -> None:
        self._routes, self._server, self._requests, self._refused_count = routes, server, requests, refused_count

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        routes, server = self._routes, self._server
        brokers = GaugeMetricFamily("nameserver_brokers", "Registered brokers", labels=["role"])
        masters, slaves = routes.sets.broker_counts
        brokers.add_metric(["master"], masters)
        brokers.add_metric(["slave"], slaves)
        yield brokers
        yield GaugeMetricFamily(
            "nameserver_brokers_displaced",
            "Living brokers whose name and id another one has",
            routes.sets.displaced_count,
        )
        yield GaugeMetricFamily("nameserver_topics", "Topics of all brokers", routes.topic_count)
        yield GaugeMetricFamily("nameserver_connections", "Open connections", server.connections)
        held_bytes = server.memory.unsent_bytes + server.memory.unfinished_bytes + server.memory.kept_bytes
        yield GaugeMetricFamily("nameserver_held_bytes", "Held in memory for clients", held_bytes)
        requests = CounterMetricFamily("nameserver_requests_total", "Requests answered", labels=["code"])
        for code in sorted(self._requests):
            requests.add_metric([str(code)], self._requests[code])
        yield requests
        yield CounterMetricFamily(
            "nameserver_registrations_refused_total", "Brokers or topics there was no room for", self._refused_count()
        )
        yield CounterMetricFamily(
            "nameserver_malformed_total", "Connections closed for garbage", server.malformed_connections
        )
        yield CounterMetricFamily(
            "nameserver_connections_dropped_total",
            "Connections closed for what they made it hold",
            server.memory.dropped_connections,
        )


def registry(
    routes: RoutesCore, server: RemotingServer, requests: dict[int, int], refused_count: Callable[[], int]
) -> CollectorRegistry:
    """Returns the registry of all metrics, the process included. ``requests`` are by code, 0 for unknown ones;
    ``refused_count`` is that of registrations."""
    return process_registry(_Collector(routes, server, requests, refused_count))
