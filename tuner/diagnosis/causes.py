"""Finds why the GPUs of a study did not train more. Each factor is computed from the study's own numbers. Pure.

A factor says how many times as much would train if only this one thing changed. It is an upper bound: no study tells
what other trials would have done. No gain is larger than the room that the GPUs have, where their duty is known.
"""

import math
from collections.abc import Iterator, Sequence

from tuner.diagnosis.cause import Cause, Kind, cause
from tuner.diagnosis.facts import Facts
from tuner.diagnosis.record import End, TrialTimes
from tuner.units import duration

LEAST_GAIN = 1.1
"""A change that gains less than a tenth is not worth another study."""
LEAST_SHARE = 0.1
"""Start-ups of pruned trials are a cause from this share of all trial time on, and so are failed trials."""
LEAST_STARTUP_SHARE = 0.2
"""Start-ups of complete trials are a cause from this share of the time of these trials on."""
TRAIN_PER_STARTUP = 4
"""A trial should train for so many start-ups before it may be pruned. The start-up is then a fifth of its time."""
USABLE = 0.9
"""The share of GPU memory to fill, because the peaks of trials differ."""


def causes(facts: Facts, trials: Sequence[TrialTimes]) -> list[Cause]:
    """Return the causes that the numbers show, the largest factor first; of equal ones, the safest change first."""
    found = [*_failures(facts), *_workers(facts), *_pruning(facts, trials), *_startup(facts), *_parallel(facts)]
    worth = [one for one in found if one.gain is None or one.gain >= LEAST_GAIN]
    return sorted(worth, key=lambda one: (-(one.factor or 0.0), one.safety))


def _failures(facts: Facts) -> Iterator[Cause]:
    failed = facts.ended[End.FAILED]
    if failed.total_s < max(LEAST_SHARE * facts.trial_s, 1e-9):
        return
    kinds = ", ".join(f"{count} {kind}" for kind, count in facts.failures.items())
    all_s, left_s = facts.trial_s, facts.trial_s - failed.total_s
    yield cause(
        Kind.FAILURES,
        why=f"{failed.trials} of {facts.trials} trials failed, after {duration(failed.mean_s or 0.0)} in the mean"
        f"{f' ({kinds})' if kinds else ''}.",
        change="find out why trials fail, and keep such configs out of the search space",
        factor=all_s / left_s if left_s else None,
        how=f"{duration(all_s)} of trial time / {duration(left_s)} without failures{_times(all_s, left_s)}",
        duty_pct=_duty(facts),
    )


def _startup(facts: Facts) -> Iterator[Cause]:
    """Say how much the start-ups of complete trials cost. A session of `tuner` has done away with what it can."""
    complete = facts.ended[End.COMPLETE]
    if facts.has_sessions or complete.startup_s < max(LEAST_STARTUP_SHARE * complete.total_s, 1e-9):
        return
    left_s = facts.trial_s - complete.startup_s
    ours = "let one started trainer serve several probes (docs/sessions.md)"
    yield cause(
        Kind.STARTUP,
        why=f"A complete trial takes {duration(complete.mean_s or 0.0)} in the mean, "
        f"{duration(complete.startup_s / complete.trials)} of it start-up.",
        change=ours if facts.is_ours else "keep one process for several trials: import, load and compile only once",
        factor=facts.trial_s / left_s if left_s else None,
        how=f"{duration(facts.trial_s)} of trial time / {duration(left_s)} without the start-ups of complete trials"
        f"{_times(facts.trial_s, left_s)}",
        duty_pct=_duty(facts),
    )


def _pruning(facts: Facts, trials: Sequence[TrialTimes]) -> Iterator[Cause]:
    pruned, complete = facts.ended[End.PRUNED], facts.ended[End.COMPLETE]
    if facts.startup_share is None or pruned.startup_s < max(LEAST_SHARE * facts.trial_s, 1e-9):
        return
    startup_s = pruned.startup_s / pruned.trials
    full_s = (complete.total_s - complete.startup_s) / complete.trials if complete.total_s else math.inf
    train_s = min(TRAIN_PER_STARTUP * startup_s, full_s)
    short_s = sum(max(0.0, train_s - one.took_s + one.starting_s) for one in trials if one.end is End.PRUNED)
    starting_s, longer_s = facts.startup_share * facts.trial_s, facts.trial_s + short_s
    now, then = 1.0 - facts.startup_share, 1.0 - starting_s / longer_s
    yield cause(
        Kind.PRUNING,
        why=f"{pruned.trials} of {facts.trials} trials were pruned. They took {duration(pruned.mean_s or 0.0)} in the "
        f"mean, {duration(startup_s)} of it start-up. Start-ups take {facts.startup_share:.0%} of all trial time."
        f"{_seldom_training(facts)}",
        change=f"prune later: let a trial train for at least {duration(train_s)} before the pruner may end it",
        factor=then / now if now else None,
        how=f"start-ups are {starting_s / facts.trial_s:.0%} of {duration(facts.trial_s)} now, and would be "
        f"{starting_s / longer_s:.0%} of {duration(longer_s)}; {then:.0%} / {now:.0%}{_times(then, now)}",
        duty_pct=_duty(facts),
    )


