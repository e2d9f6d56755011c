"""Waits until the cards are free: nobody else uses them, and their memory use is back to the earlier level."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tuner.devices.cards import Occupancy, Occupant
from tuner.errors import DeviceError, DeviceLostError
from tuner.probe.kinds import FailureKind
from tuner.probe.protocols import Clock
from tuner.probe.result import STOPPED, Failure, unreadable

TOLERATED_SHARE = 0.1
"""The share of a card's memory that others, such as a desktop, may use when a study opens. The card is still free."""

SLACK_MIB = 256.0
"""The MiB that a free card may use beyond its use when the study opened. Any trainer left behind uses more."""

IDLE_UTIL_PCT = 5.0
"""The highest utilisation of a free card. A busier card works for somebody, even if a container hides the process."""

LEAK_MIB = 1024.0
"""The MiB by which a session's memory may grow after its first run without counting as a leak.

Some growth is normal: allocators round sizes up, and the driver loads kernels late.
"""

POLL_S = 0.1
"""The seconds between two looks at the cards."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Obstacle:
    """Why a card is not free."""

    rule: str
    text: str


def obstacles(now: Sequence[Occupancy], at_open: Sequence[Occupancy]) -> list[Obstacle]:
    """List why the cards are not free, compared with the same cards when the study opened.

    A card is free when three things hold. Only processes compute on it that were there at the opening and use little
    memory. Its memory use is at most `SLACK_MIB` above the use at the opening, of which up to `TOLERATED_SHARE` of the
    card counts. Its utilisation is at most `IDLE_UTIL_PCT`. Without cards the list is empty.
    """
    return [
        Obstacle(rule=rule, text=f"{card.device.label} {text}")
        for rule, finds in _RULES.items()
        for card, before in zip(now, at_open, strict=True)
        if (text := finds(card, before))
    ]


def grown(now: Sequence[Occupancy], before: Sequence[Occupancy]) -> bool:
    """Return whether the memory use of any card has grown by more than `LEAK_MIB`."""
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
    """Wait up to `limit_s` until the cards that `read` returns are free. Returns None, or why they are not free.

    `left` names the processes of an earlier probe that are still alive. While there are any, no device is free, and
    neither are CPU ranks. Otherwise CPU ranks are always free. The function does not wait when the cards are free
    already, or when a card is lost.
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
    """Look once and return why the cards are not free, if so. Raises DeviceLostError."""
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
    return f"is used by {', '.join(map(shown, others))}" if others else None


def _holds_much(occupant: Occupant, card: Occupancy) -> bool:
    return (occupant.mem_mib or 0.0) > TOLERATED_SHARE * (card.device.mem_total_mib or float("inf"))


def _memory_in_use(card: Occupancy, before: Occupancy) -> str | None:
    if card.mem_used_mib is None or before.mem_used_mib is None or card.device.mem_total_mib is None:
        return None
    most_mib = min(before.mem_used_mib, TOLERATED_SHARE * card.device.mem_total_mib) + SLACK_MIB
    if card.mem_used_mib <= most_mib:
        return None
    return f"has {card.mem_used_mib:,.0f} MiB in use; a free card has at most {most_mib:,.0f} MiB in use"


def _at_work(card: Occupancy, before: Occupancy) -> str | None:
    return f"is busy ({card.util_pct:.0f} %)" if (card.util_pct or 0.0) > IDLE_UTIL_PCT else None


_RULES: dict[str, Callable[[Occupancy, Occupancy], str | None]] = {
    "foreign process": _held_by_others,
    "memory": _memory_in_use,
    "utilisation": _at_work,
}


def shown(occupant: Occupant) -> str:
    """Return the pid of a process on a card and the memory that it uses, as text."""
    held = "unknown memory" if occupant.mem_mib is None else f"{occupant.mem_mib:,.0f} MiB"
    return f"pid {occupant.pid} ({held})"
