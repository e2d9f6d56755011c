"""The study file as a strict model: its keys, their types, and the default of each key that a file may leave out.

Objectives and constraints are read here, too.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, WithJsonSchema, model_validator

from tuner.errors import StudyError
from tuner.study.expression import Rule
from tuner.study.parameter import (
    MOST_CASES,
    Number,
    ParameterSpec,
    PositiveInt,
    Strict,
    Whole,
    check_together,
    in_order_of_conditions,
    ladder_name,
)
from tuner.study.shell import shell_split
from tuner.study.space import DEFAULT, NODES, VARIANT, Space, Value

NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$"
TRAINER = r"^([A-Za-z0-9][A-Za-z0-9_.-]{0,99}|[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_]*)$"
VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]*$"
DEVICES = r"^(auto(:[1-9]\d*)?|cpu(:[1-9]\d*)?|\d+(,\d+)*)$"

PATTERN_MESSAGES = {
    NAME: "must be at most 100 letters, digits and - _ . and begin with a letter or digit",
    TRAINER: "must be the name of a trainer, or package.module:Class for a class of your own",
    VARIABLE: "may contain letters, digits and _, and must not begin with a digit",
    DEVICES: "is none of: auto, auto:CARDS, cpu, cpu:RANKS, or CUDA indices such as 0,1",
}
"""The error message for text that does not match the regular expression."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Constraint:
    """A bound on one metric, such as `<= 20000` or `>= 0.8 * default`."""

    metric: str
    sense: Literal["<=", ">="]
    number: float
    """The bound, in the metric's unit. With `of_default` it is a factor instead."""
    of_default: bool = False
    """Whether `number` multiplies the value that the default variant has at the same rung."""

    def __str__(self) -> str:
        """Return the bound as a study file spells it. Equal bounds give equal text."""
        return f"{self.sense} {self.number:.15g}{' * default' if self.of_default else ''}"

    def violation(self, value: float | None, default: float | None = None) -> float:
        """Return by how much a value violates the bound, as a share of the bound; 0 or less where the value keeps it.

        It is 1 where the value or the bound is unknown. For a bound of 0, it is the difference itself. `default` is the
        value that the default config has at the same rung; None where it is unknown.
        """
        bound = self._bound(default)
        if value is None or bound is None:
            return 1.0
        excess = value - bound if self.sense == "<=" else bound - value
        return excess / (bound or 1.0)

    def complaint(self, value: float | None, default: float | None = None) -> str:
        """Return in words how a value violates the bound, or that value or bound is unknown.

        `default` is the value that the default config has at the same rung; None where it is unknown.
        """
        if value is None:
            return f"{self.metric} was not measured, {self} is required"
        bound = self._bound(default)
        if bound is None:
            return f"{self.metric} of default at this rung is not known, {self} is required"
        bound_in_unit = f" = {bound:.6g}" if self.of_default else ""
        return f"{self.metric} is {value:.6g}, {self}{bound_in_unit} is required"

    def _bound(self, default: float | None) -> float | None:
        """Return the bound in the metric's unit; None where it depends on a default that is unknown."""
        if not self.of_default:
            return self.number
        return None if default is None else self.number * default


def read_constraint(metric: str, text: object) -> Constraint:
    """Return the bound that a text spells. Raises ValueError with examples of the three allowed forms."""
    form = r"(?P<sense><=|>=)\s*(?P<number>\d+(?:\.\d+)?)\s*(?P<of_default>\*\s*default)?"
    match = re.fullmatch(form, text.strip()) if isinstance(text, str) else None
    if match is None:
        raise ValueError('is not a bound; write "<= 20000", ">= 10" or ">= 0.8 * default", in quotes')
    return Constraint(
        metric=metric,
        sense="<=" if match["sense"] == "<=" else ">=",
        number=float(match["number"]),
        of_default=match["of_default"] is not None,
    )


def _check_bound(text: object) -> object:
    """Return a text that spells a bound, unchanged. Raises ValueError for any other text."""
    read_constraint("", text)  # called for its ValueError
    return text


Bound = Annotated[str, BeforeValidator(_check_bound)]
"""The type of a bound in a study file: text that `read_constraint` accepts."""


def compare_with_default(constraints: Iterable[Constraint]) -> bool:
    """Return whether one of the constraints is a bound of `* default`, which needs a probe of the default config."""
    return any(constraint.of_default for constraint in constraints)


