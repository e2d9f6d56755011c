"""Does a search keep its word? What it found, what it lost, what it said it might lose, and how many probes failed.

    python -m benchmarks.search.promises --family scripts --half dev --seeds 20 --method "tuner gain"

A table per family, and with `--each` a row per table. A search that ends by itself says what may be left:

- **lost** is the share of the best value that its recommended config lacks, in percent; 100 if it recommends none.
- **claimed** is the expected loss that it states at its end. Lost / claimed is the ratio of the means over the searches
  that ended and said a number.
- **beyond the bound** is the share of these searches that lost more than the bound they stated.
- **not sure** is the share of searches that ended with the words "not sure", or that used their whole budget.
- **failed** are probes without a value for any cause, as a share of probes and of GPU-seconds.
- **since the last gain** are the probes after the recommended config last became better by more than 1 %.
- **read again** are the probes of configs that had been probed before.
- **left, told / true** is the median of told / true probes until the end, at half of the search.
- **in all** is what a search has spent at its end, in oracles: one oracle is one probe of the best config.
"""

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Annotated

import optuna
import typer
from rich import box
from rich.console import Console
from rich.table import Table as Shown

from benchmarks.search import methods, ours
from benchmarks.search.families import FAMILIES, Half
from benchmarks.search.searching import WITHIN, Method, Probing, Step, search

METHODS: dict[str, tuple[Method, bool]] = {
    "random": (methods.shuffled, True),
    "coordinate descent": (methods.coordinate_descent, True),
    "Optuna TPE": (methods.tpe, True),
    "Optuna GP": (methods.gp, methods.GP_INSTALLED),
    "SMAC3": (methods.smac, methods.SMAC_INSTALLED),
    "tuner tpe": (ours.tpe, True),
    "tuner gain": (ours.gain, True),
}
"""Name → the method, and whether the packages that it needs are installed. Random search repeats nothing."""
_BASELINES = frozenset({"random", "coordinate descent", "Optuna TPE", "Optuna GP", "SMAC3"})
"""They start the trainer for each probe."""
UNKNOWN = "-"
Key = tuple[str, str, int, int]
"""Family and table, method, seed, and the most probes."""
_EXPECTED = re.compile(r"([\d.]+(?:e-?\d+)?) ?% may be left")
_BOUND = re.compile(r"at most ([\d.]+(?:e-?\d+)?) ?%")
_NOTHING_LEFT = ("almost nothing", "every config has been probed", "has been probed or cannot fit")


@dataclass(frozen=True, kw_only=True, slots=True)
class Word:
    """What one search did, and what it said at its end. Shares are in percent."""

    found: bool
    lost: float
    expected: float | None
    """The loss that the search expects; None where it says nothing."""
    bound: float | None
    """The loss that it says is seldom exceeded; None where it says nothing."""
    reason: str | None
    """Why it ended by itself; None where its budget ended it."""
    probes: int
    failed: int
    failed_later: int
    """The failures after a config has run."""
    one_cause: int
    """The most failures for one cause."""
    gpu_s: float
    failed_gpu_s: float
    oracle_gpu_s: float
    cpu_s: float
    """The processor seconds of the whole search, without those in which its table is made."""
    hit_gpu_s: float | None
    """GPU-seconds until the recommendation stays within 1 % of the best; None where it does not."""
    since_gain: int
    """The probes after the recommended config last became better by more than 1 %."""
    repeats: int
    """The probes of configs that had been probed before."""
    told_left: float | None
    """At half of the search, told / true probes until its end; None where it tells none."""

    @property
    def sure(self) -> bool:
        """Whether the search ended by itself and said how much may be left."""
        return self.reason is not None and "not sure" not in self.reason

    @property
    def broke(self) -> bool:
        """Whether it lost more than it said at most."""
        return self.bound is not None and self.lost > self.bound


def stated(reason: str | None) -> tuple[float | None, float | None]:
    """Return the expected loss and the bound that a reason states, in percent.

    This is the one place that knows the words of a search.
    """
    if reason is None:
        return None, None
    expected, bound = _EXPECTED.search(reason), _BOUND.search(reason)
    if expected is None and any(words in reason for words in _NOTHING_LEFT):
        return 0.0, float(bound[1]) if bound else None
    return float(expected[1]) if expected else None, float(bound[1]) if bound else None


