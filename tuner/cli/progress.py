"""Turns what happens in a running study into the events of a screen."""

from collections.abc import Callable, Sequence

from tuner.cli.events import (
    BatchFitStarted,
    BatchFitted,
    Best,
    CalibrationStarted,
    CaseEnded,
    CaseStarted,
    LadderFixed,
    ProbeEnded,
    ProbeRunning,
    ProbeStarted,
)
from tuner.cli.screen import Screen
from tuner.outcome import CaseOutcome, Pace
from tuner.probe.protocols import Clock
from tuner.probe.result import ProbeResult
from tuner.search.standing import Standing
from tuner.search.verdict import Verdict
from tuner.store.asked import Asked
from tuner.store.dropped import TakenBack
from tuner.study.batch import BatchFit
from tuner.study.cases import Case
from tuner.study.spec import ProbeSpec


class ProgressView:
    """Shows a study's progress on a screen; a `Watcher`."""

    def __init__(self, screen: Screen, clock: Clock, utilisation: Callable[[], Sequence[float | None]] = tuple) -> None:
        """`utilisation` returns how busy each device was since the last call; see `Prober.utilisation`."""
        self._screen = screen
        self._clock = clock
        self._utilisation = utilisation
        self._running: _Running | None = None
        self._shown_s = 0.0
        self.trials = 0
        """The number of trials that have ended so far."""

    def case_started(
        self, case: Case, *, finished: int, target: int | None, best: Standing | None, taken_back: TakenBack
    ) -> None:
        """Show how many trials of the case are done."""
        self._screen.show(
            CaseStarted(
                case=case.name,
                finished=finished,
                target=target,
                best=_best(best),
                saved=taken_back.stored,
                to_repeat=taken_back.to_repeat,
            )
        )

    def calibrating(self, case: Case, rungs: Sequence[int]) -> None:
        """Show which rungs the calibration probes."""
        self._screen.show(CalibrationStarted(case=case.name, rungs=tuple(rungs)))

    def rungs_fixed(self, case: Case, rungs: Sequence[int]) -> None:
        """Show the ladder."""
        self._screen.show(LadderFixed(case=case.name, rungs=tuple(rungs)))

    def fitting_batch(self, case: Case, parameter: str) -> None:
        """Show that the first probes decide the batch size."""
        self._screen.show(BatchFitStarted(case=case.name, parameter=parameter))

    def batch_fitted(self, case: Case, parameter: str, batch: BatchFit) -> None:
        """Show the batch size and how it follows."""
        self._screen.show(BatchFitted(case=case.name, parameter=parameter, size=batch.size, why=str(batch)))

    def probe_started(self, case: Case, asked: Asked, *, limits: ProbeSpec, left_s: float | None) -> None:
        """Show that a probe starts."""
        self._shown_s = self._clock.now()
        self._running = _Running(case.name, asked.number, limits.iterations - limits.warmup_iterations, self._shown_s)
        self._utilisation()  # forgets what was measured before this probe
        self._screen.show(ProbeStarted(case=case.name, trial=asked.number, config=dict(asked.config), left_s=left_s))

    def iteration(self, result: ProbeResult, objective: float | None, error: float | None) -> None:
        """Take in what the running probe has measured so far."""
        if self._running is not None:
            self._running.result, self._running.objective, self._running.error = result, objective, error
            self.still_running()

    def still_running(self) -> None:
        """Show the running probe, if the screen wants to see it and the last time is long enough ago."""
        now_s, every_s = self._clock.now(), self._screen.every_s
        if self._running is not None and every_s is not None and now_s - self._shown_s >= every_s:
            self._shown_s = now_s
            self._screen.show(self._running.event(now_s, tuple(self._utilisation())))

    def probe_ended(
        self,
        case: Case,
        asked: Asked,
        result: ProbeResult,
        verdict: Verdict,
        *,
        leads: bool,
        best: Standing | None,
        pace: Pace,
    ) -> None:
        """Show the result of a trial."""
        self._running = None
        self.trials += 1
        reason = result.failure.detail if result.failure else result.stopped
        unfit = f"not eligible as best, {verdict.ineligible}" if verdict.ineligible else None
        unread = f"no {', '.join(verdict.unread)}" if verdict.unread else None
        self._screen.show(
            ProbeEnded(
                case=case.name,
                trial=asked.number,
                config=dict(asked.config),
                total_batch=result.total_batch,
                status=verdict.status,
                values=tuple(verdict.values or ()),
                error=verdict.error,
                samples_per_s=result.samples_per_s,
                leads=leads,
                notes=tuple(text for text in (reason, unfit, unread, *result.notes) if text),
                confirms=asked.confirms,
                origin=asked.origin,
                seconds=result.total_s,
                best=_best(best),
                finished=pace.finished,
                target=pace.target,
                counts=pace.target is not None and not (asked.confirms or verdict.retry),
                left_s=pace.left_s,
            )
        )

    def case_ended(self, outcome: CaseOutcome) -> None:
        """Show why the work on the case ended."""
        self._screen.show(
            CaseEnded(case=outcome.case.name, ending=outcome.ending, probed=outcome.probed, why=outcome.why)
        )


class _Running:
    """What is known of the running probe."""

    def __init__(self, case: str, trial: int, usual_iterations: int, began_s: float) -> None:
        self._case, self._trial, self._usual, self._began_s = case, trial, usual_iterations, began_s
        self.result: ProbeResult | None = None
        self.objective: float | None = None
        self.error: float | None = None

    def event(self, now_s: float, utilisation: tuple[float | None, ...]) -> ProbeRunning:
        result = self.result
        return ProbeRunning(
            case=self._case,
            trial=self._trial,
            phase="starting" if result is None else "warm-up" if result.window_s is None else "measuring",
            seconds=now_s - self._began_s,
            iteration=None if result is None else result.iterations,
            usual_iterations=self._usual,
            value=self.objective,
            error=self.error,
            samples_per_s=None if result is None else result.samples_per_s,
            utilisation=utilisation,
        )


def _best(standing: Standing | None) -> Best | None:
    if standing is None:
        return None
    return Best(value=standing.values[0], error=standing.error, trial=standing.trial)
