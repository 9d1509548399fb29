"""An unmodified Pulsar broker over the ledgers of a cluster."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Mapping
from pathlib import Path

from support.java import Java
from support.peers import Server
from support.ports import free_port

FLAGS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m", "-XX:MaxDirectMemorySize=512m")
CLUSTER = "tally"
# What a topic does not need is off: it would make more ledgers and take longer to start.
SETTINGS: dict[str, object] = {
    "clusterName": CLUSTER,
    "advertisedAddress": "127.0.0.1",
    "bindAddress": "127.0.0.1",
    "managedLedgerDefaultEnsembleSize": 2,
    "managedLedgerDefaultWriteQuorum": 2,
    "managedLedgerDefaultAckQuorum": 2,
    "loadBalancerEnabled": "false",
    "systemTopicEnabled": "false",
    "topicLevelPoliciesEnabled": "false",
    "transactionCoordinatorEnabled": "false",
    "functionsWorkerEnabled": "false",
    "brokerDeleteInactiveTopicsEnabled": "false",
    "numIOThreads": 2,
    "numHttpServerThreads": 8,
    "bookkeeperClientTimeoutInSeconds": 10,
}


class PulsarBroker(Server):
    """One broker. ``address`` is what a client connects to, ``web`` where its administration answers."""

    @classmethod
    async def prepare(
        cls,
        java: Java,
        uri: str,
        folder: Path,
        *,
        v2: bool,
        changes: Mapping[str, object] | None = None,
        flags: tuple[str, ...] = FLAGS,
    ) -> PulsarBroker:
        """Write Pulsar's own metadata beside the ledgers, and the configuration of a broker. Next: ``start`` it.

        Pulsar's nodes are beside the ledgers, where streams are: of ``/name/ledgers`` they are below ``/name``.
        """
        await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
        server, _, root = uri.removeprefix("zk+hierarchical://").partition("/")
        above, slash, _ = root.rpartition("/")
        binary, web = free_port(), free_port()
        store = f"zk:{server}{slash}{above}"
        setup = java.command(
            "org.apache.pulsar.PulsarClusterMetadataSetup",
            *("--cluster", CLUSTER, "--metadata-store", store, "--configuration-metadata-store", store),
            *("--existing-bk-metadata-service-uri", uri, "--web-service-url", f"http://127.0.0.1:{web}"),
            *("--broker-service-url", f"pulsar://127.0.0.1:{binary}"),
            flags=FLAGS,
        )
        done = await asyncio.to_thread(
            subprocess.run, setup, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
        )
        assert done.returncode == 0, done.stdout[-3000:].decode(errors="replace")
        configuration = {
            **SETTINGS,
            "metadataStoreUrl": store,
            "configurationMetadataStoreUrl": store,
            "bookkeeperMetadataServiceUri": uri,
            "brokerServicePort": binary,
            "webServicePort": web,
            "bookkeeperUseV2WireProtocol": str(v2).lower(),
            **(changes or {}),
        }
        path = folder / "broker.conf"
        await asyncio.to_thread(path.write_text, "".join(f"{key}={value}\n" for key, value in configuration.items()))
        command = java.command("org.apache.pulsar.PulsarBrokerStarter", "--broker-conf", str(path), flags=flags)
        broker = cls(command, folder, "pulsar")
        broker.address, broker.web = f"pulsar://127.0.0.1:{binary}", f"http://127.0.0.1:{web}"
        broker._ports = (binary, web)
        return broker

    address: str
    web: str
    _ports: tuple[int, int]

    async def probe(self) -> None:
        """It opens its ports last of all."""
        for port in self._ports:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
