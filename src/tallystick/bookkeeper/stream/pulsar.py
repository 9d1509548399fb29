"""The side towards Pulsar: a stream that a broker takes over as its topic, and gives back (Q19).

A broker knows no leases of ours. It adopts what lies at a topic's node, when a client asks it for the topic, and all
topics of a bundle when it begins to serve that part of a namespace: it fences the newest ledger, and writes the list.
So a hand-over is little: nobody of ours may own the stream or its cursors, its ledgers are closed, and what the broker
will delete of it is said before. Its ledgers have Pulsar's marks, and entries its format, from the beginning.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace

from tallystick.bookkeeper.metadata.store import Create, Version, parent_of
from tallystick.bookkeeper.stream.context import StreamContext
from tallystick.bookkeeper.stream.hand_over_core import BrokerDeletions, broker_deletions
from tallystick.bookkeeper.stream.leases import Owning
from tallystick.bookkeeper.stream.list_front import with_gone
from tallystick.bookkeeper.stream.opening import recover_ledgers, require_ours, with_ends, with_entries
from tallystick.bookkeeper.stream.owned_list import Edit, ListChange, OwnedList
from tallystick.bookkeeper.stream.stream import Stream
from tallystick.bookkeeper.stream.trim import cursor_marks
from tallystick.bookkeeper.wire.pulsar_messages import open_entry
from tallystick.bookkeeper.wire.pulsar_policies import (
    NamespacePolicies,
    bundle_of,
    decode_broker,
    decode_namespace,
    encode_namespace,
    encode_tenant,
)
from tallystick.bookkeeper.wire.stream_values import Position, StreamInfo, StreamLedger
from tallystick.errors import (
    CorruptEntry,
    HandOverRefused,
    NotFound,
    StreamOwned,
    UsageError,
    ZnodeExists,
)
from tallystick.runtime.opening import Opening


@dataclass(frozen=True)
class _PulsarPaths:
    """Where Pulsar keeps what it has of a stream's namespace; ``base`` is above the root of the ledgers."""

    base: str
    stream: str

    @property
    def clusters(self) -> str:
        return f"{self.base}/admin/clusters"

    @property
    def tenant(self) -> str:
        return f"{self.base}/admin/policies/{self.stream.split('/')[0]}"

    @property
    def namespace(self) -> str:
        return f"{self.base}/admin/policies/{self._namespace}"

    @property
    def local_policies(self) -> str:
        return f"{self.base}/admin/local-policies/{self._namespace}"

    def bundle(self, name: str) -> str:
        return f"{self.base}/namespace/{self._namespace}/{name}"

    @property
    def _namespace(self) -> str:
        return "/".join(self.stream.split("/")[:2])


def _paths(context: StreamContext, stream: str) -> _PulsarPaths:
    return _PulsarPaths(parent_of(context.catalog.paths.root), stream)


# -- before -----------------------------------------------------------------------------------------------------------


async def create_for_pulsar(context: StreamContext, stream: str, *, cluster: str | None) -> tuple[str, ...]:
    """Make a stream, and the tenant and namespace that a broker needs to load it. Returns the paths of the nodes that
    were made. What exists stays as it is; a namespace that is made keeps its topics until somebody deletes them.

    ``cluster``: Pulsar's, which may be yet to come; None: the only one that there is. Raises UsageError, NotFound,
    MetadataError.
    """
    paths, store = _paths(context, stream), context.catalog.store
    await store.sync()
    cluster = await _chosen_cluster(context, paths.clusters, cluster)
    made = []
    for path, data in ((paths.tenant, encode_tenant(cluster)), (paths.namespace, encode_namespace(cluster))):
        with contextlib.suppress(ZnodeExists):
            await store.change(Create(path, data))
            made.append(path)
    with contextlib.suppress(ZnodeExists):
        await store.change(Create(context.catalog.paths.stream(stream)))
        made.append(context.catalog.paths.stream(stream))
    return tuple(made)


async def _clusters(context: StreamContext, path: str) -> list[str]:
    return [name for name in await context.catalog.store.children(path) or [] if name != "global"]


