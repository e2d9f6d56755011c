"""The line about all cases of a study."""

import pytest

from tuner.cli.hints import progress_of_cases
from tuner.running.events import CaseOutcome, Ending
from tuner.study.cases import Case

CASES = [Case(name="amp_walk"), Case(name="amp_run"), Case(name="add_walk")]


@pytest.mark.parametrize(
    ("endings", "line"),
    [
        ([Ending.EXHAUSTED, Ending.INTERRUPTED], "1 of 3 cases are done; left: amp_run, add_walk"),
        ([Ending.ALREADY, Ending.TARGET, Ending.EXHAUSTED], "3 of 3 cases are done"),
    ],
)
def test_which_cases_are_done_and_which_are_left(endings: list[Ending], line: str) -> None:
    outcomes = [CaseOutcome(case=case, ending=one, probed=1) for case, one in zip(CASES, endings, strict=False)]
    assert progress_of_cases(CASES, outcomes) == line


def test_a_single_case_has_no_such_line() -> None:
    assert progress_of_cases(CASES[:1], []) == ""
