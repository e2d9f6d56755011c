"""The loop over a batch size that is `auto`: worked out once, then fixed; no probe that only shows memory is best."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests_devices import RecordedProbe, ReplayedSource
from tests_loop import CASE, Quiet, bench, failed, measured, opened, reader, spec, view

from tuner.errors import TrainerError
from tuner.probe.probe_plan import Device, ProbePlan
from tuner.probe.protocols import Stop
from tuner.probe.result import FailureKind, ProbeResult
from tuner.running.events import AutoFixed, CaseOutcome, Ending
from tuner.running.job import Job, Probe
from tuner.running.loop import optimize
from tuner.study.spec import StudySpec
from tuner.trainers.registry import check_values, open_trainer

TOTAL_MIB = 10_000.0
CARDS = tuple(Device(name=f"cuda:{index}", model="x", mem_total_mib=TOTAL_MIB) for index in range(2))
OPTIONS = {"command": "train {num_envs} {batch} {out_dir}", "cases": ["walk"]}


def batched(batch: object = "auto") -> StudySpec:
    space = {"num_envs": {"ladder": [8, 16]}, "batch": batch}
    return spec(trainer={"name": "command", "options": OPTIONS}, space=space)


def card(plan: ProbePlan, stop: Stop) -> ProbeResult:
    """Probe a card on which a sample of the batch takes 4 MiB; small batches keep it busiest."""
    size = int(plan.config["batch"])
    result = measured(plan, 100.0 - size / 1000.0)
    used_mib = 1000.0 + 4.0 * size
    devices = tuple(replace(one, mem_peak_mib=used_mib, mem_total_mib=TOTAL_MIB) for one in result.devices)
    return replace(result, devices=devices)


def optimized(folder: Path, probe: Probe = card, *, study: StudySpec | None = None) -> tuple[CaseOutcome, Quiet]:
    listener = Quiet()
    recording = RecordedProbe(devices=CARDS, samples=(), marks_s=(), total_s=0.0, exit_code=0)
    desk = replace(bench(folder, study or batched()), source=ReplayedSource(recording))
    with opened(folder) as database:
        job = Job(bench=desk, database=database, probe=probe, listener=listener, interrupted=lambda: False)
        (outcome,) = optimize(job, [CASE])
    return outcome, listener


def test_two_probes_work_the_size_out_and_the_search_uses_it(tmp_path: Path) -> None:
    outcome, listener = optimized(tmp_path)
    assert outcome.ending is Ending.EXHAUSTED
    assert [config["batch"] for config in listener.launched] == [48, 384, 1024, 1024]
    assert {config["num_envs"] for config in listener.launched[:2]} == {8}
    fitted = view(tmp_path).attributes.batch
    assert fitted is not None
    assert (fitted.size, fitted.per_sample_mib, fitted.free_mib) == (1024, pytest.approx(4.0), pytest.approx(9000.0))
    assert [(told.values, told.why) for told in listener.of(AutoFixed)] == [((1024,), str(fitted))]
    shown = {trial.config["batch"]: trial.probe.ineligible for trial in reader(tmp_path).trials()}
    assert shown == {48: shown[384], 384: "it only shows how much memory a batch takes", 1024: None}


def test_a_size_stays_whatever_new_probes_would_say(tmp_path: Path) -> None:
    optimized(tmp_path)
    _, again = optimized(tmp_path, lambda plan, stop: failed(plan, FailureKind.GPU_OOM))
    assert (again.calibrated, again.launched, again.fixed) == ([], [], [(1024,)])


@pytest.mark.parametrize("at", [1, 2])
def test_a_kill_loses_nothing(tmp_path: Path, at: int) -> None:
    seen: list[object] = []

    def dies(plan: ProbePlan, stop: Stop) -> ProbeResult:
        seen.append(plan.config)
        if len(seen) == at:
            raise KeyboardInterrupt
        return card(plan, stop)

    with pytest.raises(KeyboardInterrupt):
        optimized(tmp_path, dies)
    _, listener = optimized(tmp_path)
    assert listener.fixed == [(1024,)]
    assert len(listener.launched) == 5 - at


def test_a_case_in_which_no_size_runs_stops_with_a_message(tmp_path: Path) -> None:
    outcome, _ = optimized(tmp_path, lambda plan, stop: failed(plan, FailureKind.GPU_OOM))
    assert outcome.stopped
    assert outcome.failure is not None
    assert (
        outcome.failure.detail == "batch is auto, and fewer than two batch sizes ran; write `choices` of sizes that run"
    )


def test_a_size_that_is_too_slow_does_not_make_the_batch_small(tmp_path: Path) -> None:
    def slow(plan: ProbePlan, stop: Stop) -> ProbeResult:
        return failed(plan, FailureKind.TOO_SLOW) if plan.config["batch"] == 48 else card(plan, stop)

    _, listener = optimized(tmp_path, slow, study=batched({"batch": "auto", "max": 4096}))
    assert [config["batch"] for config in listener.launched[:3]] == [48, 384, 3072]
    assert listener.fixed == [(1024,)]


def test_the_study_may_name_the_samples_and_the_most(tmp_path: Path) -> None:
    assert optimized(tmp_path / "a", study=batched({"batch": "auto", "samples": 600}))[1].fixed == [(512,)]
    assert optimized(tmp_path / "b", study=batched({"batch": "auto", "max": 100}))[1].fixed == [(64,)]


@pytest.mark.parametrize(
    ("trainer", "parameter", "message"),
    [
        ("mimickit", "batch_size", "batch_size counts multiples of num_envs for MimicKit"),
        ("reference", "batch_size", "batch_size counts multiples of num_envs .*; write `minibatch: auto`"),
        ("reference", "update_epochs", "update_epochs is no batch size"),
    ],
)
def test_a_parameter_that_counts_no_samples_is_refused(
    trainer: str, parameter: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "args").mkdir()
    named = spec(trainer={"name": trainer, "root": str(tmp_path), "options": {}}, space={parameter: "auto"})
    with pytest.raises(TrainerError, match=message):
        check_values(open_trainer(named.trainer), named.build_space().parameters)


def test_the_reference_trainer_knows_its_samples() -> None:
    named = spec(trainer={"name": "reference"}, space={"minibatch": "auto"})
    assert open_trainer(named.trainer).samples_at_hand("minibatch", {"num_envs": 64}) == 64 * 32
