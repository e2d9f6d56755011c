"""Diagnoses a study, and says what was found: rows of a table, and sentences."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Engine, and_, select

from tuner.diagnosis.readers import loader_workers, read_own, read_plain
from tuner.diagnosis.study_times import AtOnce, Facts, KnownFact, Setup, StudyRecord, TrialEnd, gather, with_startups
from tuner.diagnosis.waits import IdleCause, causes
from tuner.errors import EmptyStoreError
from tuner.export.reader import reading
from tuner.kept.stored import CASE, FACTS, STUDIES, of_study
from tuner.kept.urls import shown
from tuner.probe.units import duration

NAMES_SHOWN = 10
"""The studies that a message names."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Diagnosis:
    """What a study spent its time on, and why its GPUs did not train more."""

    facts: Facts
    causes: tuple[IdleCause, ...]
    """The largest first."""


def diagnose(engine: Engine, study: str, told: Setup | None = None, *, hours_left: float | None = None) -> Diagnosis:
    """Diagnose a study of any Optuna program; `told` is what the user knows, and goes before the database.

    With `hours_left`, the study still runs for so long, and each cause says whether to stop it for the change.

    `study` is the name of an Optuna study, or of a study of `tuner`, whose cases are Optuna studies. Raises
    EmptyStoreError if there is no such study, or if none of its trials has ended.
    """
    record = _read(engine, study)
    if not record.trials:
        open_ones = f"{record.running} running, {record.waiting} waiting"
        raise EmptyStoreError(f"study {study!r} has no trial that has ended ({open_ones}); run it first")
    record = with_startups(replace(record, setup=(told or Setup()).or_else(record.setup)))
    facts = gather(record)
    return Diagnosis(facts=facts, causes=tuple(causes(facts, record.trials, hours_left)))


def _read(engine: Engine, study: str) -> StudyRecord:
    is_case = and_(FACTS.c.study_id == STUDIES.c.study_id, FACTS.c.key == CASE)
    named = select(STUDIES.c.study_id, FACTS.c.key).outerjoin_from(STUDIES, FACTS, is_case)
    name, _, case = study.partition("/")
    with reading(engine) as connection:
        exact = connection.execute(named.where(STUDIES.c.study_name == study)).first()
        cases = [exact] if exact else connection.execute(named.where(of_study(study))).all()
        workers = loader_workers(connection, [one.study_id for one in cases])
    if not cases:
        raise EmptyStoreError(f"{shown(engine.url)} has no study {study!r}; {studies_in(engine)}")
    if exact and not exact.key:
        return read_plain(engine, study, exact.study_id)
    own = read_own(engine, name, case if exact else None)
    ranks = own.setup.gpus.value if own.setup.gpus else 1
    of_trial = workers and replace(workers, value=workers.value * ranks)
    return replace(own, setup=own.setup.or_else(Setup(loader_workers=of_trial)))


def studies_in(engine: Engine) -> str:
    """Return the names of a database's studies, and how to diagnose one of them."""
    with reading(engine) as connection:
        names = connection.scalars(_ALL).all()
    return f"its studies are {_names(names)}" + ("; name one with --study-name" if names else "")


_ALL = select(STUDIES.c.study_name).order_by(STUDIES.c.study_name)


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return f"{', '.join(names[:NAMES_SHOWN])}{more}" if names else "none"


Row = tuple[str, str, str]
"""What a fact is about, the fact, and who says so."""
UNKNOWN = "unknown"
DATABASE = "database"
OPTIONS = {
    "startup_s": "--startup-seconds",
    "duty_pct": "--duty",
    "loader_workers": "--loader-workers",
    "cores": "--cores",
    "gpus": "--gpus",
    "gpu_memory_gib": "--gpu-memory",
    "memory_used_gib": "--memory-used",
    "sampler": "--sampler",
    "pruner": "--pruner",
}
"""The field of `Setup` → the option that tells it."""
OF_GPUS = {"gpus", "gpu_memory_gib", "memory_used_gib"}
"""The fields that a study of ours on processors does not have."""


