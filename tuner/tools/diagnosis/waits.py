"""Finds why the GPUs of a study did not train more: causes, changes and gains. Pure.

A cause is something that keeps GPUs from training, with the change that ends it. The gain of a change is how many times
as much training would fit into the same time. A start-up is the time from a trial's start until it trains. A pause is a
time between trials so long that a person must have left the study alone. `tuner` may have run the study, or any other
program of Optuna.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from tuner.probe import duration, number_of
from tuner.tools.diagnosis.study_times import BESIDE_OTHERS, GUESS, Facts, KnownFact, TrialEnd


class Kind(StrEnum):
    """What the GPUs wait for. The order is that of the changes' safety, the safest first."""

    GAPS = "waits between trials"
    FAILURES = "failed trials"
    LOADING = "waits for data"
    WORKERS = "few loader workers"
    CROWDED = "more loader workers than cores"
    PRUNING = "pruning with start-up"
    STARTUP = "long start-up"
    THREADS = "threads of one process"
    PARALLEL = "few parallel trials"
    ALL_GPUS = "trials that use all GPUs"
    IDLE = "little work for each GPU"


@dataclass(frozen=True, kw_only=True, slots=True)
class IdleCause:
    """Something that keeps the GPUs from training, and what to change."""

    kind: Kind
    why: str
    """What in the study shows the cause."""
    change: str
    factor: float | None
    """The most by which training multiplies if only this changed and GPUs were no limit; None where unknown."""
    gain: float | None
    """`factor`, but at most what GPUs that are never idle can do; None where neither is known."""
    how: str
    """The arithmetic of `gain`, or why there is none."""


def _cause(
    kind: Kind, facts: Facts, *, why: str, change: str, how: str, ratio: tuple[float, float] | None = None
) -> IdleCause:
    """Return a cause, after working out what its change gains.

    The gain is at most what the GPUs can do: GPUs that are busy half of the time can train twice as much.

    Args:
        kind: The kind of the cause.
        facts: What the study did with its time.
        why: What in the study shows the cause.
        change: What to change.
        how: The arithmetic of the factor, to which its result is appended; or why the factor is unknown.
        ratio: The two numbers whose quotient is the factor; None where the factor is unknown.
    """
    factor = ratio[0] / ratio[1] if ratio and ratio[1] else None
    duty_pct = _gpu_utilisation_pct(facts)
    idle_factor = 100.0 / duty_pct if duty_pct else math.inf
    gain = factor
    if factor is not None:
        how += f" = {factor:.2f} times"
    if duty_pct and (factor is None or factor > idle_factor):
        gain = idle_factor
        how += f"; GPUs that are {duty_pct:.3g}% busy have room for 100 / {duty_pct:.3g} = {idle_factor:.2f} times"
    return IdleCause(kind=kind, why=why, change=change, factor=factor, gain=gain, how=how)


LEAST_SHARE = 0.1
"""Start-ups of pruned trials, failed trials and waits for data are causes from this share of the time on (chosen)."""


def causes(facts: Facts) -> list[IdleCause]:
    """Return why the GPUs did not train more, the cause with the largest factor first.

    Of causes with equal factors, the one whose change is the safest comes first.
    """
    candidates = [*_gaps(facts), *_failures(facts), *_loading(facts), *_pruning(facts), *_startup(facts)]
    candidates += [*_threads(facts), *_parallel(facts), *_all_gpus(facts)]
    explains_idle = {Kind.WORKERS, Kind.CROWDED, Kind.PARALLEL}  # each already says why GPUs are idle
    if explains_idle.isdisjoint(candidate.kind for candidate in candidates):
        candidates += _idle(facts)
    # a change that gains less than a tenth is not worth another study (chosen)
    worthwhile = [candidate for candidate in candidates if candidate.gain is None or candidate.gain >= 1.1]
    return sorted(worthwhile, key=lambda cause: (-(cause.factor or 0.0), list(Kind).index(cause.kind)))


