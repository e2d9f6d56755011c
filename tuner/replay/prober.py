"""Probes a table instead of a trainer, and adds up the seconds that the real thing would take."""

import random
from dataclasses import replace

from tuner.probe.kinds import FailureKind
from tuner.probe.metrics import error, full, value
from tuner.probe.plan import ProbePlan
from tuner.probe.result import STOPPED, Failure, ProbeResult, unlaunched
from tuner.probe.stop import Answer, Enough, Interrupted, Pruned, Stop, remembering
from tuner.replay.reading import cut_short, error_of, made_whole, restated
from tuner.replay.table import Recorded, Table
from tuner.study.spec import ProbeSpec

_NOT_RECORDED = Failure(
    kind=FailureKind.INVALID_CONFIG, rule="not recorded", detail="the table does not hold this config"
)


class ReplayedProber:
    """Stands in for `tuner.prober.RealProber`: gives what the table holds and asks to stop after each iteration.

    A probe in the open session takes its run alone, any other one the start of a session or command as well. Limits of
    time are those of the recording; limits of iterations are the plan's.
    """

    def __init__(self, table: Table, objective: str, *others: str, noise: random.Random | None = None) -> None:
        """`noise` moves each reading of the objective by a normal deviate of its standard error.

        With `others` beside it a probe runs to its end: the table does not say how they developed.
        """
        self._table = table
        self._objective = objective
        self._alone = not others
        self._noise = noise
        self.open_session: str | None = None
        """The key of the session that is open, if one is."""
        self.spent_s = 0.0
        """Simulated seconds so far; each counts once, on however many devices."""

    def __call__(self, plan: ProbePlan, stop: Stop) -> ProbeResult:
        """Probe once, in no time."""
        if stop(None) == Interrupted():
            return unlaunched(plan.config, STOPPED, plan.digest)
        recorded = self._table.find(plan.config)
        if recorded is None:
            return unlaunched(plan.config, _NOT_RECORDED, plan.digest)
        if recorded.result.failure and not recorded.result.launched:
            return unlaunched(plan.config, recorded.result.failure, plan.digest)
        result = self._walk(self._started(plan, recorded), recorded, plan.slot.limits, remembering(stop))
        self.open_session = None if result.failure or plan.request is None else plan.session_key
        self.spent_s += result.total_s
        return result

    def close(self) -> None:
        """End the open session."""
        self.open_session = None

    def _started(self, plan: ProbePlan, recorded: Recorded) -> ProbeResult:
        """Give the recorded result with the start-up that it has now; a command's own stays what it was."""
        result, warm, ready_s = recorded.result, plan.request is not None, recorded.result.ready_s
        if ready_s is not None:
            is_open = warm and plan.session_key == self.open_session
            ready_s = 0.0 if is_open else self._table.session_s(recorded.session_key)
        later_s = (ready_s or 0.0) - (result.ready_s or 0.0)
        started = replace(
            result,
            config=plan.config,
            plan_digest=plan.digest,
            total_s=result.total_s + later_s,
            start_up_s=None if result.start_up_s is None else result.start_up_s + later_s,
            warm=warm,
            ready_s=ready_s if warm else None,
        )
        return started if warm else made_whole(started, self._table.header.limits.warmup_iterations)

    def _walk(self, result: ProbeResult, recorded: Recorded, limits: ProbeSpec, stop: Stop) -> ProbeResult:
        """Go through the iterations of the window and end where `stop` or the plan's limits say so, or at its end."""
        final = value(result, self._objective)
        if result.failure is not None or final is None or result.window_s is None:
            return result
        own_error = error(result, self._objective)
        shift = self._noise.gauss(0.0, own_error) if self._noise and own_error else 0.0
        followed = self._alone and self._objective == self._table.header.objective
        series = recorded.series if followed else ()
        whole = restated(result, self._objective, final + shift, own_error) if shift else result
        for count, number in enumerate(series[: result.iterations - 1], start=1):
            if number is None:
                continue
            known = error_of(series[:count], result.window_s / result.iterations, full=full(self._objective))
            so_far = restated(cut_short(result, count), self._objective, number + shift, known)
            if (ended := _ended(so_far, stop(so_far), limits)) is not None:
                return ended
        return _ended(whole, stop(whole), limits) or whole


def _ended(so_far: ProbeResult, answer: Answer, limits: ProbeSpec) -> ProbeResult | None:
    """Return the result of a probe that is over after an iteration; None where the probe goes on."""
    match answer:
        case Interrupted():
            return replace(so_far, failure=STOPPED, window_s=None, trained_s=None, samples_per_s=None, devices=())
        case Pruned(why):
            return replace(so_far, stopped=why)
    done = so_far.iterations + limits.warmup_iterations
    long_enough = (so_far.window_s or 0.0) >= limits.window_seconds
    return so_far if answer == Enough() or (done >= limits.iterations and long_enough) else None
