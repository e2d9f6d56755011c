"""Reads the objective of a study file: `min_avg_util`, or several metrics such as `util,samples_per_s`."""

from typing import Annotated

from pydantic import AfterValidator, Field

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
