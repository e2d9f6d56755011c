"""Reads a file of prices, and checks that it has the prices of all devices."""

from collections.abc import Iterable
from pathlib import Path

from pydantic import ValidationError

from tuner.errors import StudyError
from tuner.study.spec import Prices
from tuner.study.study_file import complaints, read_mapping

EXAMPLE = "currency: USD\nper_hour:\n  NVIDIA H200: 3.50\n"
"""What a file of prices looks like."""


def read_prices(path: Path) -> Prices:
    """Return the prices in a file. Raises StudyError for a file that cannot be used."""
    try:
        return Prices.model_validate(read_mapping(path, what="file of prices", starts="currency:"))
    except StudyError as error:
        raise StudyError(f"{error}\na file of prices looks like this:\n{EXAMPLE}") from error
    except ValidationError as error:
        wrong = "\n  ".join(complaints(error, Prices))
        raise StudyError(f"{path} is no file of prices:\n  {wrong}\nit looks like this:\n{EXAMPLE}") from error


def price_of_all(prices: Prices, devices: Iterable[tuple[str, str]], where: object) -> float:
    """Return the price of some devices together for an hour.

    `devices` are pairs of a machine's name, which may be empty, and a device's model. `where`: what has the prices.
    Raises StudyError for devices that it has no price of.
    """
    total = 0.0
    missing: dict[str, str] = {}
    for machine, model in devices:
        if (price := prices.of(machine, model)) is None:
            missing[repr(model) + (f" (of {machine})" if machine else "")] = model
        else:
            total += price
    if missing:
        model = next(iter(missing.values()))
        raise StudyError(f"{where} has no price of {', '.join(missing)}; add a line `{model}: PRICE` below `per_hour:`")
    return total
