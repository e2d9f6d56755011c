"""The tables on which a search must keep its word, in two halves: one to develop on, one to report."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from benchmarks.search import kernel_tables, ladders, launches, scripts, surfaces, ties
from benchmarks.search.searching import Ground
from tuner.export.recorded_table import Table

Half = Literal["dev", "report"]
RECORDED = tuple(
    Path("benchmarks/tables", name).with_suffix(".parquet")
    for name in (
        "pi_plus_two_h200/deepmimic_pi_plus_ppo",
        "pi_plus_two_h200/amp_pi_plus",
        "reference_two_cpu_ranks/deepmimic_pi_plus_ppo",
    )
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """Tables of one kind."""

    tables: Callable[[Half, int], Iterator[tuple[str, int]]]
    """Half and number of seeds → name of a table, and the seed of a search on it."""
    ground: Callable[[str], Ground]
    """Name of a table → the table."""
    probes: int
    """After so many probes, a search is ended."""
    sessions: bool = False


def seeds_of(half: Half, count: int) -> range:
    """Return the seeds of a half: even ones to develop on, odd ones to report."""
    first = 0 if half == "dev" else 1
    return range(first, first + 2 * count, 2)


def _drawn(*names: str) -> Callable[[Half, int], Iterator[tuple[str, int]]]:
    """Return what names the tables that a seed draws: each is searched once."""
    return lambda half, count: ((f"{name}_{seed}", seed) for name in names for seed in seeds_of(half, count))


def _kernels(half: Half, count: int) -> Iterator[tuple[str, int]]:
    names = (f"{kernel}_{gpu}" for kernel in kernel_tables.KERNELS for gpu in kernel_tables.GPUS[half])
    return ((name, seed) for name in names for seed in range(count))


def _recorded(half: Half, count: int) -> Iterator[tuple[str, int]]:
    return ((str(path), seed) for path in RECORDED for seed in seeds_of(half, count))


def _seed(name: str) -> int:
    return int(name.rpartition("_")[2])


@cache
def _kernel(name: str) -> Ground:
    return Ground(kernel_tables.table(name))


@cache
def _of_file(name: str) -> Ground:
    return Ground(Table.load(Path(name)))


FAMILIES = {
    "scripts": Family(
        tables=_drawn("script"), ground=lambda name: scripts.ScriptGround(scripts.script(_seed(name))), probes=60
    ),
    "launches": Family(tables=_drawn("launch"), ground=lambda name: launches.launch(_seed(name)), probes=60),
    "kernels": Family(tables=_kernels, ground=_kernel, probes=60),
    "ladders": Family(
        tables=_drawn("ladder"), ground=lambda name: Ground(ladders.table(_seed(name))), probes=100, sessions=True
    ),
    "ties": Family(tables=_drawn("tie"), ground=lambda name: Ground(ties.table(_seed(name))), probes=60),
    "surfaces": Family(
        tables=_drawn(*surfaces.CHARACTERS),
        ground=lambda name: Ground(surfaces.table(name.rpartition("_")[0], _seed(name))),
        probes=100,
        sessions=True,
    ),
    "recorded": Family(tables=_recorded, ground=_of_file, probes=100, sessions=True),
}
"""`surfaces` and `recorded` are those on which the search was developed; the others are newer."""
