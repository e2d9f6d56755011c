"""Checks the devices: which they are, who else uses them, how fast they run, how they are connected. Pure."""

from collections.abc import Iterator, Mapping, Sequence

from tuner.checkup.finding import Finding, fine, problem, warning
from tuner.devices.cards import Clocks, Occupancy
from tuner.devices.idle import obstacles, shown
from tuner.devices.topology import Link, nccl_variables
from tuner.probe.plan import Device
from tuner.study.environment import EnvironmentSpec


def check_machine(devices: Sequence[Device], facts: Mapping[str, str]) -> Iterator[Finding]:
    """Report which devices are measured. `facts` come from `tuner.devices.base.describe_machine`."""
    if devices[0].is_gpu:
        driver = f"driver {facts.get('driver', 'unknown')}, CUDA up to {facts.get('cuda', 'unknown')}"
        yield fine("devices", f"{facts['gpus']}; {driver}")
    else:
        text = f"no GPU: {len(devices)} CPU rank(s) share {facts['cores']} core(s)"
        enough = int(facts["cores"]) >= len(devices)
        yield fine("devices", text) if enough else warning("devices", f"{text}; ranks compete for cores")
    yield fine("machine", f"{facts['cpu']}, {facts['cores']} core(s), {facts['memory']} of memory, {facts['kernel']}")


def check_occupancy(cards: Sequence[Occupancy]) -> Iterator[Finding]:
    """Report who else uses the cards: a problem if no probe would start because of it, otherwise a warning."""
    for card in cards:
        name, total_mib = card.device.label, card.device.mem_total_mib
        found = obstacles([card], [card])
        for obstacle in found:
            yield problem(f"{name} {obstacle.rule}", f"{obstacle.text}; end it, or name other cards with --devices")
        if card.occupants and not found:
            who = ", ".join(map(shown, card.occupants))
            yield warning(f"{name} foreign process", f"{who}; tolerated while it uses little memory and is idle")
        if card.mem_used_mib is None or total_mib is None:
            yield warning(
                f"{name} memory",
                "the driver does not report it; only the trainer's output can show that a config ran out of memory",
            )
        else:
            yield fine(f"{name} memory", f"{total_mib - card.mem_used_mib:,.0f} of {total_mib:,.0f} MiB free")


def check_clocks(cards: Sequence[Clocks]) -> Iterator[Finding]:
    """Report how fast the cards run, and what slows them down."""
    for card in cards:
        subject, speed = f"{card.device.label} clocks", f"SM at {card.sm_mhz} of {card.sm_max_mhz} MHz"
        if card.sm_mhz is None or card.slowed_by is None:
            yield fine(subject, "the driver does not report them")
        elif card.slowed_by:
            yield warning(subject, f"{speed}, slowed down by {', '.join(card.slowed_by)}: probes measure a slower card")
        else:
            yield fine(subject, f"{speed}, nothing slows them down")


def check_links(links: Sequence[Link]) -> Iterator[Finding]:
    """Report how each pair of cards is connected. Pairs with the same connection share one finding."""
    pairs: dict[str, list[Link]] = {}
    for link in links:
        pairs.setdefault(_reach(link), []).append(link)
    for reach, alike in pairs.items():
        which = "every pair" if len(pairs) == 1 else ", ".join(map(_pair, alike))
        yield (warning if alike[0].p2p is False else fine)("links", f"{reach}: {which}")


def check_nccl(links: Sequence[Link], environment: EnvironmentSpec, inherited: Mapping[str, str]) -> Iterator[Finding]:
    """Report which NCCL variables probes get, and why. `inherited` is the environment of the tuner itself."""
    chosen, without = nccl_variables(environment.nccl_p2p, links), [link for link in links if link.p2p is False]
    settings = " ".join(f"{name}={value}" for name, value in chosen.items()) or "nothing set"
    if environment.nccl_p2p == "auto":
        why = f"{', '.join(map(_pair, without))} without P2P" if without else "no pair of cards is known to lack P2P"
        yield fine("NCCL", f"{settings}: {why}")
    else:
        asked = f"{settings}: the study says nccl_p2p: {environment.nccl_p2p}"
        against = bool(without) != (environment.nccl_p2p == "off") and bool(links)
        yield warning("NCCL", f"{asked}, auto suits these cards better") if against else fine("NCCL", asked)
    for origin, variables in (("the study", environment.variables), ("the environment", inherited)):
        if own := [f"{name}={value}" for name, value in sorted(variables.items()) if name.startswith("NCCL_")]:
            yield warning("NCCL", f"{' '.join(own)} from {origin}")


def _reach(link: Link) -> str:
    if link.p2p is None:
        return "the driver does not report it"
    if not link.p2p:
        return "no P2P, data goes through the host's memory"
    return "P2P over NVLink" if link.nvlink else "P2P over PCIe"


def _pair(link: Link) -> str:
    return f"cuda:{link.first}-cuda:{link.second}"
