"""Looks probes up in a recorded table, and adds up the seconds that real probes would take."""

import random
from dataclasses import replace

from tuner.probe.kinds import FailureKind
from tuner.probe.metrics import error, full, value
from tuner.probe.plan import ProbePlan
from tuner.probe.result import STOPPED, Failure, ProbeResult, unlaunched
from tuner.probe.stop import Answer, Enough, Interrupted, More, Pruned, Stop, remembering
from tuner.replay.reading import cut_short, error_of, made_whole, restated
from tuner.replay.table import Recorded, Table
from tuner.study.spec import ProbeSpec

_NOT_RECORDED = Failure(
    kind=FailureKind.INVALID_CONFIG, rule="not recorded", detail="the table does not hold this config"
)


class ReplayedProber:
    """Returns recorded results, and calls `stop` after each iteration as a real probe does; a `Prober`.

    A probe in the open session takes the time of its run alone. Any other probe also takes the time to start a session
    or a command. The limits of time are those of the recording; the limits of iterations are those of the plan.
    """

    def __init__(self, table: Table, objective: str, *others: str, noise: random.Random | None = None) -> None:
        """`noise` moves each measurement of the objective by a normal deviate with the recorded standard error.

        With `others`, further objectives, each probe runs to its end: the table holds the series of one objective only.
        """
        self._table = table
        self._objective = objective
        self._alone = not others
        self._noise = noise
        self.open_session: str | None = None
        """The key of the open session; None where no session is open."""
        self.spent_s = 0.0
        """Simulated seconds so far; a second on several devices counts once."""

    def __call__(self, plan: ProbePlan, stop: Stop) -> ProbeResult:
        """Look a probe up; this takes no real time."""
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

    def utilisation(self) -> tuple[float | None, ...]:
        """Return nothing: a table holds no measurements of single moments."""
        return ()

    def close(self) -> None:
        """End the open session."""
        self.open_session = None

    def _started(self, plan: ProbePlan, recorded: Recorded) -> ProbeResult:
        """Return the recorded result with the start-up time that this probe takes in simulated time.

        The start-up time of a plain command stays as recorded.
        """
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
        """Call `stop` for each iteration of the window; return the result where `stop` or the plan's limits end it."""
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
    usual = done >= limits.iterations and long_enough and answer != More()
    return so_far if answer == Enough() or usual else None
