"""The export reads the same from the database as the search reads from the trials."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests_store import CRASH, NAME, OUT_OF_MEMORY, RETRY, ask, case_study, ok, opened, stored, tell

from tuner.export.database import connect, reading
from tuner.export.readings import stored_readings
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
        study_id = database.storage.get_study_id_from_name(NAME)
    with reading(connect(url)) as connection:
        found = stored_readings(connection, study_id)
    assert [one.failed for one in found] == [not warm, False, False, False, False, False, False, True]
    assert [replace(one, trial=0) for one in found] == [replace(one, trial=0, error=None) for one in told]
