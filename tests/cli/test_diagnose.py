"""`tuner diagnose` on studies made by Optuna itself, on one of ours, and on what is no such study."""

import json
import re
import shutil
import sqlite3
import threading
from collections import defaultdict
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import optuna
import pytest
from optuna.distributions import distribution_to_json
from optuna.storages._rdb import models
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy import insert
from tests_cli import Tuner
from tests_counts import COUNTED_TRAINING
from tests_database import empty_database
from tests_docs import ROOT, of
from tests_later import Later
from tests_store import CRASH, ask, case_study, ok, opened, stored, tell

from notebooks.studies import HEALTHY, STARVED, drawn
from tuner.count.signature import Shares
from tuner.devices.cpu import usable_cores
from tuner.export.reader import connect
from tuner.probe.result import DeviceSummary
from tuner.search.verdict import Verdict
from tuner.tools.diagnosis.diagnosing import diagnose, sentences
from tuner.tools.diagnosis.study_times import KnownFact, Setup, TrialEnd, mean_as_fact
from tuner.tools.diagnosis.waits import Kind

if TYPE_CHECKING:
    import matplotlib
    import nbformat
else:
    matplotlib, nbformat = Later("matplotlib"), Later("nbformat")

OURS = f"sqlite:///{ROOT}/benchmarks/results/pi_plus_auto_two_h200/study.db"
WATCHED = ("--startup-seconds", 45, "--duty", 83, "--cores", 12, "--gpu-memory", 24, "--memory-used", 12)


def empty(folder: Path) -> optuna.storages.RDBStorage:
    """Return an Optuna database without studies."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    file = folder / "optuna.db"
    file.write_bytes(empty_database())
    return optuna.storages.RDBStorage(f"sqlite:///{file}", skip_compatibility_check=True)


def add(storage: optuna.storages.RDBStorage, name: str, trials: Iterable[FrozenTrial]) -> optuna.Study:
    """Add a study of ended trials, by few statements: Optuna takes several for each report."""
    study = optuna.create_study(storage=storage, study_name=name, direction="maximize")
    rows: dict[type, list[dict[str, Any]]] = defaultdict(list)
    for number, trial in enumerate(trials):
        with_id = {"trial_id": 1000 * study._study_id + number}
        times = {"datetime_start": trial.datetime_start, "datetime_complete": trial.datetime_complete}
        of_study = {"study_id": study._study_id, "number": number, "state": trial.state}
        rows[models.TrialModel].append(with_id | of_study | times)
        for parameter, kind in trial.distributions.items():
            written = {"param_value": trial.params[parameter], "distribution_json": distribution_to_json(kind)}
            rows[models.TrialParamModel].append(with_id | written | {"param_name": parameter})
        for step, value in trial.intermediate_values.items():
            told = {"step": step, "intermediate_value": value, "intermediate_value_type": "FINITE"}
            rows[models.TrialIntermediateValueModel].append(with_id | told)
        if trial.value is not None:
            told = {"objective": 0, "value": trial.value, "value_type": "FINITE"}
            rows[models.TrialValueModel].append(with_id | told)
    with storage.engine.begin() as connection:
        for model, of_model in rows.items():
            connection.execute(insert(model), of_model)
    return study


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a database with a starved study, a healthy one, one without trials and one whose trials still run."""
    storage = empty(tmp_path_factory.mktemp("optuna"))
    starved = add(storage, "starved", drawn(STARVED, 4, 2))
    for _ in range(4):
        starved.ask()
    add(storage, "healthy", drawn(HEALTHY, 4, 4))
    optuna.create_study(storage=storage, study_name="without trials")
    optuna.create_study(storage=storage, study_name="just begun").ask()
    storage.engine.dispose()
    return storage.url


