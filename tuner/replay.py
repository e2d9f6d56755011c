"""Replays a table that `tuner record` has written: a search probes the table in place of a trainer and devices.

A probe takes no real time. Its result is the recorded one, or what had been measured when the search stops it earlier.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from tuner import probe
from tuner.devices.found import AbsentDevices
from tuner.export.recorded_table import Recorded, Table
from tuner.records.case_record import RECORDED
from tuner.records.urls import REPLAYED
from tuner.running.job import Workbench
from tuner.study import PATIENCE, Case, Config, ProbeSpec, config_digest, load, narrowed
from tuner.trainers.base import STANDARD, Trainer

_OF_DEVICE = {"min_avg_util": ("util_mean_pct", "util_se_pct"), "min_avg_sm": ("sm_mean_pct", "sm_se_pct")}
"""Objective → the fields of a device's summary with the objective and its standard error.

Other objectives are fields of the result.
"""


def with_objective(result: probe.ProbeResult, objective: str, number: float, error: float | None) -> probe.ProbeResult:
    """Return a result with another value of an objective and its standard error, as it stood at an earlier iteration.

    An objective about utilisation is the mean of a device, so each device's mean changes by the same amount.
    """
    if objective not in _OF_DEVICE:
        return replace(result, **{objective: number, f"{objective}_se": error})
    mean_field, error_field = _OF_DEVICE[objective]
    change = number - (probe.value(result, objective) or 0.0)

    def restated_device(device: probe.DeviceSummary) -> probe.DeviceSummary:
        """Return the summary of a device with the change of its mean, and the error; unchanged where it has no mean."""
        mean = getattr(device, mean_field)
        if mean is None:
            return device
        return replace(device, **{mean_field: mean + change, error_field: error})

    return replace(result, devices=tuple(map(restated_device, result.devices)))


def cut_short(result: probe.ProbeResult, iterations: int) -> probe.ProbeResult:
    """Return a result as if its probe had ended after the first `iterations` of its window, all equally long.

    Means stay those of the whole window. A result with a window has at least one iteration.
    """
    share = iterations / result.iterations
    whole_s = result.window_s or 0.0
    window_s = whole_s * share

    def cut(device: probe.DeviceSummary) -> probe.DeviceSummary:
        """Return the summary of a device over the shorter window."""
        energy_j = None if device.energy_j is None else device.energy_j * share
        return replace(device, energy_j=energy_j)

    return replace(
        result,
        iterations=iterations,
        window_s=window_s,
        trained_s=(result.trained_s or 0.0) * share,
        total_s=result.total_s - whole_s + window_s,
        samples=None,  # they count from the start, also in the warm-up, so a share of the window does not give them
        devices=tuple(map(cut, result.devices)),
    )


def with_whole_iterations(result: probe.ProbeResult, warmup_iterations: int) -> probe.ProbeResult:
    """Return a result of a session as a plain command would have it, with whole iterations, also in the warm-up.

    A session may do only a part of an iteration's work. `trained_s` are the seconds that its window would take with all
    of the work.
    """
    if result.window_s is None or result.trained_s is None or result.start_up_s is None:
        return result
    longer_s = (result.trained_s - result.window_s) / result.iterations  # how much longer an iteration takes
    return replace(
        result,
        start_up_s=result.start_up_s + longer_s,  # the start-up ends with the first iteration
        window_s=result.trained_s,
        total_s=result.total_s + longer_s * (warmup_iterations + result.iterations),
    )


def series_error(series: Sequence[float | None], iteration_s: float, *, full: float) -> float | None:
    """Return the standard error of the last mean of a series, estimated as a live probe does: from means of blocks.

    A block is a number of iterations in a row that take long enough to be about independent of the next.

    Args:
        series: the objective's mean so far, after each iteration; None where it was unknown.
        iteration_s: the seconds of an iteration.
        full: the largest value that the objective can have.
    """
    sums = {0: 0.0}  # iterations so far → the sum of the objective over them; a block lies between two keys
    for count, mean in enumerate(series, start=1):
        is_long_enough = (count - max(sums)) * iteration_s >= probe.LEAST_SPAN_S
        if mean is not None and is_long_enough:
            sums[count] = count * mean
    if len(sums) == 1 and series and series[-1] is not None:  # no block is long enough: the whole series is one
        sums[len(series)] = len(series) * series[-1]
    blocks: list[probe.Block] = []
    for before, after in pairwise(sums):
        iterations = after - before
        blocks.append(probe.Block(iterations * iteration_s, (sums[after] - sums[before]) / iterations))
    return probe.standard_error(blocks, largest=full)


def replay_bench(table: Table, study: str, *, runs: Path = Path("runs")) -> Workbench:
    """Return a workbench for the search of a table: space, case and devices are the table's, all else is the study's.

    Only configs for which the table has a result are searched. `pruner_patience` is searched if the study searches it,
    because no recorded result depends on it. Raises StudyError where the study cannot be used.
    """
    spec, header = load(study, fall_back=False), table.header
    probe.check_metrics(spec)
    spec = narrowed(spec, header.case, "gpu" if header.devices[0].is_gpu else "cpu")
    patience = {PATIENCE: spec.space[PATIENCE]} if PATIENCE in spec.space else {}
    space = {**header.space, **patience}
    return Workbench(
        spec=spec.model_copy(update={"space": space, "cases": (header.case,), "overrides": ()}),
        requested_study=study,
        trainer=TableTrainer(table),
        source=AbsentDevices(table.header.devices, table.header.source),
        folder=(runs / f"{spec.name}{REPLAYED}").resolve(),
        variables={},
        holds=table.holds,
    )


class TableTrainer(Trainer):
    """The trainer of a table: the recorded case, the recorded parameters, and plans that nobody runs."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self.name = table.header.trainer["name"]
        self.accepts = frozenset(table.header.space)

    @property
    def declines(self) -> Mapping[str, str]:
        """The standard parameters that the table does not vary."""
        return {name: "the table does not vary it" for name in STANDARD if name not in self.accepts}

    def cases(self) -> list[Case]:
        """Return the one recorded case."""
        header = self._table.header
        return [Case(name=header.case, options=header.files, files=tuple(header.files))]

    def plan(self, case: Case, config: Config, slot: probe.Slot) -> probe.ProbePlan:
        """Return a plan by which the replayed prober finds the result of a config; its command is never run."""
        return probe.ProbePlan(
            config=config,
            argv=("replay", case.name, json.dumps(config), *(device.name for device in slot.devices)),
            cwd=slot.out_dir,
            env=dict(slot.variables),
            files={},
            slot=slot,
            # a config that was recorded without a session shares none with others
            session_key=self.session_key(case, config) or "/".join((self.name, case.name, config_digest(config))),
            base_agent=case.options.get("agent_config", ""),
        )

    def session_key(self, case: Case, config: Config) -> str | None:
        """Return the key of the session in which the config was recorded; None where it was no session."""
        row = self._table.find(config)
        if row is None or not row.result.config.items() <= config.items():  # the row of a smaller config, out of memory
            return None
        return row.session_key

    def warm_plan(self, case: Case, config: Config, slot: probe.Slot) -> probe.ProbePlan | None:
        """Return a plan for the same row in its session; None where the row was recorded without a session."""
        key = self.session_key(case, config)
        if key is None:
            return None
        request = {"config": config, "iterations": slot.limits.most_iterations}
        return replace(self.plan(case, config, slot), argv=("replay", key), request=request)

    def fingerprint(self) -> dict[str, str]:
        """Return the recorded trainer's fingerprint with the date of the recording."""
        return {**self._table.header.trainer, RECORDED: self._table.header.date}


