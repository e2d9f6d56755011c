"""Says which measured speeds of a case cannot be compared. Pure."""

import math
from collections.abc import Sequence

from tuner.probe import Change
from tuner.records.trial import TrialRecord


def unlike(first: Sequence[TrialRecord], second: Sequence[TrialRecord]) -> str | None:
    """Return why the speeds of two configs cannot be compared; None where nothing speaks against it.

    They cannot where two readings of one config are far apart, or where the speed of one config changed for good by a
    factor of 1.5 and the other has not come so far. A smaller change may have another cause than its iteration.

    Args:
        first: The trials of one config, in their order.
        second: Those of the other config.
    """
    for trials, rivals in ((first, second), (second, first)):
        if reason := far_apart(trials):
            return reason
        for trial in trials:
            change = trial.probe.change
            if change is None or max(change.times, 1.0 / change.times) < 1.5:
                continue
            if not any(_has_reached(rival, change, trial) for rival in rivals):
                at, short = f"iteration {change.iteration}, after {change.seconds:.1f} s", rivals[-1]
                end = f"#{short.number} ended at iteration {short.probe.iteration}, after {_trained_s(short):.1f} s"
                return f"#{trial.number} became {change.times:.2g} times as fast at {at}, and {end}"
    return None


def agreeing(readings: Sequence[TrialRecord]) -> Sequence[TrialRecord]:
    """Return the readings of one config that count, in their order; all of them where none is far from another.

    One beside which other programs used the processors does not count if an undisturbed one is far from it. Of three
    and more, those that are far from the median do not count if most are near it.
    """
    calm = [trial for trial in readings if not trial.is_disturbed]
    counted = [trial for trial in readings if trial in calm or not any(far_apart((trial, other)) for other in calm)]
    middle = sorted(counted, key=lambda trial: trial.samples_per_s or trial.probe.iterations_per_s or 0.0)
    near = [trial for trial in counted if not far_apart((trial, middle[len(middle) // 2]))]
    return near if len(counted) > 2 and 2 * len(near) > len(counted) else counted


def far_apart(trials: Sequence[TrialRecord]) -> str | None:
    """Return that two readings of one config differ by the factor 1.3 and three standard errors; None where not."""
    for unit, name in (("samples/s", "samples_per_s"), ("iterations/s", "iterations_per_s")):
        if known := [trial for trial in trials if getattr(trial.probe, name)]:
            ordered = sorted(known, key=lambda trial: getattr(trial.probe, name))
            slow, fast = (getattr(trial.probe, name) for trial in (ordered[0], ordered[-1]))
            error = math.hypot(*(getattr(trial.probe, f"{name}_se") or 0.0 for trial in (ordered[0], ordered[-1])))
            if fast < 1.3 * slow or fast - slow <= 3.0 * error:
                return None
            readings = f"#{ordered[0].number} and #{ordered[-1].number} read {slow:.4g} and {fast:.4g} {unit}"
            again = "rerun when the machine is quiet, or let `tuner verify` measure anew"
            return f"{readings} of one config, so another program may have been busy; {again}"
    return None


def _has_reached(trial: TrialRecord, change: Change, changed: TrialRecord) -> bool:
    """Return whether a trial has come as far as a change of another one: in iterations or samples, and in seconds."""
    iteration, samples = changed.probe.iteration, changed.probe.samples
    least = change.iteration * samples / iteration if samples and iteration else math.inf
    reached = trial.probe.iteration
    is_as_far = reached is None or reached >= change.iteration or (trial.probe.samples or 0) >= least
    return is_as_far and _trained_s(trial) >= change.seconds


def _trained_s(trial: TrialRecord) -> float:
    """Return the seconds from the first mark of a trial to its end."""
    return (trial.total_s or 0.0) - (trial.probe.start_up_s or 0.0)
