"""Checks the devices of a study: who else uses them, how fast they run, and how they are connected."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tuner.devices import found
from tuner.devices.cards import Cards, Clocks, Occupancy, obstacles, occupant_text
from tuner.devices.cuda import visible_uuids
from tuner.devices.drivers import Nvml
from tuner.devices.found import Connect, CudaOrder, Link
from tuner.errors import TunerError
from tuner.probe import Device, DeviceSource, number_of
from tuner.study import EnvironmentSpec, grouped
from tuner.tools.checkup import Finding, failure, fine, problem, warning


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


def check_devices(devices: OpenedDevices, environment: EnvironmentSpec, connect: Connect = Nvml) -> Iterator[Finding]:
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
    pairs = grouped(links, _route_text)
    for route, same_route in pairs.items():
        which = "every pair" if len(pairs) == 1 else _card_pairs(same_route)
        yield (warning if same_route[0].p2p is False else fine)("links", f"{route}: {which}")


def check_nccl(links: Sequence[Link], environment: EnvironmentSpec, inherited: Mapping[str, str]) -> Iterator[Finding]:
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
