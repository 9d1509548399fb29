"""Options as Spark hands them over: texts, with names in any case. Unknown ones are refused: a typo must not read
other rows."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence

from tallystick.errors import UsageError
from tallystick.pipeline.columns import HEADERS, Columns
from tallystick.pipeline.cuts import Limits
from tallystick.pipeline.trigger import TriggerLimits

MAX_INTEGER = (1 << 63) - 1
# What every format can be asked; docs/spark.md has these in the table of each.
CUTTING = {
    "maxBytesPerPartition": "about how much one task reads (default 134217728; a suffix k, m or g may be used)",
    "minPartitions": "make at least about this many partitions, to use more cores (default 1)",
}
# What only one kind of query has.
BATCH_ONLY = ("endingOffsets", "endingTimestamp")
# Who writes: a batch, or a streaming query.
OF_BATCH, OF_QUERY = ("txnAppId", "txnVersion"), ("application",)
ONCE, AT_LEAST_ONCE = "exactly-once", "at-least-once"  # what the option delivery says
TRIGGERING = ("maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
_DIGITS = re.compile(r"\d{1,40}", re.ASCII)  # Python refuses thousands of them in words of its own
_KEY = re.compile(r"0|[1-9]\d{0,39}", re.ASCII)
_DURATION = re.compile(r"(\d{1,12})\s*(ms|s|m|h)?", re.ASCII)
_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_SUFFIXES = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def triggering(items: str) -> dict[str, str]:
    """Returns what the options say that limit a trigger, of a format whose items are ``items``."""
    return {
        "maxOffsetsPerTrigger": f"about the most {items} of a batch of a streaming query (default: any number)",
        "maxBytesPerTrigger": "about the most bytes of a batch of a streaming query, as in 256m (default: any number)",
        "minOffsetsPerTrigger": f"of a streaming query: no batch before there are so many {items} (default 1)",
        "maxTriggerDelay": "or the last batch was so long ago, as in 500ms, 10s, 15m or 2h (default 15m)",
    }


def number_of_key(key: str) -> int:
    """Returns the number that the key of a JSON object is, written as JSON writes numbers, so that no two keys are one.
    Raises ValueError."""
    if not _KEY.fullmatch(key):
        raise ValueError(key)
    return int(key)


class OptionValues:
    """Values by the names as they are documented. Every method raises UsageError for a text that means nothing."""

    def __init__(self, options: Mapping[str, str], documented: Mapping[str, str]) -> None:
        documented_names = {name.lower(): name for name in documented}
        unknown = sorted(name for name in options if name.lower() not in documented_names)
        if unknown:
            near = [
                documented_names[name]
                for one in unknown
                for name in difflib.get_close_matches(one.lower(), documented_names, n=1)
            ]
            hint = f" (did you mean {', '.join(near)}?)" if near else ""
            raise UsageError(f"unknown option: {', '.join(unknown)}{hint}; known: {', '.join(documented)}")
        self._values = {documented_names[name.lower()]: value for name, value in options.items()}
        for name, value in self._values.items():
            if (
                not value.strip() and name != "password"
            ):  # a variable that is not set must lead to no other place or row
                raise UsageError(f"the option {name} is empty: give it a value, or leave it out")

    def with_path(self, name: str) -> OptionValues:
        """These values where ``load(path)`` stands for the option ``name``. Raises UsageError when both are given."""
        if "path" in self._values:
            if name in self._values:
                raise UsageError(
                    f"load(path) and the option {name} say the same thing: give one", path=self._values["path"]
                )
            self._values[name] = self._values.pop("path")
        return self

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def text(self, name: str, default: str = "") -> str:
        return self._values.get(name, default)

    def given_or(self, name: str, default: Callable[[], str]) -> str:
        """Returns an option that says where something is; what ``default`` returns where it is not given."""
        return self.text(name) if name in self else default()

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        """Returns one of ``choices``, whatever its case in the option; the first one where the option is not given."""
        value = self.text(name, choices[0]).strip().lower()
        if value not in choices:
            raise UsageError(f"{name} is {' or '.join(choices)}", value=value)
        return value

    def integer(self, name: str, default: int, least: int = 0) -> int:
        if name not in self:
            return default
        text = self.text(name).strip()
        if not _DIGITS.fullmatch(text) or not least <= int(text) <= MAX_INTEGER:
            raise UsageError(f"{name} is a whole number from {least}", value=text)
        return int(text)

    def size(self, name: str, default: int) -> int:
        """Bytes, as in 67108864 or 64m."""
        if name not in self:
            return default
        text = self.text(name).strip().lower()
        digits, unit = (text[:-1], _SUFFIXES[text[-1]]) if text[-1] in _SUFFIXES else (text, 1)
        if not _DIGITS.fullmatch(digits) or int(digits) < 1:
            raise UsageError(f"{name} is a number of bytes, as in 67108864 or 64m", value=text)
        return int(digits) * unit

    def seconds(self, name: str, default: float) -> float:
        """As in 500ms, 10s, 15m or 2h; a number alone is in ms."""
        match = _DURATION.fullmatch(self.text(name).strip().lower())
        if name not in self:
            return default
        if match is None:
            raise UsageError(f"{name} is a time, as in 500ms, 10s, 15m or 2h", value=self.text(name))
        return int(match[1]) * _UNITS_S[match[2] or "ms"]

    def limits(self) -> Limits:
        largest = self.size("maxBytesPerPartition", Limits().max_partition_bytes)
        most = self.integer("maxRecordsPerPartition", 0, least=1) or None
        return Limits(largest, self.integer("minPartitions", Limits().min_partitions, least=1), most)

    def refuse_of_other_kind(
        self,
        batch_only: Sequence[str],
        following_only: Sequence[str],
        *,
        follows: bool | None,
        kinds: tuple[str, str] = ("spark.read", "spark.readStream"),
    ) -> None:
        """Raises UsageError for an option that only the other one of the ``kinds`` has, a batch or a streaming query;
        None of neither."""
        if follows is not None:
            for name in batch_only if follows else following_only:
                if name in self:
                    raise UsageError(f"{name} is an option of {kinds[0] if follows else kinds[1]}")

    def check_writer(self, *, is_once: bool, follows: bool, of_once: Sequence[str] = ()) -> None:
        """Raises UsageError where the query says what the other kind does, where a batch says too little of who writes,
        and where anybody says it, or what ``of_once`` names, of rows that may come twice."""
        self.refuse_of_other_kind(OF_BATCH, OF_QUERY, follows=follows, kinds=("df.write", "df.writeStream"))
        if not is_once:
            for name in (*OF_BATCH, *OF_QUERY, *of_once):
                if name in self:
                    raise UsageError(
                        f"the option {name} says nothing with delivery=at-least-once: nobody notes what is stored. "
                        "Leave out one of them"
                    )
        elif not follows and not all(name in self for name in OF_BATCH):
            raise UsageError(
                "a batch needs the options txnAppId and txnVersion: who writes, and the number of the batch. By them a "
                "task or a job that is repeated stores it once. Without them give delivery=at-least-once"
            )

    def only_one(self, names: Sequence[str], what: str) -> str:
        """Returns which of some options is given. Raises UsageError unless it is one."""
        given = [name for name in names if name in self]
        if len(given) != 1:
            raise UsageError(f"give one of the options {', '.join(names[:-1])} and {names[-1]}: {what}")
        return given[0]

    def timestamps(self) -> tuple[int | None, int | None]:
        """Returns what startingTimestamp and endingTimestamp say, in ms; None for one that is not given. Raises
        UsageError for one that is given beside offsets, and for a start after the end."""
        times: list[int | None] = []
        for end in ("starting", "ending"):
            if f"{end}Offsets" in self and f"{end}Timestamp" in self:
                raise UsageError(f"{end}Offsets and {end}Timestamp are two answers to one question: give one")
            times.append(self.integer(f"{end}Timestamp", 0) if f"{end}Timestamp" in self else None)
        start_ms, end_ms = times
        if start_ms is not None and end_ms is not None and start_ms > end_ms:
            raise UsageError("startingTimestamp is after endingTimestamp", start_ms=start_ms, end_ms=end_ms)
        return start_ms, end_ms

    def is_true(self, name: str, *, default: bool) -> bool:
        return self.choice(name, ("true", "false") if default else ("false", "true")) == "true"

    def columns(self, columns: Columns) -> tuple[str, ...]:
        """Returns the columns that a query wants, in its order."""
        if "columns" in self:
            return columns.parse(self.text("columns"))
        return (*columns.names, HEADERS) if self.is_true("includeHeaders", default=False) else columns.names

    def pattern(self, name: str) -> re.Pattern[str]:
        text = self.text(name)
        try:
            return re.compile(text)
        except (re.error, OverflowError, RecursionError) as error:
            raise UsageError(f"{name} is no regular expression: {error}", value=text) from None

    def trigger_limits(self) -> TriggerLimits:
        most = self.integer("maxOffsetsPerTrigger", 0, least=1) or None
        least = self.integer("minOffsetsPerTrigger", 0, least=1) or None
        if most is not None and least is not None and least > most:
            raise UsageError("minOffsetsPerTrigger is above maxOffsetsPerTrigger", least=least, most=most)
        if least is None and "maxTriggerDelay" in self:
            raise UsageError("maxTriggerDelay says nothing without minOffsetsPerTrigger")
        delay_s = self.seconds("maxTriggerDelay", TriggerLimits().max_delay_s)
        return TriggerLimits(most, self.size("maxBytesPerTrigger", 0) or None, least, delay_s)
