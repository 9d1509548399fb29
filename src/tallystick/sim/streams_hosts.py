"""The processes of a simulated stream: whole bookies, and clients that own, read and consume it."""

from __future__ import annotations

from tallystick.bookkeeper.ledger.settings import ClientSettings
from tallystick.bookkeeper.metadata.cluster import ClusterMetadata
from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.bookkeeper.stream.settings import StreamClientSettings
from tallystick.sim.cluster_hosts import BookieWorld
from tallystick.sim.hosts import ClientHost
from tallystick.sim.remote_store import SESSION_S, RemoteStore
from tallystick.sim.store_service import StoreService
from tallystick.sim.streams_judge import StreamsJudge
from tallystick.sim.virtual.process import Process


class StreamsMetadata:
    """Where all processes connect to; ``store`` is what stands behind it."""

    def __init__(self, name: str, store: StoreService) -> None:
        self.name, self.store = name, store

    def connect(self, process: Process) -> ClusterMetadata:
        """Returns the real driver, over a store of this service."""
        return ClusterMetadata(RemoteStore(self.store, process, SESSION_S))


class StreamsWorld(BookieWorld):
    """That of streams."""

    service: StreamsMetadata
    judge: StreamsJudge


class StreamClientHost(ClientHost[StreamsWorld, BookKeeper]):
    """A machine on which one program uses streams, by this wire (``ClientSettings.wire``)."""

    def __init__(
        self, world: StreamsWorld, number: int, name: str, *, client: ClientSettings, streams: StreamClientSettings
    ) -> None:
        super().__init__(world, number, name)
        self.wire, self._settings, self._streams = client.wire, client, streams
        world.trace.note(name, "speaks", client.wire, "from", self.address)

    def _client(self) -> BookKeeper:
        driver = self._world.service.connect(self.process)
        return BookKeeper(driver, self.outside(), self._settings, self._streams)