class ReplayedProber:
    """Returns recorded results, and calls `stop` after each recorded iteration as a real probe does; a `Prober`.

    A probe in the open session takes the time of its run alone. Any other probe also takes the time to start a session
    or a command. The limits of time are those of the recording; the limits of iterations are those of the plan.
    """

    def __init__(self, table: Table, objective: str, *further: str) -> None:
        """Replay a table for a study's objectives, `objective` first.

        With `further` objectives, no probe ends early: the table has the values after each iteration of one alone.
        """
        self._table = table
        self._objective = objective
        self._has_one_objective = not further
        self.open_session: str | None = None
        """The key of the open session; None where no session is open."""
        self.spent_s = 0.0
        """Simulated seconds so far; a second on several devices counts once."""

    def __call__(self, plan: probe.ProbePlan, stop: probe.Stop) -> probe.ProbeResult:
        """Return the recorded result of a probe, at once; the seconds that it would have taken are added to `spent_s`.

        `stop` is asked before and after each recorded iteration whether the probe goes on.
        """
        if stop(None).next is probe.Next.INTERRUPTED:  # before the first iteration
            return probe.unlaunched(plan.config, probe.STOPPED, plan.digest)
        recorded = self._table.find(plan.config)
        if recorded is None:
            detail = "the table does not hold this config"
            failure = probe.Failure(kind=probe.FailureKind.INVALID_CONFIG, rule="not recorded", detail=detail)
            return probe.unlaunched(plan.config, failure, plan.digest)
        if recorded.result.failure and not recorded.result.launched:
            return probe.unlaunched(plan.config, recorded.result.failure, plan.digest)
        complete = self._with_start_up(plan, recorded)
        result = self._until_stopped(complete, recorded, plan.slot.limits, probe.ending_after_last(stop))
        keeps_session = plan.request is not None and not result.failure
        self.open_session = plan.session_key if keeps_session else None
        self.spent_s += result.total_s
        return result

    def utilisation(self) -> tuple[float | None, ...]:
        """Return nothing: a table holds no measurements of single moments."""
        return ()

    def close(self) -> None:
        """End the open session."""
        self.open_session = None

    def _with_start_up(self, plan: probe.ProbePlan, recorded: Recorded) -> probe.ProbeResult:
        """Return the recorded result with the start-up time of this probe, which may differ from the recorded one.

        A probe in the open session (one started trainer for many configs) waits for no start. Any other probe waits for
        a session to start, or for a plain command as long as recorded.
        """
        result = recorded.result
        warm = plan.request is not None  # a request of a session; a plain command has none
        # `ready_s`: the seconds until the session can take a request
        if result.ready_s is None:  # a plain command was recorded
            ready_s = None
        elif warm and plan.session_key == self.open_session:
            ready_s = 0.0
        else:
            ready_s = self._table.session_s(recorded.session_key)
        later_s = (ready_s or 0.0) - (result.ready_s or 0.0)  # than recorded
        started = replace(
            result,
            config=plan.config,
            plan_digest=plan.digest,
            total_s=result.total_s + later_s,
            start_up_s=None if result.start_up_s is None else result.start_up_s + later_s,
            warm=warm,
            ready_s=ready_s if warm else None,
        )
        return started if warm else with_whole_iterations(started, self._table.header.limits.warmup_iterations)

    def _until_stopped(
        self, result: probe.ProbeResult, recorded: Recorded, limits: ProbeSpec, stop: probe.Stop
    ) -> probe.ProbeResult:
        """Return a result as it was at the iteration after which `stop` or the plan's `limits` end the probe."""
        if result.failure is not None or probe.value(result, self._objective) is None or result.window_s is None:
            return result  # it has no iterations to stop after
        has_series = self._has_one_objective and self._objective == self._table.header.objective
        series = recorded.series if has_series else ()  # the objective's mean so far after each iteration
        for count, mean in enumerate(series[: result.iterations - 1], start=1):
            if mean is None:
                continue
            error = series_error(
                series[:count], result.window_s / result.iterations, full=probe.largest_value(self._objective)
            )
            so_far = with_objective(cut_short(result, count), self._objective, mean, error)
            if (final := _ended_result(so_far, stop(so_far), limits)) is not None:
                return final
        return _ended_result(result, stop(result), limits) or result  # the recording has no further iteration


def _ended_result(so_far: probe.ProbeResult, answer: probe.Answer, limits: ProbeSpec) -> probe.ProbeResult | None:
    """Return the result of a probe that ends now, by the answer of `stop` or by its limits; None if it goes on.

    `so_far` is what it has measured up to now.
    """
    if answer.next is probe.Next.INTERRUPTED:
        return replace(so_far, failure=probe.STOPPED, window_s=None, trained_s=None, samples_per_s=None, devices=())
    if answer.next is probe.Next.PRUNED:
        return replace(so_far, stopped=answer.reason)
    iterations = so_far.iterations + limits.warmup_iterations
    is_long_enough = (so_far.window_s or 0.0) >= limits.window_seconds
    reaches_limits = iterations >= limits.iterations and is_long_enough
    ends = answer.next is probe.Next.ENOUGH or (reaches_limits and answer.next is not probe.Next.MORE)
    return so_far if ends else None
