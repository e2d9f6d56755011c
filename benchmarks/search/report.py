"""The scores of searches as Markdown tables."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean, median, median_low

from rich import box
from rich.table import Table

from benchmarks.search.searching import Score

Scores = Mapping[str, Sequence[Score]]
"""The scores of each method, one per seed. A method that cannot run here has none."""

_LOST = (
    "OOM probes, mean (most)",
    "GPU-s lost to OOM",
    "to time-outs",
    "to repeats",
    "repeats",
    "measured again on purpose",
)
_OF_TABLE = (
    "method",
    "seeds",
    "found, %",
    "GPU-s to the best",
    "9 in 10 within",
    "times the oracle",
    "GPU-s in all",
    "probes",
)
_OVER_ALL = ("method", "seeds", "found, %", "on the worst table, %", "times the oracle", "on the worst table", "in all")


def of_table(title: str, scores: Scores) -> Table:
    """Return a table of the methods' scores on one source: medians, and means of what was lost."""
    grid = Table(*_OF_TABLE, *_LOST, title=title, title_justify="left", box=box.MARKDOWN)
    for name, runs in scores.items():
        grid.add_row(name, *([str(len(runs)), *_found(runs), *_lost(runs)] if runs else ["not installed"]))
    return grid


def over_all(tables: Sequence[Scores]) -> Table:
    """Return a table of scores over all sources, in times the oracle's GPU-seconds: each source counts alike."""
    grid = Table(*_OVER_ALL, *_LOST, title="all tables", title_justify="left", box=box.MARKDOWN)
    for name in tables[0]:
        of_each = [scores[name] for scores in tables if scores[name]]
        runs = [score for scores in of_each for score in scores]
        grid.add_row(
            name, *([str(len(runs)), *_found_over_all(of_each, runs), *_lost(runs)] if runs else ["not installed"])
        )
    return grid


def _found(runs: Sequence[Score]) -> list[str]:
    hits_gpu_s = sorted(score.hit_gpu_s for score in runs)
    return [
        f"{_rate(runs):.0f}",
        f"{median_low(hits_gpu_s):,.0f}",
        f"{hits_gpu_s[int(0.9 * (len(runs) - 1))]:,.0f}",
        f"{_ratio(runs):.1f}",
        f"{median(score.gpu_s for score in runs):,.0f}",
        f"{fmean(score.probes for score in runs):.1f}",
    ]


def _found_over_all(of_each: Sequence[Sequence[Score]], runs: Sequence[Score]) -> list[str]:
    return [
        f"{_rate(runs):.1f}",
        f"{min(map(_rate, of_each)):.0f}",
        f"{_ratio(runs):.2f}",
        f"{max(map(_ratio, of_each)):.1f}",
        f"{median(score.gpu_s / score.oracle_gpu_s for score in runs):.1f}",
    ]


def _lost(runs: Sequence[Score]) -> list[str]:
    return [
        f"{_mean(runs, lambda score: score.ooms):.2f} ({max(score.ooms for score in runs)})",
        f"{_mean(runs, lambda score: score.oom_gpu_s):,.0f}",
        f"{_mean(runs, lambda score: score.slow_gpu_s):,.0f}",
        f"{_mean(runs, lambda score: score.repeat_gpu_s):,.0f}",
        f"{_mean(runs, lambda score: score.repeats):.1f}",
        f"{_mean(runs, lambda score: score.confirmations):.1f}",
    ]


def _mean(runs: Iterable[Score], of: Callable[[Score], float]) -> float:
    return fmean(map(of, runs))


def _rate(runs: Sequence[Score]) -> float:
    return 100.0 * fmean(score.hit for score in runs)


def _ratio(runs: Iterable[Score]) -> float:
    return median_low(score.hit_gpu_s / score.oracle_gpu_s for score in runs)