async def _chosen_cluster(context: StreamContext, path: str, chosen: str | None) -> str:
    """Returns the cluster that was ``chosen``, unless there are others alone, or the only one that there is."""
    names = await _clusters(context, path)
    if chosen == "":
        raise UsageError("cluster is the name of Pulsar's, not an empty text: leave it out where there is one")
    if chosen is not None:
        if names and chosen not in names:
            raise UsageError("there is no such cluster of Pulsar here", cluster=chosen, clusters=names)
        return chosen
    if not names:
        raise _no_pulsar(context, path)
    if len(names) > 1:
        raise UsageError(
            f"there are {len(names)} clusters of Pulsar here: name the one that is to serve the stream", clusters=names
        )
    return names[0]


# -- there ------------------------------------------------------------------------------------------------------------


async def hand_over(
    context: StreamContext, stream: str, handle: Stream | None, *, force: bool, takeover: bool
) -> BrokerDeletions:
    """Leave a stream to a Pulsar broker, which loads it when a client asks there for the topic. ``handle`` is this
    client's own, if it owns the stream: it is closed. Returns what the broker deletes nevertheless.

    Raises HandOverRefused when it would delete anything, or its clients could not read the entries, unless ``force``;
    the handle goes on then. Raises NotFound if
    there is no such namespace for brokers; StreamOwned while another client owns the stream or one of its cursors,
    unless ``takeover``; NoSuchStream, StreamFenced, RecoveryIncomplete, Unavailable, MetadataError.
    """
    stored = await context.catalog.read(stream, synced=True)
    policies = await _policies(context, stream)
    if not takeover:
        await _require_no_cursor_owner(context, stream)
    if handle is not None:  # it is closed only if the broker may have the stream
        if handle.settings.entry_format == "raw" and not force:
            raise _no_messages(stream)
        await _check(context, stream, _as_its_owner_counts(stored.value, handle), policies, force=force)
        await handle.close()
    lease = await context.leases.take(context.catalog.paths.owner(stream), takeover=takeover, stream=stream)
    try:
        stored_list = OwnedList(context.catalog, stream, await context.catalog.read(stream, synced=True))
        if not takeover:
            await require_ours(context, stream, stored_list.info)
        version, noted = stored_list.version, await context.catalog.going(stream)
        change = _closed(await recover_ledgers(context, stream, stored_list.info), version)
        new_info = change(stored_list.info).info
        if not force:
            await _require_messages(context, stream, new_info)
        deletions = await _check(context, stream, new_info, policies, force=force)
        dropped = (await stored_list.change(change)).noted
    finally:
        await context.leases.give_back(lease)
    if stored_list.version != version:  # so whoever noted these before can list them no more
        context.deletions.add(stream, [*noted, *dropped])
    context.context.events.emit(
        "stream handed over", stream=stream, ledgers=len(stored_list.info.ledgers), deleted=deletions
    )
    return deletions


def _no_pulsar(context: StreamContext, clusters: str) -> NotFound:
    return NotFound(
        "no Pulsar keeps its metadata here: a broker takes streams only from its own ZooKeeper, below the same root",
        metadata=context.catalog.store.where,
        missing=clusters,
    )


async def _policies(context: StreamContext, stream: str) -> NamespacePolicies:
    paths = _paths(context, stream)
    path = paths.namespace
    node = await context.catalog.store.get(path)
    if node is None and not await _clusters(context, paths.clusters):
        raise _no_pulsar(context, paths.clusters)
    if node is None:
        raise NotFound(
            "Pulsar has no such namespace here, so no broker would load the stream: make it there, or with "
            "`tally stream create --pulsar`",
            path=path,
        )
    return decode_namespace(node.data, where=f"{context.catalog.store.where}{path}")


async def _require_no_cursor_owner(context: StreamContext, stream: str) -> None:
    """A broker would fence it."""
    for cursor in await context.catalog.cursors(stream):
        node = await context.catalog.store.get(context.catalog.paths.owner(stream, cursor))
        if node is not None:
            owning = Owning.of(node.data)
            raise StreamOwned(
                "a cursor is open; close it first",
                stream=stream,
                cursor=cursor,
                owner=owning.owner,
                since_ms=owning.since_ms,
            )


