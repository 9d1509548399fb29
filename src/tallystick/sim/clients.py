"""Writer and recoverer of a simulated run: thin shells around the production cores, as the asyncio ones are."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tallystick.bookkeeper.ledger import add, recovery
from tallystick.bookkeeper.ledger.degraded import QuorumLoss
from tallystick.bookkeeper.ledger.recovery import Answer, RecoveryCore
from tallystick.bookkeeper.wire.v2 import NO_CODES, Code
from tallystick.bookkeeper.wire.values import Ensemble, EntryId, Fragment, LedgerMetadata, LedgerState, Slot
from tallystick.sim.bookies import Cluster, Reply, Request, Stored
from tallystick.sim.invariants import Checker, content, length_up_to
from tallystick.sim.registry import Registry
from tallystick.sim.world import World

NO_QUORUM_S = 20.0


class Process:
    """A client: while paused or dead nothing reaches it; what came during a pause is handled after it."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name, self.alive, self.silent_until = world, name, True, 0.0

    def hears(self, handle: Callable[..., None], *arguments: object) -> None:
        if self.alive and self.silent_until > self.world.now:
            self.world.after(self.silent_until - self.world.now, self.hears, handle, *arguments)
        elif self.alive:
            handle(*arguments)


def replacement(world: World, cluster: Cluster, ensemble: Ensemble, failed: Sequence[str]) -> Ensemble | None:
    """The ensemble with as many of the failed bookies replaced as there are spares; None when there is none."""
    spares = [bookie for bookie in cluster.bookies if bookie not in ensemble and bookie not in failed]
    world.random.shuffle(spares)
    new = tuple(spares.pop() if bookie in failed and spares else bookie for bookie in ensemble)
    return new if new != ensemble else None


class Adds:
    """The part that both share: send what an add core orders, drop the answers of bookies that it replaced."""

    def __init__(self, process: Process, cluster: Cluster, ensemble: Ensemble, *, recovery: bool) -> None:
        self._process, self._cluster, self._recovery = process, cluster, recovery
        self._attempts = [0] * len(ensemble)
        self._sends = [True] * len(ensemble)
        self.ensemble = ensemble

    def change(self, ensemble: Ensemble) -> None:
        """A slot with another bookie is a new attempt."""
        for slot, (old, new) in enumerate(zip(self.ensemble, ensemble, strict=True)):
            if old != new:
                self.attempt(slot, sends=True)
        self.ensemble = ensemble

    def attempt(self, slot: Slot, *, sends: bool) -> None:
        """Answers to what was sent so far are void; nothing is sent to a slot without a bookie."""
        self._attempts[slot] += 1
        self._sends[slot] = sends

    def send(
        self, slot: Slot, entry: EntryId, stored: Stored, acked: Callable[[Slot, EntryId], None],
        failed: Callable[[Slot, EntryId, int | None], None],
    ) -> None:  # fmt: skip
        if not self._sends[slot]:
            return
        attempt = self._attempts[slot]

        def handle(reply: Reply | None) -> None:
            if attempt != self._attempts[slot]:
                return
            if reply is not None and reply.code == Code.OK:
                acked(slot, entry)
            else:
                failed(slot, entry, None if reply is None else reply.code)

        request = Request(entry, stored, recovery=self._recovery)
        self._cluster.call(self.ensemble[slot], request, lambda reply: self._process.hears(handle, reply))


