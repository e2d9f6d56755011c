"""Checks devices, trainer, storage and disk for a study. No check starts work or writes a file.

Each check yields findings: what is fine, what the user should look at, and what must be fixed before a study runs.
"""

import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import get_args

from sqlalchemy import inspect

from tuner.export import connect, engine_at, reading
from tuner.probe import MIB_PER_GIB, SAMPLES_PER_S, check_metrics, mib, number_of
from tuner.records.urls import shown as shown_url
from tuner.study import Case, DeviceKind, EnvironmentSpec, StudySpec, is_fallback_of, narrowed, select, unmatched
from tuner.tools.checkup.command_check import check_command, check_imports, import_all
from tuner.tools.checkup.device_checks import OpenedDevices, check_devices
from tuner.tools.checkup.finding import Finding, findings_of, fine, problem, warning
from tuner.trainers.base import Trainer
from tuner.trainers.registry import check_values, not_searched, open_trainer
from tuner.trainers.typed_command import TypedCommand


def check_storage(url: str) -> Finding:
    """Return whether the database at a URL answers and contains studies, or can be created, as a finding.

    The check changes nothing. Raises StoreError when the database cannot be reached or contains something else.
    """
    engine = engine_at(url)
    if engine.dialect.name == "sqlite":
        file = Path(engine.url.database or "")
        for place in (_nearest_existing(file.parent), file, Path(f"{file}.lock")):  # all that a search writes to
            if place.exists() and not os.access(place, os.W_OK):
                return problem("storage", f"{place} is not writable; name another database with --storage")
        if not file.exists():
            return fine("storage", f"{file} will be created")
    with reading(engine) as connection:
        empty = not inspect(connection).get_table_names()
    if not empty:
        connect(url)  # called for its StoreError: a database with something else
    return fine("storage", f"{shown_url(url)} answers and {'is empty' if empty else 'contains studies'}")


def check_free_space(subject: str, folder: Path, *, wished_gib: float, needed_gib: float = 0.0) -> Finding:
    """Return how much space is free where `folder` is or will be, as a finding.

    Less than `needed_gib`, or no right to write, is a problem, and less than `wished_gib` is a warning.
    """
    existing = _nearest_existing(folder)
    if not os.access(existing, os.W_OK):
        return problem(subject, f"{existing} is not writable; correct its rights, or start `tuner` in another folder")
    free_gib = mib(shutil.disk_usage(existing).free) / MIB_PER_GIB
    text = f"{free_gib:,.1f} GiB free at {existing}"
    if free_gib < needed_gib:
        return problem(subject, f"{text}; at least {needed_gib:g} GiB is needed")
    if free_gib < wished_gib:
        return warning(subject, f"{text}; {wished_gib:g} GiB would be safer")
    return fine(subject, text)


def _nearest_existing(folder: Path) -> Path:
    """Return the folder itself, or the nearest folder above it that exists."""
    return next(path for path in (folder, *folder.absolute().parents) if path.is_dir())


def check_objective(spec: StudySpec) -> Iterator[Finding]:
    """Yield the metrics of a study. Raises StudyError when a metric does not exist."""
    check_metrics(spec)
    constraints = [f"{constraint.metric} {constraint}" for constraint in spec.build_constraints()]
    yield fine("objective", ", ".join([*spec.objectives, *constraints]))


def check_named_trainer(spec: StudySpec, ranks: int | None = None) -> Iterator[Finding]:
    """Yield what is found of the trainer that a study names; `ranks` is the number of devices, where it is known.

    Raises StudyError or TrainerError when the trainer's files cannot be used.
    """
    trainer = open_trainer(spec.trainer)
    cases = trainer.cases()
    chosen = select(cases, spec.cases)
    yield fine("trainer", f"{trainer.name}: {len(chosen)} of {number_of(len(cases), 'case')} selected")
    for case in chosen:
        if case.fault:
            yield problem("case", f"{case.name}: {case.fault}")
    for glob in unmatched(spec, (case.name for case in cases)):
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
    if SAMPLES_PER_S in {*spec.objectives, *spec.constraints} and trainer.counts_samples is False:
        text = f"{SAMPLES_PER_S} cannot be measured: no pattern of `progress` has the group (?P<samples>…)"
        yield problem("samples", f"{text}; add the group or `samples_per_iteration`, or name another metric")
    yield from check_parameters(trainer, spec, cases)


