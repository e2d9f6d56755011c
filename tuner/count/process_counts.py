"""The records of one process of a training: its settings, what it trains, and its counts after some steps. Pure."""

import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

BASE_STEP = 3
"""Counts begin at this step. The module is found at the first step, and its inputs are understood at the second."""
FIRST_STEPS = 12
"""The steps up to this one show what is trained: a script may train something else later (chosen)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Flag:
    """A flag that a script knows."""

    names: tuple[str, ...]
    """Its spellings without leading dashes, long ones first; `train.batch_size` where words are `name=value`."""
    choices: tuple[str, ...] = ()
    value: str | None = None
    """The value in force: the typed one, or else that of the script; None where nobody says it."""
    is_switch: bool = False
    """Whether the flag may stand without a value, and is off without it."""
    off: tuple[str, ...] = ()
    """The spellings that switch it off, such as `no-compile`."""
    typed: bool = False
    """Whether the command line names it."""
    is_read_in_order: bool = False
    """Whether the script takes each `--name=value` and config file in turn, so that the last one is in force."""

    @property
    def is_on(self) -> bool:
        """Whether it is true in the run."""
        return self.value == "True"

    @property
    def parameter(self) -> str:
        """Its name in a study."""
        return as_parameter(self.names[0])

    @property
    def number(self) -> int | None:
        """Its value as a whole number; None for any other value."""
        return int(self.value) if self.value and self.value.isdecimal() else None


def as_parameter(name: str) -> str:
    """Return the last part of a name such as `train.batch-size` or `a.yaml:lr`, with underscores for hyphens."""
    return name.rpartition(":")[2].rpartition(".")[2].replace("-", "_")


def flags_of(options: Sequence[Mapping[str, Any]]) -> Iterator[Flag]:
    """Yield the flags of a parser's options. An option without a name is left out."""
    for option in options:
        if names := [name.lstrip("-") for name in option["names"]]:
            yield Flag(
                names=tuple(sorted(names, key=len, reverse=True)),
                choices=tuple(map(str, option["choices"] or ())),
                value=None if option["value"] is None else str(option["value"]),
                is_switch=option["switch"],
                off=tuple(name.lstrip("-") for name in option["off"]),
                typed=option["typed"],
            )


