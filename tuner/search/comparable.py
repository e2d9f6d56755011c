"""Says which measurements of a case cannot stand beside each other. Pure."""

import math
from collections.abc import Iterable, Sequence
from itertools import combinations, pairwise
from operator import itemgetter

from tuner.kept.trial import COMPLETE, KeptTrial
from tuner.probe import MUCH_LONGER, Change

SAME = 0.1
"""The ends of one count differ by at most this share, from epoch to epoch or from run to run."""
CHANGED = 1.5
"""A change of the speed by a smaller factor may have another cause than the iteration at which it came."""
APART, SURELY = 1.3, 3.0
"""Readings of one config are far apart by this factor, if the difference is more than so many standard errors."""
AHEAD, LATER, SAVED = 1.5, 2.0, 0.8
"""A run that begins at 0 comes to an iteration at most so many times as fast as its later iterations take.

The run that goes on begins at an iteration at least so many times as late, or at least at such a share of the last one
of the run before, which saves now and then.
"""
LEAST_CONFIGS, CLOCK_S = 3, 0.06
"""The fewest configs whose iterations all take the same whole number of seconds, up to so many seconds."""


def miscounted(trials: Iterable[KeptTrial]) -> dict[int, str]:
    """Return the trials whose iterations are not those of the others: number → why.

    Of trials with equal samples in an iteration, those with another end than the first do not count. But where an end
    is much larger, the first was that of a preparation.

    A trainer makes a fixed number of iterations, or those of all its data. So ends are equal, or they have equal
    samples. Where neither holds, the samples of an iteration are not known, and only trials with as many as the first
    one count. A soak counts whatever its end is: its flags may shorten epochs, and only its memory is compared.
    """
    known = [one for one in trials if one.state == COMPLETE and one.probe.end and not one.soaks]
    usual: dict[str, KeptTrial] = {}
    for one in known:
        first = usual.setdefault(_group(one), one)
        if _end(one) >= MUCH_LONGER * _end(first):
            usual[_group(one)] = one
    found: dict[int, str] = {}
    for one in known:
        other = usual[_group(one)]
        if not _same(*sorted((_end(one), _end(other)))):
            found[one.number] = f"it counted to {_end(one):.0f}, and #{other.number} to {_end(other):.0f}"
    ends, first = list(usual.values()), known[0] if known else None
    if first is None or _alike(ends):
        return found
    other = next(one for one in ends if not _alike([usual[_group(first)], one]))
    why = (
        f"#{first.number} counts to {_end(first):.0f} and #{other.number} to {_end(other):.0f}, which are not the same "
        f"data at {_each(first):.4g} and {_each(other):.6g} samples an iteration"
    )
    return found | {one.number: why for one in known if _group(one) != _group(first)}


def unlike(one: Sequence[KeptTrial], other: Sequence[KeptTrial]) -> str | None:
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


def clocked(trials: Iterable[KeptTrial]) -> str | None:
    """Return that iterations may be those of a clock; None where nothing shows it.

    A line that comes each second or each two says nothing about the training, whatever a config changes.
    """
    rates = {one.launch: one.probe.iterations_per_s for one in trials if one.state == COMPLETE}
    lengths = [1.0 / rate for rate in rates.values() if rate]
    whole = round(lengths[0]) if lengths else 0
    if len(lengths) < LEAST_CONFIGS or not whole or any(abs(one - whole) > CLOCK_S for one in lengths):
        return None
    return f"an iteration takes {whole} s with each config: lines that a clock prints count no training"


def assumed(one: Sequence[KeptTrial], other: Sequence[KeptTrial]) -> str | None:
    """Return what a comparison of two configs takes for granted that their counts do not show; None where nothing."""
    last, its = one[-1], other[-1]
    if last.probe.epochs is None or not (last.probe.end and its.probe.end) or _group(last) == _group(its):
        return None
    if not _same(*sorted((_end(last), _end(its)))):
        return None
    return (
        f"an epoch has {_end(last):.0f} iterations at {_each(last):.6g} samples each, and at {_each(its):.6g}: "
        "check that the script makes batches of both sizes"
    )


