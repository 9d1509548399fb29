"""Clusters for the tests of programs that use tallystick: in this process, in less than a second, with faults.

::

    async with cluster(bookies=3, brokers="1+1") as c, c.connect() as bk:
        writer = await bk.create_ledger()
        c.bookies["bookie-1"].kill()

``docs/testing.md`` explains it.
"""

from tallystick.sim.virtual.loop import Stuck
from tallystick.testing.cluster import Cluster, cluster
from tallystick.testing.nodes import BookieNode, BrokerNode, NameServerNode, Node
from tallystick.testing.virtual import run, virtual_time

__all__ = ["BookieNode", "BrokerNode", "Cluster", "NameServerNode", "Node", "Stuck", "cluster", "run", "virtual_time"]
