"""The loop over similar cases: how the second case begins, and which cases learn nothing from the first."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest
from tests_devices import RecordedProbe, ReplayedSource
from tests_loop import DEVICES, Quiet, bench, busy, failed, opened, spec

from tuner.probe.probe_plan import ProbePlan, Stop
from tuner.probe.result import FailureKind, ProbeResult
from tuner.running.events import ProbeEnded
from tuner.running.job import RECOVER, Job, Workbench, purpose_of_recording
from tuner.running.loop import optimize
from tuner.study.cases import Case
from tuner.study.space import Config
from tuner.study.spec import StudySpec

FIRST, SECOND = Case(name="amp_walk"), Case(name="add_walk")
Fact = TypeVar("Fact")
COMMAND = {"command": "train {num_envs} {agent_variant} {out_dir}", "cases": [FIRST.name, SECOND.name]}


def study(**changes: object) -> StudySpec:
    return spec(**{"trainer": {"name": "command", "options": COMMAND}} | changes)


class Seen(Quiet):
    """A listener that remembers, per case, what was probed and where it came from."""

    @property
    def configs(self) -> dict[str, list[Config]]:
        return self._by_case(lambda event: event.config)

    @property
    def origins(self) -> dict[str, list[str | None]]:
        return self._by_case(lambda event: event.origin)

    def _by_case(self, fact: Callable[[ProbeEnded], Fact]) -> dict[str, list[Fact]]:
        ended = self.of(ProbeEnded)
        return {case: [fact(one) for one in ended if one.case == case] for case in {one.case for one in ended}}


def best_at_16(plan: ProbePlan, stop: Stop) -> ProbeResult:
    return busy(plan, stop) if int(plan.config["num_envs"]) <= 16 else failed(plan, FailureKind.GPU_OOM)


def worked(
    folder: Path,
    *cases: Case,
    probe: Callable[[ProbePlan, Stop], ProbeResult] = best_at_16,
    desk: Workbench | None = None,
    trials: int | None = None,
    as_job: Callable[[Job], Job] = lambda job: job,
) -> Seen:
    listener = Seen()
    with opened(folder) as database:
        job = Job(
            bench=desk or bench(folder, study()),
            database=database,
            probe=probe,
            listener=listener,
            interrupted=lambda: False,
            trials=trials,
        )
        optimize(as_job(job), cases)
    return listener


def rungs(configs: Sequence[Config]) -> list[object]:
    return [config["num_envs"] for config in configs]


@pytest.mark.parametrize("sampler", ["tpe", "gain"])
def test_the_second_case_begins_with_the_best_of_the_first(tmp_path: Path, sampler: str) -> None:
    desk = bench(tmp_path, study(search={"trials": 6, "seeds_per_variant": 2, "sampler": sampler}))
    seen = worked(tmp_path, FIRST, SECOND, desk=desk)
    assert rungs(seen.configs[SECOND.name])[0] == 16
    assert seen.origins[SECOND.name][0] == FIRST.name
    assert not any(seen.origins[FIRST.name] + seen.origins[SECOND.name][1:])


def test_the_seeds_follow(tmp_path: Path) -> None:
    seen = worked(tmp_path, FIRST, SECOND, trials=4)
    assert rungs(seen.configs[FIRST.name]) == [64, 64, 8, 8]
    assert rungs(seen.configs[SECOND.name]) == [8, 64, 64, 8]


def test_a_resumed_case_does_not_begin_again(tmp_path: Path) -> None:
    worked(tmp_path, FIRST, SECOND, trials=3)
    worked(tmp_path, FIRST)
    seen = worked(tmp_path, SECOND)
    assert seen.configs[SECOND.name]
    assert not any(seen.origins[SECOND.name])


def test_other_devices_lend_nothing(tmp_path: Path) -> None:
    worked(tmp_path, FIRST)
    others = tuple(replace(device, model="y") for device in DEVICES)
    recording = RecordedProbe(devices=others, samples=(), marks_s=(), total_s=0.0, exit_code=0)
    desk = replace(bench(tmp_path, study()), source=ReplayedSource(recording))
    assert rungs(worked(tmp_path, SECOND, desk=desk).configs[SECOND.name])[:4] == [64, 64, 8, 8]


def test_a_rung_s_default_still_comes_first_where_a_constraint_needs_it(tmp_path: Path) -> None:
    desk = bench(tmp_path, study(constraints={"min_avg_util": ">= 0.5 * default"}))

    def busier(plan: ProbePlan, stop: Stop) -> ProbeResult:
        result = best_at_16(plan, stop)
        more = 1.5 if plan.config["agent_variant"] == "hiutil" else 1.0
        summaries = tuple(replace(one, util_mean_pct=(one.util_mean_pct or 0.0) * more) for one in result.devices)
        return replace(result, devices=summaries)

    seen = worked(tmp_path, FIRST, SECOND, desk=desk, probe=busier, trials=8)
    begin = seen.configs[SECOND.name][:2]
    assert [tuple(config.values()) for config in begin] == [(16, "default"), (16, "hiutil")]
    assert seen.origins[SECOND.name][:2] == [None, FIRST.name]


def test_recovery_and_ordered_lists_go_their_own_way(tmp_path: Path) -> None:
    worked(tmp_path, FIRST)
    seen = worked(tmp_path, SECOND, as_job=lambda job: replace(job, purpose=RECOVER))
    assert rungs(seen.configs[SECOND.name])[0] == 64
    third = Case(name="ase_walk")
    listed = [{"num_envs": 32, "agent_variant": "default"}, {"num_envs": 8, "agent_variant": "default"}]

    def ordered(job: Job) -> Job:
        return replace(job, trials=2, purpose=purpose_of_recording(listed))

    seen = worked(tmp_path, third, as_job=ordered)
    assert seen.configs[third.name] == listed
