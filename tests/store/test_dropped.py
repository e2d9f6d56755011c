"""What workers leave behind that die, and what several workers do at once."""

from pathlib import Path

from tests_store import NAME, OUT_OF_MEMORY, Team, ask, case_study, ok, opened, probe, repeats, states, stored, tell

from tuner.search.trials import typed_trial
from tuner.store.database import Database


def test_what_a_worker_runs_is_left_to_it_until_it_is_killed(
    workers: Team, database: Database, url: str, tmp_path: Path
) -> None:
    with workers(url) as (worker,):
        worker.send("probe 2")
        done = worker.answer()
        worker.send("ask")
        taken = worker.answer()
        study = case_study(database)
        assert study.end_abandoned_trials(tmp_path) == (0, 0)
        assert (study.history().finished, study.history().running) == (2, 1)
        worker.kill()
    assert study.end_abandoned_trials(tmp_path) == (0, 1)
    assert (study.history().finished, study.history().running) == (2, 0)
    assert states(database) == {"COMPLETE": 2, "FAIL": 1}
    dropped = stored(database)[2]
    probe_of_dropped = typed_trial(dropped).probe
    assert probe_of_dropped is not None
    assert (probe_of_dropped.status, probe_of_dropped.config) == ("interrupted", taken)
    again = ask(study)
    assert (again.config, again.attempt) == (taken, 1)
    tell(study, again, ok(50.0))
    assert not [config for config in probe(study, ok(50.0), 4) if config in (*done, taken)]
    assert study.end_abandoned_trials(tmp_path) == (0, 0)


def test_a_running_trial_of_another_program_is_left_to_it(database: Database, tmp_path: Path) -> None:
    study = case_study(database)
    probe(study, OUT_OF_MEMORY)
    theirs = database.storage.create_new_trial(database.storage.get_study_id_from_name(NAME))
    assert study.end_abandoned_trials(tmp_path) == (0, 0)
    assert (study.history().finished, study.history().running) == (1, 0)
    assert ask(study).attempt == 1
    assert database.storage.get_trial(theirs).state.name == "RUNNING"


def test_workers_side_by_side_never_get_the_same_config(workers: Team, url: str) -> None:
    with workers(url, 2) as started:
        for worker in started:
            worker.send("probe 10")
        asked = [config for worker in started for config in worker.answer()]
    assert len(asked) == 20
    assert not repeats(asked)
    with opened(url) as database:
        assert states(database) == {"COMPLETE": 20}


def test_processes_that_open_a_missing_file_at_once_all_succeed(workers: Team, tmp_path: Path) -> None:
    with workers(f"sqlite:///{tmp_path / 'new/study.db'}", 4) as started:
        for worker in started:
            worker.send("open")
        assert [worker.answer() for worker in started] == ["open"] * 4