class Writer(Process):
    """Appends entries one or more at a time, then closes unless it dies or is fenced."""

    def __init__(self, world: World, cluster: Cluster, registry: Registry, checker: Checker) -> None:
        super().__init__(world, "writer")
        self.cluster, self.registry, self.checker = cluster, registry, checker
        metadata = registry.stored
        self.core = add.AddCore(checker.striping, metadata.ensemble)
        self._adds = Adds(self, cluster, metadata.ensemble, recovery=False)
        self._sent: dict[EntryId, Stored] = {}
        self._loss = QuorumLoss(NO_QUORUM_S)
        self._retries = False

    def append(self, count: int) -> None:
        if self.core.failure is None:
            self._perform(self.core.append(count))

    def _retry_later(self) -> None:
        if self.core.missing and not self._retries:
            self._retries = True
            self.world.after(1.0 + self.world.random.random(), self.hears, self._retry)

    def _retry(self) -> None:
        """A missing bookie is replaced, or tried again whether it lives or not."""
        self._retries = False
        if self.core.failure is not None or not self.core.missing:
            return
        if self._loss.over(self.world.now):
            self._perform(self.core.change_failed(add.Reason.NO_QUORUM))
        elif replacement(self.world, self.cluster, self.core.ensemble, self.core.missing) is not None:
            self._perform(self.core.retry())
        else:
            self._perform(self.core.resumed(self.world.random.choice(self.core.missing)))
        self._retry_later()

    def close(self) -> None:
        """What is pending is given up; the ledger ends at the LAC, unless somebody recovers it."""
        if self.core.failure is None:
            self._perform(self.core.change_failed())
            self.registry.read(lambda *found: self.hears(self._close, *found))

    def _close(self, metadata: LedgerMetadata, version: int) -> None:
        if metadata.state is not LedgerState.OPEN:
            return
        last = self.core.lac
        closed = metadata.closed(last, length_up_to(last))
        self.registry.write(closed, version, lambda accepted: self.hears(self._closed, accepted, last))

    def _closed(self, accepted: bool, last: EntryId) -> None:
        if accepted:
            self.checker.on_reported_end(last)
        else:
            self.registry.read(lambda *found: self.hears(self._close, *found))

    def _perform(self, actions: list[add.Action]) -> None:
        for action in actions:
            self.world.note("writer", action)
            match action:
                case add.Send(first, last):
                    for entry in range(first, last + 1):
                        self._sent[entry] = Stored(content(self.world.seed, entry), self.core.lac, length_up_to(entry))
                        for slot in self.checker.striping.slots(entry):
                            self._send(slot, entry)
                case add.Resend(slot, first, last):
                    for entry in self.checker.striping.stripe(slot, first, last):
                        self._send(slot, entry)
                case add.Confirm(lac):
                    for entry in range(self.checker.acked + 1, lac + 1):
                        self.checker.on_ack(entry)
                case add.Replace(failed, first):
                    self._replace(failed, first)
                case add.Suspend(slot) | add.Resume(slot):
                    self._adds.attempt(slot, sends=isinstance(action, add.Resume))
        if self.core.missing:
            self._loss.observed(self.core.starved, self.world.now)

    def _send(self, slot: Slot, entry: EntryId) -> None:
        self._adds.send(
            slot, entry, self._sent[entry],
            lambda slot, entry: self._perform(self.core.acked(slot, entry, entry)),
            lambda slot, entry, code: self._perform(self.core.failed(slot, entry, code)),
        )  # fmt: skip

    def _replace(self, failed: Sequence[str], first: EntryId) -> None:
        def found(metadata: LedgerMetadata, version: int) -> None:
            if metadata.state is not LedgerState.OPEN:
                self._perform(self.core.change_failed(add.Reason.FENCED))
                return
            ensemble = replacement(self.world, self.cluster, metadata.ensemble, failed)
            if ensemble is None:
                self._perform(self.core.no_replacement())
                self._retry_later()
                return
            changed = metadata.with_fragment(first, ensemble)
            self.registry.write(changed, version, lambda accepted: self.hears(written, accepted, ensemble))

        def written(accepted: bool, ensemble: Ensemble) -> None:
            if accepted:
                self._adds.change(ensemble)
                self._perform(self.core.ensemble_changed(ensemble))
            else:
                self.registry.read(lambda *again: self.hears(found, *again))

        self.registry.read(lambda *now: self.hears(found, *now))


