"""What other programs and damaged disks leave in a study database counts for nothing and stops nobody."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import optuna
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests_space import USUAL
from tests_store import NAME, OUT_OF_MEMORY, ask, case_study, identity, ok, opened, probe, stored, tell

from tuner.errors import StoreError
from tuner.export.reader import StudyReader, connect
from tuner.records.schema import LEASE, ORIGIN, PROBE, RETRY
from tuner.records.trial import ProbeRecord
from tuner.search.trials import typed_trial
from tuner.store.database import Database
from tuner.store.opening import siblings
from tuner.study.cases import Case
from tuner.study.space import Config


def test_trials_of_another_program_are_left_out(database: Database, url: str) -> None:
    theirs = optuna.create_study(storage=url, study_name=NAME, direction="maximize")
    theirs.optimize(lambda trial: trial.suggest_float("lr", 0.0, 1.0), n_trials=3)
    theirs.enqueue_trial({"num_envs": 5})
    study = case_study(database)
    assert (study.history().finished, study.incumbent()) == (0, None)
    assert probe(study, ok(50.0), 3) == USUAL.start_configs(2)[:3]
    theirs.optimize(lambda trial: 99.0, n_trials=1)
    assert (study.history().finished, study.history().running, study.incumbent()) == (3, 0, 50.0)
    (row,) = StudyReader(connect(url), "demo").rows
    assert (row.ok, row.running, row.left_out) == (3, 0, 4)


def test_a_study_of_another_program_is_refused_where_it_minimises(database: Database, url: str) -> None:
    optuna.create_study(storage=url, study_name=NAME)
    with pytest.raises(StoreError, match=r"begun by another program: its objectives are to minimize.*another `name:`"):
        case_study(database)


def test_a_broken_study_does_not_break_the_others(url: str) -> None:
    with opened(url) as database:
        probe(case_study(database), ok(50.0), 2)
        probe(case_study(database, name="other/amp_walk"), ok(40.0))
        probe(case_study(database, name="other/amp_run"), ok(60.0))
    _edit(url, "update study_user_attributes set value_json = '{' where study_id = 2")
    _edit(url, "update trial_user_attributes set value_json = '\"\\ud800' where trial_id > 2")
    with opened(url) as database:
        study = case_study(database)
        assert (study.history().finished, study.incumbent()) == (2, 50.0)
        assert siblings(database, "other", Case(name="amp_walk"), identity()) == []
    assert [row.ok for row in StudyReader(connect(url), "demo").rows] == [2]
    assert [row.left_out for row in StudyReader(connect(url), "other").rows] == [1, 1]


def test_a_study_goes_on_whose_names_of_values_are_damaged(url: str) -> None:
    with opened(url) as database:
        probe(case_study(database), ok(50.0))
    _edit(url, "update study_system_attributes set value_json = '{'")
    with opened(url) as database:
        assert probe(case_study(database), ok(60.0))
    assert [row.ok for row in StudyReader(connect(url), "demo").rows] == [2]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["ok", "gpu_oom", "crash"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
PARTS = st.sampled_from(["config", "status", "metrics", "devices", "failure", "host", "total_s", "digest", "samples"])
ATTRIBUTES = st.sampled_from([PROBE, LEASE, RETRY, ORIGIN])
DOCUMENTS = JSON.map(json.dumps) | st.text(max_size=20) | st.sampled_from(["NaN", "[" * 5000, '"\\ud800"', ""])


@pytest.fixture(scope="module")
def begun(empty_file: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A study of four trials; the last one runs."""
    file = tmp_path_factory.mktemp("begun") / "study.db"
    file.write_bytes(empty_file.read_bytes())
    with opened(f"sqlite:///{file}") as database:
        study = case_study(database)
        probe(study, ok(50.0), 2)
        probe(study, OUT_OF_MEMORY)
        ask(study)
    return file.read_bytes()


@settings(max_examples=8, phases=[Phase.explicit, Phase.generate])
@given(edit=st.tuples(ATTRIBUTES, DOCUMENTS), part=st.tuples(PARTS, JSON))
def test_no_edit_of_an_attribute_stops_a_search_or_a_summary(
    begun: bytes, tmp_path_factory: pytest.TempPathFactory, edit: tuple[str, str], part: tuple[str, Any]
) -> None:
    file = tmp_path_factory.mktemp("edited") / "study.db"
    file.write_bytes(begun)
    url = f"sqlite:///{file}"
    attribute, document = edit
    record = json.dumps({"status": "ok", "config": {"num_envs": 8}} | dict([part]))
    _edit(url, "update trial_user_attributes set value_json = ? where trial_id = 1 and key = 'probe'", record)
    _edit(url, "update trial_user_attributes set value_json = ? where trial_id > 2 and key = ?", document, attribute)
    with opened(url) as database:
        study = case_study(database)
        study.end_abandoned_trials(file.parent)
        tell(study, ask(study), ok(60.0))
        assert study.incumbent() == 60.0
        assert all(map(typed_trial, stored(database)))
    reader = StudyReader(connect(url), "demo")
    (case,) = reader.cases
    assert case.best is not None
    assert case.best.value == 60.0
    assert [row.ok >= 2 for row in reader.rows] == [True]
    assert list(reader.trials())


def _record(config: Config, **facts: Any) -> ProbeRecord:
    return ProbeRecord(status="ok", config=config, **facts)


def _edit(url: str, statement: str, *values: str) -> None:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as other:
        other.execute(statement, values)
        other.commit()