def check_parameters(trainer: Trainer, spec: StudySpec, cases: Iterable[Case]) -> Iterator[Finding]:
    """Yield which parameters are searched in at least one case, on at least one kind of device.

    Raises TrainerError for a parameter that the trainer does not know, and for a value that it cannot use.
    """
    searched: dict[str, None] = {}  # a set that keeps the order
    left_out: dict[str, str] = {}  # parameter → why one case or another does not search it
    # a study may search other parameters and values in some cases, and on one kind of device
    specs = [narrowed(spec, case.name, kind) for case in cases for kind in get_args(DeviceKind)]
    for narrow in specs:
        reasons = not_searched(narrow, trainer)
        searched |= dict.fromkeys(name for name in narrow.space if name not in reasons)
        left_out |= reasons
    never = [f"{name} left out: {why}" for name, why in left_out.items() if name not in searched]
    text = "; ".join([", ".join(searched) or "none is searched", *never])
    yield fine("parameters", text) if searched else problem("parameters", text)
    parameters = (parameter for narrow in specs for parameter in narrow.build_space().parameters)
    check_values(trainer, (parameter for parameter in parameters if parameter.name in searched))


def check_up(spec: StudySpec, devices: OpenedDevices, *, requested: str, url: str, runs: Path) -> Iterator[Finding]:
    """Yield each finding about a study as soon as it is found. An error that a check raises becomes a finding.

    Args:
        spec: The study.
        devices: The devices that it names.
        requested: The study that the user named, for which another may stand in.
        url: The URL of its database.
        runs: The folder of its results.
    """
    if is_fallback_of(spec, requested):
        yield fine("study", f"{spec.name} stands in for {requested}, whose trainer.root is empty")
    yield from findings_of("devices", lambda: check_devices(devices, spec.environment))
    yield from findings_of("objective", lambda: check_objective(spec))
    yield from findings_of("trainer", lambda: check_named_trainer(spec, devices.count))
    yield from findings_of("storage", lambda: [check_storage(url)])
    yield from _check_disk_and_shared_memory(runs)


def check_up_machine(
    devices: OpenedDevices, storage: str | None, runs: Path, typed: TypedCommand | None
) -> Iterator[Finding]:
    """Yield each finding about the machine without a study, and about the command that is typed, if any.

    `storage`: the URL of a database to check, if any. `runs`: the folder in which results would be.
    """
    yield from findings_of("devices", lambda: check_devices(devices, EnvironmentSpec()))
    yield from findings_of("command", lambda: check_command(typed, on_gpu=devices.has_gpus))
    if storage:
        yield from findings_of("storage", lambda: [check_storage(storage)])
    yield from _check_disk_and_shared_memory(runs)


def unchecked(devices: OpenedDevices, storage: str | None, typed: TypedCommand | None) -> Iterator[str]:
    """Yield what `check_up_machine` did not look at, and which command does; arguments as there."""
    if typed is None:
        yield "a trainer and what it imports: name a --study, or a command after `--`"
    else:
        yield "whether the command trains, and its flags: `tuner optimize -- COMMAND` watches it first"
    if storage is None:
        yield "a database: name its --storage; without one it is a file below runs/"
    if (devices.count or 1) > 1:
        yield "whether NCCL or gloo moves data, and how fast: `tuner scale` measures it"


def _check_disk_and_shared_memory(runs: Path) -> Iterator[Finding]:
    """Check the disk of the results, to which each probe writes a checkpoint and a log, and the shared memory.

    NCCL and the workers of a DataLoader need shared memory, of which containers often have only 64 MiB.
    """
    # unlike /dev/shm, the folder may be on a disk that does not answer
    yield from findings_of("disk", lambda: [check_free_space("disk", runs, wished_gib=10, needed_gib=1)])
    shared_memory = Path("/dev/shm")  # noqa: S108 - only looked at
    if shared_memory.is_dir():
        yield check_free_space("shared memory", shared_memory, wished_gib=1)
