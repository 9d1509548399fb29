"""What the store's thread of upkeep does, in the simulator."""

from __future__ import annotations

from typing import Protocol

from tallystick.sim.ha_log import SimLog
from tallystick.sim.ha_queues import check_dispatch
from tallystick.sim.world import World

MAX_UPKEEP_S = 10.0


class Node(Protocol):
    """A master or a slave; each start is another life."""

    world: World
    log: SimLog
    up: bool
    life: int


class Upkeep:
    """Of a node's store, in one of its lives: about as often as the thread does it; and a look at queues and index."""

    def __init__(self, node: Node) -> None:
        self._node, self._life = node, node.life
        self._again()

    def _again(self) -> None:
        world = self._node.world
        world.after(world.random.random() * MAX_UPKEEP_S, self._run)

    def _run(self) -> None:
        node = self._node
        if node.up and node.life == self._life:
            node.log.maintain()
            node.log.dispatch()
            if node.world.chance(0.03):
                check_dispatch(node.log)
            self._again()
