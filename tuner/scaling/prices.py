"""The hourly prices of devices, from a file of the user. No price is built in."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from tuner.errors import StudyError, TunerError
from tuner.study.complaints import complaints
from tuner.study.parameter import Number, Strict
from tuner.study.reading import read_mapping

EXAMPLE = "currency: USD\nper_hour:\n  NVIDIA H200: 3.50\n"
"""What a file of prices looks like."""


class Prices(Strict):
    """The prices of one device for one hour."""

    currency: str = "USD"
    per_hour: dict[str, Annotated[Number, Field(gt=0)]] = Field(min_length=1)
    """The name of a result file without its ending, or the model of a device, and its price."""

    def of(self, machine: str, model: str) -> float | None:
        """Return the price of a device; that of the machine comes before that of the model. None where neither is."""
        return self.per_hour.get(machine, self.per_hour.get(model))


def read_prices(path: Path, needed: Sequence[tuple[str, str]]) -> Prices:
    """Read prices for the machines and models that are `needed`.

    Raises TunerError for a file that cannot be used, and for one that lacks a price.
    """
    try:
        prices = Prices.model_validate(read_mapping(path, what="file of prices", starts="currency:"))
    except StudyError as error:
        raise TunerError(f"{error}\na file of prices looks like this:\n{EXAMPLE}") from error
    except ValidationError as error:
        wrong = "\n  ".join(complaints(error, Prices))
        raise TunerError(f"{path} is no file of prices:\n  {wrong}\nit looks like this:\n{EXAMPLE}") from error
    missing = [(machine, model) for machine, model in needed if prices.of(machine, model) is None]
    if missing:
        models = ", ".join(dict.fromkeys(f"{model!r} (of {machine})" for machine, model in missing))
        raise TunerError(f"{path} has no price of {models}; add a line `{missing[0][1]}: PRICE` below `per_hour:`")
    return prices
