"""Configs, values and the choice of the best as text for a person; terminal, report and notes use the same."""

from collections.abc import Mapping

from tuner.export.case_view import CaseSummary, ConfigRow
from tuner.study.space import Value, rung_of, written


def in_words(config: Mapping[str, Value], total_batch: float | None = None) -> str:
    """Return a config as one line of NAME=VALUE, with its total batch if that is known."""
    words = [f"{name}={written(value)}" for name, value in config.items()]
    return " ".join(words if total_batch is None else [*words, f"(total batch {total_batch:,.10g})"])


def figure(value: float) -> str:
    """Return a number of any size as text: four significant digits, or all digits before the decimal point."""
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"


def with_error(value: float, error: float | None) -> str:
    """Return a value as text, with its standard error if that is known."""
    return f"{value:.1f}" if error is None else f"{value:.1f} ± {error:.1f}"


def doubts(row: CaseSummary) -> list[str]:
    """Return sentences about the choice of the best: what was given up for what, and whether it is unconfirmed."""
    return [said for said in (_given_up(row), _unconfirmed(row)) if said]


def _given_up(row: CaseSummary) -> str | None:
    best, top = row.best, row.instead_of
    if best is None or top is None:
        return None
    gain = "less memory, or values nearer to the default's"
    if top.times is not None and top.times < 1.0:
        gain = f"{1.0 / top.times:.2g} times the samples/s"
    return (
        f"within the standard error it is as good as the highest, #{top.trial}: {precise(best)} instead of "
        f"{precise(top)}, for {gain}"
    )


def _unconfirmed(row: CaseSummary) -> str | None:
    best, waiting = row.best, row.unconfirmed
    if best is None or waiting is None:
        return None
    if waiting.trial == best.trial:
        return "it is unconfirmed: only sessions have measured it, and not the trainer's plain command"
    return (
        f"it is unconfirmed: #{waiting.trial} measured {precise(waiting)} in sessions, and the plain command has not "
        "measured that one"
    )


def of_default(row: CaseSummary) -> str:
    """Return which default config `row.default` is."""
    best, default = row.best, row.default
    rung = rung_of(default.config, row.ladder) if default else None
    if best is None or rung is None:
        return "the default"
    at_its = rung == rung_of(best.config, row.ladder)
    return "the default of its rung" if at_its else f"the default at {row.ladder}={rung}"


def precise(row: ConfigRow) -> str:
    """Return a value with two decimals, and its standard error if that is known."""
    return f"{row.value:.2f}" if row.error is None else f"{row.value:.2f} ± {row.error:.2f}"