def test_a_starved_study_leads_to_its_causes_in_order(url: str) -> None:
    told = {"startup_s": 45.0, "duty_pct": 83.0, "cores": 12, "gpu_memory_gib": 24.0, "memory_used_gib": 12.0}
    found = diagnose(
        connect(url), "starved", Setup(**{name: KnownFact(value=fact, source="") for name, fact in told.items()})
    )
    assert {end: one.trials for end, one in found.facts.ended.items()} == {
        TrialEnd.COMPLETE: 8,
        TrialEnd.PRUNED: 173,
        TrialEnd.FAILED: 15,
        TrialEnd.INTERRUPTED: 0,
    }
    assert found.facts.running == 4
    running, training = found.facts.running_at_once, found.facts.training_at_once
    assert running is not None
    assert training is not None
    assert (running.usual, 1.5 < training.mean < 2.0) == (4, True)
    assert found.facts.setup.loader_workers == KnownFact(value=2.0, source="database", low=2.0, high=2.0)
    assert [one.kind for one in found.causes] == [Kind.PRUNING, Kind.PARALLEL, Kind.WORKERS]


def test_without_options_the_start_up_is_estimated_and_the_rest_is_unknown(url: str) -> None:
    found = diagnose(connect(url), "starved")
    startup = found.facts.setup.startup_s
    assert startup is not None
    assert startup.value == pytest.approx(45.0, abs=6.0)
    assert startup.source.startswith("estimated from 181 trials")
    assert [one.kind for one in found.causes] == [Kind.PRUNING]


def test_the_page_of_a_starved_study(tuner: Tuner, url: str) -> None:
    file = Path(url.removeprefix("sqlite:///"))
    before = file.read_bytes()
    code, out, err = tuner("diagnose", "--storage", url, "--study-name", "starved", *WATCHED)
    assert (code, err) == (0, "")
    assert (file.read_bytes(), sorted(path.name for path in file.parent.iterdir())) == (before, [file.name])
    lines = out.splitlines()
    blocks = [line.partition(":")[0].strip() for line in lines if line.startswith(("Cause", "  Change"))]
    causes = ["Cause 1, pruning with start-up", "Cause 2, few parallel trials", "Cause 3, few loader workers"]
    assert blocks == [causes[0], "Change", causes[1], "Change", causes[2], "Change"]
    told = "GPUs that are 83% busy have room for 100 / 83 = 1.20 times."
    assert [line for line in lines if "1.20 times as much" in line and "wait for storage" in line and told in line]


def test_a_healthy_study_needs_no_change(tuner: Tuner, url: str) -> None:
    machine = ("--cores", 16, "--duty", 96, "--gpu-memory", 24, "--memory-used", 20)
    code, out, _ = tuner("diagnose", "--storage", url, "--study-name", "healthy", *machine)
    assert (code, out.splitlines()[-1]) == (0, "Nothing to change.")
    assert "40, 67%, 20 min" in out


def test_what_is_unknown_is_said_first_and_the_last_lines_name_the_options_that_tell_it(tuner: Tuner, url: str) -> None:
    out = tuner("diagnose", "--storage", url, "--study-name", "healthy", "--n-jobs", 1)[1]
    assert facts_of(out)["cores"] == f"{usable_cores()} (a guess: those of this machine)"
    assert "Nothing to change" not in out
    lines = out.splitlines()
    first = next(place for place, line in enumerate(lines) if not line.startswith(("study", "  ")))
    assert "cannot be told yet" in lines[first]
    assert all(option in " ".join(lines[-2:]) for option in ("--memory-used", "--gpu-memory", "--duty"))
    told = ("--n-jobs", 1, "--cores", 16, "--duty", 96, "--gpu-memory", 24, "--memory-used", 20)
    out = tuner("diagnose", "--storage", url, "--study-name", "healthy", *told)[1]
    assert out.splitlines()[-1] == "Nothing to change."


