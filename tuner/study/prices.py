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
    each = [(machine, model, prices.of(machine, model)) for machine, model in devices]
    if missing := {(machine, model): None for machine, model, price in each if price is None}:
        texts = [repr(model) + (f" (of {machine})" if machine else "") for machine, model in missing]
        _, first = next(iter(missing))
        raise StudyError(f"{where} has no price of {', '.join(texts)}; add a line `{first}: PRICE` below `per_hour:`")
    return sum(price for *_, price in each if price)
