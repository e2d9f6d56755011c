"""Decides what the study records about a probe that has ended, and when a running probe may end. Pure.

A probe is a short run of the training with one config. Its window holds the iterations that are measured. The incumbent
is the best mean so far. A rung is a value of the parameter that decides how much memory a config needs. A session is a
started trainer that serves several probes; the plain command starts a trainer for one.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from optuna.trial import TrialState

from tuner import probe
from tuner.records.schema import INELIGIBLE, MEMORY
from tuner.records.trial import NO_READING, OK, PRUNED
from tuner.search.frontier import Frontier, out_of_memory
from tuner.search.memory_growth import MemoryRise
from tuner.study import Config, Constraint, ProbeSpec, value_text


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What the study records about one probe."""

    state: TrialState
    """How the trial ends. Samplers learn from complete and pruned trials, and ignore those that fail."""
    status: str
    """For people and tables: `ok`, `pruned`, `no_reading` or the failure's kind."""
    value: float | None = None
    """The first objective."""
    further: tuple[float, ...] = ()
    """The other objectives, in their order."""
    error: float | None = None
    """The standard error of `value`."""
    constraint: float | None = None
    """The missing device memory, in GiB; None where memory sufficed."""
    ineligible: str | None = None
    """Why the config must not be the best although it ran; None where it may be the best."""
    unread: tuple[str, ...] = ()
    """The objectives without a number, if the probe ran."""
    missed: Mapping[str, float] = field(default_factory=dict)
    """Metric with a constraint → the share of its bound by which it misses the bound; 0 or below where it keeps it."""
    retry: bool = False
    """Whether the same config is to be probed again."""

    @property
    def values(self) -> list[float] | None:
        """All objectives in their order; None where the probe has no value."""
        return None if self.value is None else [self.value, *self.further]

    @property
    def constraints(self) -> dict[str, float]:
        """The constraints of the trial in Optuna: missing memory and missed bounds. Positive values are violations."""
        memory = {} if self.constraint is None else {MEMORY: self.constraint}
        return {**memory, **({INELIGIBLE: 1.0} if self.ineligible else {}), **self.missed}


def judge(
    result: probe.ProbeResult,
    *objectives: str,
    headroom_pct: float = 0.0,
    training_hours: float = 0.0,
    constraints: Sequence[Constraint] = (),
    default: Mapping[str, float | None] | None = None,
    attempt: int = 1,
    is_first: bool = False,
) -> Verdict:
    """Return what the study records about a probe that has ended.

    1. After a failure, it depends on what is to blame: see `_verdict_on_failure`.
    2. A probe that the pruner stopped has no value.
    3. A probe that ran and has no number for an objective is a failure.
    4. Any other probe is complete. Its config is not eligible as best if it may run out of memory in a longer run, or
       if it misses a constraint.

    Args:
        result: What the probe showed.
        *objectives: The names of the metrics to maximise, the first one first.
        headroom_pct: The percentage of each device's memory that must stay free.
        training_hours: The hours after which memory that surely grows must not have ended.
        constraints: The bounds that the config must keep.
        default: The metrics of the default config at the same rung, for bounds relative to it; None if unknown.
        attempt: The failures of this config in a row, including this probe's, if it has failed.
        is_first: Whether no probe of the case has ended before.
    """
    if result.failure is not None:  # 1
        return _verdict_on_failure(result, result.failure, attempt, is_first=is_first)
    if result.stopped is not None:  # 2
        return Verdict(state=TrialState.PRUNED, status=PRUNED)
    numbers = {objective: probe.value(result, objective) for objective in objectives}
    if unread := tuple(objective for objective, number in numbers.items() if number is None):  # 3
        return Verdict(state=TrialState.FAIL, status=NO_READING, unread=unread)
    # 4
    complaints = list(_complaints_of_memory(result, headroom_pct, training_hours))
    missed: dict[str, float] = {}
    metrics, default_metrics = probe.measured(result), default or {}
    for bound in constraints:
        number, default_number = metrics[bound.metric], default_metrics.get(bound.metric)
        missed[bound.metric] = bound.violation(number, default_number)
        if missed[bound.metric] > 0:
            complaints.append(bound.complaint(number, default_number))
    first, *further = (number for number in numbers.values() if number is not None)
    return Verdict(
        state=TrialState.COMPLETE,
        status=OK,
        value=first,
        further=tuple(further),
        error=probe.error(result, objectives[0]),
        ineligible="; ".join(complaints) or None,
        missed=missed,
    )