def test_plain_optuna_code_is_read_as_far_as_it_leaves_traces(tmp_path: Path) -> None:
    storage = empty(tmp_path)
    pruner = optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=2)
    study = optuna.create_study(
        storage=storage, study_name="mine", sampler=optuna.samplers.TPESampler(seed=3), pruner=pruner
    )

    def train(trial: optuna.Trial) -> float:
        loss = trial.suggest_float("lr", 0.0, 1.0) + trial.suggest_categorical("dataloader_num_workers", [0, 2, -1])
        for step in range(3):
            trial.report(loss, step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return loss

    study.optimize(train, n_trials=14)
    found = diagnose(connect(storage.url), "mine")
    setup = found.facts.setup
    workers = [known for trial in study.trials if (known := trial.params["dataloader_num_workers"]) >= 0]
    assert 0 < len(workers) < 14  # with -1 the trainer takes a number of its own
    mean = pytest.approx(fmean(workers))
    assert setup.loader_workers == KnownFact(value=mean, source="database", low=0.0, high=2.0)
    pruned = found.facts.ended[TrialEnd.PRUNED].trials
    assert 0 < pruned < 14
    assert found.facts.ended[TrialEnd.COMPLETE].trials == 14 - pruned


def test_a_study_of_ours_says_more_of_itself(tuner: Tuner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIMICKIT_ROOT", "x")
    code, out, err = tuner("diagnose", "--study", "pi_plus", "--storage", OURS)
    assert (code, err) == (0, "")
    facts = facts_of(out)
    assert facts["start-up"] == "40% of all trial time"
    assert facts["complete trials"].startswith("49, 94%")
    assert facts["waiting for the next batch"] == "0% of the training (mimickit has no data loader)"
    assert "--loader-workers" not in out
    one = diagnose(connect(OURS), "pi_plus/amp_pi_plus").facts
    assert (one.study, len(one.trials)) == ("pi_plus/amp_pi_plus", 21)


def test_our_trials_say_their_loader_workers_and_an_interruption_is_no_failure(tmp_path: Path) -> None:
    file = tmp_path / "study.db"
    file.write_bytes(empty_database())
    waiting = replace(COUNTED_TRAINING, shares=Shares(data=0.2, evaluation=0.0, saves=0.0))
    with opened(f"sqlite:///{file}") as database:
        study, summary = (
            case_study(database),
            DeviceSummary(device="cuda:0", source="nvml", util_mean_pct=30.0),
        )
        for _ in range(4):
            times = {"start_up_s": 40.0, "total_s": 100.0, "window_s": 50.0}
            tell(study, ask(study), ok(30.0), **times, devices=(summary,), warm=True, training=waiting)
        tell(study, ask(study), Verdict(state=TrialState.FAIL, status="interrupted", retry=True), total_s=100.0)
        beside_others = replace(summary, util_mean_pct=None, others_mean_pct=40.0)
        tell(study, ask(study), CRASH, total_s=100.0, devices=(beside_others,))
        tell(study, ask(study), Verdict(state=TrialState.FAIL, status="interrupted", retry=True))  # it was killed
        workers = [trial.params["num_workers"] for trial in stored(database)]
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("update trials set datetime_start = '2026-11-21 08:' || (10 + 2 * number) || ':00'")
        connection.execute("update trials set datetime_complete = '2026-11-21 08:' || (11 + 2 * number) || ':40'")
        connection.commit()
    found = diagnose(connect(f"sqlite:///{file}"), "demo")
    assert {end.value: one.trials for end, one in found.facts.ended.items()} == {
        "complete": 4,
        "pruned": 0,
        "failed": 1,
        "interrupted": 2,
    }
    assert found.facts.failures == {"crash beside other programs": 1}
    assert found.facts.setup.loader_workers == mean_as_fact(workers, "database")
    assert found.facts.setup.duty_pct
    assert found.facts.setup.duty_pct.value < 19
    assert found.facts.setup.data_wait == KnownFact(value=pytest.approx(0.2), source="database")
    assert [one.kind for one in found.causes] == [Kind.IDLE, Kind.STARTUP, Kind.LOADING, Kind.FAILURES, Kind.GAPS]
    assert "quiet machine" in found.causes[3].change
    assert found.facts.startup_share == pytest.approx((4 * 40 + 2 * 100) / 600)  # two trials never trained
    assert found.facts.trial_s == 600  # when the killed trial ended is unknown
    assert found.facts.setup.others_pct == mean_as_fact([40.0], "database")
    assert "while no other program runs" in [*sentences(found)][-1]


def facts_of(printed: str) -> dict[str, str]:
    """Return the facts of a page: what each is about → the fact. Each has a line of its own."""
    pairs = re.findall(r"^  +(\S+(?: \S+)*)  +(\S.*)$", printed, re.MULTILINE)
    assert len({label for label, _ in pairs}) == len(pairs)
    return {label: fact.strip() for label, fact in pairs}


def test_facts_that_are_unknown_or_none_are_left_out(tuner: Tuner, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out = tuner("diagnose", "--storage", url, "--study-name", "healthy", "--gpus", 2)[1]
    facts = facts_of(out)
    assert (facts["GPUs"], facts["complete trials"].partition(",")[0]) == ("2 (--gpus)", "40")
    assert facts.keys().isdisjoint({"duty of the GPUs", "interrupted trials", "they run"})
    assert max(map(len, out.splitlines()[:-1])) <= 80  # the last is a command to copy


def test_the_document_has_the_keys_of_the_page(tuner: Tuner, url: str) -> None:
    code, out, _ = tuner("diagnose", "--storage", url, "--study-name", "starved", *WATCHED, "--json")
    assert code == 0
    document = json.loads(out)
    assert [one["kind"] for one in document["causes"]] == [Kind.PRUNING, Kind.PARALLEL, Kind.WORKERS]
    assert document["setup"]["duty_pct"] == {"value": 83.0, "source": "--duty", "low": None, "high": None}
    shown = {piece.text for piece in of("diagnose.md", "inline")}
    parts = [document, *document["causes"], document["setup"]["duty_pct"].keys() - {"value"}]
    assert {key for part in parts for key in part} <= shown


def test_the_notebook_shows_the_same_causes(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    matplotlib.use("Agg")
    monkeypatch.setenv("TUNER_STORAGE", url)
    notebook = nbformat.read(ROOT / "notebooks/slow_study.ipynb", as_version=4)
    names: dict[str, Any] = {}
    for cell in notebook.cells:
        if cell.cell_type == "code":
            exec(compile(cell.source, cell.id, "exec"), names)  # noqa: S102 - the code of our own notebook
    assert [one.kind for one in names["told"].causes] == [Kind.PRUNING, Kind.PARALLEL, Kind.WORKERS]
    assert len(names["free_s"]) == 4  # the trials that run at once
    shares = names["shares"]
    assert shares[0] == pytest.approx(100 * (1 - names["found"].facts.startup_share))
    assert list(shares.values()) == sorted(shares.values())


def test_what_cannot_be_diagnosed_ends_in_one_message(tuner: Tuner, url: str, tmp_path: Path) -> None:
    def refused(*arguments: object) -> str:
        code, out, err = tuner("diagnose", *arguments)
        assert (code, out, err.count("\n")) == (2, "", 1)
        return err

    assert "has no study 'starving'; its studies are healthy, just begun, starved, without trials" in refused(
        "--storage", url, "--study-name", "starving"
    )
    assert "has no trial that has ended (0 running, 0 waiting)" in refused(
        "--storage", url, "--study-name", "without trials"
    )
    assert "has no trial that has ended (1 running, 0 waiting)" in refused(
        "--storage", url, "--study-name", "just begun"
    )
    assert "name one study: --study-name NAME and --storage URL" in refused("--storage", url)
    assert "name one study: " in refused("--storage", url, "--study-name", "starved", "--study", "reference")
    for named in ("starved", "reference"):  # a study of another program, and one of ours that is not in the database
        said = refused("--storage", url, "--study", named)
        assert ("starved" in said, "name one with --study-name" in said) == (True, True)
    assert "--study-name needs --storage" in refused("--study-name", "starved")
    assert "there is no study database" in refused("--storage", f"sqlite:///{tmp_path}/missing.db", "--study-name", "x")
    for wrong in (("--loader-workers", -1), ("--startup-seconds", -1)):
        code, out, err = tuner("diagnose", "--storage", url, "--study-name", "starved", *wrong)
        assert (code, out, "Invalid value" in err) == (2, "", True)
    code, out, err = tuner("diagnose", "--storage", url, "--study-name", "starved", "--memory-used", "inf")
    assert (code, out, "it is no finite number" in err) == (2, "", True)
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("create table notes (text)")
    assert "is no study database of Optuna" in refused("--storage", f"sqlite:///{other}", "--study-name", "x")


def test_a_database_of_another_optuna_is_read_as_long_as_its_tables_are_the_same(
    tuner: Tuner, url: str, tmp_path: Path
) -> None:
    file = shutil.copy(url.removeprefix("sqlite:///"), tmp_path / "old.db")
    asked = ("diagnose", "--storage", f"sqlite:///{file}", "--study-name", "starved")
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("update version_info set library_version = '3.6.1'")
        connection.commit()
    assert tuner(*asked)[0] == 0
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("alter table trials rename column number to position")
        connection.commit()
    code, _, err = tuner(*asked)
    assert (code, "its table trials lacks number" in err) == (2, True)


def journal(file: Path, *, n_jobs: int) -> None:
    """Write a journal of a study whose trials wait until as many as can run at once have begun."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    storage = optuna.storages.JournalStorage(JournalFileBackend(str(file)))
    study = optuna.create_study(storage=storage, study_name="mine", sampler=optuna.samplers.TPESampler(seed=3))
    together = threading.Barrier(n_jobs)

    def train(trial: optuna.Trial) -> float:
        together.wait()
        trial.suggest_categorical("num_workers", [2, 4])
        trial.report(1.0, 1)
        return trial.suggest_float("lr", 0.0, 1.0)

    study.optimize(train, n_trials=4, n_jobs=n_jobs)
    study.ask()


@pytest.mark.parametrize(
    ("n_jobs", "said"), [(1, "one in each process, n_jobs=1"), (2, "2 in threads of one process, n_jobs=2")]
)
def test_a_journal_is_read_and_tells_threads_from_processes(
    tuner: Tuner, tmp_path: Path, n_jobs: int, said: str
) -> None:
    file = tmp_path / "journal.log"
    journal(file, n_jobs=n_jobs)
    before = file.read_bytes()
    code, out, err = tuner("diagnose", "--storage", file, "--study-name", "mine")
    assert (code, err) == (0, "")
    facts = facts_of(out)
    assert facts["they run"] == f"{said} (journal)"
    assert facts["complete trials"].startswith("4, 100%")
    assert facts["not ended"] == "1 running, 0 waiting"
    assert facts["loader workers of a trial"].endswith("(journal)")
    assert (file.read_bytes(), [path.name for path in tmp_path.iterdir()]) == (before, [file.name])


def test_what_is_no_journal_or_has_no_such_study_is_named(tuner: Tuner, tmp_path: Path) -> None:
    def refused(content: bytes, name: str = "mine") -> str:
        (tmp_path / "some.file").write_bytes(content)
        code, out, err = tuner("diagnose", "--storage", "some.file", "--study-name", name)
        assert (code, out, "Traceback" in err) == (2, "", False)
        return " ".join(err.split())

    journal(tmp_path / "journal.log", n_jobs=1)
    whole = (tmp_path / "journal.log").read_bytes()
    assert "has no study 'yours'; its studies are mine" in refused(whole, "yours")
    assert "its URL is sqlite:///some.file" in refused(b"SQLite format 3\0" + bytes(90))
    assert "is no journal of Optuna" in refused(b"case\tstatus\n")
    assert "has no study 'mine'" in refused(b"")
    for broken in (b'{"op_code": 99}\n', b'{"op_code": 4}\n', b"{}\n{}\n", b"{{{\n{{{\n"):
        assert "some.file" in refused(broken)


def test_damaged_rows_are_left_out(tuner: Tuner, url: str, tmp_path: Path) -> None:
    file = shutil.copy(url.removeprefix("sqlite:///"), tmp_path / "damaged.db")
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("update trials set datetime_complete = 'yesterday' where number < 20")
        connection.execute("update trials set datetime_start = null where number between 20 and 30")
        connection.execute("update trials set state = 'LOST' where number between 31 and 35")
        connection.execute("update trial_params set distribution_json = '{' where trial_id < 20")
        connection.commit()
    code, out, err = tuner("diagnose", "--storage", f"sqlite:///{file}", "--study-name", "starved")
    assert (code, err) == (0, "")
    assert "study starved: 191 ended trials" in out
    assert "Cause 1, pruning with start-up" in out
