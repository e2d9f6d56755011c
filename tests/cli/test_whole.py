"""The line about all cases of a study."""

from dataclasses import replace

import pytest
from tests_summary import BEST, summary

from tuner.cli.hints import progress_of_cases
from tuner.running.events import CaseOutcome, Ending
from tuner.study.cases import Case

CASES = [Case(name="amp_walk"), Case(name="amp_run"), Case(name="add_walk")]
ROWS = [replace(summary(BEST), case="amp_walk", probe_s=600.0), replace(summary(None), case="amp_run", probe_s=300.0)]


@pytest.mark.parametrize(
    ("endings", "left"),
    [
        ([Ending.EXHAUSTED, Ending.INTERRUPTED], "2 left: amp_run, add_walk"),
        ([Ending.ALREADY, Ending.TARGET, Ending.EXHAUSTED], "all are done"),
    ],
)
def test_what_all_cases_took_and_which_are_left(endings: list[Ending], left: str) -> None:
    outcomes = [CaseOutcome(case=case, ending=one, probed=1) for case, one in zip(CASES, endings, strict=False)]
    assert progress_of_cases(CASES, outcomes, [*ROWS, replace(ROWS[0], case="other")], 2) == (
        f"2 of 3 cases in 15 min 00 s on 2 devices; {left}"
    )


def test_a_single_case_has_no_such_line() -> None:
    assert progress_of_cases(CASES[:1], [], ROWS, 2) == ""
