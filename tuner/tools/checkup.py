"""Checks devices, trainer, storage and disk for a study. No check starts work or writes a file."""

import os
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import get_args

from sqlalchemy import inspect

from tuner.devices.cards import Cards, Clocks, Occupancy, described, obstacles
from tuner.devices.cuda import visible_uuids
from tuner.devices.found import (
    Connect,
    CudaOrder,
    Link,
    describe_machine,
    links,
    nccl_variables,
    open_devices,
    without_cards,
)
from tuner.devices.nvml import Nvml
from tuner.errors import TunerError
from tuner.export import connect, engine_at, reading
from tuner.probe import MIB_PER_GIB, SAMPLES_PER_S, Device, DeviceSource, check_metrics, mib
from tuner.records.urls import shown as shown_url
from tuner.records.urls import unguarded
from tuner.study import Case, DeviceKind, EnvironmentSpec, StudySpec, grouped, narrowed, select, stands_in, unmatched
from tuner.tools.command_needs import TORCH, program, python_of, variables_of
from tuner.trainers.base import Dependencies, Imported, Trainer, conflicts, import_all
from tuner.trainers.registry import check_values, not_searched, open_trainer
from tuner.trainers.template import missing_script
from tuner.trainers.typed_command import TypedCommand, imported_modules


