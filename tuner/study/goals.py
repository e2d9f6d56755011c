"""What the best config is to reach: the objectives, and the constraints beside them."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

_FORM = re.compile(r"(?P<sense><=|>=)\s*(?P<number>\d+(?:\.\d+)?)\s*(?P<of_default>\*\s*default)?")


@dataclass(frozen=True, kw_only=True, slots=True)
class Constraint:
    """A bound on one metric."""

    metric: str
    sense: Literal["<=", ">="]
    number: float
    """The bound, in the metric's unit. With `of_default` it is a factor instead."""
    of_default: bool = False
    """Whether `number` multiplies the value that the default variant has at the same rung."""

    def __str__(self) -> str:
        """Return the bound as a study file spells it. Equal bounds give equal text."""
        return f"{self.sense} {self.number:.15g}{' * default' if self.of_default else ''}"

    def violation(self, value: float | None, default: float | None = None) -> float:
        """Return by how much a value violates the bound, as a share of the bound. At most 0 means that it is satisfied.

        `default` is the value that the default variant has. A violation is 1 when either value is unknown. For a bound
        of 0 the difference itself is returned.
        """
        bound = self._bound(default)
        if value is None or bound is None:
            return 1.0
        return (value - bound if self.sense == "<=" else bound - value) / (bound or 1.0)

    def complaint(self, value: float | None, default: float | None = None) -> str:
        """Describe how a value violates the bound."""
        if value is None:
            return f"{self.metric} was not measured, {self} is required"
        bound = self._bound(default)
        if bound is None:
            return f"{self.metric} of default at this rung is not known, {self} is required"
        return f"{self.metric} is {value:.6g}, {self}{f' = {bound:.6g}' if self.of_default else ''} is required"

    def _bound(self, default: float | None) -> float | None:
        if not self.of_default:
            return self.number
        return None if default is None else self.number * default


def read_constraint(metric: str, text: object) -> Constraint:
    """Read a bound as study files spell it. Raises ValueError with examples of the three allowed forms."""
    found = _FORM.fullmatch(text.strip()) if isinstance(text, str) else None
    if found is None:
        raise ValueError('is not a bound; write "<= 20000", ">= 10" or ">= 0.8 * default", in quotes')
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
"""The type of a bound in a study file: text that `read_constraint` accepts."""


def compare_with_default(constraints: Iterable[Constraint]) -> bool:
    """Return whether one of the constraints is a multiple of what the default of a rung has."""
    return any(one.of_default for one in constraints)


SHORT = {"util": "min_avg_util", "sm": "min_avg_sm"}
"""Short names that a study file may use → the full names of the metrics."""


def read_objectives(text: str) -> tuple[str, ...]:
    """Return the full names of the objectives in a comma-separated list, in the same order."""
    names = (name.strip() for name in text.split(","))
    return tuple(SHORT.get(name, name) for name in names)


def _spelt_out(text: str) -> str:
    return ",".join(read_objectives(text))


Objective = Annotated[
    str,
    AfterValidator(_spelt_out),
    Field(description="the metric to maximise; several, separated by commas, give a Pareto front"),
]
"""The type of one or several objectives in a study file. The value always has the full names, without spaces."""