@dataclass(slots=True)
class ProcessCounts:
    """All records of one process, in their order."""

    name: str
    argv: tuple[str, ...] = ()
    pid: int = 0
    """Its process id; 0 where it is unknown, as are the next two."""
    parents: tuple[int, ...] = ()
    """The ids of the processes that have started it."""
    began_s: float = 0.0
    """When it began."""
    start: Mapping[str, Any] = field(default_factory=dict)
    """What the main optimizer trained in the first steps; empty before its first step."""
    started_at: int = 0
    """The first step of that optimizer."""
    rank: int = 0
    """Its rank among the processes of the training."""
    world: int = 1
    """How many processes train together."""
    data_rank: int | None = None
    """Which part of the samples it trains on; None where it is unknown."""
    parameters: int = 0
    """The numbers that it trains."""
    points: list[Mapping[str, Any]] = field(default_factory=list)
    """The counts at each recorded step; the counts of loaders and environments are `loader.rows` and so on."""
    _flags_by_parser: dict[str, tuple[Flag, ...]] = field(default_factory=dict)
    reads_argv: bool = False
    """Whether its code may read the command line by itself."""
    files: dict[str, str] = field(default_factory=dict)
    """Configuration file → the word of the command line that names it."""
    losses: dict[int, float] = field(default_factory=dict)
    """Step → its loss, for the first steps."""
    inputs: dict[int, float] = field(default_factory=dict)
    """Step → the sum of its inputs, for the first steps."""
    flops: float | None = None
    """The floating-point operations of one of its steps; None where they are not counted."""
    off: list[str] = field(default_factory=list)
    """Why parts of the counting have switched themselves off."""

    def feed(self, record: Mapping[str, Any]) -> None:
        """Take one record into account. A count without a finite step and time is left out."""
        match record.get("type"):
            case "process":
                self.argv = tuple(map(str, record["argv"]))
                self.pid, self.began_s = record.get("pid", 0), record.get("began_s", 0.0)
                self.parents = tuple(record.get("parents", ()))
            case "flags":
                self._flags_by_parser[str(record["parser"])] = tuple(flags_of(record["options"]))
            case "argv":
                self.reads_argv = True
            case "file":
                self.files[str(record["path"])] = str(record["named_by"])
            case "start":
                # a later one replaces the optimizer, and its counts go on
                self.rank, self.world, self.data_rank = record["rank"], record["world"], record["data_rank"]
                if self.steps < FIRST_STEPS:
                    self.start, self.parameters, self.started_at = record, record["parameters"], self.steps + 1
            case "count" if self.start and count_in(record, "steps") > self.steps and count_in(record, "at_s") > 0:
                counts = dict(record)
                for part in ("loader", "environments"):
                    counts |= {f"{part}.{name}": count for name, count in record.get(part, {}).items()}
                self.points.append(counts)
                self.flops = record.get("flops") or self.flops
                # the keys of JSON are texts
                self.losses |= {int(step): loss for step, loss in record.get("losses", {}).items()}
                self.inputs |= {int(step): total for step, total in record.get("inputs", {}).items()}
            case "off":
                self.off.append(f"{record['part']}: {record['why']}")

    @property
    def flags(self) -> tuple[Flag, ...]:
        """The flags that its parsers have parsed. A script may have several parsers."""
        return tuple(flag for flags in self._flags_by_parser.values() for flag in flags)

    @property
    def parser(self) -> str:
        """The names of its parsers."""
        return " and ".join(self._flags_by_parser)

    @property
    def trains(self) -> bool:
        """Whether its optimizer has stepped."""
        return bool(self.points)

    def helps(self, starter: "ProcessCounts") -> bool:
        """Return whether the process `starter` has started it after its own steps, as to fine-tune a model's copy.

        A rank may be started so, too, as by Lightning's second trainer, but has another number in its group. And a
        process that trains a larger model is the training itself, for which `starter` may have tried something out.
        """
        has_its_rank = (self.rank, self.world) == (starter.rank, starter.world)
        may_help = has_its_rank and starter.pid in self.parents and self.parameters <= starter.parameters
        return may_help and starter.trains and starter.points[0]["at_s"] < self.began_s

    @property
    def steps(self) -> int:
        """The steps of its main optimizer so far."""
        return self.points[-1]["steps"] if self.points else 0

    @property
    def is_fed(self) -> bool:
        """Whether a loader's batch comes before nearly every step."""
        # a batch may have fed the step before, of another optimizer, which the main one then replaced
        first = max(2, self.started_at) if self.steps > self.started_at + 1 else 0
        fed_steps = self.total("loader.fed_steps", self.steps) - self.total("loader.fed_steps", first)
        steps = self.steps - first
        return steps > 0 and fed_steps >= 0.9 * steps  # 0.9 is chosen

    def total(self, name: str, step: float) -> float:
        """Return the count `name` at a step, linearly interpolated between the recorded steps.

        Before the first of these steps, and after the last one, it is the count there; 0 without any record.
        """
        if not self.points:
            return 0.0
        place = min(bisect_left(self.points, step, key=itemgetter("steps")), len(self.points) - 1)
        point = self.points[place]
        value = count_in(point, name)
        if point["steps"] <= step or place == 0:
            return value
        point_before = self.points[place - 1]
        value_before = count_in(point_before, name)
        share = (step - point_before["steps"]) / (point["steps"] - point_before["steps"])
        return value_before + (value - value_before) * share


def growth_of_count(processes: Sequence[ProcessCounts], name: str, step: float) -> float:
    """Return by how much the count `name` of some processes together has grown from the base step to a step."""
    return sum(process.total(name, step) - process.total(name, BASE_STEP) for process in processes)


def count_in(point: Mapping[str, Any], name: str) -> float:
    """Return the count `name` of a record; 0 where the record has no such finite number."""
    value = point.get(name)
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else 0.0
