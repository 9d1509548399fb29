"""Messages by columns: which bytes of a buffer their fields are."""

from __future__ import annotations

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
    properties: Pairs  # whose rows are places among these messages

    def chosen(self, rows: Numbers) -> Group:
        """Returns the messages at the places ``rows``, in that order."""
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
            self._chosen_properties(rows),
        )

    def with_others(self, others: Group) -> Group:
        """Returns these messages and others behind them."""
        mine, moved = self.properties, others.properties.rows + len(self.entries)
        properties = Pairs(
            np.concatenate([mine.rows, moved]),
            mine.names.with_others(others.properties.names),
            mine.values.with_others(others.properties.values),
        )
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
            properties,
        )

    def _chosen_properties(self, rows: Numbers) -> Pairs:
        """Returns the properties of the messages at the places ``rows``, in that order."""
        if not len(self.properties.rows):
            return self.properties
        places = np.full(len(self.entries), -1)
        places[rows] = np.arange(len(rows))
        moved = places[self.properties.rows]
        order = np.argsort(moved, kind="stable")
        order = order[np.searchsorted(moved[order], 0) :]  # those at -1 are left out
        return self.properties.at(order)._replace(rows=moved[order])
