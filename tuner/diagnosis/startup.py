"""Estimates the start-up of a study's trials from their durations, where no record says it. Pure."""

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from tuner.diagnosis.record import Known, StudyRecord, TrialTimes

LEAST_TRIALS = 8
"""With fewer trials no line is drawn."""
LEAST_KINDS = 3
"""With fewer different numbers of reports no line is drawn."""
LARGEST_ERROR = 0.2
"""The largest standard error, as a share of the start-up."""
SMALL = 0.02
"""An error of this share of the trials' mean duration is small enough, too."""


class Estimate(NamedTuple):
    """A start-up in seconds, its standard error, and the number of trials behind it."""

    startup_s: float
    error_s: float
    trials: int


def estimate(trials: Iterable[TrialTimes]) -> Estimate | None:
    """Return the time that trials took beside what they report, where their durations show it clearly; else None.

    A trial takes a start-up, and then about the same time for each intermediate value. So durations lie on a line over
    the number of values, and the start-up is where the line begins. Long trials scatter more: the variance of a
    trial counts as proportional to its number of values (weighted least squares).
    """
    points = [(one.reports, one.took_s) for one in trials if one.reports and one.took_s]
    if len(points) < LEAST_TRIALS or len({reports for reports, _ in points}) < LEAST_KINDS:
        return None
    import numpy as np  # noqa: PLC0415 - a tenth of a second, which most commands do not need

    reports, took = np.array(points, dtype=float).T
    (step_s, start_s), covariance = np.polyfit(reports, took, 1, w=reports**-0.5, cov=True)
    error_s = float(np.sqrt(covariance[1, 1]))
    shortest_s = float(took[reports == reports.min()].mean())
    is_line = step_s > 0.0 and -2.0 * error_s <= start_s <= shortest_s + 2.0 * error_s
    is_clear = error_s <= max(LARGEST_ERROR * start_s, SMALL * float(took.mean()))
    return Estimate(max(float(start_s), 0.0), error_s, len(points)) if is_line and is_clear else None


def with_startups(record: StudyRecord) -> StudyRecord:
    """Return a study whose trials all have their start-up, where a record, an option or the durations say it."""
    setup = record.setup
    if setup.startup_s is None and not record.is_ours and (line := estimate(record.trials)):
        source = f"estimated from {line.trials} trials, ± {line.error_s:.1f} s"
        setup = replace(setup, startup_s=Known(value=line.startup_s, source=source))
    if setup.startup_s is None:
        return record
    usual_s = setup.startup_s.value
    trials = (replace(one, startup_s=usual_s) if one.startup_s is None else one for one in record.trials)
    return replace(record, setup=setup, trials=tuple(trials))
