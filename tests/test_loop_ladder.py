"""The loop over a ladder of batch sizes: what holds of `num_envs` holds of any parameter that has the ladder."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests_loop import CASE, Quiet, bench, failed, measured, opened, reader, spec

from tuner.cli.record import safe_rungs
from tuner.export.tables import method_summary
from tuner.probe.probe_plan import ProbePlan, Stop
from tuner.probe.result import FailureKind, ProbeResult
from tuner.report.charts import along_ladder
from tuner.report.facts import gather, memory_end
from tuner.running.events import CaseOutcome, Ending
from tuner.running.job import RECOVER, SEARCH, Job
from tuner.running.loop import optimize
from tuner.search.strategies import in_order
from tuner.study.space import Config
from tuner.study.spec import StudySpec

pytestmark = pytest.mark.early

TOTAL_MIB = 10_000.0
LADDERS = {"auto": {"ladder": "auto", "min": 8, "max": 4096}, "written": {"ladder": [32, 512, 1024, 2048, 4096]}}
RUNGS = (8, 16, 32, 64, 128, 256, 512, 704, 896, 1024)
"""The rungs if `card` fits 944 samples with headroom and 1000 without."""


def batches(kind: str, name: str = "batch_size") -> StudySpec:
    options = {"command": f"train {{{name}}} {{workers}} {{out_dir}}", "cases": ["walk"]}
    space = {"workers": {"choices": [0, 2]}, name: LADDERS[kind]}
    return spec(trainer={"name": "command", "options": options}, space=space)


def card(name: str = "batch_size") -> Callable[[ProbePlan, Stop], ProbeResult]:
    """Return the probe of a card on which each sample of a batch takes 9 MiB."""

    def probe(plan: ProbePlan, stop: Stop) -> ProbeResult:
        rung = int(plan.config[name])
        peak_mib = 1000.0 + 9.0 * rung
        if peak_mib > TOTAL_MIB:
            return failed(plan, FailureKind.GPU_OOM)
        result = measured(plan, 99.0 * rung / (rung + 100.0))
        devices = tuple(replace(one, mem_peak_mib=peak_mib, mem_total_mib=TOTAL_MIB) for one in result.devices)
        return replace(result, start_up_s=10.0, devices=devices)

    return probe


def optimized(folder: Path, study: StudySpec, name: str = "batch_size", **job: object) -> tuple[CaseOutcome, Quiet]:
    listener = Quiet()
    with opened(folder) as database:
        made = Job(
            bench=bench(folder, study),
            database=database,
            probe=card(name),
            listener=listener,
            interrupted=lambda: False,
        )
        (outcome,) = optimize(replace(made, **job), [CASE])
    return outcome, listener


@pytest.mark.parametrize("name", ["batch_size", "n"])
def test_two_small_batches_make_the_rungs(tmp_path: Path, name: str) -> None:
    outcome, listener = optimized(tmp_path, batches("auto", name), name, trials=4)
    assert outcome.ending is Ending.TARGET
    assert [config[name] for config in listener.launched] == [16, 128, RUNGS[-1], RUNGS[0]]
    assert (listener.calibrated, listener.fixed) == ([name], [RUNGS])


@pytest.mark.parametrize("name", ["batch_size", "n"])
def test_a_recovery_goes_down_the_batches(tmp_path: Path, name: str) -> None:
    outcome, listener = optimized(tmp_path, batches("written", name), name, purpose=RECOVER)
    assert outcome.why == "a config has run"
    assert [config[name] for config in listener.launched] == [4096, 2048, 1024, 512]


def test_a_batch_above_one_that_ran_out_of_memory_is_not_launched(tmp_path: Path) -> None:
    study = batches("written", "n")
    listed: list[Config] = [{"workers": 0, "n": rung} for rung in (1024, 2048, 512, 4096)]
    purpose = replace(SEARCH, strategy=lambda space, *_: in_order(listed, space.ladder))
    _, listener = optimized(tmp_path, study, "n", purpose=purpose)
    assert [config["n"] for config in listener.launched] == [1024, 512]


@pytest.mark.parametrize("name", ["batch_size", "n"])
def test_the_report_and_the_tables_are_along_the_batches(tmp_path: Path, name: str) -> None:
    optimized(tmp_path, batches("written", name), name, trials=8)
    study = reader(tmp_path)
    (case,) = gather(study, tmp_path).cases
    assert case.summary.ladder == name
    assert case.out_of_memory
    assert name in memory_end(case)
    picture = along_ladder(case)
    assert picture is not None
    assert picture.layout["xaxis"]["title"]["text"] == name
    (row,) = method_summary(study).rows
    assert row[f"safe_{name}"] == row[f"largest_{name}"] == 512
    assert safe_rungs(study) == [f"walk: {name} 512 is known to be safe for every case"]
