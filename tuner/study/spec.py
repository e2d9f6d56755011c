"""The study file as a strict, typed model. Every key that a file may leave out has its default here."""

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, field_validator, model_validator

from tuner.study.constraints import Bound, Constraint, read_constraint
from tuner.study.forms import DEVICES, NAME, TRAINER, VARIABLE
from tuner.study.objectives import Objective, read_objectives
from tuner.study.parameter import (
    AUTO,
    MOST_OVERRIDES,
    MOST_PARAMETERS,
    Cases,
    Number,
    ParameterSpec,
    PositiveInt,
    Strict,
    Whole,
    in_order,
)
from tuner.study.slurm import SlurmSpec
from tuner.study.space import DEFAULT, LADDER, VARIANT, Space

Seconds = Annotated[Number, Field(gt=0)]
Name = Annotated[str, StringConstraints(pattern=NAME)]
Variables = dict[Annotated[str, StringConstraints(pattern=VARIABLE)], str]
"""Environment variables, with names that every system accepts."""

SHORT_ITERATIONS_FACTOR = 1000
"""The factor on `probe.iterations` that limits the iterations of a command.

The tuner ends a probe itself once its window is long enough. A command that ended sooner would leave a window too short
to measure.
"""
CERTAINTY = 0.98
"""A search ends when the best config is probably as good as every other config. This is the required probability."""


class TrainerSpec(Strict):
    """Which trainer is probed, where its files are, and which Python runs it."""

    name: Annotated[str, StringConstraints(pattern=TRAINER)] = Field(
        description="a built-in trainer, or package.module:Class for your own"
    )
    root: str = Field(default="", description="the trainer's checkout")
    python: str = Field(default="", description="the Python of the trainer's own environment")
    options: dict[str, Any] = Field(default_factory=dict, description="this trainer's own options: docs/studies.md")


class ProbeSpec(Strict):
    """The limits of one probe."""

    iterations: PositiveInt = Field(default=8, description="the iterations of a usual probe, including warm-up")
    min_iterations: PositiveInt = Field(
        default=8, description="the iterations that a probe runs before it may end because it is precise enough"
    )
    window_seconds: Seconds = Field(
        default=5.0,
        description="the shortest window; a probe with short iterations runs more than `iterations` of them",
    )
    target_error_pct: Annotated[Number, Field(gt=0)] = Field(
        default=1.0,
        description="the standard error that is precise enough: points of utilisation, percent of samples/s",
    )
    headroom_pct: Annotated[Number, Field(ge=0, lt=100)] = Field(
        default=5.0, description="the percentage of device memory that the best config must leave free"
    )
    warmup_iterations: PositiveInt = Field(
        default=1, description="the number of first iterations that the window leaves out"
    )
    warm: bool = Field(default=True, description="where possible, one started trainer runs several configs")
    thin: bool = Field(
        default=True, description="a session runs only as many updates of an iteration as a good estimate needs"
    )
    idle_seconds: Seconds = Field(
        default=30.0, description="the longest wait before a probe until the cards and their memory are free"
    )
    max_seconds: Seconds = Field(default=420.0, description="the longest probe, including start-up")
    start_up_silence_seconds: Seconds = Field(default=300.0, description="`silence_seconds` before the first iteration")
    silence_seconds: Seconds = Field(
        default=120.0, description="a probe counts as hanging after this time without a new line or iteration"
    )
    grace_seconds: Seconds = Field(
        default=5.0, description="the time between a fatal line and the moment when the tuner ends the probe"
    )
    sample_seconds: Annotated[Seconds, Field(le=60)] = Field(
        default=0.1, description="the time between two measurements of the devices"
    )

    @property
    def most_iterations(self) -> int:
        """The iterations that a command is started with: far more than a probe needs, because the tuner ends it."""
        return SHORT_ITERATIONS_FACTOR * self.iterations

    @property
    def longest_start_s(self) -> float:
        """The most seconds that a trainer may take before its first iteration."""
        return min(self.start_up_silence_seconds, self.max_seconds)

    @model_validator(mode="after")
    def _window_is_not_empty(self) -> "ProbeSpec":
        if self.warmup_iterations >= self.iterations:
            raise ValueError(
                f"warmup_iterations {self.warmup_iterations} leaves none of the {self.iterations} iterations to measure"
            )
        return self


class SearchSpec(Strict):
    """How the search chooses configs."""

    trials: PositiveInt = Field(default=60, description="the most finished trials per case")
    seeds_per_variant: PositiveInt = Field(
        default=4, description="the number of rungs per variant that are probed before the sampler chooses"
    )
    sampler: Literal["gain", "tpe", "random"] | None = Field(
        default=None,
        description="gain: the most expected gain per second, and it ends by itself; tpe, random: seeds first, then "
        "sampled configs; empty: gain, or tpe for several objectives",
    )
    certainty: Annotated[Number, Field(ge=0.5, lt=1)] = Field(
        default=CERTAINTY,
        description="gain: ends when, with this probability, no config is 1 % better than the best",
    )
    seed: Annotated[Whole, Field(ge=0, lt=1 << 31)] = Field(
        default=0, description="the seed of the sampler's random numbers"
    )


