"""What is asked of a config besides a high objective, such as `samples_per_s: ">= 0.8 * default"`."""

import re
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BeforeValidator

_FORM = re.compile(r"(?P<sense><=|>=)\s*(?P<number>\d+(?:\.\d+)?)\s*(?P<of_default>\*\s*default)?")


@dataclass(frozen=True, kw_only=True, slots=True)
class Constraint:
    """A bound on one metric: a number or, `of_default`, so many times what the default variant has at the same rung."""

    metric: str
    sense: Literal["<=", ">="]
    number: float
    of_default: bool = False

    def __str__(self) -> str:
        """Write it as in a study file, always alike."""
        return f"{self.sense} {self.number:.15g}{' * default' if self.of_default else ''}"

    def missed(self, number: float | None, default: float | None = None) -> float:
        """Tell by what share of the bound a reading misses it: 0 or below where it is kept, 1 where that is not known.

        `default` is the reading of the default variant. Beside a bound of 0 the distance itself is given.
        """
        bound = self._bound(default)
        if number is None or bound is None:
            return 1.0
        return (number - bound if self.sense == "<=" else bound - number) / (bound or 1.0)

    def complaint(self, number: float | None, default: float | None = None) -> str:
        """Say in what way a reading misses the bound."""
        if number is None:
            return f"{self.metric} was not measured, {self} is asked for"
        bound = self._bound(default)
        if bound is None:
            return f"{self.metric} of default at this rung is not known, {self} is asked for"
        return f"{self.metric} is {number:.6g}, {self}{f' = {bound:.6g}' if self.of_default else ''} is asked for"

    def _bound(self, default: float | None) -> float | None:
        if not self.of_default:
            return self.number
        return None if default is None else self.number * default


def read_constraint(metric: str, text: object) -> Constraint:
    """Read a bound as study files spell it. Raises ValueError showing the three forms that there are."""
    found = _FORM.fullmatch(text.strip()) if isinstance(text, str) else None
    if found is None:
        raise ValueError('is no bound; write "<= 20000", ">= 10" or ">= 0.8 * default", in quotes')
    return Constraint(
        metric=metric,
        sense="<=" if found["sense"] == "<=" else ">=",
        number=float(found["number"]),
        of_default=found["of_default"] is not None,
    )


def _checked(text: object) -> object:
    read_constraint("", text)
    return text


Bound = Annotated[str, BeforeValidator(_checked)]
"""A bound as study files spell it."""
