"""The database says of each trial what the search reads off the same trial."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests_store import CRASH, NAME, OUT_OF_MEMORY, RETRY, ask, case_study, ok, opened, stored, tell

from tuner.export.database import connect, reading
from tuner.export.query import StudyReader
from tuner.export.readings import CaseReadings
from tuner.export.trials import stored_trials
from tuner.kept.tables import TRIALS
from tuner.search.trials import readings
from tuner.search.verdict import State, Verdict

STOPPED = Verdict(state=State.PRUNED, status="pruned")
INTERRUPTED = Verdict(state=State.FAIL, status="interrupted", retry=True)
NOT_ELIGIBLE = Verdict(state=State.COMPLETE, status="ok", value=70.0, ineligible="too little memory stayed free")


@pytest.mark.parametrize("warm", [False, True])
def test_search_and_exports_read_the_same(tmp_path: Path, warm: bool) -> None:
    verdicts = (CRASH, RETRY, INTERRUPTED, ok(50.0), ok(60.0), NOT_ELIGIBLE, STOPPED, OUT_OF_MEMORY)
    url = f"sqlite:///{tmp_path / 'study.db'}"
    with opened(url) as database:
        study = case_study(database)
        for verdict in verdicts:
            tell(study, ask(study), verdict, warm=warm, ineligible=verdict.ineligible)
        ask(study)  # runs, and has said nothing yet
        told = list(readings(stored(database)))
    (case,) = StudyReader(connect(url), NAME.partition("/")[0]).cases
    with reading(connect(url)) as connection:
        wanted = TRIALS.c.study_id == case.study_id
        found = CaseReadings(case, stored_trials(connection, case, wanted, page_trials=2)).readings
    assert [one.failed for one in found] == [not warm, False, False, False, False, False, False, True]
    assert [replace(one, trial=0) for one in found] == [replace(one, trial=0, error=None) for one in told]
