"""Runs all checks for a study, one after another. No check starts work on the devices or writes a file."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from tuner.checkup.finding import Finding, fine, problem
from tuner.checkup.machine import check_clocks, check_links, check_machine, check_nccl, check_occupancy
from tuner.checkup.storage import check_room, check_storage
from tuner.checkup.trainer import check_named_trainer, check_objective
from tuner.devices.base import Connect, CudaOrder, describe_machine, open_devices
from tuner.devices.cards import Cards
from tuner.devices.cuda import visible_uuids
from tuner.devices.nvml import Nvml
from tuner.devices.topology import links
from tuner.errors import TunerError
from tuner.study.environment import EnvironmentSpec
from tuner.study.load import stands_in
from tuner.study.spec import StudySpec

DISK_NEEDED_GIB, DISK_WISHED_GIB = 1, 10
"""The free disk space in GiB below which a check reports a problem, and below which it warns.

Every probe writes a checkpoint and a log.
"""

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - only looked at
SHARED_MEMORY_WISHED_GIB = 1
"""The free shared memory in GiB below which a check warns.

NCCL and the workers of a DataLoader need shared memory. Containers often have only 64 MiB.
"""


def check_up(spec: StudySpec, *, asked_for: str, devices: str, url: str, runs: Path) -> Iterator[Finding]:
    """Check the devices, the trainer, the database at `url` and the disk of `runs`. Yields each finding at once.

    `asked_for` is the study that the user named. An error that a check raises becomes a finding.
    """
    if stands_in(spec, asked_for):
        yield fine("study", f"{spec.name} stands in for {asked_for}, whose trainer.root is empty")
    yield from _reported("devices", lambda: check_devices(devices, spec.environment))
    yield from _reported("objective", lambda: check_objective(spec))
    yield from _reported("trainer", lambda: check_named_trainer(spec, _ranks(devices)))
    yield from _reported("storage", lambda: [check_storage(url)])
    limits = {"wished_gib": DISK_WISHED_GIB, "needed_gib": DISK_NEEDED_GIB}
    yield from _reported("disk", lambda: [check_room("disk", runs, **limits)])
    if SHARED_MEMORY.is_dir():
        yield check_room("shared memory", SHARED_MEMORY, wished_gib=SHARED_MEMORY_WISHED_GIB)


def check_devices(
    devices: str, environment: EnvironmentSpec, connect: Connect = Nvml, cuda_order: CudaOrder = visible_uuids
) -> Iterator[Finding]:
    """Check the devices that a study names. Raises DeviceError when they cannot be opened."""
    source = open_devices(devices, connect, cuda_order)
    yield from check_machine(source.devices, describe_machine(source, connect))
    cards = Cards(source.devices, connect)
    yield from check_occupancy(cards.occupancy())
    yield from check_clocks(cards.clocks())
    if len(source.devices) > 1 and source.devices[0].is_gpu:
        pairs = links(source.devices, connect)
        yield from check_links(pairs)
        yield from check_nccl(pairs, environment, os.environ)


def _ranks(devices: str) -> int | None:
    """Return the number of devices; None where they cannot be opened, which `check_devices` reports."""
    with suppress(TunerError):
        return len(open_devices(devices).devices)
    return None


def _reported(subject: str, check: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    try:
        yield from check()
    except TunerError as error:
        yield problem(subject, str(error))
    except OSError as error:
        yield problem(subject, f"{error.filename}: {error.strerror}")