def _gaps(facts: Facts) -> Iterator[IdleCause]:
    """Yield a cause where no trial ran for some time between the first and the last trial; pauses do not count."""
    if facts.covered_s <= 0.0:
        return
    span_s = facts.covered_s + facts.empty_s
    if facts.is_ours and not facts.on_cpu:
        change = "give the study cards of its own: between its probes, tuner waits until the cards are idle"
    else:
        change = (
            "begin the next trial at once: keep one process for several trials, and let samplers, evaluations and "
            "copies of files run beside the trials"
        )
    gaps = number_of(facts.gaps, "gap")
    longest = f", the longest for {duration(facts.longest_gap_s)}" if facts.gaps > 1 else ""
    left_out = f" Pauses of {duration(facts.paused_s)} are left out." if facts.pauses else ""
    yield _cause(
        Kind.GAPS,
        facts,
        why=f"No trial ran for {duration(facts.empty_s)} of {duration(span_s)}, in {gaps}{longest}.{left_out}",
        change=change,
        how=f"{duration(span_s)} with the gaps / {duration(facts.covered_s)} with trials",
        ratio=(span_s, facts.covered_s),
    )


def _threads(facts: Facts) -> Iterator[IdleCause]:
    """Yield a cause where several trials at once are threads of one process, which take turns in Python."""
    n_jobs = facts.setup.n_jobs
    if n_jobs is None or n_jobs.value < 2:
        return
    yield _cause(
        Kind.THREADS,
        facts,
        why=f"{n_jobs.value} trials at once are threads of one process (n_jobs), which take turns in Python.",
        change=f"start {n_jobs.value} processes on the same storage, each with n_jobs=1; where trials start processes "
        "of their own, nothing is to change",
        how="no number of the study tells how long a thread waits for its turn",
    )


def _all_gpus(facts: Facts) -> Iterator[IdleCause]:
    """Yield a cause where each trial uses all GPUs of several, so that trials run one after the other."""
    gpus, per_trial, running = facts.setup.gpus, facts.setup.gpus_per_trial, facts.running_at_once
    if gpus is None or per_trial is None or running is None:
        return
    if gpus.value < 2 or per_trial.value < gpus.value or running.usual > 1:
        return
    example = "`tuner optimize --gpus-per-trial 1`" if facts.is_ours else "one trial on each GPU"
    yield _cause(
        Kind.ALL_GPUS,
        facts,
        why=f"Each trial uses all {gpus.value} GPUs, and trials run one after the other.",
        change=f"let a trial use fewer GPUs, so that several run side by side: {example}",
        how=f"no number of the study tells how many times as fast a trial is on {gpus.value} GPUs as on one; "
        f"{gpus.value} times at most",
    )


def _failures(facts: Facts) -> Iterator[IdleCause]:
    """Yield a cause where failed trials took at least a tenth of all trial time."""
    failed = facts.ended[TrialEnd.FAILED]
    if not failed.total_s or failed.total_s < LEAST_SHARE * facts.trial_s:
        return
    kinds = ", ".join(f"{count} {kind}" for kind, count in facts.failures.items())
    all_s, left_s = facts.trial_s, facts.trial_s - failed.total_s
    change = "find out why trials fail, and keep such configs out of the search space"
    if BESIDE_OTHERS in kinds:
        change += "; other programs may have caused some failures, so search again on a quiet machine first"
    yield _cause(
        Kind.FAILURES,
        facts,
        why=f"{failed.trials} of {len(facts.trials)} trials failed, after {duration(failed.mean_s or 0.0)} in the mean"
        f"{f' ({kinds})' if kinds else ''}.",
        change=change,
        how=f"{duration(all_s)} of trial time / {duration(left_s)} without failures",
        ratio=(all_s, left_s),
    )


def _startup(facts: Facts) -> Iterator[IdleCause]:
    """Yield a cause where start-ups took at least a fifth of the complete trials' time: the change avoids them all."""
    complete = facts.ended[TrialEnd.COMPLETE]
    if not complete.startup_s or complete.startup_s < 0.2 * complete.total_s:
        return
    all_s, left_s = facts.trial_s, facts.trial_s - complete.startup_s
    if not facts.is_ours:
        change = "keep one process for several trials: import, load and compile only once"
    elif facts.has_sessions:
        change = "let each session serve more probes: search fewer rungs, or other values that need their own start"
    else:
        change = "let one started trainer serve several probes (docs/sessions.md)"
    yield _cause(
        Kind.STARTUP,
        facts,
        why=f"A complete trial takes {duration(complete.mean_s or 0.0)} in the mean, "
        f"{duration(complete.startup_s / complete.trials)} of it start-up.",
        change=change,
        how=f"{duration(all_s)} of trial time / {duration(left_s)} without the start-ups of complete trials",
        ratio=(all_s, left_s),
    )


