"""A search that keeps the training: a config whose first steps show another one ends early, and is never the best."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests_loop import CASE, Quiet, bench, measured, opened, spec, view

from tuner.count import Signature, TrainingCounts
from tuner.probe.probe_plan import Answer, Next, ProbePlan, Stop
from tuner.probe.result import FailureKind, ProbeResult, other_training
from tuner.running.events import ProbeEnded
from tuner.running.job import Job
from tuner.running.loop import optimize

SIGNATURE = Signature(
    samples_per_step=64,
    sample="16 float32",
    parameters=1000,
    shapes="ab",
    is_split=False,
    optimizer="AdamW",
    learning_rate=1e-3,
    weight_decays=(),
    precision="float32",
)


def searched(
    folder: Path, keeps: Sequence[str], *, asks: bool = True, is_early: bool = False
) -> tuple[Quiet, list[Answer]]:
    """Search a command whose steps have `batch` samples; return the listener, and what stopped its probes.

    `is_early`: whether the probes ask before the first steps are over.
    """
    options = {"command": "train --batch {batch}", "cases": ["walk"], "count": "inside", "keeps": list(keeps)}
    study = spec(
        trainer={"name": "command", "options": options},
        space={"batch": {"choices": [64, 128, 256]}},
        objective="samples_per_s",
        search={"trials": 3},
    )
    answers: list[Answer] = []

    def probe(plan: ProbePlan, stop: Stop) -> ProbeResult:
        batch = int(plan.config["batch"])
        counts = TrainingCounts(signature=replace(SIGNATURE, samples_per_step=batch), witness="module")
        result = replace(measured(plan, 50.0), samples_per_s=10.0 * batch, samples_per_s_se=0.1, training=counts)
        answer = stop(replace(result, training=replace(counts, is_early=is_early))) if asks else Answer(Next.GO)
        answers.append(answer)
        if answer.next is Next.OTHER_TRAINING:
            return replace(result, failure=other_training(answer.reason or ""), samples_per_s=None)
        return result

    listener = Quiet()
    with opened(folder) as database:
        job = Job(
            bench=bench(folder, study), database=database, probe=probe, listener=listener, interrupted=lambda: False
        )
        optimize(job, [CASE])
    return listener, answers


def test_a_config_of_another_batch_ends_after_its_first_steps_and_is_never_the_best(tmp_path: Path) -> None:
    listener, answers = searched(tmp_path, ["batch"])
    stopped = [answer for answer in answers if answer.next is Next.OTHER_TRAINING]
    assert [answer.reason for answer in stopped[:1]] == ["samples per optimizer step: 64 → 128"]
    best = view(tmp_path).best
    assert best is not None
    assert best.config == {"batch": 64}
    kinds = {event.status for event in listener.of(ProbeEnded) if event.config != {"batch": 64}}
    assert kinds == {FailureKind.OTHER_TRAINING}


@pytest.mark.parametrize("asks", [False, True])
def test_a_probe_that_nobody_stopped_is_judged_at_its_end(tmp_path: Path, *, asks: bool) -> None:
    _, answers = searched(tmp_path, ["batch"], asks=asks, is_early=True)  # an epoch's last batch may be the first seen
    assert not any(answer.next is Next.OTHER_TRAINING for answer in answers)
    best = view(tmp_path).best
    assert best is not None
    assert best.config == {"batch": 64}


def test_a_part_that_is_free_may_vary(tmp_path: Path) -> None:
    _, answers = searched(tmp_path, ["model"])
    assert not any(answer.next is Next.OTHER_TRAINING for answer in answers)
    best = view(tmp_path).best
    assert best is not None
    assert best.config == {"batch": 256}


def test_what_was_counted_is_kept_with_the_trial(tmp_path: Path) -> None:
    searched(tmp_path, [])
    kept = [trial.probe.training for standing in view(tmp_path).configs for trial in standing.trials]
    assert {counts.signature.samples_per_step for counts in kept if counts} == {64, 128, 256}