def one_search(family: str, table: str, method: str, seed: int, probes: int) -> Word:
    """Search one table and return what came of it."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    ground = FAMILIES[family].ground(table)
    best = ground.best
    sessions = FAMILIES[family].sessions and method not in _BASELINES
    probing = Probing(ground, seed, sessions=sessions, most=probes)
    began_s = time.process_time()
    search(METHODS[method][0], probing)
    cpu_s = time.process_time() - began_s
    steps = probing.steps
    config = probing.recommended[-1] if steps else None
    value = ground.row(config).value if config is not None else 0.0
    failed = [step for step in steps if step.row.result.failure]
    first = next((place for place, step in enumerate(steps) if not step.row.result.failure), len(steps))
    causes = Counter((str(step.row.result.failure.kind), step.row.result.failure.rule) for step in failed)  # pyright: ignore[reportOptionalMemberAccess]
    expected, bound = stated(probing.ended)
    return Word(
        found=config is not None and ground.found(config),
        lost=100.0 * max(0.0, 1.0 - max(value, 0.0) / best.value),
        expected=expected,
        bound=bound,
        reason=probing.ended,
        probes=len(steps),
        failed=len(failed),
        failed_later=sum(1 for step in steps[first:] if step.row.result.failure),
        one_cause=max(causes.values(), default=0),
        gpu_s=_gpu_s(steps),
        failed_gpu_s=_gpu_s(failed),
        oracle_gpu_s=best.cold_s * ground.devices,
        cpu_s=cpu_s,
        hit_gpu_s=_hit_gpu_s(probing),
        since_gain=_since_gain(probing),
        repeats=sum(step.repeat for step in steps),
        told_left=_told_left(probing, probes),
    )


def _gpu_s(steps: Sequence[Step]) -> float:
    return sum(step.gpu_s for step in steps)


def _hit_gpu_s(probing: Probing) -> float | None:
    """Return the GPU-seconds from which on the recommendation stays good."""
    good = [config is not None and probing.ground.found(config) for config in probing.recommended]
    if not good or not good[-1]:
        return None
    from_place = max((place + 1 for place, one in enumerate(good) if not one), default=0)
    return _gpu_s(probing.steps[: from_place + 1])


def _since_gain(probing: Probing) -> int:
    values = [probing.ground.row(config).value if config else 0.0 for config in probing.recommended]
    last, best = 0, 0.0
    for place, value in enumerate(values):
        if value > best / WITHIN:
            last, best = place, value
    return len(values) - 1 - last


def _told_left(probing: Probing, most: int) -> float | None:
    """Return told / true probes until the end, at half of the search; a search knows its budget."""
    half = len(probing.left) // 2
    told = next((left for left in probing.left[half:] if left is not None), None)
    return None if told is None else min(told, most - half) / (len(probing.left) - half)


def _said(words: Sequence[Word]) -> list[Word]:
    """Return the searches that ended by themselves and stated an expected loss."""
    return [one for one in words if one.sure and one.expected is not None]


def _bounded(words: Sequence[Word]) -> list[Word]:
    return [one for one in words if one.sure and one.bound is not None]


def _mean(numbers: Sequence[float], form: str) -> str:
    return format(fmean(numbers), form) if numbers else UNKNOWN


def _ratio(words: Sequence[Word]) -> str:
    said = _said(words)
    claimed = sum(one.expected or 0.0 for one in said)
    return f"{sum(one.lost for one in said) / claimed:.1f}" if claimed else UNKNOWN


def _share(words: Sequence[Word], part: Callable[[Word], float], whole: Callable[[Word], float]) -> str:
    return f"{100 * sum(map(part, words)) / sum(map(whole, words)):.1f}"


def _ninth(numbers: Sequence[float]) -> float:
    return sorted(numbers)[int(0.9 * (len(numbers) - 1))]


def _bound(words: Sequence[Word]) -> str:
    bounds = [one.bound or 0.0 for one in _bounded(words)]
    return f"{median(bounds):.1f}" if bounds else UNKNOWN


def _left(words: Sequence[Word]) -> str:
    told = [one.told_left for one in words if one.told_left is not None]
    return f"{median(told):.2f}" if told else UNKNOWN


def _one_cause(words: Sequence[Word]) -> str:
    most = [one.one_cause for one in words]
    return f"{fmean(most):.1f} ({max(most)})"


COLUMNS: dict[str, Callable[[Sequence[Word]], str]] = {
    "searches": lambda words: str(len(words)),
    "found, %": lambda words: f"{100 * fmean(one.found for one in words):.0f}",
    "lost, mean %": lambda words: f"{fmean(one.lost for one in words):.2f}",
    "lost, median %": lambda words: f"{median(one.lost for one in words):.2f}",
    "9 in 10 lost within, %": lambda words: f"{_ninth([one.lost for one in words]):.1f}",
    "not sure, %": lambda words: f"{100 * fmean(not one.sure for one in words):.0f}",
    "lost where sure, %": lambda words: _mean([one.lost for one in _said(words)], ".2f"),
    "claimed, %": lambda words: _mean([one.expected or 0.0 for one in _said(words)], ".2f"),
    "lost / claimed": _ratio,
    "beyond the bound, %": lambda words: _mean([100.0 * one.broke for one in _bounded(words)], ".0f"),
    "bound, median %": _bound,
    "probes": lambda words: f"{fmean(one.probes for one in words):.0f}",
    "since the last gain": lambda words: f"{fmean(one.since_gain for one in words):.1f}",
    "read again": lambda words: f"{fmean(one.repeats for one in words):.1f}",
    "left, told / true": _left,
    "failed, %": lambda words: _share(words, lambda one: one.failed, lambda one: one.probes),
    "after a success, %": lambda words: _share(words, lambda one: one.failed_later, lambda one: one.probes),
    "most for one cause": _one_cause,
    "failed, % of GPU-s": lambda words: _mean([100.0 * one.failed_gpu_s / one.gpu_s for one in words], ".1f"),
    "in all, oracles": lambda words: f"{median(one.gpu_s / one.oracle_gpu_s for one in words):.1f}",
    "CPU s": lambda words: f"{fmean(one.cpu_s for one in words):.1f}",
}


def page(title: str, words: Mapping[str, Sequence[Word]]) -> Shown:
    """Return a row per name."""
    shown = Shown("", *COLUMNS, title=title, title_justify="left", box=box.MARKDOWN)
    for name, ones in words.items():
        shown.add_row(name, *(["not run"] if not ones else [column(ones) for column in COLUMNS.values()]))
    return shown


class Scorebook:
    """Words by key, written to `path` as JSON lines if there is a path. It does not notice changes to the code."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._words: dict[Key, Word] = {}
        for line in path.read_text().splitlines() if path and path.exists() else ():
            *key, word = json.loads(line)
            self._words[tuple(key)] = Word(**word)

    def missing(self, keys: Iterable[Key]) -> list[Key]:
        """Return the keys without a word."""
        return [key for key in keys if key not in self._words]

    def fill(self, runs: Mapping[Future[Word], Key]) -> None:
        """Wait for words and write down each one when it comes."""
        for run in as_completed(runs):
            self._words[runs[run]] = run.result()
            if self._path:
                with self._path.open("a") as book:
                    book.write(json.dumps([*runs[run], asdict(run.result())]) + "\n")

    def known(self, keys: Iterable[Key]) -> list[Word]:
        """Return the words of those keys that have one."""
        return [self._words[key] for key in keys if key in self._words]