def resumed(trials: Iterable[KeptTrial]) -> str | None:
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


def shrinking(trials: Iterable[KeptTrial]) -> str | None:
    """Return that iterations of more samples take less time; None where nothing shows it.

    Then an iteration may be a fixed number of samples, as an update of a total batch is.
    """
    known = [one for one in trials if one.state == COMPLETE and one.probe.iterations_per_s and _each(one)]
    for one, other in combinations(known, 2):
        small, large = sorted((one, other), key=_each)
        names = small.config.keys() | large.config.keys()
        differ = sum(small.config.get(name) != large.config.get(name) for name in names)
        slow, fast = small.probe.iterations_per_s or 0.0, large.probe.iterations_per_s or 0.0
        if differ == 1 and not _same(_each(small), _each(large)) and fast > (1 + SAME) * slow:
            return (
                f"an iteration of {_each(large):.6g} samples (#{large.number}) takes less time than one of "
                f"{_each(small):.6g} (#{small.number}): perhaps both have the same samples"
            )
    return None


def _far_apart(trials: Sequence[KeptTrial]) -> str | None:
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


def _is_ahead(trial: KeptTrial) -> bool:
    """Return whether the first iteration that a run tells of would have taken longer than the run had."""
    probe = trial.probe
    return _began(trial) > AHEAD * (probe.start_up_s or math.inf) * (probe.iterations_per_s or math.inf)


def _is_chain(runs: Sequence[KeptTrial]) -> bool:
    """Return whether each of several runs begins about where the one before has ended, and later than that one."""
    pairs = list(pairwise(runs))
    later = (_began(other) > max(_began(one), SAVED * (one.probe.iteration or 0)) for one, other in pairs)
    return len(pairs) > 1 and all(later)


def _goes_on(first: KeptTrial, later: KeptTrial) -> str:
    begun = f"#{first.number} began at iteration {_began(first)}, and #{later.number} at {_began(later)}"
    return f"{begun}: runs seem to go on where others have saved; let each run begin anew"


def _began(trial: KeptTrial) -> int:
    """Return the first iteration that a run told of; 0 where none is known."""
    return trial.probe.began or 0


def _has_reached(trial: KeptTrial, change: Change, samples: float) -> bool:
    """Return whether a trial has come so far: in iterations or samples, and in seconds."""
    reached = trial.probe.iteration
    is_as_far = reached is None or reached >= change.iteration or 0.0 < samples <= (trial.probe.samples or 0)
    return is_as_far and _trained_s(trial) >= change.seconds


def _trained_s(trial: KeptTrial) -> float:
    """Return the seconds from the first mark of a trial to its end."""
    return (trial.total_s or 0.0) - (trial.probe.start_up_s or 0.0)


def _alike(ends: Sequence[KeptTrial]) -> bool:
    """Return whether all ends are equal, or all have equal samples, up to an iteration that is not full."""
    counts, data = [_end(one) for one in ends], [(_end(one) * _each(one), _each(one)) for one in ends]
    (least, part), (most, last) = min(data), max(data)
    return _same(min(counts), max(counts)) or most - last <= (least + part) * (1 + SAME)


def _same(least: float, most: float) -> bool:
    return most <= least * (1 + SAME)


def _end(trial: KeptTrial) -> float:
    return trial.probe.end or 0.0


def _each(trial: KeptTrial) -> float:
    """Return the samples of an iteration; 0 where they are unknown."""
    iteration, samples = trial.probe.iteration, trial.probe.samples
    return samples / iteration if samples and iteration else 0.0


def _group(trial: KeptTrial) -> str:
    """Return the samples of an iteration as a key. They may be a fraction, and a trial knows rounded totals."""
    return f"{_each(trial):.3g}"