def _seldom_training(facts: Facts) -> str:
    running, training = facts.running_at_once, facts.training_at_once
    if running is None or training is None:
        return ""
    return (
        f" Of {running.mean:.1f} trials at once {training.mean:.1f} train in the mean, "
        f"and none trains for {training.none_share:.0%} of the time."
    )


def _workers(facts: Facts) -> Iterator[Cause]:
    workers, cores, running = facts.setup.loader_workers, facts.setup.cores, facts.running_at_once
    if workers is None or cores is None or running is None:
        return
    at_once, each = max(running.usual, 1), workers.value
    wanted = max(cores.value // at_once, 1)
    is_crowded = each * at_once > cores.value and each > wanted
    if not is_crowded and each >= wanted:
        return
    if is_crowded:
        factor, how = None, "no number of the study tells how much they slow each other down"
    elif each >= 1.0:
        share = f"{cores.value} cores / {at_once} trials = {wanted} workers"
        factor, how = wanted / each, f"if loading is the limit: {share}; {wanted} / {each:g}{_times(wanted, each)}"
    else:
        factor, how = 2.0, "if loading takes as long as training: side by side instead of in turn = 2.00 times"
    yield cause(
        Kind.CROWDED if is_crowded else Kind.WORKERS,
        why=f"Each trial has {each:g} loader workers: {each * at_once:g} for {at_once} trials, on {cores.value} cores.",
        change=f"give each DataLoader num_workers={wanted} and persistent_workers=True, which start once per trial",
        factor=factor,
        how=how,
        duty_pct=_duty(facts),
    )


def _parallel(facts: Facts) -> Iterator[Cause]:
    """Say how many trials the GPUs have room for. A probe of `tuner` has its GPUs for itself."""
    if facts.is_ours or facts.running_at_once is None:
        return
    at_once, (most, why, how) = max(facts.running_at_once.usual, 1), _room(facts)
    workers, cores = facts.setup.loader_workers, facts.setup.cores
    if workers and cores:
        by_cores = math.floor(cores.value / max(workers.value, 1.0))
        how += f"; {cores.value} cores / {max(workers.value, 1.0):g} workers = {by_cores} trials"
        most = min(most, by_cores)
    if most <= at_once:
        return
    yield cause(
        Kind.PARALLEL,
        why=why,
        change=f"run {most} trials at once instead of {at_once}, and watch the GPUs' memory",
        factor=most / at_once,
        how=f"{how}; {most} / {at_once}{_times(most, at_once)}",
        duty_pct=_duty(facts),
    )


def _room(facts: Facts) -> tuple[int, str, str]:
    """Return how many trials fit on the GPUs, what shows it, and the arithmetic; 0 where that is unknown."""
    at_once = max(facts.running_at_once.usual, 1) if facts.running_at_once else 1
    used, memory, gpus = facts.setup.memory_used_gib, facts.setup.gpu_memory_gib, facts.setup.gpus
    if used and memory:
        fits = math.floor(USABLE * memory.value / (used.value / at_once))
        why = f"{at_once} trials at once use {used.value:g} of {memory.value:g} GiB of a GPU."
        return fits, why, f"{USABLE:.0%} of {memory.value:g} GiB / ({used.value:g} GiB / {at_once}) = {fits} trials"
    if gpus:
        why = f"{at_once} trials run at once on {gpus.value} GPUs."
        return gpus.value, why, f"one trial on each of {gpus.value} GPUs"
    return 0, "", ""


def _duty(facts: Facts) -> float | None:
    return facts.setup.duty_pct.value if facts.setup.duty_pct else None


def _times(part: float, of: float) -> str:
    """Return the end of a division as text."""
    return f" = {part / of:.2f} times" if of else ""