def main(
    family: Annotated[list[str] | None, typer.Option(help=f"of {', '.join(FAMILIES)}; all if empty")] = None,
    method: Annotated[list[str] | None, typer.Option(help=f"of {', '.join(METHODS)}; `tuner gain` if empty")] = None,
    half: Annotated[str, typer.Option(help="dev or report")] = "dev",
    seeds: Annotated[int, typer.Option(help="tables of a drawn family, or searches on each other table")] = 20,
    tables: Annotated[str, typer.Option(help="only tables whose names contain this")] = "",
    probes: Annotated[int | None, typer.Option(help="after which a search is ended; empty: as the family says")] = None,
    each: Annotated[bool, typer.Option(help="also print a row per table")] = False,
    jobs: Annotated[int, typer.Option(help="processes")] = 1,
    scores: Annotated[Path | None, typer.Option(help="kept here; what is there is not run again")] = None,
) -> None:
    """Search the tables of a half, and print what each method found, lost, claimed and failed."""
    console = Console(width=400)
    book = Scorebook(scores)
    chosen: Half = "report" if half == "report" else "dev"
    with ProcessPoolExecutor(jobs) as pool:
        for name in family or FAMILIES:
            named = [one for one in FAMILIES[name].tables(chosen, seeds) if tables in one[0]]
            keys: dict[str, list[Key]] = {
                way: [(f"{name}/{table}", way, seed, probes or FAMILIES[name].probes) for table, seed in named]
                for way in method or ("tuner gain",)
            }
            runs = {
                pool.submit(one_search, name, key[0].partition("/")[2], *key[1:]): key
                for way, wanted in keys.items()
                if METHODS[way][1]
                for key in book.missing(wanted)
            }
            book.fill(runs)
            console.print(page(f"{name}, {chosen}", {way: book.known(wanted) for way, wanted in keys.items()}))
            if each:
                by_table = {
                    f"{key[0].partition('/')[2]}, {way}": book.known([one for one in wanted if one[0] == key[0]])
                    for way, wanted in keys.items()
                    for key in wanted
                }
                console.print(page(f"{name}, each table", by_table))


if __name__ == "__main__":
    typer.run(main)
