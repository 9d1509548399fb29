"""Messages by columns: which bytes of a buffer their fields are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tallystick.pipeline.gather import Flags, Numbers, Spans
from tallystick.pipeline.stream.fields import Pairs


class Group(NamedTuple):
    """Messages; ``entries`` are places among the payloads, and an index of -1 is none."""

    entries: Numbers
    indexes: Numbers
    values: Spans
    has_value: Flags
    keys: Spans
    has_key: Flags
    is_base64: Flags
    happened: Numbers
    has_happened: Flags
    sequences: Numbers
    properties: Sequence[Pairs]  # whose rows are places among these messages, or among others that were left out

    def chosen(self, rows: Numbers) -> Group:
        """Returns the messages at the places ``rows``, in that order."""
        places = np.full(len(self.entries), -1)
        places[rows] = np.arange(len(rows))
        return Group(
            self.entries[rows],
            self.indexes[rows],
            self.values.at(rows),
            self.has_value[rows],
            self.keys.at(rows),
            self.has_key[rows],
            self.is_base64[rows],
            self.happened[rows],
            self.has_happened[rows],
            self.sequences[rows],
            list(_moved(self.properties, places)),
        )

    def with_others(self, others: Group) -> Group:
        """Returns these messages and others behind them."""
        behind = len(self.entries)
        moved = [Pairs(each.rows + behind, each.names, each.values) for each in others.properties]
        return Group(
            np.concatenate([self.entries, others.entries]),
            np.concatenate([self.indexes, others.indexes]),
            self.values.with_others(others.values),
            np.concatenate([self.has_value, others.has_value]),
            self.keys.with_others(others.keys),
            np.concatenate([self.has_key, others.has_key]),
            np.concatenate([self.is_base64, others.is_base64]),
            np.concatenate([self.happened, others.happened]),
            np.concatenate([self.has_happened, others.has_happened]),
            np.concatenate([self.sequences, others.sequences]),
            [*self.properties, *moved],
        )

    def pairs(self) -> Pairs:
        """Returns all properties, in the order of the messages, and of each message in its own."""
        if not self.properties:
            none = np.zeros(0, np.int64)
            return Pairs(none, Spans(none, none), Spans(none, none))
        rows = np.concatenate([each.rows for each in self.properties])
        order = np.argsort(rows, kind="stable")
        names, values = (
            Spans(*map(np.concatenate, zip(*spans, strict=True))).at(order)
            for spans in zip(*[(each.names, each.values) for each in self.properties], strict=True)
        )
        return Pairs(rows[order], names, values)


def _moved(properties: Sequence[Pairs], places: Numbers) -> Iterator[Pairs]:
    """Yields properties whose rows are elsewhere now, or, at -1, are no more."""
    for each in properties:
        rows = places[each.rows]
        kept = np.flatnonzero(rows >= 0)
        yield Pairs(rows[kept], each.names.at(kept), each.values.at(kept))
