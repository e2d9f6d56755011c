"""Says which measurements of a case cannot stand beside each other. Pure."""

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from operator import itemgetter

from tuner.probe import Change
from tuner.records.trial import COMPLETE, TrialRecord

CHANGED = 1.5
"""A change of the speed by a smaller factor may have another cause than the iteration at which it came."""
APART, SURELY = 1.3, 3.0
"""Readings of one config are far apart by this factor, if the difference is more than so many standard errors."""
AHEAD, LATER, SAVED = 1.5, 2.0, 0.8
"""A run that begins at 0 comes to an iteration at most so many times as fast as its later iterations take.

The run that goes on begins at an iteration at least so many times as late, or at least at such a share of the last one
of the run before, which saves now and then.
"""


def unlike(one: Sequence[TrialRecord], other: Sequence[TrialRecord]) -> str | None:
    """Return why the speeds of two configs cannot be compared; None where nothing speaks against it.

    They cannot where two readings of one config are far apart, or where the speed of one config changed for good and
    the other has not come so far.
    """
    for some, others in ((one, other), (other, one)):
        if why := _far_apart(some):
            return why
        for trial in some:
            change = trial.probe.change
            if change is None or max(change.times, 1.0 / change.times) < CHANGED:
                continue
            if not any(_has_reached(its, change, change.iteration * _each(trial)) for its in others):
                at, short = f"iteration {change.iteration}, after {change.seconds:.1f} s", others[-1]
                ended = f"#{short.number} ended at iteration {short.probe.iteration}, after {_trained_s(short):.1f} s"
                return f"#{trial.number} became {change.times:.2g} times as fast at {at}, and {ended}"
    return None


def resumed(trials: Iterable[TrialRecord]) -> str | None:
    """Return that a run went on where another one had saved; None where nothing shows it.

    Such a run tells at first of an iteration to which it cannot have come in its time. But what comes before learning
    may be faster than learning. So one more sign is needed. Either the first run, or an earlier run of the same config,
    has begun nearer to 0. Or each run begins where the one before has ended.
    """
    known = [one for one in trials if one.state == COMPLETE and one.probe.began and not one.warm]
    if _is_chain(known) and _is_ahead(known[-1]):
        return _goes_on(known[0], known[-1])
    for later in filter(_is_ahead, known):
        first = next(one for one in known if one.launch == later.launch or not _is_ahead(known[0]))
        if _began(later) >= LATER * _began(first):
            return _goes_on(first, later)
    return None


def _far_apart(trials: Sequence[TrialRecord]) -> str | None:
    """Return that two readings of one config differ by far more than their errors; None where they do not."""
    probes = [(one.number, one.probe) for one in trials]
    samples = [(its.samples_per_s, its.samples_per_s_se, number) for number, its in probes if its.samples_per_s]
    rates = [(its.iterations_per_s, its.iterations_per_s_se, number) for number, its in probes if its.iterations_per_s]
    known, unit = (samples, "samples/s") if samples else (rates, "iterations/s")
    if not known:
        return None
    (slow, doubt, first), (fast, unsure, second) = min(known, key=itemgetter(0)), max(known, key=itemgetter(0))
    if fast < APART * slow or fast - slow <= SURELY * math.hypot(doubt or 0.0, unsure or 0.0):
        return None
    return f"#{first} and #{second} read {slow:.4g} and {fast:.4g} {unit} of one config: was another program busy?"


def _is_ahead(trial: TrialRecord) -> bool:
    """Return whether the first iteration that a run tells of would have taken longer than the run had."""
    probe = trial.probe
    return _began(trial) > AHEAD * (probe.start_up_s or math.inf) * (probe.iterations_per_s or math.inf)


def _is_chain(runs: Sequence[TrialRecord]) -> bool:
    """Return whether each of several runs begins about where the one before has ended, and later than that one."""
    pairs = list(pairwise(runs))
    later = (_began(other) > max(_began(one), SAVED * (one.probe.iteration or 0)) for one, other in pairs)
    return len(pairs) > 1 and all(later)


def _goes_on(first: TrialRecord, later: TrialRecord) -> str:
    begun = f"#{first.number} began at iteration {_began(first)}, and #{later.number} at {_began(later)}"
    return f"{begun}: runs seem to go on where others have saved; let each run begin anew"


def _began(trial: TrialRecord) -> int:
    """Return the first iteration that a run told of; 0 where none is known."""
    return trial.probe.began or 0


def _has_reached(trial: TrialRecord, change: Change, samples: float) -> bool:
    """Return whether a trial has come so far: in iterations or samples, and in seconds."""
    reached = trial.probe.iteration
    is_as_far = reached is None or reached >= change.iteration or 0.0 < samples <= (trial.probe.samples or 0)
    return is_as_far and _trained_s(trial) >= change.seconds


def _trained_s(trial: TrialRecord) -> float:
    """Return the seconds from the first mark of a trial to its end."""
    return (trial.total_s or 0.0) - (trial.probe.start_up_s or 0.0)


def _each(trial: TrialRecord) -> float:
    """Return the samples of an iteration; 0 where they are unknown."""
    iteration, samples = trial.probe.iteration, trial.probe.samples
    return samples / iteration if samples and iteration else 0.0
