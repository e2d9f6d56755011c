"""Checks the devices, trainer, storage and disk for a study. No check starts work or writes a file.

Each check yields findings: what is fine, what the user should look at, and what must be fixed before a study runs.
"""

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from sqlalchemy import inspect

from tuner import study
from tuner.devices import found
from tuner.devices.cards import Cards, Clocks, Occupancy, obstacles, occupant_text
from tuner.devices.cuda import visible_uuids
from tuner.devices.drivers import Nvml
from tuner.devices.found import Connect, CudaOrder, Link
from tuner.errors import TunerError
from tuner.export import connect, engine_at, reading
from tuner.probe import MIB_PER_GIB, SAMPLES_PER_S, Device, DeviceSource, check_metrics, mib, number_of
from tuner.records.urls import shown as shown_url
from tuner.tools.checkup import Finding, failure, findings_of, fine, problem, warning
from tuner.tools.checkup.command_check import check_command, check_imports, import_all
from tuner.trainers.base import Trainer
from tuner.trainers.registry import check_values, not_searched, open_trainer
from tuner.trainers.typed_command import TypedCommand


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenedDevices:
    """The devices that a check is about, or why they cannot be opened.

    They are opened once for all checks, because that takes seconds: CUDA is asked in a process of its own.
    """

    requested: str
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


def opened_devices(devices: str, connect: Connect = Nvml, cuda_order: CudaOrder = visible_uuids) -> OpenedDevices:
    """Return the devices that a study names; an error becomes a finding.

    Args:
        devices: The devices as a study or an option names them.
        connect: Opens the driver.
        cuda_order: Returns the identities of the cards that CUDA shows, in its order.
    """
    try:
        return OpenedDevices(requested=devices, source=found.open_devices(devices, connect, cuda_order))
    except (TunerError, OSError) as error:
        return OpenedDevices(requested=devices, obstacle=failure("devices", error))


def check_devices(
    devices: OpenedDevices, environment: study.EnvironmentSpec, connect: Connect = Nvml
) -> Iterator[Finding]:
    """Yield what is found of the devices that a study names. Raises DeviceError when one of them does not answer.

    `environment`: what the study sets for probes, such as NCCL variables. `connect`: opens the driver.
    """
    if devices.obstacle:
        yield devices.obstacle
    if (source := devices.source) is None:
        return
    yield from check_machine(source.devices, found.describe_machine(source, connect))
    if devices.requested.startswith("auto") and not devices.has_gpus:
        yield fine("driver", "; ".join(found.without_cards(connect)))
    cards = Cards(source.devices, connect)
    yield from check_occupancy(cards.occupancy())
    yield from check_clocks(cards.clocks())
    if len(source.devices) > 1 and devices.has_gpus:
        pairs = found.links(source.devices, connect)
        yield from check_links(pairs)
        yield from check_nccl(pairs, environment, os.environ)


def check_machine(devices: Sequence[Device], facts: Mapping[str, str]) -> Iterator[Finding]:
    """Yield which devices are measured.

    `facts` are those of `tuner.devices.found.describe_machine`: `cpu`, `cores`, `memory` and `kernel`, each as a text.
    With GPUs, `gpus` is among them, and where they are known `driver` and `cuda`.
    """
    if devices[0].is_gpu:
        driver = f"driver {facts.get('driver', 'unknown')}, CUDA up to {facts.get('cuda', 'unknown')}"
        yield fine("devices", f"{facts['gpus']}; {driver}")
    else:
        text = f"no GPU: {number_of(len(devices), 'CPU rank')} on {number_of(facts['cores'], 'core')}"
        enough = int(facts["cores"]) >= len(devices)
        yield fine("devices", text) if enough else warning("devices", f"{text}; ranks compete for cores")
    yield fine(
        "machine",
        f"{facts['cpu']}, {number_of(facts['cores'], 'core')}, {facts['memory']} of memory, {facts['kernel']}",
    )


def check_occupancy(cards: Sequence[Occupancy]) -> Iterator[Finding]:
    """Yield who else uses the cards, and how much of their memory is free.

    Another process is a problem if no probe would start because of it, otherwise a warning.
    """
    for card in cards:
        name, total_mib = card.device.label, card.device.mem_total_mib
        hindrances = obstacles(now=[card], occupancy_at_start=[card])  # as a study that opens now
        for obstacle in hindrances:
            yield problem(f"{name} {obstacle.rule}", f"{obstacle.text}; end it, or name other cards with --devices")
        if card.occupants and not hindrances:
            who = ", ".join(map(occupant_text, card.occupants))
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
    pairs = study.grouped(links, _route_text)
    for route, same_route in pairs.items():
        which = "every pair" if len(pairs) == 1 else _card_pairs(same_route)
        yield (warning if same_route[0].p2p is False else fine)("links", f"{route}: {which}")


