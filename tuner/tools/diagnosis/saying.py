"""Says what a diagnosis found: rows of facts, and sentences about causes, changes and what is unknown.

A row is what a fact is about, the fact, and who says so. A cause is something that keeps the GPUs of a study from
training, with the change that ends it.
"""

from collections.abc import Iterator
from typing import NamedTuple

from tuner.probe import duration
from tuner.tools.diagnosis.diagnosing import DATABASE, Diagnosis
from tuner.tools.diagnosis.study_times import GUESS, AtOnce, Facts, KnownFact

OPTIONS = {
    "startup_s": "--startup-seconds",
    "duty_pct": "--duty",
    "loader_workers": "--loader-workers",
    "cores": "--cores",
    "n_jobs": "--n-jobs",
    "gpus": "--gpus",
    "gpus_per_trial": "--gpus-per-trial",
    "gpu_memory_gib": "--gpu-memory",
    "memory_used_gib": "--memory-used",
}
"""The field of `Setup` → the option that gives it."""


class Row(NamedTuple):
    """A fact of a study in words."""

    label: str
    """What the fact is about."""
    fact: str
    source: str
    """Who says so."""


def rows(facts: Facts) -> Iterator[Row]:
    """Yield the facts of a study that are known, each once."""
    yield from _rows_of_trials(facts)
    yield from _rows_at_once(facts)
    yield from _rows_of_setup(facts)


def _rows_of_trials(facts: Facts) -> Iterator[Row]:
    """Yield how many trials ended in each way, how many have not ended, and how long none ran."""
    for end, ended in facts.ended.items():
        if ended.trials:
            took = f", {duration(ended.mean_s)} in the mean" if ended.mean_s is not None else ""
            yield Row(f"{end} trials", f"{ended.trials}, {ended.share:.0%}{took}", DATABASE)
    if facts.running or facts.waiting:
        yield Row("not ended", f"{facts.running} running, {facts.waiting} waiting", DATABASE)
    gaps = f", and none for {duration(facts.empty_s)} between" if facts.empty_s >= 1.0 else ""
    yield Row("time with trials", f"{duration(facts.covered_s)}{gaps}", DATABASE)
    if facts.pauses:
        yield Row("pauses", f"{facts.pauses}, {duration(facts.paused_s)}, far longer than the usual gap", DATABASE)


def _rows_at_once(facts: Facts) -> Iterator[Row]:
    """Yield how many trials ran at once, and how many of these trained; others were still starting."""
    running, training, n_jobs = facts.running_at_once, facts.training_at_once, facts.setup.n_jobs
    if running and running.most == 1:
        yield Row("trials at once", "1", DATABASE)
    elif running:
        yield Row("time of all trials", duration(facts.trial_s), DATABASE)
        yield Row("trials at once", _at_once(running), DATABASE)
        yield Row("  over time", " ".join(f"{mean:.1f}" for mean in running.tenths), DATABASE)
    if n_jobs:
        in_each = "one in each process" if n_jobs.value == 1 else f"{n_jobs.value} in threads of one process"
        yield Row("  they run", f"{in_each}, n_jobs={n_jobs.value}", n_jobs.source)
    if running and running.most > 1 and training:
        none = f"; none for {training.none_share:.0%} of the time"
        yield Row("of these, training", f"{_at_once(training)}{none}", DATABASE)


def _rows_of_setup(facts: Facts) -> Iterator[Row]:
    """Yield how long trials started, and what they ran with."""
    startup = facts.setup.startup_s
    if facts.startup_share is not None:
        each = f"{startup.value:.1f} s, " if startup else ""  # else each trial's record has its own
        yield Row(
            "start-up", f"{each}{facts.startup_share:.0%} of all trial time", startup.source if startup else DATABASE
        )
    for name, label, form in (
        ("data_wait", "waiting for the next batch", "{:.0%} of the training"),
        ("duty_pct", "duty of the ranks" if facts.on_cpu else "duty of the GPUs", "{:.0f}%"),
        ("gpus", "GPUs", "{}"),
        ("gpus_per_trial", "GPUs of a trial", "{}"),
        ("memory_used_gib", "GPU memory in use", "{:.1f} GiB"),
        ("gpu_memory_gib", "memory of a GPU", "{:.1f} GiB"),
        ("cores", "cores", "{}"),
        ("others_pct", "use of other programs", "{:.0f}% of the processors"),
    ):
        fact: KnownFact[float] | None = getattr(facts.setup, name)
        if fact:
            yield Row(label, form.format(fact.value), fact.source)
    if workers := facts.setup.loader_workers:
        yield Row("loader workers of a trial", workers.range_text + workers.mean_text, workers.source)


def _at_once(trials: AtOnce) -> str:
    """Return in words how many trials ran, or trained, at once."""
    middle = f"{trials.low}" if trials.low == trials.high else f"{trials.low} to {trials.high}"
    return f"{trials.mean:.1f} in the mean, mostly {middle}, at most {trials.most}"


def open_questions(facts: Facts) -> list[str]:
    """Return a sentence for each question that facts leave open, with the options that would give the missing facts.

    A fact is missing if it is unknown or a guess.
    """
    needed_facts = {
        "whether start-ups take much of the time": () if facts.startup_share is not None else ("startup_s",),
        "whether data loading has enough workers": () if facts.setup.data_wait else ("loader_workers", "cores"),
        "how many trials the GPUs have room for": () if facts.is_ours else ("memory_used_gib", "gpu_memory_gib"),
        "how much more the GPUs can do": () if facts.on_cpu else ("duty_pct",),
    }
    texts: list[str] = []
    for what, names in needed_facts.items():
        known: dict[str, KnownFact[float] | None] = {name: getattr(facts.setup, name) for name in names}
        missing = {name: fact for name, fact in known.items() if fact is None or fact.source == GUESS}
        if missing:
            options = " and ".join(OPTIONS[name] for name in missing)
            for_sure = "" if None in missing.values() else " for sure"  # a guess is known, though not for sure
            texts.append(f"{options} would tell{for_sure} {what}.")
    if (others_pct := facts.setup.others_pct) and others_pct.value >= 10.0:  # chosen
        texts.append("A search while no other program runs would tell how much faster trials start and train then.")
    return texts


def sentences(diagnosis: Diagnosis) -> Iterator[str]:
    """Yield the sentences about a diagnosis.

    First comes whether all causes are known, then each cause with its change, the largest first, and then what could
    not be judged.
    """
    missing = open_questions(diagnosis.facts)
    what = "Whether these are all causes" if diagnosis.causes else "What to change"
    if missing:
        yield f"{what} cannot be told yet: facts that decide are unknown. The last lines name them."
    elif not diagnosis.causes:
        yield "Nothing to change."
    for place, cause in enumerate(diagnosis.causes, 1):
        most = "Unknown gain" if cause.gain is None else f"At most {cause.gain:.2f} times as much training"
        yield f"Cause {place}, {cause.kind}: {cause.why}"
        yield f"  Change: {cause.change}."
        yield f"  {most}: {cause.how}."
    yield from missing