def read_objectives(text: str) -> tuple[str, ...]:
    """Return the metrics that a study maximises, by the text of its objectives, separated by commas.

    `util` is short for `min_avg_util`, and `sm` for `min_avg_sm`. A metric of which less is better is replaced by its
    inverse in `INVERSES`.
    """
    full_names = {"util": "min_avg_util", "sm": "min_avg_sm", **INVERSES}
    names = (name.strip() for name in text.split(","))
    return tuple(full_names.get(name, name) for name in names)


INVERSES = {"joules_per_sample": "samples_per_joule", "cost_per_million_samples": "samples_per_price"}
"""A metric of which less is better → its inverse, which an objective maximises instead."""

Objective = Annotated[str, AfterValidator(lambda text: ",".join(read_objectives(text)))]
"""The type of one or several objectives in a study file. The value always has the full names, without spaces."""


Variables = dict[Annotated[str, StringConstraints(pattern=VARIABLE)], str]
"""Environment variables, with names that every system accepts."""


class EnvironmentSpec(Strict):
    """Environment variables and memory of the trainer's processes."""

    nccl_p2p: Literal["auto", "on", "off"] = "auto"
    """`auto` sets `NCCL_P2P_DISABLE=1` only if two cards have no P2P"""
    variables: Variables = Field(default_factory=dict)
    """environment variables"""
    memory_mib: Annotated[Number, Field(gt=0)] | None = None
    """memory of each device in MiB, if it is less than the device has; on a GPU the trainer must keep to it"""


class Prices(Strict):
    """The prices of one device for one hour, in any currency."""

    per_hour: dict[str, Annotated[Number, Field(gt=0)]] = Field(min_length=1)
    """the model of a device → its price"""


class Match(Strict):
    """Where an override applies: to the cases that a glob matches, to one kind of device, or both."""

    cases: tuple[str, ...] = ("*",)
    """globs over the names of cases"""
    device: Literal["cpu", "gpu"] | None = None
    """one kind of device; empty: both kinds"""


class Override(Strict):
    """Changes for a part of the study."""

    match: Match
    """where the changes apply"""
    space: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """parameters by name; each replaces the whole parameter"""
    probe: dict[str, Any] = Field(default_factory=dict)
    """some keys of `probe`"""
    search: dict[str, Any] = Field(default_factory=dict)
    """some keys of `search`"""


LaunchName = Literal["megatron", "torchtitan", "deepspeed", "accelerate_fsdp", "nccl"]


RANKS = "ranks"
"""The placeholder of rules that is no parameter: the number of devices of a probe."""

Seconds = Annotated[Number, Field(gt=0)]
Name = Annotated[str, StringConstraints(pattern=NAME)]

TRAINING_HOURS = 24.0
"""The usual length of a training: a search ends when more probes cost more of it than they gain."""
MOST_HOURS = 87_600
"""The longest training, in hours: ten years. Nothing that a probe shows says more."""


class TrainerSpec(Strict):
    """The trainer, its files and its Python."""

    name: Annotated[str, StringConstraints(pattern=TRAINER)]
    """`mimickit`, `command` or `reference`, or `package.module:Class` for a trainer of your own"""
    root: str = ""
    """the trainer's checkout, relative to the folder in which you start `tuner`"""
    python: str = ""
    """the Python of the trainer; its folder comes first in PATH, so that `torchrun` is found"""
    options: dict[str, Any] = Field(default_factory=dict)
    """the options of this trainer"""

    @property
    def command(self) -> tuple[str, ...]:
        """The words of the command among the options; empty where there is none."""
        command = self.options.get("command")
        if isinstance(command, str):
            return shell_split(command)
        return tuple(map(str, command)) if isinstance(command, list | tuple) else ()


