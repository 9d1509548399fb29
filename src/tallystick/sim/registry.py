"""The metadata service of a simulated run: one ledger, linearizable compare-and-set, slow answers."""

from __future__ import annotations

from collections.abc import Callable

from tallystick.bookkeeper.wire.values import LedgerMetadata
from tallystick.sim.faults import Faults
from tallystick.sim.world import World


class Registry:
    """``stored`` is the truth; ``on_write`` sees every accepted write at its instant."""

    def __init__(
        self, world: World, faults: Faults, metadata: LedgerMetadata, on_write: Callable[[LedgerMetadata], None]
    ) -> None:
        self.stored, self.version = metadata, 0
        self._world, self._faults, self._on_write = world, faults, on_write

    def read(self, answered: Callable[[LedgerMetadata, int], None]) -> None:
        self._world.after(self._delay(), self._read, answered)

    def write(self, metadata: LedgerMetadata, version: int, answered: Callable[[bool], None]) -> None:
        """Compare-and-set; False: the version is not the stored one."""
        self._world.after(self._delay(), self._write, metadata, version, answered)

    def _read(self, answered: Callable[[LedgerMetadata, int], None]) -> None:
        self._world.after(self._delay(), answered, self.stored, self.version)

    def _write(self, metadata: LedgerMetadata, version: int, answered: Callable[[bool], None]) -> None:
        accepted = version == self.version
        if accepted:
            self.stored, self.version = metadata, version + 1
            self._world.note("metadata", metadata.state.name, [(f.first, *f.bookies) for f in metadata.fragments],
                             metadata.last_entry)  # fmt: skip
            self._on_write(metadata)
        self._world.after(self._delay(), answered, accepted)

    def _delay(self) -> float:
        slow = self._world.chance(self._faults.metadata_slow)
        return min(60.0, self._world.random.paretovariate(0.8)) if slow else 0.002 + 0.01 * self._world.random.random()
