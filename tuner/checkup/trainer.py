"""Checks a study's objective and its trainer: the files, the parameters, and what the trainer's Python can import."""

from collections.abc import Iterable, Iterator, Sequence
from typing import get_args

from tuner.checkup.finding import Finding, fine, problem, warning
from tuner.probe.metrics import SAMPLES_PER_S, check_metrics
from tuner.study.cases import Case, select
from tuner.study.load import DeviceKind, narrowed, unmatched
from tuner.study.spec import StudySpec
from tuner.trainers.base import Trainer
from tuner.trainers.dependencies import Dependencies, Imported, conflicts, import_all
from tuner.trainers.parameters import check_values, not_searched
from tuner.trainers.registry import open_trainer


def check_objective(spec: StudySpec) -> Iterator[Finding]:
    """Check that the metrics which a study names exist. Raises StudyError when a metric does not exist."""
    check_metrics(spec)
    kept = [f"{one.metric} {one}" for one in spec.build_constraints()]
    yield fine("objective", ", ".join([*spec.objectives, *kept]))


def check_named_trainer(spec: StudySpec, ranks: int | None = None) -> Iterator[Finding]:
    """Check the trainer that a study names; `ranks` is the number of devices, where it is known.

    Raises StudyError or TrainerError when the trainer's files cannot be used.
    """
    trainer = open_trainer(spec.trainer)
    known = trainer.cases()
    chosen = select(known, spec.cases)
    yield fine("trainer", f"{trainer.name}: {len(chosen)} of {len(known)} case(s) selected")
    for glob in unmatched(spec, (case.name for case in known)):
        yield warning("overrides", f"no case matches {glob!r}")
    if trainer.dependencies:
        yield from check_imports(trainer.dependencies, import_all(trainer.dependencies))
    else:
        yield fine("imports", f"what {trainer.name} imports is not known here")
    if program := trainer.missing_program():
        yield problem("command", f"there is no program {program!r}; no shell runs it: see trainer.options")
    if ranks and ranks > 1 and not trainer.heeds_devices:
        text = f"it names neither {{ranks}} nor {{devices}}; see that it starts one rank on each of {ranks} devices"
        yield warning("command", text)
    yield from check_samples(trainer, spec)
    yield from check_parameters(trainer, spec, known)


def check_samples(trainer: Trainer, spec: StudySpec) -> Iterator[Finding]:
    """Report a study that needs samples and a trainer whose samples nothing counts."""
    if SAMPLES_PER_S in {*spec.objectives, *spec.constraints} and trainer.counts_samples is False:
        text = f"{SAMPLES_PER_S} cannot be measured: no pattern of `progress` has the group (?P<samples>…)"
        yield problem("samples", f"{text}; add the group or `samples_per_iteration`, or name another metric")


def check_parameters(trainer: Trainer, spec: StudySpec, cases: Iterable[Case]) -> Iterator[Finding]:
    """Report which parameters are searched in at least one case, on at least one kind of device.

    Raises TrainerError for a parameter that the trainer does not know, and for a value that it cannot use.
    """
    specs = [narrowed(spec, case.name, kind) for case in cases for kind in get_args(DeviceKind)]
    idle = [not_searched(one, trainer) for one in specs]
    searched = dict.fromkeys(
        name for one, left in zip(specs, idle, strict=True) for name in one.space if name not in left
    )
    never = {name: why for left in idle for name, why in left.items() if name not in searched}
    found = fine if searched else problem
    reasons = (f"{name} left out: {why}" for name, why in never.items())
    yield found("parameters", "; ".join([", ".join(searched) or "none is searched", *reasons]))
    check_values(trainer, (one for part in specs for one in part.build_space().parameters if one.name in searched))


def check_imports(dependencies: Dependencies, imported: Sequence[Imported]) -> Iterator[Finding]:
    """Report which modules can be imported, in which versions, and which are missing or do not work together."""
    there, broken = [one for one in imported if one.error is None], [one for one in imported if one.error is not None]
    versions = ", ".join(f"{one.module} {one.version or ''}".strip() for one in there)
    yield fine("imports", f"{dependencies.python} imports {versions or 'nothing'}")
    if missing := [one.module for one in broken if one.missing]:
        yield problem("imports", f"{dependencies.python} lacks {', '.join(missing)}; install them there")
    for one in broken:
        if not one.missing:
            yield problem("imports", f"{dependencies.python} cannot import {one.module}: {one.error}")
    for complaint in conflicts(imported, dependencies.limits):
        yield problem("imports", f"{dependencies.python}: {complaint}")