def _complaints_of_memory(result: probe.ProbeResult, headroom_pct: float, training_hours: float) -> Iterator[str]:
    """Yield why a longer run may run out of memory: it grows, too little stayed free, or the allocator had to retry.

    `headroom_pct`: the percentage of each device's memory that must stay free. `training_hours`: the hours after which
    memory that surely grows must not have ended.
    """
    for device in result.devices:
        rise, total_mib = MemoryRise.of(device), device.mem_total_mib
        if rise and total_mib and rise.now_mib + rise.sure_mib_per_h * training_hours > total_mib:
            yield (
                f"memory grows by {rise.sure_mib_per_h:.0f} MiB/h at least, {training_hours:g} h are planned, and "
                f"{total_mib - rise.now_mib:.0f} MiB stayed free"
            )
    free_pct = probe.value(result, "headroom_pct")
    if free_pct is not None and free_pct < headroom_pct:
        yield f"only {free_pct:.1f} % of device memory stayed free, {headroom_pct:g} % is asked for"
    elif result.alloc_retries:  # said only where it is the single sign of short memory
        yield f"the allocator had to retry {probe.number_of(round(result.alloc_retries), 'time')}"


def _verdict_on_failure(result: probe.ProbeResult, failure: probe.Failure, attempt: int, *, is_first: bool) -> Verdict:
    """Return the verdict on a failed probe, by what is to blame for the failure.

    - The config: it counts as pruned, so that samplers learn from it. Missing memory becomes an Optuna constraint. But
      a config that was too slow beside other programs is probed a second time; and so is one whose start was the first
      of the case, which may have compiled what the second finds in a cache.
    - The host: the config is probed a second time, because it may be to blame after all.
    - Nobody, or the set-up: the config is probed again.
    - Unknown: if a session served the probe, the plain command probes the config again.

    `attempt`: the failures of this config in a row, including this one. `is_first`: whether no
    probe of the case has ended before.
    """
    status = failure.kind.value
    is_excused = result.is_disturbed or (is_first and not result.start_up_s)
    if failure.kind is probe.FailureKind.TOO_SLOW and is_excused and attempt < 2:
        return Verdict(state=TrialState.FAIL, status=status, retry=True)
    match failure.kind.blame:
        case probe.Blame.CONFIG:
            is_short = failure.kind is probe.FailureKind.GPU_OOM
            missing_gib = out_of_memory(result.config, failure).violation if is_short else None
            return Verdict(state=TrialState.PRUNED, status=status, constraint=missing_gib)
        case probe.Blame.HOST:
            again = failure.kind.says_nothing or attempt < 2
            return Verdict(state=TrialState.FAIL, status=status, retry=again)
        case probe.Blame.NOBODY | probe.Blame.SETUP:
            return Verdict(state=TrialState.FAIL, status=status, retry=True)
        case probe.Blame.UNKNOWN:
            return Verdict(state=TrialState.FAIL, status=status, retry=result.warm)


