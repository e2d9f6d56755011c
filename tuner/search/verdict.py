"""What a probe's result means to the study. Pure."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from tuner.probe.kinds import Blame, FailureKind
from tuner.probe.metrics import error, measured, target_error, value
from tuner.probe.result import Failure, ProbeResult
from tuner.probe.steady import known_well_enough
from tuner.probe.stop import Enough, Go, LastIteration
from tuner.search.frontier import Frontier, out_of_memory
from tuner.study.constraints import Constraint
from tuner.study.space import Config
from tuner.study.spec import ProbeSpec

_NOTHING_KNOWN: Mapping[str, float | None] = MappingProxyType({})
HOST_ATTEMPTS = 2
"""A config that failed on a machine at fault is probed this often before it is left: it may be to blame after all."""
SAYS_NOTHING = {kind for kind in FailureKind if kind.says_nothing}
"""Failures that say nothing about the config: the config is tried again until it has been measured."""


class State(StrEnum):
    """How a trial ends; samplers learn from COMPLETE and PRUNED and never see FAIL."""

    COMPLETE = "complete"
    PRUNED = "pruned"
    FAIL = "fail"


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What the study is told about one probe."""

    state: State
    status: str
    """For people and tables: `ok`, `pruned` or the failure's kind."""
    value: float | None = None
    """The objective, or the first-named of several."""
    others: tuple[float, ...] = ()
    """The further objectives, in their order."""
    error: float | None = None
    """The standard error of `value`."""
    constraint: float | None = None
    """Device memory missing, in GiB; None where memory sufficed."""
    ineligible: str | None = None
    """Why a config that gave a number may not be the best, if it may not."""
    unread: tuple[str, ...] = ()
    """Objectives that a probe which ran gave no number for."""
    missed: Mapping[str, float] = field(default_factory=dict)
    """Metric with a constraint → by what share of its bound it is missed; 0 or below where it is kept."""
    retry: bool = False
    """Whether the same config is to be probed again."""

    @property
    def values(self) -> list[float] | None:
        """Every objective in its order, if the probe gave a number."""
        return None if self.value is None else [self.value, *self.others]


def judge(
    result: ProbeResult,
    *objectives: str,
    headroom_pct: float = 0.0,
    constraints: Sequence[Constraint] = (),
    default: Mapping[str, float | None] = _NOTHING_KNOWN,
    attempt: int = 1,
) -> Verdict:
    """Decide what to tell the study.

    A config that leaves less than `headroom_pct` of a device's memory free, or whose allocator had to retry, is ok but
    not eligible as best: it may fail in a longer run. Nor is one that misses one of the `constraints`; `default` holds
    the metrics of the default variant at its rung. `attempt` counts the probes of this config that failed in a row,
    this one included. A failure that nobody can explain, of a probe that a session served, is tried again with the
    plain command.
    """
    if result.failure is not None:
        return _failed(result, result.failure, attempt)
    if result.stopped is not None:
        return Verdict(state=State.PRUNED, status="pruned")
    read = {one: value(result, one) for one in objectives}
    values = [number for number in read.values() if number is not None]
    if unread := tuple(one for one, number in read.items() if number is None):
        return Verdict(state=State.FAIL, status="no_reading", unread=unread)
    numbers = measured(result)
    readings = [(one, numbers[one.metric], default.get(one.metric)) for one in constraints]
    missed = {one.metric: one.violation(*reading) for one, *reading in readings}
    complaints = [one.complaint(*reading) for one, *reading in readings if missed[one.metric] > 0]
    return Verdict(
        state=State.COMPLETE,
        status="ok",
        value=values[0],
        others=tuple(values[1:]),
        error=error(result, objectives[0]),
        ineligible="; ".join((*_short_of_memory(numbers, headroom_pct), *complaints)) or None,
        missed=missed,
    )


def _short_of_memory(numbers: Mapping[str, float | None], headroom_pct: float) -> Iterator[str]:
    free_pct, retries = numbers["headroom_pct"], numbers["alloc_retries"]
    if free_pct is not None and free_pct < headroom_pct:
        yield f"only {free_pct:.1f} % of device memory stayed free, {headroom_pct:g} % is asked for"
    elif retries:
        yield f"the allocator had to retry {retries:.0f} time(s)"


def _failed(result: ProbeResult, failure: Failure, attempt: int) -> Verdict:
    status = failure.kind.value
    match failure.kind.blame:
        case Blame.CONFIG:
            missing_gib = (
                out_of_memory(result.config, failure).violation if failure.kind is FailureKind.GPU_OOM else None
            )
            return Verdict(state=State.PRUNED, status=status, constraint=missing_gib)
        case Blame.HOST:
            again = failure.kind.says_nothing or attempt < HOST_ATTEMPTS
            return Verdict(state=State.FAIL, status=status, retry=again)
        case Blame.NOBODY | Blame.SETUP:
            return Verdict(state=State.FAIL, status=status, retry=True)
        case Blame.UNKNOWN:
            return Verdict(state=State.FAIL, status=status, retry=result.warm)


def settled(
    so_far: ProbeResult, objectives: Sequence[str], limits: ProbeSpec, incumbent: float | None = None
) -> Enough | LastIteration | Go:
    """Return whether a live probe may end: now, after one more iteration, or neither.

    A probe may end once it has run long enough, and each objective is precise or clearly below the incumbent.
    """
    if _settled(so_far, objectives, limits, incumbent, more=0):
        return Enough()
    return LastIteration() if _settled(so_far, objectives, limits, incumbent, more=1) else Go()


def _settled(
    so_far: ProbeResult, objectives: Sequence[str], limits: ProbeSpec, incumbent: float | None, *, more: int
) -> bool:
    """Tell whether a probe may end after `more` iterations like those so far."""
    iterations = so_far.iterations + more
    window_s = (so_far.window_s or 0.0) * iterations / max(so_far.iterations, 1)
    if window_s < limits.window_seconds or iterations + limits.warmup_iterations < limits.min_iterations:
        return False
    narrower = math.sqrt(so_far.iterations / iterations)
    return all(_known(so_far, one, limits, incumbent, narrower) for one in objectives)


def _known(so_far: ProbeResult, objective: str, limits: ProbeSpec, incumbent: float | None, narrower: float) -> bool:
    number, spread = value(so_far, objective), error(so_far, objective)
    if number is None or spread is None:
        return False
    target = target_error(so_far, objective, limits.target_error_pct)
    return known_well_enough(number, spread * narrower, target=target, best=incumbent)


def foregone(config: Config, frontier: Frontier) -> tuple[Failure, Verdict] | None:
    """Judge a config without launching it: None unless it lies beyond the frontier."""
    beyond = frontier.beyond(config)
    if beyond is None:
        return None
    known = " ".join(f"{name}={number}" for name, number in beyond.config.items())
    detail = f"not launched: needs no less than {known}, which ran out of memory"
    failure = Failure(kind=FailureKind.GPU_OOM, rule="frontier", detail=detail)
    return failure, Verdict(state=State.PRUNED, status=failure.kind.value, constraint=beyond.violation)
