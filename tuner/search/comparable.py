"""Says which measured speeds of a case cannot be compared. Pure."""

import math
from collections.abc import Sequence

from tuner.probe import Change
from tuner.records.trial import TrialRecord


def unlike(first: Sequence[TrialRecord], second: Sequence[TrialRecord]) -> str | None:
    """Return why the speeds of two configs cannot be compared; None where nothing speaks against it.

    They cannot where two readings of one config are far apart. Nor can they where the speed of one config changed for
    good by a factor of 1.5, and the other ended before that iteration. A smaller change may come from elsewhere.

    Args:
        first: The trials of one config, in their order.
        second: The trials of the other config, likewise.
    """
    for trials, others in ((first, second), (second, first)):
        if reason := far_apart(trials):
            return reason
        for trial in trials:
            change = trial.probe.change
            if change is None or max(change.times, 1.0 / change.times) < 1.5:
                continue
            if not any(_has_reached(other, change, trial) for other in others):
                at, short = f"iteration {change.iteration}, after {change.seconds:.1f} s", others[-1]
                end = f"#{short.number} ended at iteration {short.probe.iteration}, after {_trained_s(short):.1f} s"
                return f"#{trial.number} became {change.times:.2g} times as fast at {at}, and {end}"
    return None


def agreeing(readings: Sequence[TrialRecord]) -> Sequence[TrialRecord]:
    """Return the readings of one config that count, in their order; all of them where none is far from another.

    A reading during which other programs used the processors does not count if an undisturbed reading is far from it.
    Where more than half of three or more readings are near their median, the others do not count.
    """
    calm = [trial for trial in readings if not trial.is_disturbed]
    counted = [trial for trial in readings if trial in calm or not any(far_apart((trial, other)) for other in calm)]
    by_speed = sorted(counted, key=lambda trial: trial.samples_per_s or trial.probe.iterations_per_s or 0.0)
    typical = [trial for trial in counted if not far_apart((trial, by_speed[len(by_speed) // 2]))]
    return typical if len(counted) > 2 and 2 * len(typical) > len(counted) else counted


def far_apart(trials: Sequence[TrialRecord]) -> str | None:
    """Return a sentence if the readings of one config contradict each other; None if they do not.

    They do if the fastest is 1.3 times as fast as the slowest, and faster by more than three standard errors. Samples/s
    are compared where any are known, otherwise iterations/s.
    """
    for unit, name in (("samples/s", "samples_per_s"), ("iterations/s", "iterations_per_s")):
        if known := [trial for trial in trials if getattr(trial.probe, name)]:
            ordered = sorted(known, key=lambda trial: getattr(trial.probe, name))
            ends = (ordered[0], ordered[-1])
            slow, fast = (getattr(trial.probe, name) for trial in ends)
            error = math.hypot(*(getattr(trial.probe, f"{name}_se") or 0.0 for trial in ends))
            if fast < 1.3 * slow or fast - slow <= 3.0 * error:
                return None
            readings = f"#{ends[0].number} and #{ends[1].number} read {slow:.4g} and {fast:.4g} {unit}"
            again = "rerun when the machine is quiet, or let `tuner verify` measure anew"
            return f"{readings} of one config, so another program may have been busy; {again}"
    return None


def _has_reached(trial: TrialRecord, change: Change, changed: TrialRecord) -> bool:
    """Return whether a trial has come as far as the change of speed of the trial `changed`.

    It must have as many iterations or samples, and have trained for as many seconds.
    """
    iteration, samples = changed.probe.iteration, changed.probe.samples
    samples_at_change = change.iteration * samples / iteration if samples and iteration else math.inf
    reached = trial.probe.iteration
    is_as_far = reached is None or reached >= change.iteration or (trial.probe.samples or 0) >= samples_at_change
    return is_as_far and _trained_s(trial) >= change.seconds


def _trained_s(trial: TrialRecord) -> float:
    """Return the seconds from the first mark of a trial to its end."""
    return (trial.total_s or 0.0) - (trial.probe.start_up_s or 0.0)