class Severity(StrEnum):
    """How much a finding matters."""

    OK = "ok"
    WARNING = "warning"
    """Probes run, but their values may suffer."""
    PROBLEM = "problem"
    """Probes do not run, or they would share the cards with others."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """What one check found."""

    subject: str
    level: Severity
    text: str


def fine(subject: str, text: str) -> Finding:
    """Return a finding that needs no action."""
    return Finding(subject=subject, level=Severity.OK, text=text)


def warning(subject: str, text: str) -> Finding:
    """Return a finding that the user should look at."""
    return Finding(subject=subject, level=Severity.WARNING, text=text)


def problem(subject: str, text: str) -> Finding:
    """Return a finding that the user must fix before a study runs."""
    return Finding(subject=subject, level=Severity.PROBLEM, text=text)


def check_machine(devices: Sequence[Device], facts: Mapping[str, str]) -> Iterator[Finding]:
    """Yield which devices are measured. `facts` come from `tuner.devices.found.describe_machine`."""
    if devices[0].is_gpu:
        driver = f"driver {facts.get('driver', 'unknown')}, CUDA up to {facts.get('cuda', 'unknown')}"
        yield fine("devices", f"{facts['gpus']}; {driver}")
    else:
        text = f"no GPU: {len(devices)} CPU rank(s) share {facts['cores']} core(s)"
        enough = int(facts["cores"]) >= len(devices)
        yield fine("devices", text) if enough else warning("devices", f"{text}; ranks compete for cores")
    yield fine("machine", f"{facts['cpu']}, {facts['cores']} core(s), {facts['memory']} of memory, {facts['kernel']}")


def check_occupancy(cards: Sequence[Occupancy]) -> Iterator[Finding]:
    """Yield who else uses the cards, and how much of their memory is free.

    Another process is a problem if no probe would start because of it, otherwise a warning.
    """
    for card in cards:
        name, total_mib = card.device.label, card.device.mem_total_mib
        in_the_way = obstacles(now=[card], at_open=[card])  # a study that opens now would find this
        for obstacle in in_the_way:
            yield problem(f"{name} {obstacle.rule}", f"{obstacle.text}; end it, or name other cards with --devices")
        if card.occupants and not in_the_way:
            who = ", ".join(map(described, card.occupants))
            yield warning(f"{name} foreign process", f"{who}; tolerated while it uses little memory and is idle")
        if card.mem_used_mib is None or total_mib is None:
            yield warning(
                f"{name} memory",
                "the driver does not report it; only the trainer's output can show that a config ran out of memory",
            )
        else:
            yield fine(f"{name} memory", f"{total_mib - card.mem_used_mib:,.0f} of {total_mib:,.0f} MiB free")


def check_clocks(cards: Sequence[Clocks]) -> Iterator[Finding]:
    """Yield how fast the cards run, and what slows them down."""
    for card in cards:
        subject, speed = f"{card.device.label} clocks", f"SM at {card.sm_mhz} of {card.sm_max_mhz} MHz"
        if card.sm_mhz is None or card.slowed_by is None:
            yield fine(subject, "the driver does not report them")
        elif card.slowed_by:
            yield warning(subject, f"{speed}, slowed down by {', '.join(card.slowed_by)}: probes measure a slower card")
        else:
            yield fine(subject, f"{speed}, nothing slows them down")


def check_links(links: Sequence[Link]) -> Iterator[Finding]:
    """Yield how each pair of cards is connected. Pairs with the same connection share one finding."""
    pairs = grouped(links, _reach)
    for reach, alike in pairs.items():
        which = "every pair" if len(pairs) == 1 else ", ".join(map(_pair, alike))
        text = f"{reach}: {which}"
        yield warning("links", text) if alike[0].p2p is False else fine("links", text)


def check_nccl(links: Sequence[Link], environment: EnvironmentSpec, inherited: Mapping[str, str]) -> Iterator[Finding]:
    """Yield which NCCL variables probes get, and why. `inherited` is the environment of the tuner itself."""
    chosen, without = nccl_variables(environment.nccl_p2p, links), [link for link in links if link.p2p is False]
    settings = " ".join(f"{name}={value}" for name, value in chosen.items()) or "nothing set"
    if environment.nccl_p2p == "auto":
        why = f"{', '.join(map(_pair, without))} without P2P" if without else "no pair of cards is known to lack P2P"
        yield fine("NCCL", f"{settings}: {why}")
    else:
        asked = f"{settings}: the study says nccl_p2p: {environment.nccl_p2p}"
        suits = bool(without) == (environment.nccl_p2p == "off") or not links
        yield fine("NCCL", asked) if suits else warning("NCCL", f"{asked}, auto suits these cards better")
    for origin, variables in (("the study", environment.variables), ("the environment", inherited)):
        if nccl := [f"{name}={value}" for name, value in sorted(variables.items()) if name.startswith("NCCL_")]:
            yield warning("NCCL", f"{' '.join(nccl)} from {origin}")


def _reach(link: Link) -> str:
    """Return how data goes between two cards, in words."""
    if link.p2p is None:
        return "the driver does not report it"
    if not link.p2p:
        return "no P2P, data goes through the host's memory"
    return "P2P over NVLink" if link.nvlink else "P2P over PCIe"


def _pair(link: Link) -> str:
    """Return the names of the two cards."""
    return f"cuda:{link.first}-cuda:{link.second}"


def check_storage(url: str) -> Finding:
    """Return whether the database answers and contains studies, or can be created. The check changes nothing.

    Raises StoreError when the database cannot be reached or contains something else.
    """
    engine = engine_at(url)
    if engine.dialect.name == "sqlite":
        file = Path(engine.url.database or "")
        for place in (_nearest(file.parent), file, Path(f"{file}.lock")):
            if place.exists() and not os.access(place, os.W_OK):
                return problem("storage", f"{place} is not writable; name another database with --storage")
        if not file.exists():
            return fine("storage", f"{file} will be created")
    with reading(engine) as connection:
        empty = not inspect(connection).get_table_names()
    if not empty:
        connect(url)
    text = f"{shown_url(url)} answers and {'is empty' if empty else 'contains studies'}"
    why = unguarded(url)
    return warning("storage", f"{text}; {why}") if why else fine("storage", text)


def check_room(subject: str, folder: Path, *, wished_gib: float, needed_gib: float = 0.0) -> Finding:
    """Return the free space where `folder` is or will be.

    Less than `needed_gib` is a problem, and less than `wished_gib` is a warning.
    """
    existing = _nearest(folder)
    free_gib = mib(shutil.disk_usage(existing).free) / MIB_PER_GIB
    text = f"{free_gib:,.1f} GiB free at {existing}"
    if free_gib < needed_gib:
        return problem(subject, f"{text}; at least {needed_gib:g} GiB is needed")
    if free_gib < wished_gib:
        return warning(subject, f"{text}; {wished_gib:g} GiB would be safer")
    return fine(subject, text)


def _nearest(folder: Path) -> Path:
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
    yield fine("trainer", f"{trainer.name}: {len(chosen)} of {len(cases)} case(s) selected")
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
    yield from check_samples(trainer, spec)
    yield from check_parameters(trainer, spec, cases)


def check_samples(trainer: Trainer, spec: StudySpec) -> Iterator[Finding]:
    """Yield a problem if a study needs samples and nothing counts those of its trainer."""
    if SAMPLES_PER_S in {*spec.objectives, *spec.constraints} and trainer.counts_samples is False:
        text = f"{SAMPLES_PER_S} cannot be measured: no pattern of `progress` has the group (?P<samples>…)"
        yield problem("samples", f"{text}; add the group or `samples_per_iteration`, or name another metric")


def check_parameters(trainer: Trainer, spec: StudySpec, cases: Iterable[Case]) -> Iterator[Finding]:
    """Yield which parameters are searched in at least one case, on at least one kind of device.

    Raises TrainerError for a parameter that the trainer does not know, and for a value that it cannot use.
    """
    specs = [narrowed(spec, case.name, kind) for case in cases for kind in get_args(DeviceKind)]
    unused = [not_searched(narrow, trainer) for narrow in specs]
    searched = dict.fromkeys(
        name for narrow, idle in zip(specs, unused, strict=True) for name in narrow.space if name not in idle
    )
    never = {name: why for idle in unused for name, why in idle.items() if name not in searched}
    reasons = (f"{name} left out: {why}" for name, why in never.items())
    text = "; ".join([", ".join(searched) or "none is searched", *reasons])
    yield fine("parameters", text) if searched else problem("parameters", text)
    parameters = (parameter for narrow in specs for parameter in narrow.build_space().parameters)
    check_values(trainer, (parameter for parameter in parameters if parameter.name in searched))


def check_imports(
    dependencies: Dependencies, imported: Sequence[Imported], optional: Collection[str] = ()
) -> Iterator[Finding]:
    """Yield which modules can be imported, in which versions, and which are missing or do not work together.

    A module of `optional` that cannot be imported is a warning.
    """
    python = dependencies.python
    versions = [f"{module.module} {module.version or ''}".strip() for module in imported if module.error is None]
    if versions:
        yield fine("imports", f"{python} imports {', '.join(versions)}")
    missing = [module.module for module in imported if module.missing]
    if needed := [name for name in missing if name not in optional]:
        yield problem("imports", f"{python} lacks {', '.join(needed)}; install them there")
    if lacking := [name for name in missing if name in optional]:
        text = f"{python} lacks {', '.join(lacking)}; activate the environment of the training, or install them there"
        yield warning("imports", text)
    for module in imported:
        if module.error is not None and not module.missing:
            finding = warning if module.module in optional else problem
            yield finding("imports", f"{python} cannot import {module.module}: {module.error}")
    for complaint in conflicts(imported, dependencies.limits):
        yield problem("imports", f"{python}: {complaint}")


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenedDevices:
    """The devices that a check is about, which are opened only once: CUDA takes seconds to say which there are."""

    asked_for: str
    """The devices as a study or an option names them."""
    source: DeviceSource | None = None
    """None where they cannot be opened."""
    obstacle: Finding | None = None
    """Why they cannot be opened."""

    @property
    def count(self) -> int | None:
        """The number of devices; None where it is unknown."""
        return len(self.source.devices) if self.source else None

    @property
    def has_gpus(self) -> bool:
        """Whether the devices are known to be GPUs."""
        return self.source is not None and self.source.devices[0].is_gpu


def opened(devices: str, connect: Connect = Nvml, cuda_order: CudaOrder = visible_uuids) -> OpenedDevices:
    """Return the devices that a study names; an error becomes a finding."""
    try:
        return OpenedDevices(asked_for=devices, source=open_devices(devices, connect, cuda_order))
    except (TunerError, OSError) as error:
        return OpenedDevices(asked_for=devices, obstacle=_failure("devices", error))


def check_up(spec: StudySpec, devices: OpenedDevices, *, asked_for: str, url: str, runs: Path) -> Iterator[Finding]:
    """Yield each finding about the devices, the trainer, the database at `url` and the disk of `runs` at once.

    Every probe writes a checkpoint and a log to the disk. NCCL and the workers of a DataLoader need shared memory, of
    which containers often have only 64 MiB.

    `asked_for` is the study that the user named. An error that a check raises becomes a finding.
    """
    if stands_in(spec, asked_for):
        yield fine("study", f"{spec.name} stands in for {asked_for}, whose trainer.root is empty")
    yield from _reported("devices", lambda: check_devices(devices, spec.environment))
    yield from _reported("objective", lambda: check_objective(spec))
    yield from _reported("trainer", lambda: check_named_trainer(spec, devices.count))
    yield from _reported("storage", lambda: [check_storage(url)])
    yield from _check_rooms(runs)


def check_up_machine(
    devices: OpenedDevices, storage: str | None, runs: Path, typed: TypedCommand | None = None
) -> Iterator[Finding]:
    """Check the machine without a study, and the command that is typed, if any. Yields each finding at once."""
    yield from _reported("devices", lambda: check_devices(devices, EnvironmentSpec()))
    yield from _reported("command", lambda: check_command(typed, on_gpu=devices.has_gpus))
    if storage:
        yield from _reported("storage", lambda: [check_storage(storage)])
    yield from _check_rooms(runs)


def unchecked(devices: OpenedDevices, storage: str | None, typed: TypedCommand | None) -> Iterator[str]:
    """Yield what `check_up_machine` did not look at, and what does."""
    if typed is None:
        yield "a trainer and what it imports: name a --study, or a command after `--`"
    else:
        yield "whether the command trains, and its flags: `tuner optimize -- COMMAND` watches it first"
    if storage is None:
        yield "a database: name its --storage; without one it is a file below runs/"
    if (devices.count or 1) > 1:
        yield "whether NCCL or gloo moves data, and how fast: `tuner scale` measures it"


def _check_rooms(runs: Path) -> Iterator[Finding]:
    """Check the disk of the results, and the shared memory."""
    yield from _reported("disk", lambda: [check_room("disk", runs, wished_gib=10, needed_gib=1)])
    shared_memory = Path("/dev/shm")  # noqa: S108 - only looked at
    if shared_memory.is_dir():
        yield check_room("shared memory", shared_memory, wished_gib=1)


def check_command(typed: TypedCommand | None, *, on_gpu: bool) -> Iterator[Finding]:
    """Check the program and the script of a typed command, and what it imports; without a command only torch.

    A problem is what surely keeps the command from training. Torch is no problem where the script does not import it,
    nor is any other module, which a branch of the script may do without.
    Raises TrainerError where the training's Python cannot be started.
    """
    script = typed.known_script if typed else None
    started = program(typed) if typed else None
    if typed and started is None:
        yield problem("command", f"there is no program {typed.words[0]!r}; install it, or write its path")
        return
    if typed and (missing := missing_script(typed.words, Path())):
        yield problem("command", f"there is no script {missing} here; start `tuner` in its folder")
        return
    if typed:
        yield fine("command", f"{started} runs {script or 'no script of Python that is known here'}")
    if (python := python_of(typed)) is None:
        yield warning("imports", "no Python of the training is found here; in its environment, doctor checks imports")
        return
    needed = imported_modules(script) if script else ()
    dependencies = Dependencies(python, tuple(dict.fromkeys((TORCH, *needed))))
    imported = import_all(dependencies, variables_of(typed) if typed else {})
    optional = {*dependencies.modules} - ({TORCH} & {*needed})
    yield from check_imports(dependencies, imported, optional)
    if on_gpu and any(module.module == TORCH and "+cpu" in (module.version or "") for module in imported):
        finding = problem if TORCH in needed else warning
        yield finding("imports", f"the torch of {python} is built for CPUs alone, and cannot use the cards")


def check_devices(
    devices: OpenedDevices, environment: EnvironmentSpec, connect: Connect = Nvml, cuda_order: CudaOrder = visible_uuids
) -> Iterator[Finding]:
    """Yield what is found of the devices that a study names. Raises DeviceError when one of them does not answer."""
    if devices.obstacle:
        yield devices.obstacle
    if (source := devices.source) is None:
        return
    yield from check_machine(source.devices, describe_machine(source, connect))
    if devices.asked_for.startswith("auto") and not devices.has_gpus:
        yield fine("driver", "; ".join(without_cards(connect, cuda_order)))
    cards = Cards(source.devices, connect)
    yield from check_occupancy(cards.occupancy())
    yield from check_clocks(cards.clocks())
    if len(source.devices) > 1 and devices.has_gpus:
        pairs = links(source.devices, connect)
        yield from check_links(pairs)
        yield from check_nccl(pairs, environment, os.environ)


def _reported(subject: str, check: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """Yield what a check finds; an error that it raises becomes a problem."""
    try:
        yield from check()
    except (TunerError, OSError) as error:
        yield _failure(subject, error)


def _failure(subject: str, error: TunerError | OSError) -> Finding:
    """Return the problem that an error is."""
    return problem(subject, f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error))
