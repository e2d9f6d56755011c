"""Shows a running study: one line for each event, and on a terminal a live line below them."""

from collections.abc import Sequence

from tuner.cli.introduction import fitted, ladder, to_be_fitted, to_be_made
from tuner.cli.screen import Screen
from tuner.export.words import in_words, with_error
from tuner.outcome import CaseOutcome, Pace
from tuner.probe.result import ProbeResult
from tuner.search.verdict import Verdict
from tuner.store.asked import Asked
from tuner.store.dropped import Recovered
from tuner.study.batch import BatchFit
from tuner.study.cases import Case
from tuner.units import duration


class ProgressView:
    """Shows a study's progress on a screen; a `Watcher`."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._at = ""
        self.trials = 0
        """The number of trials that have ended so far."""

    def case_started(self, case: Case, *, finished: int, target: int | None, recovered: Recovered) -> None:
        """Show how many trials of the case are done."""
        saved = f", {recovered.stored} of them saved only now" if recovered.stored else ""
        retried = f", {recovered.to_repeat} interrupted trial(s) will be repeated" if recovered.to_repeat else ""
        of_target = "" if target is None else f" of {target}"
        self._screen.line(f"case {case.name}: {finished}{of_target} trials done{saved}{retried}", style="bold")

    def calibrating(self, case: Case, rungs: Sequence[int]) -> None:
        """Show which rungs the calibration probes."""
        self._screen.line(f"case {case.name}: {to_be_made(rungs)}")

    def rungs_fixed(self, case: Case, rungs: Sequence[int]) -> None:
        """Show the ladder."""
        self._screen.line(f"case {ladder(case.name, rungs)}")

    def fitting_batch(self, case: Case, parameter: str) -> None:
        """Show that the first probes decide the batch size."""
        self._screen.line(f"case {case.name}: {to_be_fitted(parameter)}")

    def batch_fitted(self, case: Case, parameter: str, batch: BatchFit) -> None:
        """Show the batch size and how it follows."""
        self._screen.line(f"case {fitted(case.name, parameter, batch)}")

    def probe_started(self, case: Case, asked: Asked) -> None:
        """Begin the live line. What changes stands first, because a narrow terminal cuts the config off."""
        self._at = f"{case.name} #{asked.number}"
        self._screen.now(f"{self._at}: starting {in_words(asked.config)}")

    def iteration(self, result: ProbeResult, objective: float | None) -> None:
        """Update the live line."""
        number = "" if objective is None else f", {_numbers(result, objective)} so far"
        self._screen.now(f"{self._at}: iteration {result.iterations}{number}: {in_words(result.config)}")

    def probe_ended(
        self, case: Case, asked: Asked, result: ProbeResult, verdict: Verdict, *, leads: bool, pace: Pace
    ) -> None:
        """Print the line of a trial that has ended."""
        self.close()
        self.trials += 1
        best = ", best so far" if leads else ""
        number = f" {_numbers(result, *verdict.values, error=verdict.error)}" if verdict.values else ""
        reason = result.failure.detail if result.failure else result.stopped
        unfit = f"not eligible as best, {verdict.ineligible}" if verdict.ineligible else None
        unread = f"no {', '.join(verdict.unread)}" if verdict.unread else None
        why = "".join(f": {text}" for text in (reason, unfit, unread, *result.notes) if text)
        took = duration(result.total_s) + (", by the plain command" if asked.confirms else "")
        took += f", from {asked.origin}" if asked.origin else ""
        counts = pace.target is not None and not (asked.confirms or verdict.retry)
        place = f" (trial {pace.finished} of {pace.target})" if counts else ""
        told = f"{in_words(asked.config, result.total_batch)}: {verdict.status}{number}{best}{why}"
        self._screen.line(f"  #{asked.number}{place} {told} ({took}{_left(pace)})")

    def case_ended(self, outcome: CaseOutcome) -> None:
        """Print why the work on the case ended."""
        why = f": {outcome.why}" if outcome.why else ""
        self._screen.line(
            f"case {outcome.case.name}: {outcome.ending}, {outcome.probed} trial(s) this time{why}", style="bold"
        )

    def close(self) -> None:
        """Remove the live line."""
        self._screen.now(None)


def _left(pace: Pace) -> str:
    """Return how many trials are left and how long they may take; the search may end before."""
    if pace.target is None or not pace.left_s:
        return ""
    return f"; up to {pace.target - pace.finished} more, about {duration(pace.left_s)}"


def _numbers(result: ProbeResult, *objectives: float, error: float | None = None) -> str:
    """Return the objectives as text, the first with its `error`; add samples/s where no objective is samples/s."""
    speed = result.samples_per_s
    shown = [with_error(objectives[0], error), *(f"{one:.1f}" for one in objectives[1:])]
    return ", ".join(shown if speed is None or speed in objectives else [*shown, f"{speed:.0f} samples/s"])
