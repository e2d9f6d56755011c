"""Recording the invented trainer: what is measured, in which order, and how a recording is resumed."""

import shutil
import subprocess
from pathlib import Path

import optuna
import pytest
from tests_loop import CASE, bounded
from tests_replays import FakeClock
from tests_table import FITS, SPACE, TRAINER, MadeUp, readings, recorded, study, workbench

from tuner.cli.work import with_stored_rungs
from tuner.errors import StudyError
from tuner.export.recorded_table import Table
from tuner.probe.probe_plan import ProbePlan, Stop
from tuner.probe.result import ProbeResult
from tuner.records.schema import RUNGS
from tuner.running.events import Ending, ProbeEnded
from tuner.running.job import Budget
from tuner.running.loop import plan_recording, recording_bench
from tuner.study.space import PATIENCE, Config, config_digest

FITTING = 3 * 3 * 2
"""Rungs that fit into memory, agents, and numbers of workers."""


def rungs(configs: list[Config]) -> list[int]:
    return [int(config["num_envs"]) for config in configs]


class Whole:
    """The recording of the whole space."""

    def __init__(self, folder: Path) -> None:
        prober = MadeUp()
        self.outcome, self.listener = recorded(folder, prober)
        self.results = prober.results


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    return Whole(tmp_path_factory.mktemp("whole"))


def test_every_config_that_may_fit_is_measured_once_and_whole(whole: Whole) -> None:
    assert whole.outcome.ending is Ending.EXHAUSTED
    fitting = [result for result in whole.results if result.failure is None]
    assert len({config_digest(result.config) for result in fitting}) == len(fitting) == FITTING
    assert set(whole.listener.told_status) == {"ok", "gpu_oom"}
    assert {result.iterations for result in fitting} == {len(readings(result.config)) for result in fitting}


def test_sessions_are_shared_and_memory_ends_last(whole: Whole) -> None:
    launched = [result.config for result in whole.results]
    assert rungs(launched) == sorted(rungs(launched))
    starts = [result for result in whole.results if result.failure is None and result.ready_s]
    assert rungs([result.config for result in starts]) == [8, 16, 64]
    beyond = [result.config for result in whole.results if result.failure]
    assert {(config["num_envs"], config["agent_variant"]) for config in beyond} == {
        (2 * FITS, "hiutil"),
        (2 * FITS, "default"),
    }


def test_no_config_of_a_recording_leads(whole: Whole) -> None:
    assert not any(event.leads for event in whole.listener.of(ProbeEnded))


def test_nothing_is_measured_again_cold(whole: Whole) -> None:
    assert all(result.warm for result in whole.results)


def test_a_recording_ends_with_its_time_and_goes_on_later(tmp_path: Path) -> None:
    clock, prober = FakeClock(), MadeUp()
    budget = Budget(clock, hours=0.006)
    chosen = study(space={**SPACE, "num_envs": {"ladder": [8, 2 * FITS]}})

    def interrupted() -> bool:
        clock.advance(1.0)
        return budget.is_over()

    first, _ = recorded(tmp_path, prober, chosen=chosen, interrupted=interrupted)
    table = Table.load(tmp_path / "walk.parquet")
    assert first.ending is Ending.INTERRUPTED
    assert 0 < len(table.configs) < 3 * 2
    second, _ = recorded(tmp_path, prober, chosen=chosen)
    assert second.ending is Ending.EXHAUSTED
    assert len(Table.load(tmp_path / "walk.parquet").configs) == 3 * 2 + 2


def test_a_probe_that_was_interrupted_is_measured_again_in_a_session(tmp_path: Path) -> None:
    class Counted(MadeUp):
        begun = 0

        def __call__(self, plan: ProbePlan, stop: Stop) -> ProbeResult:
            self.begun += 1
            return super().__call__(plan, stop)

    prober = Counted()
    recorded(tmp_path, prober, interrupted=lambda: prober.begun == 3)
    cut = prober.results[-1]
    recorded(tmp_path, prober, interrupted=lambda: prober.begun == 6)
    again = prober.results[prober.results.index(cut) + 1]
    assert cut.failure is not None
    assert (again.config, again.warm, again.iterations) == (cut.config, True, 5)


def test_a_sample_is_recorded_and_can_grow(tmp_path: Path) -> None:
    prober = MadeUp()
    recorded(tmp_path, prober, count=4)
    assert len(prober.results) <= 4
    recorded(tmp_path, prober, count=8)
    assert 4 < len(prober.results) <= 8
    launched = [config_digest(result.config) for result in prober.results]
    assert len(set(launched)) == len(launched)


def test_the_pruner_is_off_and_its_patience_no_part_of_the_space(tmp_path: Path) -> None:
    patient = study(space={**SPACE, PATIENCE: {"choices": [3, 2]}}, pruner={"name": "hyperband_patient"})
    bench = recording_bench(workbench(tmp_path, patient))
    assert bench.spec.pruner.name == "none"
    assert len(plan_recording(bench, CASE, None).configs) == 5 * 3 * 2


