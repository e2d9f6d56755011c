"""A config and a value as text for a person."""

from collections.abc import Mapping

from tuner.study.space import Value, written


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