class ProbeSpec(Strict):
    """The limits of one probe."""

    target_error_pct: ClassVar[float] = 1.0
    """A probe is precise enough at this standard error: percentage points of utilisation, percent of samples/s."""
    idle_seconds: ClassVar[float] = 30.0
    """The longest wait before a probe until other processes have left the cards."""
    grace_seconds: ClassVar[float] = 5.0
    """The time between the death of a rank and the moment when the tuner ends the probe."""

    iterations: PositiveInt = 8
    """usual iterations of a probe, warm-up included; it goes on while its error is large"""
    min_iterations: PositiveInt = 8
    """fewest iterations of a probe, even if it is precise earlier"""
    window_seconds: Seconds = 5.0
    """shortest window that gives a result; no pruner acts earlier"""
    headroom_pct: Annotated[Number, Field(ge=0, lt=100)] = 5.0
    """percentage of device memory that the best must leave free"""
    warmup_iterations: PositiveInt = 1
    """first iterations, which the window leaves out"""
    warm: bool = True
    """one started trainer serves several configs, if it can"""
    thin: bool = True
    """a session of MimicKit makes only as many updates as a good measurement needs"""
    max_start_seconds: Seconds = 900.0
    """longest start: until the end of the first iteration; the first start on a machine may have to compile kernels"""
    max_seconds: Seconds = 420.0
    """longest time from the first iteration to the end of a probe; what it has measured by then counts"""
    start_up_silence_seconds: Seconds = 300.0
    """`silence_seconds` before the first iteration; MimicKit on a CPU needs 600"""
    silence_seconds: Seconds = 120.0
    """a trainer that prints nothing for this time hangs; so does one whose iteration takes twenty times the median"""
    sample_seconds: Annotated[Seconds, Field(le=60)] = 0.1
    """the time between two measurements of the devices"""

    @property
    def most_iterations(self) -> int:
        """The iterations that a command is started with: far more than a probe needs, because the tuner ends it.

        A command that ended sooner would leave a window too short to measure.
        """
        return 1000 * self.iterations

    def timed(self, seconds: float) -> "ProbeSpec":
        """Return the limits of a run that trains for `seconds`, as a real training does: no other limit is reached."""
        unreached = {"iterations": 10_000_000, "max_seconds": self.max_seconds + 2.0 * seconds}
        return self.model_copy(update={**unreached, "thin": False, "warm": False})

    @property
    def longest_start_s(self) -> float:
        """The most seconds that a trainer which prints nothing may take before its first iteration."""
        return min(self.start_up_silence_seconds, self.max_start_seconds)

    @model_validator(mode="after")
    def _window_is_not_empty(self) -> "ProbeSpec":
        """Check that the warm-up leaves iterations to measure."""
        if self.warmup_iterations >= self.iterations:
            raise ValueError(
                f"warmup_iterations {self.warmup_iterations} leaves none of the {self.iterations} iterations to measure"
            )
        return self


class SearchSpec(Strict):
    """How the search chooses configs."""

    trials: PositiveInt = 60
    """largest number of finished trials of a case"""
    sampler: Literal["gain", "tpe", "random"] | None = None
    """what chooses the configs; empty: `gain`, or `tpe` for several objectives"""
    training_hours: Annotated[Number, Field(gt=0, le=MOST_HOURS)] = TRAINING_HOURS
    """length of the training that will use the best; `gain` ends when more probes would cost more than they save in
    it"""
    seeds_per_variant: PositiveInt = 4
    """number of rungs of each agent variant with which `tpe` and `random` begin"""
    seed: Annotated[Whole, Field(ge=0, lt=1 << 31)] = 0
    """seed of random numbers, and of the sample that `tuner record` takes"""


class SoakSpec(Strict):
    """How `tuner soak` provokes what needs most memory: the longest batch first, evaluations and checkpoints often."""

    flags: str = ""
    """words that a soak adds to the command, such as `--eval-steps 20`"""
    command: str = ""
    """the whole command of a soak, with placeholders; empty: the usual one"""
    worse: bool = True
    """`false`: nothing that comes later needs more memory than a soak shows, except growth"""

    @property
    def provokes(self) -> bool:
        """Whether the file has words that make a soak differ from a training."""
        return bool(self.command or self.flags)


class PrunerSpec(Strict):
    """How a probe that is unlikely to become the best is stopped early."""

    name: Literal["hyperband_patient", "none"] = "hyperband_patient"
    """the pruner"""
    patience: PositiveInt = 1
    """iterations in a row that must be far below the best, if `pruner_patience` is not searched"""
    min_resource: PositiveInt = 2
    """fewest iterations before a pruner may act"""
    max_resource: PositiveInt | None = None
    """of Hyperband: the iterations of a full probe; empty: `probe.iterations`"""
    reduction_factor: Annotated[Whole, Field(ge=2)] = 3
    """of Hyperband: its reduction factor"""


