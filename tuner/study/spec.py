"""The study file: typed, strict, and complete; what it leaves open has its default here."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, field_validator, model_validator

from tuner.study.constraints import Bound, Constraint, read_constraint
from tuner.study.forms import DEVICES, NAME, TRAINER, VARIABLE
from tuner.study.objectives import Objective, read_objectives
from tuner.study.parameter import AUTO, Number, ParameterSpec, PositiveInt, Strict, Whole
from tuner.study.space import DEFAULT, LADDER, VARIANT, Space

Seconds = Annotated[Number, Field(gt=0)]
Name = Annotated[str, StringConstraints(pattern=NAME)]
Variables = dict[Annotated[str, StringConstraints(pattern=VARIABLE)], str]
"""Environment variables, as every system takes them."""

SHORT_ITERATIONS_FACTOR = 1000
"""Times `probe.iterations` that a command is asked to run at most. The tuner ends a probe itself, once its window is
long enough; a command that ended sooner would leave a window too short to measure."""
CERTAINTY = 0.98
"""Probability with which a search wants the best to be as good as any other before it ends."""


class TrainerSpec(Strict):
    """Which trainer is probed, where it lives and which Python runs it."""

    name: Annotated[str, StringConstraints(pattern=TRAINER)] = Field(
        description="a built-in trainer, or package.module:Class for your own"
    )
    root: str = Field(default="", description="the trainer's checkout")
    python: str = Field(default="", description="the Python of the trainer's own environment")
    options: dict[str, Any] = Field(default_factory=dict, description="what this trainer understands: docs/studies.md")


class ProbeSpec(Strict):
    """The limits of one probe."""

    iterations: PositiveInt = Field(default=8, description="iterations a probe runs at most, warm-up included")
    min_iterations: PositiveInt = Field(default=4, description="iterations before a probe may end as precise enough")
    window_seconds: Seconds = Field(
        default=5.0, description="least length of the window; short iterations go on beyond `iterations` to reach it"
    )
    target_error_pct: Annotated[Number, Field(gt=0)] = Field(
        default=1.0, description="standard error that is precise enough: points of utilisation, percent of samples/s"
    )
    headroom_pct: Annotated[Number, Field(ge=0, lt=100)] = Field(
        default=5.0, description="device memory that must stay free for a config to be eligible as best"
    )
    warmup_iterations: PositiveInt = Field(default=1, description="first iterations that do not count")
    warm: bool = Field(default=True, description="one started trainer serves several configs where it can")
    thin: bool = Field(
        default=True, description="a session makes as few of an iteration's updates as tell how all of them go"
    )
    idle_seconds: Seconds = Field(
        default=30.0, description="before a probe, for the cards to be free of others and their memory returned"
    )
    max_seconds: Seconds = Field(default=420.0, description="start-up included")
    start_up_silence_seconds: Seconds = Field(default=300.0, description="as below, until the first iteration")
    silence_seconds: Seconds = Field(default=120.0, description="without a new line or iteration: it hangs")
    grace_seconds: Seconds = Field(default=5.0, description="after a fatal line, before the probe is ended")
    sample_seconds: Annotated[Seconds, Field(le=60)] = Field(
        default=0.1, description="between two readings of the devices"
    )

    @property
    def most_iterations(self) -> int:
        """Return the iterations that a command is asked to run: far more than a probe needs; the tuner ends it."""
        return SHORT_ITERATIONS_FACTOR * self.iterations

    @property
    def longest_start_s(self) -> float:
        """Seconds that a trainer may take before its first iteration."""
        return min(self.start_up_silence_seconds, self.max_seconds)

    @model_validator(mode="after")
    def _window_is_not_empty(self) -> "ProbeSpec":
        if self.warmup_iterations >= self.iterations:
            raise ValueError(
                f"warmup_iterations {self.warmup_iterations} leaves nothing of iterations {self.iterations} to measure"
            )
        return self


class SearchSpec(Strict):
    """How configs are chosen."""

    trials: PositiveInt = Field(default=60, description="finished trials per case at most")
    seeds_per_variant: PositiveInt = Field(
        default=4, description="rungs of each variant's ladder probed before the sampler"
    )
    sampler: Literal["gain", "tpe", "random"] | None = Field(
        default=None,
        description="gain: most gain per second, and it ends by itself; tpe, random: seeds, then drawn; "
        "empty: gain, or tpe for several objectives",
    )
    certainty: Annotated[Number, Field(ge=0.5, lt=1)] = Field(
        default=CERTAINTY, description="gain: how sure that no config is 1 % better than the best, before it ends"
    )
    seed: Annotated[Whole, Field(ge=0, lt=1 << 31)] = Field(default=0, description="of the sampler's random numbers")


class PrunerSpec(Strict):
    """How a probe that cannot win is stopped early."""

    name: Literal["hyperband_patient", "hyperband", "median", "none"] = "hyperband_patient"
    min_resource: PositiveInt = Field(default=2, description="iterations before the pruner may act")
    max_resource: PositiveInt | None = Field(
        default=None, description="iterations of a full probe; empty: probe.iterations"
    )
    reduction_factor: Annotated[Whole, Field(ge=2)] = 3
    patience: PositiveInt = Field(default=1, description="used where pruner_patience is not searched")
    margin_pct: Annotated[Number, Field(ge=0)] = Field(
        default=15.0, description="percent of the best; only a probe further below it may be stopped"
    )


class EnvironmentSpec(Strict):
    """What the trainer's processes find in their environment."""

    nccl_p2p: Literal["auto", "on", "off"] = Field(
        default="auto", description="auto: off only where the cards have no P2P"
    )
    variables: Variables = Field(default_factory=dict)