def _pruning(facts: Facts) -> Iterator[IdleCause]:
    """Yield a cause where start-ups of pruned trials took at least a tenth of all trial time: they are pruned early.

    The change is to prune each later: after four start-ups of training, or after the training of a complete trial if
    that is less. A larger share of the time is then training.
    """
    pruned, complete = facts.ended[TrialEnd.PRUNED], facts.ended[TrialEnd.COMPLETE]
    if facts.startup_share is None or not pruned.startup_s or pruned.startup_s < LEAST_SHARE * facts.trial_s:
        return
    startup_s = pruned.startup_s / pruned.trials  # of one trial
    full_s = (complete.total_s - complete.startup_s) / complete.trials if complete.total_s else math.inf
    train_s = min(4 * startup_s, full_s)  # how long each pruned trial would train
    pruned_trials = [trial for trial in facts.trials if trial.end is TrialEnd.PRUNED]
    added_s = sum(max(0.0, train_s - (trial.took_s - trial.starting_s)) for trial in pruned_trials)
    # the share of all trial time in which trials train, now and with the added time
    starting_s = facts.startup_share * facts.trial_s
    longer_s = facts.trial_s + added_s
    share_now, share_then = 1.0 - facts.startup_share, 1.0 - starting_s / longer_s
    yield _cause(
        Kind.PRUNING,
        facts,
        why=f"{pruned.trials} of {len(facts.trials)} trials were pruned. They took {duration(pruned.mean_s or 0.0)} in "
        f"the mean, {duration(startup_s)} of it start-up. Start-ups take {facts.startup_share:.0%} of all trial time.",
        change=f"prune later: let a trial train for at least {duration(train_s)} before the pruner may end it",
        how=f"start-ups are {starting_s / facts.trial_s:.0%} of {duration(facts.trial_s)} now, and would be "
        f"{starting_s / longer_s:.0%} of {duration(longer_s)}; {share_then:.0%} / {share_now:.0%}",
        ratio=(share_then, share_now),
    )


def _loading(facts: Facts) -> Iterator[IdleCause]:
    """Yield a cause where at least a tenth of the training waits for the next batch.

    Where these waits were not measured, the number of loader workers decides: see `_workers`.
    """
    wait = facts.setup.data_wait
    if wait is None:
        yield from _workers(facts)
    elif wait.value >= LEAST_SHARE:
        left = 1.0 - wait.value
        yield _cause(
            Kind.LOADING,
            facts,
            why=f"While trials train, they wait for the next batch for {wait.value:.0%} of the time.",
            change="search larger numbers of loader workers, also more than cores, as a worker that waits for storage "
            "needs none; or make a sample cheaper to load",
            how=f"all of the training / the {100 * left:.3g}% without waits",
            ratio=(1.0, left),
        )