Devices = Annotated[
    str,
    StringConstraints(pattern=DEVICES),
    BeforeValidator(lambda given: f"auto:{given}" if type(given) is int and given > 0 else given),
    WithJsonSchema({"anyOf": [{"type": "string", "pattern": DEVICES}, {"type": "integer", "exclusiveMinimum": 0}]}),
]


Word = Annotated[str, StringConstraints(pattern=r"^[\w.,:/@+=-]+$")]
"""Text that stands on a line `#SBATCH --name=text`: without spaces and line breaks."""


class SlurmSpec(Strict):
    """The resources of one SLURM job. Its task on each node sees the GPUs of the node, and starts the ranks."""

    nodes: PositiveInt = 1
    """nodes of a job; a trial runs on all of them, or on as many as the parameter `nodes` says"""
    gpus: Whole | None = None
    """GPUs of a node; needed with `devices: auto`"""
    cpus_per_task: PositiveInt | None = None
    """CPU cores of a node; `tuner plan` without it asks for those of ranks and loader workers"""
    mem_gb: PositiveInt | None = None
    """memory of a node in GB"""
    partition: Word | None = None
    """partition of the job"""
    account: Word | None = None
    """account to charge"""
    time_min: PositiveInt = 240
    """time limit of a job in minutes"""
    setup: tuple[str, ...] = ()
    """shell lines that run first, such as `module load cuda`"""
    requeue: bool = False
    """submit a job again when its time limit ends it"""


def check_devices(devices: str) -> None:
    """Raise StudyError for devices, such as those of the option `--devices`, that no study file can name."""
    if not re.fullmatch(DEVICES, devices):
        raise StudyError(f"devices {devices!r} {PATTERN_MESSAGES[DEVICES]}")