class Match(Strict):
    """Where an override applies: to cases by glob, to a kind of device, or both."""

    cases: tuple[str, ...] = ("*",)
    device: Literal["cpu", "gpu"] | None = None


class Override(Strict):
    """Changes to a part of the study; a parameter named in `space` is replaced whole."""

    match: Match
    space: dict[str, dict[str, Any]] = Field(default_factory=dict)
    probe: dict[str, Any] = Field(default_factory=dict)
    search: dict[str, Any] = Field(default_factory=dict)


class StudySpec(Strict):
    """A whole study file."""

    name: Name
    trainer: TrainerSpec
    fallback: Name | None = Field(default=None, description="the study to run when trainer.root is empty")
    cases: tuple[str, ...] = Field(default=("*",), min_length=1, description="globs over the trainer's cases")
    devices: Annotated[str, StringConstraints(pattern=DEVICES)] = Field(
        default="auto", description="auto, cpu:RANKS, or CUDA indices such as 0,1"
    )
    space: dict[str, ParameterSpec] = Field(min_length=1)
    objective: Objective = "min_avg_util"
    constraints: dict[str, Bound] = Field(
        default_factory=dict, description='metric: ">= 10", "<= 20000" or ">= 0.8 * default"; else not eligible as best'
    )
    probe: ProbeSpec = ProbeSpec()
    search: SearchSpec = SearchSpec()
    pruner: PrunerSpec = PrunerSpec()
    environment: EnvironmentSpec = EnvironmentSpec()
    overrides: tuple[Override, ...] = ()

    @field_validator("space")
    @classmethod
    def _conditions_name_parameters(cls, space: dict[str, ParameterSpec]) -> dict[str, ParameterSpec]:
        if LADDER in space:
            _check_rungs(space[LADDER])
        for name, spec in space.items():
            if spec.ladder == AUTO and name != LADDER:
                raise ValueError(f"{name}: only {LADDER} takes `ladder: auto`")
            for other in spec.when:
                if other not in space:
                    raise ValueError(f"{name}: condition on unknown parameter {other!r}; known: {', '.join(space)}")
        _in_order(space)
        return space

    @model_validator(mode="after")
    def _default_is_searched(self) -> "StudySpec":
        compared = [one.metric for one in self.build_constraints() if one.of_default]
        if compared and VARIANT in self.space and DEFAULT not in self.space[VARIANT].values:
            raise ValueError(
                f"constraints.{compared[0]}: compares with the default variant, which the space does not hold; "
                f"add {DEFAULT!r} to {VARIANT}"
            )
        return self

    @model_validator(mode="after")
    def _gain_has_one_objective(self) -> "StudySpec":
        if len(self.objectives) > 1 and self.search.sampler == "gain":
            raise ValueError(f"search.sampler: gain weighs one objective, not {self.objective}; write tpe, or name one")
        return self

    @property
    def objectives(self) -> tuple[str, ...]:
        """The metrics that are maximised; of several, the first decides where one best is asked for."""
        return read_objectives(self.objective)

    @property
    def sampler(self) -> str:
        """The sampler asked for, or the one that suits the objectives."""
        return self.search.sampler or ("gain" if len(self.objectives) == 1 else "tpe")

    def build_constraints(self) -> tuple[Constraint, ...]:
        """Give what is asked of a config that is to be the best."""
        return tuple(read_constraint(metric, text) for metric, text in self.constraints.items())

    def build_space(self) -> Space:
        """Give the space as the search sees it, parameters after those that their conditions name."""
        return Space(tuple(self.space[name].parameter(name) for name in _in_order(self.space)))


def _check_rungs(spec: ParameterSpec) -> None:
    if spec.range is not None:
        raise ValueError(f"{LADDER} takes a ladder or choices, not a range")
    if wrong := [rung for rung in spec.values if not isinstance(rung, int) or rung < 1]:
        raise ValueError(f"{LADDER}: {wrong[0]!r} is no whole number from 1 up; write rungs such as [256, 512, 1024]")


def _in_order(space: Mapping[str, ParameterSpec]) -> list[str]:
    ordered: list[str] = []
    while len(ordered) < len(space):
        ready = [name for name, spec in space.items() if name not in ordered and set(spec.when) <= set(ordered)]
        if not ready:
            raise ValueError(f"conditions go round in a circle: {', '.join(sorted(set(space) - set(ordered)))}")
        ordered.append(ready[0])
    return ordered