class PrunerSpec(Strict):
    """How a probe that is unlikely to become the best is stopped early."""

    name: Literal["hyperband_patient", "hyperband", "median", "none"] = "hyperband_patient"
    min_resource: PositiveInt = Field(default=2, description="the iterations before the pruner may stop a probe")
    max_resource: PositiveInt | None = Field(
        default=None, description="the iterations of a full probe; empty: probe.iterations"
    )
    reduction_factor: Annotated[Whole, Field(ge=2)] = 3
    patience: PositiveInt = Field(default=1, description="the patience when pruner_patience is not searched")
    margin_pct: Annotated[Number, Field(ge=0)] = Field(
        default=15.0, description="only a probe that is this percentage below the best may be stopped"
    )


class EnvironmentSpec(Strict):
    """The environment variables of the trainer's processes."""

    nccl_p2p: Literal["auto", "on", "off"] = Field(
        default="auto", description="auto: off only when the cards have no P2P"
    )
    variables: Variables = Field(default_factory=dict)


class Match(Strict):
    """Where an override applies: to the cases that a glob matches, to one kind of device, or both."""

    cases: tuple[str, ...] = ("*",)
    device: Literal["cpu", "gpu"] | None = None


class Override(Strict):
    """Changes for a part of the study. A parameter in `space` replaces the whole parameter of the same name."""

    match: Match
    space: dict[str, dict[str, Any]] = Field(default_factory=dict)
    probe: dict[str, Any] = Field(default_factory=dict)
    search: dict[str, Any] = Field(default_factory=dict)


class StudySpec(Strict):
    """A whole study file."""

    name: Name
    trainer: TrainerSpec
    fallback: Name | None = Field(default=None, description="the study to run when trainer.root is empty")
    cases: Cases = Field(default=("*",), description="globs over the trainer's cases")
    devices: Annotated[str, StringConstraints(pattern=DEVICES)] = Field(
        default="auto", description="auto, cpu:RANKS, or CUDA indices such as 0,1"
    )
    space: dict[str, ParameterSpec] = Field(min_length=1, max_length=MOST_PARAMETERS)
    objective: Objective = "min_avg_util"
    constraints: dict[str, Bound] = Field(
        default_factory=dict, description='metric: ">= 10", "<= 20000" or ">= 0.8 * default"; else not eligible as best'
    )
    probe: ProbeSpec = ProbeSpec()
    search: SearchSpec = SearchSpec()
    pruner: PrunerSpec = PrunerSpec()
    environment: EnvironmentSpec = EnvironmentSpec()
    slurm: SlurmSpec = SlurmSpec()
    overrides: tuple[Override, ...] = Field(default=(), max_length=MOST_OVERRIDES)

    @field_validator("space")
    @classmethod
    def _conditions_name_parameters(cls, space: dict[str, ParameterSpec]) -> dict[str, ParameterSpec]:
        if LADDER in space:
            _check_rungs(space[LADDER])
        for name, spec in space.items():
            if spec.ladder == AUTO and name != LADDER:
                raise ValueError(f"{name}: only {LADDER} allows `ladder: auto`")
            for other in spec.when:
                if other not in space:
                    raise ValueError(f"{name}: condition on unknown parameter {other!r}; known: {', '.join(space)}")
        in_order(space)
        return space

    @model_validator(mode="after")
    def _default_is_searched(self) -> "StudySpec":
        compared = [one.metric for one in self.build_constraints() if one.of_default]
        if compared and VARIANT in self.space and DEFAULT not in self.space[VARIANT].values:
            raise ValueError(
                f"constraints.{compared[0]}: compares with the default variant, which the space does not contain; "
                f"add {DEFAULT!r} to {VARIANT}"
            )
        return self

    @model_validator(mode="after")
    def _gain_has_one_objective(self) -> "StudySpec":
        if len(self.objectives) > 1 and self.search.sampler == "gain":
            raise ValueError(
                f"search.sampler: gain needs exactly one objective, not {self.objective}; write tpe, or name one"
            )
        return self

    @property
    def objectives(self) -> tuple[str, ...]:
        """The metrics that the study maximises. Where a single best config is needed, the first metric decides."""
        return read_objectives(self.objective)

    @property
    def sampler(self) -> str:
        """The sampler that the file names, or else the sampler that suits the objectives."""
        return self.search.sampler or ("gain" if len(self.objectives) == 1 else "tpe")

    def build_constraints(self) -> tuple[Constraint, ...]:
        """Return the constraints that the best config must satisfy."""
        return tuple(read_constraint(metric, text) for metric, text in self.constraints.items())

    def build_space(self) -> Space:
        """Return the space that is searched. Each parameter follows the parameters that its conditions name."""
        return Space(tuple(self.space[name].parameter(name) for name in in_order(self.space)))


def _check_rungs(spec: ParameterSpec) -> None:
    if spec.range is not None:
        raise ValueError(f"{LADDER} must be a ladder or choices, not a range")
    if wrong := [rung for rung in spec.values if not isinstance(rung, int) or rung < 1]:
        raise ValueError(
            f"{LADDER}: {wrong[0]!r} is not a whole number of at least 1; write rungs such as [256, 512, 1024]"
        )
