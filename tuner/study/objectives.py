"""What a study maximises, as its file spells it: `min_avg_util`, or several such as `util,samples_per_s`."""

from typing import Annotated

from pydantic import AfterValidator, Field

SHORT = {"util": "min_avg_util", "sm": "min_avg_sm"}
"""Names that may be written for longer ones."""


def read_objectives(text: str) -> tuple[str, ...]:
    """Give the full names, in their order, of the objectives in a list separated by commas."""
    names = (name.strip() for name in text.split(","))
    return tuple(SHORT.get(name, name) for name in names)


def _spelt_out(text: str) -> str:
    return ",".join(read_objectives(text))


Objective = Annotated[
    str,
    AfterValidator(_spelt_out),
    Field(description="what the best has most of; several, with commas between: a Pareto front"),
]
"""One objective or several, always spelt alike."""
