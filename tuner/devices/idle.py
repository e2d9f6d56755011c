"""Waits until the cards are free: nobody else works on them, and their memory is back to what it was."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tuner.devices.cards import Occupancy, Occupant
from tuner.errors import DeviceError, DeviceLostError
from tuner.probe.kinds import FailureKind
from tuner.probe.protocols import Clock
from tuner.probe.result import STOPPED, Failure, unreadable

TOLERATED_SHARE = 0.1
"""Of a card's memory: what is held when a study opens, by a desktop say, counts as belonging there up to this much."""

SLACK_MIB = 256.0
"""Above the memory in use when the study opened; less than any trainer leaves behind."""

IDLE_UTIL_PCT = 5.0
"""A card busier than this works for somebody, also where a container hides for whom."""

LEAK_MIB = 1024.0
"""What a session may hold more than after its first run; allocators round, and kernels are loaded late."""

POLL_S = 0.1


@dataclass(frozen=True, kw_only=True, slots=True)
class Obstacle:
    """Why a card is not free."""

    rule: str
    text: str


def obstacles(now: Sequence[Occupancy], at_open: Sequence[Occupancy]) -> list[Obstacle]:
    """List why the cards are not free, by comparison with the same cards when the study opened; none without cards.

    A card is free when no process computes on it but those that were there at the opening and hold little, when no
    more memory is in use than then, and when it does nothing.
    """
    return [
        Obstacle(rule=rule, text=f"{card.device.label} {text}")
        for rule, finds in _RULES.items()
        for card, before in zip(now, at_open, strict=True)
        if (text := finds(card, before))
    ]


def grown(now: Sequence[Occupancy], before: Sequence[Occupancy]) -> bool:
    """Tell whether more memory of a card is in use than before, by more than `LEAK_MIB`."""
    return any(
        card.mem_used_mib is not None
        and earlier.mem_used_mib is not None
        and card.mem_used_mib > earlier.mem_used_mib + LEAK_MIB
        for card, earlier in zip(now, before, strict=False)
    )


def wait_until_idle(
    read: Callable[[], Sequence[Occupancy]],
    at_open: Sequence[Occupancy],
    *,
    limit_s: float,
    clock: Clock,
    sleep: Callable[[float], None],
    interrupted: Callable[[], bool],
    left: Callable[[], str | None] = lambda: None,
) -> Failure | None:
    """Wait up to `limit_s` for the cards that `read` gives to be free: None once they are, else what keeps them busy.

    `left` names the processes of an earlier probe that still live; with these, nothing is free, CPU ranks neither.
    Returns at the first look where they are free already, as CPU ranks always are, or where one is gone for good.
    """
    end_s = clock.now() + limit_s
    try:
        while found := _not_free(read, at_open, left()):
            if interrupted():
                return STOPPED
            if clock.now() >= end_s:
                return replace(found, detail=f"{found.detail}; waited {limit_s:g} s")
            sleep(POLL_S)
    except DeviceLostError as error:
        return unreadable(str(error))
    return None


def _not_free(
    read: Callable[[], Sequence[Occupancy]], at_open: Sequence[Occupancy], left: str | None
) -> Failure | None:
    """Look once. Raises DeviceLostError."""
    own = [Obstacle(rule="own process", text=f"{left} of an earlier probe cannot be killed")] if left else []
    try:
        found = [*own, *obstacles(read(), at_open)]
    except DeviceLostError:
        raise
    except DeviceError as error:
        return unreadable(str(error))
    detail = "; ".join(obstacle.text for obstacle in found)
    return Failure(kind=FailureKind.GPU_BUSY, rule=found[0].rule, detail=detail) if found else None


def _held_by_others(card: Occupancy, before: Occupancy) -> str | None:
    known = {occupant.pid for occupant in before.occupants}
    others = [one for one in card.occupants if one.pid not in known or _holds_much(one, card)]
    return f"is held by {', '.join(map(shown, others))}" if others else None


def _holds_much(occupant: Occupant, card: Occupancy) -> bool:
    return (occupant.mem_mib or 0.0) > TOLERATED_SHARE * (card.device.mem_total_mib or float("inf"))


def _memory_in_use(card: Occupancy, before: Occupancy) -> str | None:
    if card.mem_used_mib is None or before.mem_used_mib is None or card.device.mem_total_mib is None:
        return None
    most_mib = min(before.mem_used_mib, TOLERATED_SHARE * card.device.mem_total_mib) + SLACK_MIB
    if card.mem_used_mib <= most_mib:
        return None
    return f"has {card.mem_used_mib:,.0f} MiB in use; at most {most_mib:,.0f} MiB are while it is free"


def _at_work(card: Occupancy, before: Occupancy) -> str | None:
    return f"is at work ({card.util_pct:.0f} %)" if (card.util_pct or 0.0) > IDLE_UTIL_PCT else None


_RULES: dict[str, Callable[[Occupancy, Occupancy], str | None]] = {
    "foreign process": _held_by_others,
    "memory": _memory_in_use,
    "utilisation": _at_work,
}


def shown(occupant: Occupant) -> str:
    """Name a process on a card, with what it holds."""
    held = "unknown memory" if occupant.mem_mib is None else f"{occupant.mem_mib:,.0f} MiB"
    return f"pid {occupant.pid} ({held})"