@dataclass(frozen=True, kw_only=True, slots=True)
class _LiveProbe:
    """A probe that runs now, by its result so far."""

    so_far: probe.ProbeResult
    limits: ProbeSpec
    incumbent: float | None
    """The best mean so far, which the probe must beat; None where there is none yet."""

    def known_after(self, objective: str, *, more: int, factor: float = 1.0) -> bool:
        """Return whether an objective will be known well enough after `more` further iterations like those so far.

        It is once its standard error is at most `factor` times the target error of the study, or once its value is
        clearly below the incumbent.

        The error has two parts: scatter, which more iterations reduce, and the error of the window's edges, which they
        do not. An objective also counts as known once the scatter is below half of the edges' error: all further
        iterations together would then reduce the whole error by about a tenth at most.
        """
        number, error = probe.value(self.so_far, objective), probe.error(self.so_far, objective)
        if number is None or error is None:
            return False
        edge_error, iterations = probe.edge_error(self.so_far, objective), self.so_far.iterations
        scatter_variance = max(error**2 - edge_error**2, 0.0)  # rounding may make it less than 0
        scatter = math.sqrt(scatter_variance * (iterations / (iterations + more)))
        if scatter < 0.5 * edge_error:
            return True
        target = factor * probe.target_error(self.so_far, objective, self.limits.target_error_pct)
        later_error = math.hypot(scatter, edge_error)
        return probe.known_well_enough(number, later_error, target=target, best=self.incumbent)

    def may_end(self, objectives: Sequence[str], *, more: int) -> bool:
        """Return whether the probe may end after `more` further iterations like those so far.

        A further iteration counts with half of its usual time, as it may be a short one: the window must be long enough
        all the same.
        """
        iterations = self.so_far.iterations
        window_s = (self.so_far.window_s or 0.0) * (iterations + more / 2) / max(iterations, 1)
        is_short = iterations + more + self.limits.warmup_iterations < self.limits.min_iterations
        if is_short or window_s < self.limits.window_seconds:
            return False
        return all(self.known_after(objective, more=more) for objective in objectives)

    def is_usable(self, objective: str) -> bool:
        """Return whether the value of an objective is good enough for a probe to end after its usual iterations.

        A probe goes on beyond its usual iterations until this is true. It is true in three cases:

        1. The objective has no value: more iterations would bring none either.
        2. The objective is a speed, other programs disturb it, and the training has gone on for long: the speed may
           never settle.
        3. One more iteration brings the error below three times its target. For a speed that was measured for long, it
           is six times: one more probe then takes no longer than going on, and also shows how much two runs differ.
        """
        if probe.value(self.so_far, objective) is None:  # 1
            return True
        # 2
        is_speed = probe.largest_value(objective) == math.inf  # the full value of a share is 100 %
        window_s, start_up_s = self.so_far.window_s or 0.0, self.so_far.start_up_s or 0.0
        trained_s = window_s + (self.so_far.change.seconds if self.so_far.change else 0.0)
        if is_speed and self.so_far.is_disturbed and trained_s >= max(120.0, 3.0 * start_up_s):  # chosen
            return True
        # 3
        is_long = window_s >= max(30.0, start_up_s)
        factor = 6.0 if is_speed and is_long else 3.0  # target errors (chosen)
        return self.known_after(objective, more=1, factor=factor)


def next_answer(
    so_far: probe.ProbeResult, objectives: Sequence[str], limits: ProbeSpec, incumbent: float | None = None
) -> probe.Answer:
    """Return what a live probe does next.

    Returns:
        `ENOUGH` once it has run long enough, and each objective is precise or clearly below the incumbent.
        `LAST_ITERATION` if that will be so after the iteration that runs now.
        `GO` if each objective is usable: the probe then ends after its usual iterations.
        `MORE` if an objective is not: the probe goes on beyond its usual iterations.
    """
    live = _LiveProbe(so_far=so_far, limits=limits, incumbent=incumbent)
    if live.may_end(objectives, more=0):
        return probe.Answer(probe.Next.ENOUGH)
    if live.may_end(objectives, more=1):
        return probe.Answer(probe.Next.LAST_ITERATION)
    are_usable = all(map(live.is_usable, objectives))
    return probe.Answer(probe.Next.GO if are_usable else probe.Next.MORE)


def judge_unlaunched(config: Config, frontier: Frontier) -> tuple[probe.Failure, Verdict] | None:
    """Return the failure and the verdict of a config that surely runs out of memory, so that it need not be launched.

    None for any other config. `frontier` knows the configs that ran out of memory.
    """
    beyond = frontier.exceeded_failure(config)
    if beyond is None:
        return None
    settings = " ".join(f"{name}={value_text(number)}" for name, number in beyond.config.items())
    detail = f"not launched: it needs at least as much memory as {settings}, which ran out of memory"
    failure = probe.Failure(kind=probe.FailureKind.GPU_OOM, rule="frontier", detail=detail)
    return failure, Verdict(state=TrialState.PRUNED, status=failure.kind.value, constraint=beyond.violation)