def _workers(facts: Facts) -> Iterator[IdleCause]:
    """Yield a cause where the trials at once have fewer or more loader workers than the machine has cores."""
    workers, cores, running = facts.setup.loader_workers, facts.setup.cores, facts.running_at_once
    if workers is None or cores is None or running is None:
        return
    at_once, each = max(running.usual, 1), workers.value  # trials at once, and the workers of each trial
    wanted = max(cores.value // at_once, 1)
    is_crowded = each * at_once > cores.value and each > wanted
    if not is_crowded and each >= wanted:
        return
    of_trial = number_of(workers.range_text, "loader worker") + workers.mean_text
    of_all = f": {each * at_once:.6g} for {at_once} trials" if at_once > 1 else ""
    yield _cause(
        Kind.CROWDED if is_crowded else Kind.WORKERS,
        facts,
        why=f"A trial has {of_trial}{of_all}, on {_cores_text(cores)}.",
        change=f"let each trial have {number_of(wanted, 'loader worker')} in all"
        if facts.is_ours
        else f"give each DataLoader num_workers={wanted} and persistent_workers=True, which start once per trial",
        how="`tuner optimize --search num_workers=…` measures which number is best: more workers than cores slow each "
        "other down where they compute, and not where they wait for storage",
    )


def _cores_text(cores: KnownFact[int]) -> str:
    """Return a number of cores in words, marked if it is a guess."""
    return f"{number_of(cores.value, 'core')}{' (a guess)' if cores.source == GUESS else ''}"


def _parallel(facts: Facts) -> Iterator[IdleCause]:
    """Yield a cause where more trials at once fit on the GPUs, and on the cores with their loader workers."""
    # a probe of tuner has its GPUs for itself: more probes fit only on other GPUs, so their number has to be known
    if facts.running_at_once is None or (facts.is_ours and facts.setup.gpus is None):
        return
    at_once = max(facts.running_at_once.usual, 1)
    most, why, how = _trials_that_fit(facts)
    workers, cores = facts.setup.loader_workers, facts.setup.cores
    if workers and cores:
        each = max(workers.value, 1.0)  # a trial without workers loads its data itself
        by_cores = math.floor(cores.value / each)
        how += f"; {_cores_text(cores)} / {number_of(f'{each:.6g}', 'worker')} = {number_of(by_cores, 'trial')}"
        most = min(most, by_cores)
    if most <= at_once:
        return
    n_jobs, per_trial = facts.setup.n_jobs, facts.setup.gpus_per_trial
    as_processes = ", as processes instead of threads (n_jobs)" if n_jobs and n_jobs.value > 1 else ""
    change = f"run {most} trials at once instead of {at_once}{as_processes}, and watch the GPUs' memory"
    if facts.is_ours:
        cards = per_trial.value if per_trial else 1
        change = f"`tuner optimize --gpus-per-trial {cards}` probes {most} configs at once"
    how += f"; {most} / {at_once}"
    yield _cause(Kind.PARALLEL, facts, why=why, change=change, how=how, ratio=(most, at_once))


class _Fitting(NamedTuple):
    """How many trials fit on the GPUs."""

    trials: int = 0
    """0 where that is unknown."""
    why: str = ""
    """What shows it."""
    how: str = ""
    """The arithmetic."""


def _trials_that_fit(facts: Facts) -> _Fitting:
    """Return how many trials fit on the GPUs, what shows it, and the arithmetic.

    It goes by the GPUs of a trial, else by memory, else one trial on each GPU. The number is 0 where it is unknown.
    """
    at_once = max(facts.running_at_once.usual, 1) if facts.running_at_once else 1
    running = number_of(at_once, "trial")
    gpus, per_trial = facts.setup.gpus, facts.setup.gpus_per_trial
    if gpus and per_trial and (facts.is_ours or per_trial.value > 1):  # such trials share no GPU
        fits = gpus.value // per_trial.value
        why = f"The study runs {running} at once on {number_of(gpus.value, 'GPU')}, and each uses {per_trial.value}."
        how = f"{number_of(gpus.value, 'GPU')} / {per_trial.value} of a trial = {number_of(fits, 'trial')}"
        return _Fitting(fits, why, how)
    used, memory = facts.setup.memory_used_gib, facts.setup.gpu_memory_gib
    if used and memory:
        usable = 0.9  # of the memory, because the peaks of trials differ
        fits = math.floor(usable * memory.value / (used.value / at_once))
        why = f"The study uses {used.value:g} of {memory.value:g} GiB of a GPU, with {running} at once."
        how = f"{usable:.0%} of {memory.value:g} GiB / ({used.value:g} GiB / {at_once}) = {number_of(fits, 'trial')}"
        return _Fitting(fits, why, how)
    if gpus:
        why = f"The study runs {running} at once on {number_of(gpus.value, 'GPU')}."
        return _Fitting(gpus.value, why, f"one trial on each of {number_of(gpus.value, 'GPU')}")
    return _Fitting()


def _idle(facts: Facts) -> Iterator[IdleCause]:
    """Yield a cause where the GPUs are less than half busy while trials train and wait for no data."""
    duty_pct = _gpu_utilisation_pct(facts)
    wait = facts.setup.data_wait.value if facts.setup.data_wait else 0.0
    share = (1.0 - (facts.startup_share or 0.0)) * (1.0 - wait)  # of the time, in which trials train and need no data
    if duty_pct is None or share <= 0.0 or (busy_pct := duty_pct / share) >= 50.0:
        return
    yield _cause(
        Kind.IDLE,
        facts,
        why=f"While trials train{' and do not wait for data' if wait else ''}, the GPUs are {busy_pct:.0f}% busy.",
        change="give each GPU more to do at once: a larger batch, more environments, or less waiting between steps",
        how=f"{duty_pct:.3g}% busy / {share:.3g} of the time that trains = {busy_pct:.3g}%; 100 / {busy_pct:.3g}",
        ratio=(100.0, busy_pct),
    )


def _gpu_utilisation_pct(facts: Facts) -> float | None:
    """Return the mean utilisation of the GPUs in percent; None where it is unknown, or where there are none."""
    return facts.setup.duty_pct.value if facts.setup.duty_pct and not facts.on_cpu else None