class Recoverer(Process):
    """Recovers the ledger; when it cannot be certain, it tries again a little later."""

    def __init__(self, world: World, cluster: Cluster, registry: Registry, checker: Checker, name: str) -> None:
        super().__init__(world, name)
        self.cluster, self.registry, self.checker = cluster, registry, checker
        self.done = False
        self._read_yet = False

    def begin(self) -> None:
        if self.done:
            return
        self.registry.read(lambda *found: self.hears(self._found, *found))

    def _found(self, metadata: LedgerMetadata, version: int) -> None:
        match metadata.state:
            case LedgerState.CLOSED:
                self._adopt(metadata)
            case LedgerState.IN_RECOVERY:
                self._start(metadata)
            case LedgerState.OPEN:
                marked = metadata.in_recovery()
                self.registry.write(marked, version, lambda ok: self.hears(self._marked, ok, marked))

    def _marked(self, accepted: bool, metadata: LedgerMetadata) -> None:
        if accepted:
            self._start(metadata)
        else:
            self.registry.read(lambda *found: self.hears(self._found, *found))

    def _adopt(self, metadata: LedgerMetadata) -> None:
        self.done = True
        self.checker.on_reported_end(metadata.last_entry)

    def _start(self, metadata: LedgerMetadata) -> None:
        self._base, self._read_yet = metadata, False
        self.core = RecoveryCore(metadata)
        self._adds = Adds(self, self.cluster, metadata.ensemble, recovery=True)
        self._perform(self.core.begin())

    def _perform(self, actions: Sequence[recovery.Action]) -> None:
        for action in actions:
            self.world.note(self.name, action)
            match action:
                case recovery.Fence(slot):
                    self._ask(slot, -1)
                case recovery.Read(slot, entry):
                    if not self._read_yet:
                        self._read_yet = True
                        self.checker.on_recovery_read(self.core.ensemble)
                    self._ask(slot, entry)
                case recovery.Measure(entry):
                    self._measure(entry)
                case add.Send(first, last):
                    for entry in range(first, last + 1):
                        for slot in self.checker.striping.slots(entry):
                            self._write_back(slot, entry)
                case add.Resend(slot, first, last):
                    for entry in self.checker.striping.stripe(slot, first, last):
                        self._write_back(slot, entry)
                case add.Replace(failed, _):
                    self._replace(failed)
                case add.Suspend(slot):
                    self._adds.attempt(slot, sends=False)
                case recovery.Close(last, length, fragments):
                    self._close(last, length, fragments)
                case recovery.Abandon():
                    self.world.after(1.0 + self.world.random.random(), self.hears, self.begin)

    def _ask(self, slot: Slot, entry: EntryId) -> None:
        core = self.core

        def handle(reply: Reply | None) -> None:
            if core is not self.core:
                return
            found = None if reply is None else reply.stored
            verdict = Answer.YES if found else Answer.NO if reply and reply.code in NO_CODES else Answer.UNKNOWN
            if entry < 0:
                lac, last, length = (found.lac, reply.entry, found.length) if found and reply else (-1, -1, 0)
                self._perform(core.fenced(slot, verdict, lac=lac, entry=last, length=length))
            else:
                self._perform(core.answered(slot, entry, verdict, found.length if found else 0))

        request = Request(entry, fence=True)
        self.cluster.call(core.ensemble[slot], request, lambda reply: self.hears(handle, reply))

    def _measure(self, entry: EntryId) -> None:
        core = self.core

        def handle(reply: Reply | None) -> None:
            if core is self.core and core.phase is recovery.Phase.MEASURING:
                if reply is not None and reply.stored is not None:
                    self._perform(core.measured(reply.stored.length))
                elif waiting:
                    ask()
                else:
                    self.world.after(1.0, self.hears, self.begin)  # the shell's only way on is to try again

        ensemble = self._base.ensemble_of(entry)
        waiting = [ensemble[slot] for slot in self.checker.striping.slots(entry)]

        def ask() -> None:
            bookie = waiting.pop(0)
            self.cluster.call(bookie, Request(entry), lambda reply: self.hears(handle, reply))

        ask()

    def _write_back(self, slot: Slot, entry: EntryId) -> None:
        core = self.core
        stored = Stored(content(self.world.seed, entry), core.lac, length_up_to(entry))

        def acked(slot: Slot, entry: EntryId) -> None:
            if core is self.core:
                self._perform(core.acked(slot, entry, entry))

        def failed(slot: Slot, entry: EntryId, code: int | None) -> None:
            if core is self.core:
                self._perform(core.failed(slot, entry, code))

        self._adds.send(slot, entry, stored, acked, failed)

    def _replace(self, failed: Sequence[str]) -> None:
        ensemble = replacement(self.world, self.cluster, self.core.write_ensemble, failed)
        if ensemble is None:
            self._perform(self.core.no_replacement())
        else:
            self._adds.change(ensemble)
            self._perform(self.core.ensemble_changed(ensemble))

    def _close(self, last: EntryId, length: int, fragments: Sequence[Fragment]) -> None:
        core = self.core

        def found(metadata: LedgerMetadata, version: int) -> None:
            if core is not self.core:
                return
            if metadata.is_closed:
                self._adopt(metadata)
            elif metadata.fragments != self._base.fragments:
                self.begin()
            else:
                for fragment in fragments:
                    metadata = metadata.with_fragment(fragment.first, fragment.bookies)
                closed = metadata.closed(last, length)
                self.registry.write(closed, version, lambda accepted: self.hears(written, accepted))

        def written(accepted: bool) -> None:
            if accepted:
                self.done = True
                self.checker.on_reported_end(last)
            else:
                self.registry.read(lambda *again: self.hears(found, *again))

        self.registry.read(lambda *now: self.hears(found, *now))
