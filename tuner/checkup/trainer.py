"""Checks of what a study asks for, and of its trainer: its files, its parameters, what its own Python can import."""

from collections.abc import Iterator, Sequence

from tuner.checkup.finding import Finding, fine, problem
from tuner.probe.metrics import check_metrics
from tuner.probe.protocols import Trainer
from tuner.study.cases import select
from tuner.study.spec import StudySpec
from tuner.trainers.base import open_trainer, split_parameters
from tuner.trainers.dependencies import Dependencies, Dependent, Imported, conflicts, import_all


def check_objective(spec: StudySpec) -> Iterator[Finding]:
    """Check that there are the metrics which a study names. Raises StudyError where there are not."""
    check_metrics(spec)
    kept = [f"{one.metric} {one}" for one in spec.build_constraints()]
    yield fine("objective", ", ".join([*spec.objectives, *kept]))


def check_trainer(spec: StudySpec) -> Iterator[Finding]:
    """Check the trainer that a study names. Raises StudyError or TrainerError where its files cannot be used."""
    trainer = open_trainer(spec.trainer)
    known = trainer.cases()
    yield fine("trainer", f"{trainer.name}: {len(select(known, spec.cases))} of {len(known)} case(s) selected")
    if isinstance(trainer, Dependent):
        yield from check_imports(trainer.dependencies, import_all(trainer.dependencies))
    else:
        yield fine("imports", f"what {trainer.name} imports is not known here")
    yield from check_parameters(trainer, spec)


def check_parameters(trainer: Trainer, spec: StudySpec) -> Iterator[Finding]:
    """Say which parameters of the study and its overrides are searched. Raises TrainerError for an unknown one."""
    names = dict.fromkeys([*spec.space, *(name for override in spec.overrides for name in override.space)])
    searched, declined = split_parameters(trainer, names)
    left_out = [f"{name} left out: {why}" for name, why in declined.items()]
    yield fine("parameters", "; ".join([", ".join(searched) or "none", *left_out]))


def check_imports(dependencies: Dependencies, imported: Sequence[Imported]) -> Iterator[Finding]:
    """Say which modules are there, in which versions, and which are missing or do not work together."""
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
