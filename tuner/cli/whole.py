"""What all cases of a study have taken together, and which cases are left."""

from collections.abc import Sequence

from tuner.export.case import CaseSummary
from tuner.outcome import CaseOutcome, Ending
from tuner.study.cases import Case
from tuner.units import duration

ENDED = {Ending.ALREADY, Ending.TARGET, Ending.EXHAUSTED}
"""How a case ends that needs no more probes."""


def of_all(cases: Sequence[Case], outcomes: Sequence[CaseOutcome], rows: Sequence[CaseSummary], devices: int) -> str:
    """Return a line that says what the probes of several cases took, and which of the cases still need probes.

    `rows` have what all runs of the study took, this one included. The line is empty for a single case.
    """
    if len(cases) < 2:
        return ""
    wanted, ended = {case.name for case in cases}, {one.case.name for one in outcomes if one.ending in ENDED}
    begun = [row for row in rows if row.case in wanted]
    taken_s = sum(row.probe_s for row in begun)
    left = [case.name for case in cases if case.name not in ended]
    return (
        f"the probes of {len(begun)} of {len(cases)} cases took {duration(taken_s)}, {taken_s * devices:,.0f} "
        f"device-seconds, {taken_s * devices / max(len(begun), 1):,.0f} per case; "
        + (f"{len(left)} left: {', '.join(left)}" if left else "none is left")
    )