async def _require_messages(context: StreamContext, stream: str, info: StreamInfo) -> None:
    """The newest entry shows how the stream is written. All ledgers are closed."""
    newest = next((each for each in reversed(info.ledgers) if each.entries), None)
    if newest is None:
        return
    position = Position(newest.ledger, newest.entries - 1)
    async with context.ledgers.open_ledger(newest.ledger) as reader:
        async for entry in reader.read(position.entry, position.entry):
            try:
                open_entry(entry.data, position=position)
            except CorruptEntry as error:
                raise _no_messages(stream, position=position) from error


def _no_messages(stream: str, **fields: Position) -> HandOverRefused:
    return HandOverRefused(
        "its entries are no messages of Pulsar's, so clients of a broker could not read them; use force to hand it "
        "over all the same",
        stream=stream,
        **fields,
    )


async def _check(
    context: StreamContext, stream: str, info: StreamInfo, policies: NamespacePolicies, *, force: bool
) -> BrokerDeletions:
    deletions = broker_deletions(info, [*(await cursor_marks(context, stream)).values()], policies)
    if deletions and not force:
        cursor = ", or the stream a durable cursor at its beginning" if deletions.cursor_keeps else ""
        raise HandOverRefused(
            f"a Pulsar broker with its default settings would delete {deletions}. Give the namespace a retention of -1 "
            f"in time and size{cursor}, or use force",
            stream=stream,
            deletions=deletions,
        )
    return deletions


def _as_its_owner_counts(info: StreamInfo, handle: Stream) -> StreamInfo:
    """Returns the list with what its newest ledger has so far."""
    if not info.ledgers or info.ledgers[-1].is_closed:
        return info
    (*before, newest), state = info.ledgers, handle.state()
    entries = state["numberOfEntries"] - sum(each.entries for each in before)
    size = state["totalSize"] - sum(each.size for each in before)
    return replace(info, ledgers=(*before, newest._replace(entries=entries, size=size)))


def _closed(ended: tuple[StreamLedger, ...], version: Version) -> Edit:
    """These ledgers are closed, and stay in the list, which has this ``version``, if they have entries, or end a stream
    that is terminated."""

    def edit(info: StreamInfo) -> ListChange:
        listed = with_ends(info, ended)
        if info.terminated is not None:
            return ListChange(replace(info, ledgers=listed))
        kept, empty = with_entries(listed)
        return ListChange(with_gone(info, replace(info, ledgers=kept), ended, version), empty)

    return edit


# -- and back ---------------------------------------------------------------------------------------------------------


async def take_back(context: StreamContext, stream: str, opening: Opening[Stream], *, takeover: bool) -> Stream:
    """Own a stream again. Raises StreamOwned, with the broker that serves the namespace if one does, while a broker may
    write it, unless ``takeover``; NoSuchStream, and what the ``opening`` raises."""
    stored = await context.catalog.read(stream, synced=True)
    broker = await _broker_of(context, stream)
    if not takeover:
        try:
            await require_ours(context, stream, stored.value)
        except StreamOwned as error:
            raise StreamOwned(error.message, **{**error.fields, "owner": broker}) from None
    handle = await opening
    context.context.events.emit("stream taken back", stream=stream, broker=broker)
    return handle


async def _broker_of(context: StreamContext, stream: str) -> str | None:
    """Returns the address of the broker that serves the part of the namespace in which the stream is: it loads the
    topic when a client asks for it. Returns None if none does. Raises MetadataError."""
    paths, store = _paths(context, stream), context.catalog.store
    for path in (paths.local_policies, paths.namespace):
        node = await store.get(path)
        bundle = None if node is None else bundle_of(stream, node.data)
        if bundle is not None:
            owner = await store.get(paths.bundle(bundle))
            return None if owner is None else decode_broker(owner.data) or "a broker"
    return None
