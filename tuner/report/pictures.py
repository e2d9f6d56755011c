"""The pictures of a case, in the order of the page."""

from collections.abc import Callable

from tuner.report.drawing import Picture
from tuner.report.facts import CaseFacts
from tuner.report.measured import along_ladder, over_time
from tuner.report.raced import curves
from tuner.report.searched import choices, history, parameters, spending

PICTURES: tuple[Callable[[CaseFacts], Picture | None], ...] = (
    choices,
    curves,
    history,
    over_time,
    parameters,
    along_ladder,
    spending,
)


def pictures(case: CaseFacts) -> list[Picture]:
    """Return the pictures of a case, as far as there is something to draw."""
    return [picture for draw in PICTURES if (picture := draw(case))]