def rows(facts: Facts) -> Iterator[Row]:
    """Yield the facts of a study, the unknown ones included."""
    for end, one in facts.ended.items():
        if end is TrialEnd.INTERRUPTED and not one.trials:
            continue
        took = f", {duration(one.mean_s)} in the mean" if one.mean_s is not None else ""
        yield f"{end} trials", f"{one.trials}, {one.share:.0%}{took}", DATABASE
    if facts.running or facts.waiting:
        yield "not ended", f"{facts.running} running, {facts.waiting} waiting", DATABASE
    gaps = f", and none for {duration(facts.empty_s)} between" if facts.empty_s >= 1.0 else ""
    yield "time with trials", f"{duration(facts.covered_s)}{gaps}", DATABASE
    yield "time of all trials", duration(facts.trial_s), DATABASE
    yield "trials at once", _at_once(facts.running_at_once), DATABASE
    if facts.running_at_once:
        yield "  over time", " ".join(f"{mean:.1f}" for mean in facts.running_at_once.tenths), DATABASE
    training = facts.training_at_once
    none = f"; none for {training.none_share:.0%} of the time" if training else ""
    yield "of these, training", _at_once(training) + none, f"{DATABASE} and start-up"
    startup = facts.setup.startup_s
    share = "" if facts.startup_share is None else f"{facts.startup_share:.0%} of all trial time"
    if startup is None and share:
        yield "start-up", share, DATABASE
    else:
        yield "start-up", *_told("startup_s", startup, f"{{:.1f}} s, {share}")
    on_cpu = facts.is_ours and facts.setup.gpus is None
    for name, label, form in (
        ("duty_pct", "duty of the ranks" if on_cpu else "duty of the GPUs", "{:.0f}%"),
        ("gpus", "GPUs", "{}"),
        ("memory_used_gib", "GPU memory in use", "{:.1f} GiB"),
        ("gpu_memory_gib", "memory of a GPU", "{:.1f} GiB"),
        ("cores", "cores", "{}"),
        ("loader_workers", "loader workers of a trial", "{:g}"),
        ("sampler", "sampler", "{}"),
        ("pruner", "pruner", "{}"),
    ):
        known = getattr(facts.setup, name)
        if known or not (on_cpu and name in OF_GPUS):
            yield label, *_told(name, known, form)


def unknown(facts: Facts) -> list[str]:
    """Return sentences about what could not be judged, and which options tell what is missing."""
    setup = facts.setup
    judged = {
        "whether start-ups keep the GPUs waiting": () if facts.startup_share is not None else ("startup_s",),
        "whether data loading has enough workers": ("loader_workers", "cores"),
        "how many trials the GPUs have room for": () if facts.is_ours else ("memory_used_gib", "gpu_memory_gib"),
        "how much more the GPUs can do": ("duty_pct",),
    }
    missing = {what: [OPTIONS[one] for one in needs if getattr(setup, one) is None] for what, needs in judged.items()}
    return [f"Unknown is {what}: {' and '.join(options)} would tell." for what, options in missing.items() if options]


def sentences(found: Diagnosis) -> Iterator[str]:
    """Yield the causes, the largest first, the changes, the safest first, and what could not be judged."""
    missing = unknown(found.facts)
    if not found.causes:
        yield f"Nothing to change{', as far as is known' if missing else ''}."
    for place, cause in enumerate(found.causes, 1):
        yield f"Cause {place}, {cause.kind}: {cause.why}"
    for place, cause in enumerate(sorted(found.causes, key=lambda one: one.safety), 1):
        yield f"Change {place}: {cause.change}."
        most = "Unknown gain" if cause.gain is None else f"At most {cause.gain:.2f} times as much training"
        yield f"  {most}: {cause.how}."
        yield f"  Undoing it costs {cause.undo}."
        if cause.advice:
            yield f"  {cause.advice[:1].upper()}{cause.advice[1:]}."
    yield from missing


def _at_once(known: AtOnce | None) -> str:
    if known is None:
        return UNKNOWN
    middle = f"{known.low}" if known.low == known.high else f"{known.low} to {known.high}"
    return f"{known.mean:.1f} in the mean, mostly {middle}, at most {known.most}"


def _told(name: str, known: KnownFact | None, form: str) -> tuple[str, str]:
    return (form.format(known.value), known.source) if known else (UNKNOWN, f"{OPTIONS[name]} tells")
