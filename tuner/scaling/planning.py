"""Which measurements tell how subjects scale, in the order that starts programs least often. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tuner.devices.topology import Link
from tuner.scaling.results import Mode, Route

COUNTS = (1, 2, 4, 8)
"""The numbers of GPUs that are measured, as far as the machine has them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Team:
    """The ranks of one program."""

    gpus: tuple[int, ...]
    """Positions in the list of the machine's devices."""
    route: Route | None = None
    """How the ranks exchange data; None for a single rank."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """What is to be measured of one subject."""

    name: str
    sizes: tuple[int | None, ...]
    splits_model: bool = False
    can_stay_apart: bool = False
    """Whether its ranks can work without exchanging anything."""
    only_links: bool = False
    """Whether it measures the links alone, so that a single rank has nothing to do."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """One measurement of a subject. Several teams run at the same time."""

    subject: str
    size: int | None
    mode: Mode
    teams: tuple[Team, ...]


def counts(asked: Sequence[int] | None, visible: int) -> tuple[int, ...]:
    """Return the numbers of GPUs to measure, in order; 1 is always among them, because it is the baseline."""
    return tuple(sorted({1, *(asked or [count for count in COUNTS if count <= visible])}))


def routes(links: Sequence[Link], *, on_gpu: bool, p2p: bool = True) -> tuple[Route, ...]:
    """Return the routes between the ranks of a machine, the fastest first; without `p2p` only the host's memory."""
    if not on_gpu:
        return ("gloo",)
    if not p2p or any(link.p2p is False for link in links):
        return ("host",)
    return ("nvlink" if links and all(link.nvlink for link in links) else "p2p", "host")


def scaling_runs(subjects: Sequence[Wanted], counts: Sequence[int], routes: Sequence[Route]) -> Iterator[Run]:
    """Yield the measurements of weak and strong scaling. `counts` begin with 1.

    All runs of one team come together, because each other team needs new programs. For strong scaling, the largest
    batch is also divided by each number of GPUs.
    """
    sizes = {one.name: _sizes(one, counts) for one in subjects}

    def runs(mode: Mode, *teams: Team) -> Iterator[Run]:
        for one in subjects:
            if mode == "joined" or not (one.only_links or (mode == "apart" and not one.can_stay_apart)):
                yield from (Run(subject=one.name, size=size, mode=mode, teams=teams) for size in sizes[one.name])

    yield from runs("single", Team(gpus=(0,)))
    for count in counts[1:]:
        yield from runs("beside", *(Team(gpus=(card,)) for card in range(count)))
        for position, route in enumerate(routes):
            team = Team(gpus=tuple(range(count)), route=route)
            if position == 0:
                yield from runs("apart", team)
            yield from runs("joined", team)


def split_runs(subjects: Sequence[Wanted], cards: int) -> Iterator[Run]:
    """Yield the measurements of each card by itself, then of all cards at the same time, each with its own program.

    All cards are measured twice: the first time decides how the work is divided, the second time checks the division.
    """
    teams = [Team(gpus=(card,)) for card in range(cards)]
    useful = [one for one in subjects if not one.only_links]
    for team in teams:
        for one in useful:
            yield from (Run(subject=one.name, size=size, mode="single", teams=(team,)) for size in one.sizes)
    for one in useful:
        for size in one.sizes:
            yield from [Run(subject=one.name, size=size, mode="beside", teams=tuple(teams))] * 2


def _sizes(one: Wanted, counts: Sequence[int]) -> Sequence[int | None]:
    known = {size for size in one.sizes if size is not None}
    if not known:
        return [None]
    if not (one.splits_model or one.only_links):
        known |= {max(known) // count for count in counts if max(known) >= count}
    return sorted(known)
