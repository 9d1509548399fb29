"""The ports of a broker: two for clients, one for its health pages; and a look whether that for slaves is free.

The ports for clients are reserved before anything is written, so that a start without them leaves no folder.
"""

from __future__ import annotations

from dataclasses import replace

from tallystick.errors import UsageError
from tallystick.rocketmq.broker.server import BrokerServer, Requests
from tallystick.rocketmq.broker.settings import FAST_PORT_BELOW, BrokerSettings
from tallystick.rocketmq.remoting.server_requests import ServerRequests
from tallystick.runtime.health import HealthPages, serve_health
from tallystick.runtime.network import Listener
from tallystick.runtime.outside import Outside

Address = tuple[str, int]

STORE_SHARE = 4  # this part of the process's open files is the store's, at most
OTHER_FILES = 512  # of the process's open files: slaves, HTTP, connections that are closed again, what is saved


class BrokerPorts:
    """``listen`` at them when requests can be served; ``close`` what is reserved and was not listened at."""

    def __init__(self, settings: BrokerSettings, outside: Outside) -> None:
        """Reserve the ports for clients. Raises UsageError."""
        self._settings, self._outside = settings, outside
        self._reserved = outside.network.reserve(
            settings.host, -FAST_PORT_BELOW, port=settings.port, purpose=" for clients"
        )
        self.address: Address = (settings.host, self._reserved.port)
        self.fast_address: Address = (settings.host, self.address[1] - FAST_PORT_BELOW)

    def close(self) -> None:
        self._reserved.close()

    def check_ha_port(self) -> None:
        """Raises UsageError if another process listens at the port for slaves."""
        settings = self._settings
        if settings.listen_ha_port:
            self._outside.network.reserve(settings.host, port=settings.listen_ha_port, purpose=" for slaves").close()

    def make_server(self, requests: Requests, server_requests: ServerRequests) -> BrokerServer:
        """Returns the server for clients, whose connections leave the store its open files."""
        open_files, remoting = self._outside.open_files, self._settings.remoting
        room = (open_files - open_files // STORE_SHARE - OTHER_FILES) // 2  # for each of two ports
        bounded = replace(remoting, max_connections=min(remoting.max_connections, room))
        return BrokerServer(self._outside, requests, bounded, server_requests)

    async def listen(self, server: BrokerServer) -> None:
        """Serve clients. Raises UsageError."""
        try:
            await server.start(*self.address)
        except OSError as error:
            ports = f"{self.address[1]} and {self.fast_address[1]}"
            raise UsageError(f"cannot listen for clients: {error.strerror}", ports=ports) from error
        self._reserved.close()
        self._tell_who_gets_in()

    def _tell_who_gets_in(self) -> None:
        settings = self._settings
        if settings.ha.allowed_addresses:
            addresses = ", ".join(map(str, settings.ha.allowed_addresses))
            self._outside.events.emit("slaves let in by address", addresses=addresses)
        if settings.tls.trust is not None and not settings.ha.allowed_names:
            self._outside.events.emit("slaves let in by any certificate", authorities=settings.tls.trust)
        asks = settings.access.authenticates and not settings.access.anonymous
        if not settings.is_loopback and not asks:
            reason = "bindAddress says so; whoever reaches the ports can read and write"
            host, port = self.address
            self._outside.events.emit("listening beyond this machine", host=host, port=port, reason=reason)

    async def listen_http(self, pages: HealthPages) -> Listener:
        """Serve the health pages. Raises UsageError."""
        settings = self._settings
        try:
            return await serve_health(self._outside.network, settings.http_host, settings.http_port, pages)
        except OSError as error:
            reason = f"cannot listen for HTTP: {error.strerror}"
            raise UsageError(reason, metricsPromExporterPort=settings.http_port) from error