def check_nccl(
    links: Sequence[Link], environment: study.EnvironmentSpec, inherited: Mapping[str, str]
) -> Iterator[Finding]:
    """Yield which NCCL variables probes get, and why; those that the user has set are a warning, as they change speeds.

    Args:
        links: How each pair of cards is connected.
        environment: What the study sets for probes.
        inherited: The environment variables of the tuner itself, which probes inherit.
    """
    chosen = found.nccl_variables(environment.nccl_p2p, links)
    settings = " ".join(f"{name}={value}" for name, value in chosen.items()) or "nothing set"
    if environment.nccl_p2p == "auto":
        pairs = _card_pairs(link for link in links if link.p2p is False)
        why = f"{pairs} without P2P" if pairs else "no pair of cards is known to lack P2P"
        yield fine("NCCL", f"{settings}: {why}")
    else:
        text = f"{settings}: the study says nccl_p2p: {environment.nccl_p2p}"
        suits = not links or chosen == found.nccl_variables("auto", links)
        yield fine("NCCL", text) if suits else warning("NCCL", f"{text}, auto suits these cards better")
    for origin, variables in (("the study", environment.variables), ("the environment", inherited)):
        if nccl := [f"{name}={value}" for name, value in sorted(variables.items()) if name.startswith("NCCL_")]:
            yield warning("NCCL", f"{' '.join(nccl)} from {origin}")


def _route_text(link: Link) -> str:
    """Return how data goes between two cards, in words."""
    if link.p2p is None:
        return "the driver does not report it"
    if not link.p2p:
        return "no P2P, data goes through the host's memory"
    return "P2P over NVLink" if link.nvlink else "P2P over PCIe"


def _card_pairs(links: Iterable[Link]) -> str:
    """Return the names of the linked cards."""
    return ", ".join(f"cuda:{link.first}-cuda:{link.second}" for link in links)


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


def check_objective(spec: study.StudySpec) -> Iterator[Finding]:
    """Yield the metrics of a study. Raises StudyError when a metric does not exist."""
    check_metrics(spec)
    constraints = [f"{constraint.metric} {constraint}" for constraint in spec.build_constraints()]
    yield fine("objective", ", ".join([*spec.objectives, *constraints]))


def check_named_trainer(spec: study.StudySpec, ranks: int | None = None) -> Iterator[Finding]:
    """Yield what is found of the trainer that a study names; `ranks` is the number of devices, where it is known.

    Raises StudyError or TrainerError when the trainer's files cannot be used.
    """
    trainer = open_trainer(spec.trainer)
    cases = trainer.cases()
    chosen = study.select(cases, spec.cases)
    yield fine("trainer", f"{trainer.name}: {len(chosen)} of {number_of(len(cases), 'case')} selected")
    for case in chosen:
        if case.fault:
            yield problem("case", f"{case.name}: {case.fault}")
    for glob in study.unmatched(spec, (case.name for case in cases)):
        yield warning("overrides", f"no case matches {glob!r}")
    if trainer.dependencies:
        yield from check_imports(trainer.dependencies, import_all(trainer.dependencies))
    else:
        yield fine("imports", f"what {trainer.name} imports is not known here")
    if program := trainer.missing_program():
        where = "trainer.python and trainer.options"
        yield problem("command", f"there is no program {program!r}; no shell runs it: see {where}")
    if ranks and ranks > 1 and not trainer.heeds_devices:
        text = f"it names neither {{ranks}} nor {{devices}}; see that it starts one rank on each of {ranks} devices"
        yield warning("command", text)
    if SAMPLES_PER_S in {*spec.objectives, *spec.constraints} and trainer.counts_samples is False:
        text = f"{SAMPLES_PER_S} cannot be measured: no pattern of `progress` has the group (?P<samples>…)"
        yield problem("samples", f"{text}; add the group or `samples_per_iteration`, or name another metric")
    yield from check_parameters(trainer, spec, cases)


def check_parameters(trainer: Trainer, spec: study.StudySpec, cases: Iterable[study.Case]) -> Iterator[Finding]:
    """Yield which parameters are searched in at least one case, on at least one kind of device.

    Raises TrainerError for a parameter that the trainer does not know, and for a value that it cannot use.
    """
    searched: dict[str, None] = {}  # a set that keeps the order
    left_out: dict[str, str] = {}  # parameter → why one case or another does not search it
    # a study may search other parameters and values in some cases, and on one kind of device
    specs = [study.narrowed(spec, case.name, kind) for case in cases for kind in get_args(study.DeviceKind)]
    for narrow in specs:
        reasons = not_searched(narrow, trainer)
        searched |= dict.fromkeys(name for name in narrow.space if name not in reasons)
        left_out |= reasons
    never = [f"{name} left out: {why}" for name, why in left_out.items() if name not in searched]
    text = "; ".join([", ".join(searched) or "none is searched", *never])
    yield fine("parameters", text) if searched else problem("parameters", text)
    parameters = (parameter for narrow in specs for parameter in narrow.build_space().parameters)
    check_values(trainer, (parameter for parameter in parameters if parameter.name in searched))


def check_up(
    spec: study.StudySpec, devices: OpenedDevices, *, requested: str, url: str, runs: Path
) -> Iterator[Finding]:
    """Yield each finding about a study as soon as it is found. An error that a check raises becomes a finding.

    Args:
        spec: The study.
        devices: The devices that it names.
        requested: The study that the user named, for which another may stand in.
        url: The URL of its database.
        runs: The folder of its results.
    """
    if study.is_fallback_of(spec, requested):
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
    yield from findings_of("devices", lambda: check_devices(devices, study.EnvironmentSpec()))
    yield from findings_of("command", lambda: check_command(typed, on_gpu=devices.has_gpus))
    if storage:
        yield from findings_of("storage", lambda: [check_storage(storage)])
    yield from _check_disk_and_shared_memory(runs)


def unchecked(devices: OpenedDevices, storage: str | None, typed: TypedCommand | None) -> Iterator[str]:
    """Yield what a check of these devices, this database and this command leaves out, and which command checks it."""
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
