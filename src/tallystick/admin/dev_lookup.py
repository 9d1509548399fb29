"""Where the development cluster is: its folder, the metadata of its ledgers, its name server."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from tallystick.admin.dev import DevCluster
from tallystick.admin.dev_nodes import NodeKind
from tallystick.errors import TallyError, Unavailable, UsageError


def default_directory(environment: Mapping[str, str]) -> str:
    """Returns ``TALLY_DEV_DIR``, else a folder of the user's state folder."""
    if directory := environment.get("TALLY_DEV_DIR"):
        return os.path.abspath(directory)
    state = environment.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(state, "tallystick", "dev")


def running_uri(directory: str) -> str | None:
    """Returns the URI of the metadata of the folder's bookies. Returns None when every node of the cluster is dead.

    A file holds it, so it is there while all bookies are dead.
    """
    state = DevCluster(directory).load()
    runs = state is not None and state.of(NodeKind.BOOKIE) and any(node.runs for node in state.nodes)
    return state.uri if state is not None and runs else None


def running_name_server(directory: str) -> str | None:
    """Returns the address of the folder's name server. Returns None when it is dead."""
    state = DevCluster(directory).load()
    return state.name_server if state is not None and any(one.runs for one in state.of(NodeKind.NAME_SERVER)) else None


def find_uri(environment: Mapping[str, str] | None = None) -> str:
    """Returns the URI where none is given: ``TALLY_URI``, else that of the default folder's cluster.

    ``environment``: None is the process's. Raises UsageError when there is neither.
    """
    environment = os.environ if environment is None else environment
    directory = default_directory(environment)
    uri = environment.get("TALLY_URI") or running_uri(directory)
    if not uri:
        raise UsageError(
            "which cluster? Give its uri (--uri; in Spark the option uri), set TALLY_URI, or start one with: "
            "tally dev up --bookies 4",
            looked_in=directory,
        )
    return uri


def find_name_server(environment: Mapping[str, str] | None = None) -> str:
    """Returns the name server where none is given: ``TALLY_NAMESRV``, else that of the default folder's cluster.

    ``environment``: None is the process's. Raises UsageError when there is neither; Unavailable when the name server of
    a running cluster is dead or not ready.
    """
    environment = os.environ if environment is None else environment
    directory = default_directory(environment)
    address = environment.get("TALLY_NAMESRV") or running_name_server(directory)
    if not address:
        state = DevCluster(directory).load()
        if state is not None and state.of(NodeKind.NAME_SERVER) and any(node.runs for node in state.nodes):
            raise Unavailable(
                "the name server of the development cluster does not run, or is not ready: start it with "
                "`tally dev restart nameserver`, give another (--name-server; in Spark the option nameServer), or set "
                "TALLY_NAMESRV",
                looked_in=directory,
            )
        raise UsageError(
            "which name server? Give it (--name-server; in Spark the option nameServer), set TALLY_NAMESRV, or start "
            "one with: tally dev up --brokers 1+1",
            looked_in=directory,
        )
    return address


class ClusterAddresses:
    """The addresses of ledgers and topics where a program names none; each is looked up when it is read."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment

    @property
    def uri(self) -> str:
        """For ``tallystick.connect``. Raises UsageError when there is none."""
        return find_uri(self._environment)

    @property
    def name_servers(self) -> str:
        """For ``tallystick.topics``. Raises UsageError when there is none, Unavailable when it is dead or not ready."""
        return find_name_server(self._environment)

    def __repr__(self) -> str:
        uri, name_servers = (_or_none(find, self._environment) for find in (find_uri, find_name_server))
        return f"<ClusterAddresses uri={uri} name_servers={name_servers}>"


def _or_none(find: Callable[[Mapping[str, str]], str], environment: Mapping[str, str]) -> str | None:
    try:
        return find(environment)
    except TallyError:
        return None


def find_cluster(environment: Mapping[str, str] | None = None) -> ClusterAddresses:
    """Returns what ``TALLY_URI`` and ``TALLY_NAMESRV`` name, else the cluster that runs here (``tally dev up``).

    ``environment``: None is the process's.
    """
    return ClusterAddresses(os.environ if environment is None else environment)