class StudySpec(Strict):
    """A whole study file."""

    name: Name
    """name of the study, and of its folder in `runs/`"""
    trainer: TrainerSpec
    fallback: Name | None = None
    """the study that runs instead if `trainer.root` is empty"""
    launch: Annotated[
        tuple[LaunchName, ...], BeforeValidator(lambda given: (given,) if type(given) is str else given)
    ] = ()
    """ready-made spaces, one or a list, which are added to `space` and `rules`"""
    cases: Annotated[tuple[str, ...], Field(min_length=1, max_length=MOST_CASES)] = ("*",)
    """globs over the trainer's cases"""
    devices: Devices = "auto"
    """`auto` for every GPU, `2` for two of them, `cpu:2` for two CPU ranks, or CUDA indices such as `0,1`"""
    space: Annotated[dict[str, ParameterSpec], AfterValidator(check_together)] = Field(min_length=1, max_length=100)
    """parameters by name"""
    rules: tuple[Annotated[str, AfterValidator(lambda text: Rule(text).text)], ...] = Field(default=(), max_length=100)
    """conditions that each config must meet, such as `"{tp} * {pp} <= {ranks}"`"""
    objective: Objective = "min_avg_util"
    """what to improve: `min_avg_util`, `min_avg_sm`, `samples_per_s`, `iterations_per_s`, `joules_per_sample`,
    `cost_per_million_samples`, or several"""
    constraints: dict[str, Bound] = Field(default_factory=dict)
    """metric → bound that the best must keep: `">= 10"`, `"<= 20000"` or `">= 0.8 * default"`"""
    probe: ProbeSpec = ProbeSpec()
    search: SearchSpec = SearchSpec()
    pruner: PrunerSpec = PrunerSpec()
    soak: SoakSpec = SoakSpec()
    environment: EnvironmentSpec = EnvironmentSpec()
    prices: Prices | None = None
    slurm: SlurmSpec = SlurmSpec()
    overrides: tuple[Override, ...] = Field(default=(), max_length=200)
    """changes for some cases or devices, in this order"""

    @model_validator(mode="after")
    def _parts_agree(self) -> "StudySpec":
        """Raise ValueError where parts of the study contradict each other.

        A bound of `* default` compares with configs whose agent is unchanged: its variant, if the space has variants,
        is `default`. Without variants, all have this agent. The sampler `gain` needs a single objective. A
        trial may run on as many nodes at most as a job has.
        """
        compared = [constraint.metric for constraint in self.build_constraints() if constraint.of_default]
        if compared and VARIANT in self.space and DEFAULT not in self.space[VARIANT].values:
            raise ValueError(
                f"constraints.{compared[0]}: compares with the default variant, which the space does not contain; "
                f"add {DEFAULT!r} to {VARIANT}"
            )
        if len(self.objectives) > 1 and self.search.sampler == "gain":
            raise ValueError(
                f"search.sampler: gain needs exactly one objective, not {self.objective}; write tpe, or name one"
            )
        allowed = range(1, self.slurm.nodes + 1)
        if wrong := [nodes for nodes in self.placements if type(nodes) is not int or nodes not in allowed]:
            raise ValueError(
                f"space.nodes: {wrong[0]!r}, and slurm.nodes is {self.slurm.nodes}; name whole numbers up to that"
            )
        return self

    @model_validator(mode="after")
    def _rules_are_about_the_space(self) -> "StudySpec":
        """Raise ValueError for a rule that names no parameter of the space, or computes with one that is no number."""
        for rule in self.build_rules():
            if unknown := sorted(rule.names - self.space.keys() - {RANKS}):
                raise ValueError(f"rules: {rule.text!r} names {unknown[0]}, which is no parameter of the space")
            for name in sorted(rule.numeric_names - {RANKS}):
                if wrong := [value for value in self.space[name].values if isinstance(value, bool | str)]:
                    raise ValueError(f"rules: {rule.text!r} counts with {name}, whose value {wrong[0]!r} is no number")
        return self

    @property
    def placements(self) -> tuple[Any, ...]:
        """The numbers of nodes on which a trial may run: those of the space, or else all of the job."""
        return self.space[NODES].values if NODES in self.space else (self.slurm.nodes,)

    def devices_of_trial(self, per_node: int) -> int:
        """Return how many devices each trial has, on nodes with `per_node` devices each.

        Trials may run on different numbers of nodes: see `placements`. But each has as many devices, so that they can
        be compared: all of the smallest number of nodes. With 8 per node, a trial has 8 on one node, or 4 on each of
        two. Raises StudyError where a number of nodes cannot share them evenly.
        """
        total = per_node * min(self.placements)
        if wrong := [nodes for nodes in self.placements if total % nodes]:
            raise StudyError(f"space.nodes: {wrong[0]} nodes cannot share {total} devices evenly; leave {wrong[0]} out")
        return total

    @property
    def objectives(self) -> tuple[str, ...]:
        """The metrics that the study maximises. Where a single best config is needed, the first metric decides."""
        return read_objectives(self.objective)

    @property
    def needed(self) -> tuple[str, ...]:
        """The metrics that a probe must measure: those of the objectives and of the constraints."""
        return (*self.objectives, *self.constraints)

    @property
    def sampler(self) -> str:
        """The sampler that the file names, or else the sampler that suits the objectives."""
        return self.search.sampler or ("gain" if len(self.objectives) == 1 else "tpe")

    def devices_for(self, requested: str | None) -> str:
        """Return the devices to use: those that the option `--devices` names (`requested`), or else the study's.

        `--devices auto` does not change the number of cards of a study with `auto:2`.
        """
        if requested is None:
            return self.devices
        return self.devices if requested == "auto" and self.devices.startswith("auto") else requested

    def build_constraints(self) -> tuple[Constraint, ...]:
        """Return the constraints that the best config must satisfy."""
        return tuple(read_constraint(metric, text) for metric, text in self.constraints.items())

    def build_rules(self) -> tuple[Rule, ...]:
        """Return the rules that each config must keep; in them, `RANKS` stands for the number of devices."""
        return tuple(map(Rule, self.rules))

    def possible(self, parameter: str, values: Iterable[Value], ranks: int) -> tuple[Value, ...]:
        """Return those of a parameter's `values` that no rule refuses by itself, on `ranks` devices.

        A rule may refuse a value in every config, such as a degree of parallelism above the number of devices.
        """
        rules = self.build_rules()
        return tuple(value for value in values if all(rule.holds({parameter: value, RANKS: ranks}) for rule in rules))

    def build_space(self) -> Space:
        """Return the space that is searched. Each parameter follows the parameters that its conditions name."""
        ladder = ladder_name(self.space)
        return Space(
            tuple(
                self.space[name].parameter(name, is_ladder=name == ladder)
                for name in in_order_of_conditions(self.space)
            )
        )