def test_a_recording_goes_on_whatever_the_study_s_pruner_is(tmp_path: Path) -> None:
    prober = MadeUp()
    recorded(tmp_path, prober, count=3)
    done = len(prober.results)
    recorded(tmp_path, prober, chosen=study(pruner={"patience": 7}), count=3)
    assert len(prober.results) == done > 0


def test_a_table_follows_the_first_of_several_objectives(tmp_path: Path) -> None:
    recorded(tmp_path, MadeUp(), chosen=study(objective="util,samples_per_s"), count=4)
    assert Table.load(tmp_path / "walk.parquet").header.objective == "min_avg_util"


def test_probes_of_a_recording_have_a_folder_of_their_own(tmp_path: Path) -> None:
    bench = workbench(tmp_path, study())
    assert recording_bench(bench).folder == bench.folder / "record"


def test_a_recording_in_the_database_of_its_search_has_rungs_of_its_own(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'shared.db'}"
    for name, rung in (("demo", 8), ("demo-record", 16)):
        optuna.create_study(storage=url, study_name=f"{name}/walk").set_user_attr(RUNGS, [rung])
    bench = recording_bench(workbench(tmp_path, study()), shares_database=True)
    assert with_stored_rungs(bench, url).rungs == {"walk": (16,)}


def test_without_sessions_configs_keep_the_order_of_the_space(tmp_path: Path) -> None:
    bench = workbench(tmp_path, study(probe={"warm": False}))
    assert list(plan_recording(bench, CASE, None).configs) == list(bench.space_for(CASE).configs())


def test_a_table_s_space_ends_where_the_trainer_s_ladder_does(tmp_path: Path) -> None:
    bench = bounded(workbench(tmp_path, study()), 100)
    recording = plan_recording(bench, CASE, None)
    assert {*rungs(list(recording.configs))} == {8, 16, 64}
    assert recording.circumstances.space["num_envs"].ladder == (8, 16, 64)


@pytest.mark.parametrize(
    ("space", "words"),
    [
        ({"num_envs": {"ladder": [8]}, "samples": {"choices": [1]}}, "samples"),
        ({"num_envs": {"ladder": [8]}, "width": {"choices": [8, "many"]}}, "width"),
    ],
)
def test_what_cannot_be_a_column_is_refused_before_anything_is_measured(
    tmp_path: Path, space: dict[str, object], words: str
) -> None:
    options = {"command": " ".join(["train", *(f"{{{name}}}" for name in space)]), "cases": ["walk"]}
    chosen = study(space=space, trainer={"name": "command", "options": options})
    with pytest.raises(StudyError, match=words):
        plan_recording(workbench(tmp_path, chosen), CASE, None)


@pytest.mark.parametrize("count", [None, 3])
def test_a_space_without_end_is_refused_before_it_fills_memory(tmp_path: Path, count: int | None) -> None:
    names = ("num_envs", "update_epochs", "batch_size", "num_workers")
    huge = study(space={name: {"choices": list(range(1, 101))} for name in names})
    with pytest.raises(StudyError, match=f"{CASE.name} holds more than 100,000 configs, too many to record"):
        plan_recording(workbench(tmp_path, huge), CASE, count)


def test_the_trainer_s_commit_is_kept_and_whether_its_files_differ(tmp_path: Path) -> None:
    root = tmp_path / "trainer"
    root.mkdir()

    def git(*arguments: str) -> str:
        command = [shutil.which("git") or "git", "-C", root, "-c", "user.name=x", "-c", "user.email=x", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def commit() -> str | None:
        bench = workbench(tmp_path, study(trainer={**TRAINER, "root": str(root)}))
        return plan_recording(bench, CASE, 1).circumstances.commit

    assert commit() is None
    (root / "train.py").write_text("1")
    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "--message", "one")
    head = git("rev-parse", "HEAD").strip()
    assert commit() == head
    (root / "train.py").write_text("2")
    assert commit() == f"{head}-dirty"


def test_a_sample_of_an_auto_ladder_comes_on_top_of_its_calibration(tmp_path: Path) -> None:
    chosen = study(space={**SPACE, "num_envs": {"ladder": "auto", "min": 8, "max": 4096}})
    prober = MadeUp()
    outcome, listener = recorded(tmp_path, prober, chosen=chosen, count=3)
    assert outcome.ending is Ending.EXHAUSTED
    assert (listener.calibrated, len(listener.fixed)) == (["num_envs"], 1)
    assert rungs([result.config for result in prober.results])[:3] == [16, 128, 64]
    table = Table.load(tmp_path / "walk.parquet")
    assert {16, 64, 128} <= {*rungs(table.configs)} <= {*table.space.values("num_envs")} == {*listener.fixed[0]}
    _, again = recorded(tmp_path, prober, chosen=chosen, count=3)
    assert (again.launched, again.fixed) == ([], listener.fixed)
