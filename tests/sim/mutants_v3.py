"""Bugs planted in what version 3 of the protocol adds: whole clients and bookies must break the named promise.

Each is looked for in schedules whose plans have what it needs, and of these in short ones.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable

from sim.mutants import BOOKIE, LEDGER, Mutant
from tallystick.sim.cluster_faults import ClusterPlan

WIRE = "bookkeeper/wire/"


def _by_v3(plan: ClusterPlan) -> bool:
    return plan.wires == ("v3",)


def _short(plan: ClusterPlan) -> bool:
    return len(plan.books) == 1 and plan.books[0].entries <= 10 and plan.storm_s <= 8


def _forces(plan: ClusterPlan) -> bool:
    return _short(plan) and plan.books[0].defers and plan.books[0].entries >= 3


def _on_slow_disks(plan: ClusterPlan) -> bool:
    return _forces(plan) and plan.sync_s == 0.05 and not plan.books[0].recoverers


def _loses_power_before_a_force(plan: ClusterPlan) -> bool:
    """At the acknowledgement of the last entry, if nothing was forced before."""
    book = plan.books[0]
    is_last = _short(plan) and plan.dark_at_ack == book.entries - 1
    return is_last and book.defers and book.waits and not book.recoverers and book.writer_end != "kill"


def _is_followed(plan: ClusterPlan) -> bool:
    return _short(plan) and plan.books[0].tails


def _idles(plan: ClusterPlan) -> bool:
    return _short(plan) and plan.books[0].writer_end == "idle"


def _is_recovered(plan: ClusterPlan) -> bool:
    return _short(plan) and _by_v3(plan) and bool(plan.books[0].recoverers)


def _gives_ids(plan: ClusterPlan) -> bool:
    return _short(plan) and plan.books[0].gives_ids and plan.books[0].entries >= 3


def _all(*kinds: Callable[[ClusterPlan], bool]) -> Callable[[ClusterPlan], bool]:
    return lambda plan: all(kind(plan) for kind in kinds)


@functools.cache
def _plan(seed: int) -> ClusterPlan:
    return ClusterPlan.draw(random.Random(seed))


def _planted(name: str, promise: str, module: str, old: str, new: str, wanted: Callable[[ClusterPlan], bool]) -> Mutant:
    return Mutant(
        f"{name} ({promise})", module, old, new,
        schedules=80, wanted=lambda seed: wanted(_plan(seed)), promise=promise,
    )  # fmt: skip


V3_MUTANTS = (
    # How far a ledger is confirmed.
    _planted(
        "an explicit LAC tells one entry more than is confirmed",
        "P5",
        LEDGER + "writer.py",
        "ExplicitLac(state.id, state.lac, bookies, state.key(), state.digest().encode_lac(state.id, state.lac))",
        "ExplicitLac(\n            state.id, state.lac + 1, bookies, state.key(),\n"
        "            state.digest().encode_lac(state.id, state.lac + 1)\n        )",
        _idles,
    ),
    _planted(
        "a bookie keeps the first LAC that it is told",
        "P1",
        BOOKIE + "explicit_lacs.py",
        "if ledger in self._bodies and _lac_of(body) <= self.lac(ledger):",
        "if ledger in self._bodies:",
        _idles,
    ),
    _planted(
        "a bookie says that it keeps a LAC before its disk does",
        "P1",
        BOOKIE + "wire_v3.py",
        "responses.WriteLacResponse(request.header.request_id, response.code, request.ledger)\n"
        "            )\n"
        "            result.add_response(encoded, response.commit)",
        "responses.WriteLacResponse(request.header.request_id, response.code, request.ledger)\n"
        "            )\n"
        "            result.add_response(encoded)",
        _idles,
    ),
    _planted(
        "with an entry a bookie tells how far it has the ledger",
        "P5",
        BOOKIE + "lac_service.py",
        "return None if self._identities.needs_comparison(ledger) else self._storage.known_lac(ledger)",
        "return None if self._identities.needs_comparison(ledger) else self._storage.last_entry(ledger)",
        _all(_by_v3, _is_followed),
    ),
    _planted(
        "a long poll tells how far the bookie has the ledger",
        "P5",
        BOOKIE + "lac_service.py",
        "lac = self._storage.known_lac(ledger)\n        if lac < next_entry",
        "lac = self._storage.last_entry(ledger)\n        if lac < next_entry",
        _is_followed,
    ),
    _planted(
        "a long poll is answered at once, whatever is known",
        "poll",
        BOOKIE + "lac_service.py",
        "if not (is_known or is_empty) or request.timeout_ms <= 0:",
        "if True:",
        _is_followed,
    ),
    _planted(
        "a long poll whose time is over gets no answer",
        "poll",
        BOOKIE + "long_polls.py",
        "self._leave(self._core.passed(asyncio.get_running_loop().time()))",
        "self._core.passed(asyncio.get_running_loop().time())",
        _all(_is_followed, _idles),
    ),
    _planted(
        "a LAC that is told wakes no long poll",
        "poll",
        BOOKIE + "lac_service.py",
        "        if code == Code.OK:\n            self._polls.moved(ledger)\n",
        "",
        _all(_is_followed, _idles),
    ),
    # Deferred sync.
    _planted(
        "the ensemble of a ledger with deferred sync changes",
        "P1",
        LEDGER + "add_session.py",
        "                if self._forces is not None:\n                    return self._keep_ensemble(action)\n",
        "",
        _forces,
    ),
    _planted(
        "a force does not wait for the first bookie",
        "P1",
        LEDGER + "forces.py",
        "*(self._force_slot(slot) for slot in slots)",
        "*(self._force_slot(slot) for slot in slots[1:])",
        _on_slow_disks,
    ),
    _planted(
        "a force covers what was acknowledged over an older connection",
        "P1",
        LEDGER + "force_core.py",
        "[run for run in self._runs[slot] if run.connection != connection]",
        "list[AckedRun]()",
        _loses_power_before_a_force,
    ),
    _planted(
        "a bookie answers a force before its journal is synced",
        "P1",
        BOOKIE + "wire_v3.py",
        "responses.ForceResponse(request.header.request_id, response.code, request.ledger))\n"
        "        result.add_response(encoded, response.commit)",
        "responses.ForceResponse(request.header.request_id, response.code, request.ledger))\n"
        "        result.add_response(encoded)",
        _on_slow_disks,
    ),
    _planted(
        "a force waits for the commit before the newest",
        "P1",
        BOOKIE + "holdings.py",
        "commit=self._storage.newest_commit)",
        "commit=self._storage.newest_commit - 1)",
        _on_slow_disks,
    ),
    _planted(
        "with deferred sync what is acknowledged is confirmed",
        "P1",
        LEDGER + "add_session.py",
        "            return self._pending.confirmed(lac)\n",
        "",
        _all(_forces, lambda plan: plan.books[0].writer_end == "close"),
    ),
    # Adds, reads and fences.
    _planted(
        "every add by version 3 is deferred",
        "P1",
        LEDGER + "wire_v3.py",
        "write_flags=DEFERRED_SYNC if flags & DEFERRED_FLAG else 0",
        "write_flags=DEFERRED_SYNC",
        _all(_short, _by_v3, lambda plan: plan.dark_at_ack is not None),
    ),
    _planted(
        "a client takes a fence for an acknowledgement",
        "P2",
        LEDGER + "wire_v3.py",
        "self._report(lane.owner, response.code, [response.entry], data)",
        "self._report(lane.owner, Code.OK if response.code == Code.FENCED else response.code, [response.entry], data)",
        _is_recovered,
    ),
    _planted(
        "a fencing read by version 3 does not fence",
        "P6",
        BOOKIE + "wire_v3.py",
        'key = (request.master_key or b"") if request.fence else None',
        "key = None",
        _is_recovered,
    ),
    _planted(
        "a fencing read is answered before its fence is durable",
        "P6",
        BOOKIE + "wire_v3.py",
        "responses.ReadResponse(request.header.request_id, response.code, request.ledger, request.entry, body, lac)\n"
        "        )\n"
        "        result.add_response(encoded, response.commit)",
        "responses.ReadResponse(request.header.request_id, response.code, request.ledger, request.entry, body, lac)\n"
        "        )\n"
        "        result.add_response(encoded)",
        _is_recovered,
    ),
    _planted(
        "what recovery writes back does not pass the fence",
        "P9",
        BOOKIE + "wire_v3.py",
        "request.ledger, request.entry, request.master_key, request.body, request.recovery,",
        "request.ledger, request.entry, request.master_key, request.body, False,",
        _is_recovered,
    ),
    _planted(
        "the responses to a run of reads bear the ids of its beginning",
        "wire",
        BOOKIE + "wire_v3.py",
        "encode_v3_read_responses(txn_ids[at : at + count_read], frames, lac)",
        "encode_v3_read_responses(txn_ids[:count_read], frames, lac)",
        _all(
            _by_v3, lambda plan: len(plan.books) == 1 and plan.books[0].entries == 30 and bool(plan.books[0].recoverers)
        ),
    ),
    _planted(
        "a long poll is answered under the id of the request before it",
        "wire",
        BOOKIE + "wire_v3.py",
        "responses.ReadResponse(number, response.code, ledger, entry, body",
        "responses.ReadResponse(number - (1 << 20), response.code, ledger, entry, body",
        _is_followed,
    ),
    _planted(
        "a client of version 3 adds and reads by version 2",
        "wire",
        LEDGER + "connection.py",
        'self._v3 if self.settings.wire == "v3" else ClientWireV2',
        "ClientWireV2",
        _all(_short, _by_v3),
    ),
    _planted(
        "a client that speaks version 2 alone asks for a LAC by version 3",
        "P8",
        LEDGER + "lac.py",
        'return client.settings.wire != "v2" and not client.lacks_v3(bookie, ledger)',
        "return not client.lacks_v3(bookie, ledger)",
        lambda plan: _is_followed(plan) and "v2" in plan.wires,
    ),
    # Entry ids that the caller gives.
    _planted(
        "an entry behind a gap of one takes its place",
        "P4",
        LEDGER + "given_ids.py",
        "if entry > self.lowest_missing:",
        "if entry > self.lowest_missing + 1:",
        _gives_ids,
    ),
    _planted(
        "an id that was appended is taken again",
        "P4",
        LEDGER + "given_ids.py",
        "if entry < self.lowest_missing or entry in self._held:",
        "if entry in self._held:",
        _gives_ids,
    ),
    _planted(
        "what is held behind a gap has no bound",
        "budget",
        LEDGER + "given_ids.py",
        "if self.held_bytes >= self._max_held_bytes:",
        "if False:",
        lambda plan: len(plan.books) == 1 and plan.books[0].gives_ids and plan.books[0].entries == 80,
    ),
)
