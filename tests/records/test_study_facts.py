"""What a case's study keeps. A fact in an unexpected form counts as unknown."""

from typing import Any

import pytest

from tuner.records.case_record import RECORDED, StudyAttributes, comparable, in_newest_form
from tuner.records.schema import CASE, ENDED, IDENTITY, RUNGS, STOPPED

IDENTITY_KEPT = {"trainer": {"name": "mimickit", RECORDED: "2026-11-22"}, "objective": "min_avg_util", "devices": ["a"]}


def test_facts_are_read_as_they_were_kept() -> None:
    stored = {RUNGS: [8, 16], ENDED: "no config is left", IDENTITY: IDENTITY_KEPT, CASE: {"case": "walk"}}
    kept = StudyAttributes(stored)
    assert (kept.rungs, kept.ended, kept.identity) == ((8, 16), "no config is left", IDENTITY_KEPT)
    assert kept.case is not None
    assert kept.case.case == "walk"


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {RUNGS: None, ENDED: None, CASE: None},
        {RUNGS: ["many"], ENDED: 5, STOPPED: 5, CASE: "walk"},
    ],
)
def test_what_is_missing_or_damaged_is_unknown(attributes: dict[str, Any]) -> None:
    kept = StudyAttributes(attributes)
    assert [kept.rungs, kept.ended, kept.stopped, kept.identity, kept.case] == [None] * 5


def test_a_damaged_identity_is_an_empty_one_which_no_setting_equals() -> None:
    assert StudyAttributes({IDENTITY: "broken"}).identity == {}


def test_two_cases_are_comparable_whenever_their_tables_were_recorded() -> None:
    later = IDENTITY_KEPT | {"trainer": {"name": "mimickit", RECORDED: "2031-01-01"}, "space": {}}
    assert comparable(later) == comparable(IDENTITY_KEPT)
    assert comparable(IDENTITY_KEPT | {"devices": ["b"]}) != comparable(IDENTITY_KEPT)
    assert comparable({"trainer": 5}) == comparable({})


def test_a_setting_of_the_pruner_that_nothing_reads_any_more_is_left_out() -> None:
    assert in_newest_form({"pruner": {"name": "median", "margin_pct": 15.0}}) == {"pruner": {"name": "median"}}
    assert in_newest_form({"space": {}}) == {"space": {}}
