"""`tuner soak` runs the best config until it is known whether its memory lasts, and then smaller ones."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest
from tests_loop import CASE, Quiet, bench, best, busy, measured, opened, spec, view

from tuner.errors import StudyError
from tuner.probe.probe_plan import Answer, Next, ProbePlan, Stop
from tuner.probe.result import DeviceSummary, Failure, FailureKind, ProbeResult
from tuner.records.trial import ProbeRecord
from tuner.running.job import Job
from tuner.running.loop import optimize
from tuner.search.memory_growth import PROVOKED as PROVOKED_RECORDS
from tuner.search.memory_growth import forecast_memory
from tuner.study import Config
from tuner.study.spec import StudySpec
from tuner.tools.soaking import (
    ALLOCATORS,
    SoakFollower,
    WholeTraining,
    newest_soaks,
    reported_failure,
    soak_purpose,
    verdicts,
)

TOTAL_MIB = 1000.0
HOURS = 1.0
TRAINING = WholeTraining(hours=HOURS)
PROVOKED = WholeTraining(hours=HOURS, meets_peak=True)
LADDER = {"space": {"num_envs": {"ladder": [64, 60, 56, 52, 48, 40, 32]}}}
RANDOM = {"search": {"trials": 2, "sampler": "random"}, **LADDER}


def device(mib: float, *, growth_mib: float = 0.0, seconds: float = 600.0) -> DeviceSummary:
    rises = [(at * seconds / 60, mib + at * growth_mib / 60) for at in range(61 if growth_mib else 1)]
    return DeviceSummary(
        device="cuda:0",
        source="nvml",
        util_mean_pct=50.0,
        mem_peak_mib=rises[-1][1],
        mem_total_mib=TOTAL_MIB,
        mem_rises=(*rises, (seconds, rises[-1][1])),
        mem_floors=tuple(mib + part * growth_mib / 12 for part in range(12)),
    )


class Prober:
    """Probes of a trainer whose memory grows with `num_envs`; a soak also shows what grows later."""

    def __init__(
        self,
        grows: Mapping[int, float],
        runs_out: tuple[int, ...] = (),
        needs_mib: tuple[float, float] = (0.0, 12.0),
        short: tuple[int, ...] = (),
    ) -> None:
        """`needs_mib`: what any config needs, and what an environment adds; `short`: what soaks for a tenth."""
        self.grows, self.runs_out, self.needs_mib, self.short = grows, runs_out, needs_mib, short
        self.soaked: list[int] = []

    def __call__(self, plan: ProbePlan, stop: Stop) -> ProbeResult:
        envs = int(plan.config["num_envs"])
        result = busy(plan, stop)
        is_soak = plan.slot.limits.iterations > 1000
        if is_soak:
            self.soaked.append(envs)
        if is_soak and envs in self.runs_out:
            return replace(result, failure=Failure(kind=FailureKind.GPU_OOM, rule="test", detail="out of memory"))
        growth = self.grows.get(envs, 0.0) if is_soak else 0.0
        util = replace(
            device(self.needs_mib[0] + self.needs_mib[1] * envs, growth_mib=growth), util_mean_pct=float(envs)
        )
        total_s = 60.0 if envs in self.short else 600.0
        changes = {"samples_per_s": 10.0 * envs, "samples_per_s_se": 1.0, "start_up_s": 0.0, "total_s": total_s}
        return replace(result, devices=(util, util), **changes)


def soaked(
    folder: Path,
    prober: Prober,
    *,
    study: StudySpec | None = None,
    searched: bool = False,
    first: Config | None = None,
    minutes: float = 15.0,
    hours: float = HOURS,
) -> Quiet:
    """Search and soak, or only soak where the study was `searched`; begin with the best, or with `first`."""
    listener, study = Quiet(), study or spec(**RANDOM)
    with opened(folder / "demo") as database:
        job = Job(
            bench=bench(folder, study), database=database, probe=prober, listener=listener, interrupted=lambda: False
        )
        if not searched:
            optimize(job, [CASE])
        optimize(
            replace(job, purpose=soak_purpose(job.bench, minutes, WholeTraining.of(job.bench, hours), first)), [CASE]
        )
    return listener


def test_a_best_whose_memory_lasts_is_soaked_once_and_stays_the_best(tmp_path: Path) -> None:
    prober = Prober({})
    soaked(tmp_path, prober)
    assert prober.soaked == [64]
    assert best(tmp_path / "demo").config == {"num_envs": 64}
    assert best(tmp_path / "demo").readings == 1  # a soak's own objectives do not count beside a probe's
    soaked(tmp_path, prober, searched=True)
    assert prober.soaked == [64]
    (flat,) = newest_soaks(view(tmp_path / "demo").trials, TRAINING).values()
    assert not flat.shows_growth  # a refusal would say little of the rungs below it
    *lines, last, doubt = verdicts(view(tmp_path / "demo"), TRAINING)
    assert "#2 num_envs=64: memory lasts 1 h with" in lines[0]
    assert "768 MiB now" in lines[0]
    assert "of 1000" in lines[0]
    assert "640" in lines[0]
    assert last == "walk: train with num_envs=64"
    assert "to be surer: flags in `soak:`" in doubt
    assert "far larger than all in this soak" in doubt
    told = list(verdicts(view(tmp_path / "demo"), replace(TRAINING, allocator=ALLOCATORS["gpu"])))
    assert told == [*lines, last, doubt]  # nothing larger is wanted
    assert list(verdicts(view(tmp_path / "demo"), PROVOKED))[-1] == last
    *_, still, hidden = verdicts(view(tmp_path / "demo"), replace(PROVOKED, hours=300.0))
    assert still == last
    assert "memory lasts 300 h with 9" in next(verdicts(view(tmp_path / "demo"), replace(PROVOKED, hours=300.0)))
    assert "may fill the memory" not in hidden
    (minutes,) = re.findall("to be surer: `--minutes ([0-9]+)` would show growth of less than", hidden)
    assert "which hides in this soak of 10 min 00 s and is allowed for" in hidden
    longer = replace(PROVOKED, hours=300.0).forecast((device(768.0, seconds=60.0 * int(minutes)),), ProbeRecord())
    assert longer is not None
    assert longer.filled_h >= 300.0
    assert not any("surer" in one for one in verdicts(view(tmp_path / "demo"), PROVOKED))


def test_a_soak_with_other_flags_limits_or_a_longer_time_is_made_again(tmp_path: Path) -> None:
    def soaked_again(
        changes: Mapping[str, object] = MappingProxyType({}), *, minutes: float = 15.0, hours: float = HOURS
    ) -> list[int]:
        before = len(prober.soaked)
        study = spec(**{**RANDOM, **changes})
        soaked(tmp_path, prober, study=study, searched=before > 0, minutes=minutes, hours=hours)
        return prober.soaked[before:]

    prober = Prober({})
    assert soaked_again() == [64]
    assert soaked_again() == []
    flags, limit = {"soak": {"flags": "--eval-steps 5"}}, {"environment": {"memory_mib": 900}}
    assert soaked_again(flags) == [64]
    assert soaked_again(flags) == []
    assert soaked_again(limit) == [64]
    assert soaked_again() == [64]
    assert soaked_again(minutes=5.0) == []  # a longer one says as much
    assert soaked_again(minutes=60.0) == [64]
    assert soaked_again(hours=2 * HOURS) == [64]  # the one before has ended early, for a shorter training
    assert soaked_again(hours=2 * HOURS) == []


def test_what_flags_bring_into_a_soak_decides_from_then_on(tmp_path: Path) -> None:
    prober, flags = Prober({}), {"soak": {"flags": "--eval-steps 5"}}
    soaked(tmp_path, prober)
    assert best(tmp_path / "demo").config["num_envs"] == 64
    prober.grows = {64: 3000.0, 60: 3000.0, 56: 3000.0}
    soaked(tmp_path, prober, searched=True, study=spec(**{**RANDOM, **flags}))
    assert prober.soaked[:2] == [64, 64]
    found = int(best(tmp_path / "demo").config["num_envs"])
    assert 40 <= found < 56
    training = WholeTraining.of(bench(tmp_path, spec(**{**RANDOM, **flags})), HOURS)
    assert not any("#2 " in line for line in verdicts(view(tmp_path / "demo"), training))
    prober.grows = {}  # a validation that needs less, with other flags
    soaked(tmp_path, prober, searched=True, study=spec(**RANDOM))
    assert best(tmp_path / "demo").config["num_envs"] == 64


def test_a_config_that_the_user_names_is_soaked_in_place_of_the_best(tmp_path: Path) -> None:
    prober = Prober({64: 100.0})  # 600 MiB an hour
    soaked(tmp_path, prober, first={"num_envs": 40})
    assert prober.soaked == [40]
    _, last, *_ = verdicts(view(tmp_path / "demo"), TRAINING)
    assert "num_envs=40" in last
    assert "num_envs=64" in last  # the best, which no soak has seen
    soaked(tmp_path, prober, searched=True, first={"num_envs": 64})
    assert prober.soaked[1] == 64
    assert 64 > max(prober.soaked[2:]) > 40
    assert best(tmp_path / "demo").config["num_envs"] == max(prober.soaked[2:])


def test_growth_moves_the_best_to_the_largest_rung_whose_memory_lasts(tmp_path: Path) -> None:
    prober = Prober(dict.fromkeys((64, 60, 56, 52, 48, 40, 32), 50.0))  # 300 MiB an hour: 58 environments last
    soaked(tmp_path, prober)
    assert prober.soaked[0] == 64
    assert set(prober.soaked) <= {64, 60, 56, 52, 48}
    assert best(tmp_path / "demo").config["num_envs"] in {56, 52}
    first, *_, last, _ = verdicts(view(tmp_path / "demo"), TRAINING)
    assert "growing all the time" in first
    for one in ALLOCATORS.values():
        assert one.variables[0] in list(verdicts(view(tmp_path / "demo"), replace(TRAINING, allocator=one)))[-1]
    assert last == f"walk: train with num_envs={best(tmp_path / 'demo').config['num_envs']}"


def test_what_grows_with_the_rung_is_less_at_the_next_one_and_what_any_config_needs_is_not(tmp_path: Path) -> None:
    grows = {envs: 70.0 * envs / 64 for envs in (64, 60, 56, 52, 48, 40, 32)}  # 420 MiB an hour with 64
    prober = Prober(grows, needs_mib=(600.0, 2.0))
    soaked(tmp_path, prober)
    assert prober.soaked == [64, 40]
    assert best(tmp_path / "demo").config["num_envs"] == 40
    grown, low = newest_soaks(view(tmp_path / "demo").trials, TRAINING).values()
    assert grown.shows_growth
    assert grown.trained_s > 0.5 * low.trained_s


def test_no_rung_above_one_that_was_refused_is_soaked(tmp_path: Path) -> None:
    prober = Prober(dict.fromkeys((64, 60, 56, 52, 48, 40, 32), 500.0))  # 3,000 MiB an hour: none lasts
    soaked(tmp_path, prober, study=spec(search={"trials": 7, "sampler": "random"}, space=LADDER["space"]))
    assert prober.soaked == sorted(prober.soaked, reverse=True)
    assert prober.soaked[:3] == [64, 48, 32]  # at most three quarters of the smallest that was refused


def test_two_refused_rungs_that_need_almost_as_much_do_not_tell_how_memory_grows(tmp_path: Path) -> None:
    prober = Prober({60: 9.0}, needs_mib=(0.0, 15.45))
    soaked(tmp_path, prober, study=spec(probe={"headroom_pct": 0}, **RANDOM))
    assert prober.soaked[:3] == [64, 60, 56]
    high, low = (one.share for one in list(newest_soaks(view(tmp_path / "demo").trials, TRAINING).values())[:2])
    assert 1.0 < low < high < 1.01 * low


def test_soaks_with_another_patience_of_the_pruner_are_of_the_same_line(tmp_path: Path) -> None:
    prober = Prober({64: 3000.0})
    study = spec(**{**RANDOM, "space": {**LADDER["space"], "pruner_patience": {"choices": [1, 2]}}})
    soaked(tmp_path, prober, study=study, first={"num_envs": 52, "pruner_patience": 1})
    soaked(tmp_path, prober, study=study, searched=True, first={"num_envs": 64, "pruner_patience": 2})
    assert prober.soaked == [52, 64]  # nothing below 52, which lasts


@pytest.mark.parametrize(("short", "order"), [((), [64, 48]), ((64,), [64, 48, 56, 60])])
def test_a_short_soak_that_was_refused_does_not_rule_out_the_rungs_below_it(
    tmp_path: Path, short: tuple[int, ...], order: list[int]
) -> None:
    prober = Prober({64: 3000.0}, short=short)
    soaked(tmp_path, prober)
    assert prober.soaked == order
    assert best(tmp_path / "demo").config["num_envs"] == order[-1]


def test_a_soak_that_runs_out_of_memory_moves_the_best_down_and_the_study_learns_it(tmp_path: Path) -> None:
    prober = Prober({}, runs_out=(64, 60))
    soaked(tmp_path, prober)
    assert prober.soaked[0] == 64
    assert best(tmp_path / "demo").config["num_envs"] == 56
    assert "out of memory" in next(verdicts(view(tmp_path / "demo"), TRAINING))


def test_a_soak_ends_once_memory_and_speed_are_known(tmp_path: Path) -> None:
    follow, cautious = SoakFollower(900.0, PROVOKED), SoakFollower(900.0, TRAINING)
    plan = bench(tmp_path, spec()).trainer.plan(CASE, {"num_envs": 8}, bench(tmp_path, spec()).slot(CASE, "x", {}))
    start = replace(measured(plan, 50.0), start_up_s=10.0, samples_per_s=100.0, samples_per_s_se=1.0)
    flat = replace(start, devices=(device(500.0, seconds=300.0),))
    assert follow(replace(flat, total_s=100.0)) == Answer(Next.MORE, next_result_s=900.0)  # when all its time is over
    assert follow(replace(flat, total_s=310.0)).next is Next.ENOUGH
    assert cautious(replace(flat, total_s=310.0)).next is Next.MORE  # longer batches may come
    told = SoakFollower(900.0, PROVOKED, ends_when_good=False)  # nothing worse comes after all of the soak
    assert told(replace(flat, total_s=310.0)).next is Next.MORE
    assert told(replace(flat, total_s=911.0)).next is Next.ENOUGH
    assert follow(replace(flat, total_s=320.0, samples_per_s_se=10.0)).next is Next.MORE
    doubtful = replace(start, devices=(device(990.0, seconds=300.0),))
    assert cautious(replace(doubtful, total_s=330.0)).next is Next.MORE
    assert cautious(replace(doubtful, total_s=911.0)).next is Next.ENOUGH


def test_a_study_that_says_that_nothing_worse_comes_keeps_no_room_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ALLOCATORS["gpu"].variables[0], "expandable_segments:True")
    found = list[list[int]]()
    for worse in (False, True):
        prober, folder = Prober({}, needs_mib=(0.0, 15.4)), tmp_path / str(worse)
        folder.mkdir()
        soaked(folder, prober, study=spec(probe={"headroom_pct": 0}, soak={"worse": worse}, **RANDOM))
        found.append(prober.soaked)
    assert found[0] == [64]
    assert found[1][-1] < 64


def test_a_training_that_is_told_in_iterations_grows_by_as_many_however_fast_they_are() -> None:
    fast, slow = (
        ProbeResult(
            config={},
            plan_digest="",
            started_at="",
            devices=devices,
            total_s=seconds,
            start_up_s=0.0,
            iterations=11,  # told ten at a time
            iterations_per_s=100 / seconds,
            window_s=seconds,
            trained_s=seconds,
        )
        for seconds in (300.0, 600.0)
        for devices in [(device(500.0, growth_mib=50.0, seconds=seconds),)]
    )
    told = [WholeTraining(hours=HOURS, iterations=501).forecast(one.devices, one) for one in (fast, slow)]
    by_hours = [TRAINING.forecast(one.devices, one) for one in (fast, slow)]
    most = [one.most_mib if one else 0.0 for one in (*told, *by_hours)]
    assert most[0] == pytest.approx(most[1], rel=0.02)
    assert most[0] == pytest.approx(750.0, rel=0.05)
    assert most[2] > 1.3 * most[3]
    assert str(WholeTraining(hours=HOURS, iterations=5000)) == "5,000 iterations"


@pytest.mark.parametrize("name", ALLOCATORS["gpu"].variables)
def test_steps_get_less_room_where_the_environment_of_a_study_has_freed_memory_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    for one in ALLOCATORS["gpu"].variables:
        monkeypatch.delenv(one, raising=False)
    desk = bench(tmp_path, spec(soak={"worse": False}))
    rises = (*((at, 500.0 + at / 2) for at in (0.0, 150.0, 250.0, 350.0, 500.0)), (600.0, 750.0))
    steps = replace(device(500.0), mem_rises=rises, mem_floors=(500.0,) * 12)
    told = [WholeTraining.of(one, HOURS) for one in (desk, replace(desk, variables={name: "expandable_segments:True"}))]
    assert [one.allocator for one in told] == [ALLOCATORS["gpu"], None]
    kept, given_back = (one.forecast((steps,), ProbeRecord()) for one in told)
    assert kept is not None
    assert given_back is not None
    assert kept.most_mib > 1.1 * given_back.most_mib


@pytest.mark.parametrize("command", ["train 'a b' {num_envs}", ["train", "a b", "{num_envs}"]])
def test_flags_of_a_soak_are_added_to_the_command(tmp_path: Path, command: str | list[str]) -> None:
    own = {"name": "command", "options": {"command": command, "cases": ["walk"]}}
    study = spec(soak={"flags": "--eval-steps 5 --split 'a long text'"}, trainer=own, **LADDER)
    trainer = soak_purpose(bench(tmp_path, study), 15.0).trainer
    assert trainer is not None
    plan = trainer.plan(CASE, {"num_envs": 64}, bench(tmp_path, study).slot(CASE, "x", {}))
    assert plan.argv == ("train", "a b", "64", "--eval-steps", "5", "--split", "a long text")
    other = study.model_copy(update={"trainer": study.trainer.model_copy(update={"options": {}})})
    with pytest.raises(StudyError, match="soak: the trainer command takes no flags"):
        soak_purpose(replace(bench(tmp_path, study), spec=other), 15.0)


def test_what_is_told_of_a_training_quotes_no_key() -> None:
    lines = ["login with hf_0A1b2C3d4E5f6G7h8", "hf_0A1b2C3d4E5f6G7h8: slurmstepd: error: Detected 1 oom_kill event"]
    failure = reported_failure(iter(lines), oom=False, gpu=True)
    assert (failure.kind, failure.detail) == (
        FailureKind.HOST_OOM,
        "***: slurmstepd: error: Detected 1 oom_kill event",
    )
    with pytest.raises(StudyError, match="no output shows why it failed"):
        reported_failure(iter(["loss 2.0"]), oom=False, gpu=True)
    with pytest.raises(StudyError, match="no output shows why it failed"):
        reported_failure(iter([]), oom=False, gpu=True)


def test_nothing_is_promised_for_sure_and_no_probability_after_seconds() -> None:
    short, usual = (device(100.0, seconds=seconds) for seconds in (24.0, 600.0))
    said = [
        PROVOKED.in_short(found)
        for one in (short, usual)
        if (found := forecast_memory((one,), HOURS, PROVOKED_RECORDS)) and found.chance > 0.995
    ]
    assert said[0].startswith("memory lasts 1 h, as far as a soak of 24.0 s can show: 100 MiB now")
    assert said[1].startswith("memory lasts 1 h with 99 % probability: 100 MiB now")
    full = PROVOKED.forecast((device(994.0, seconds=24.0),), ProbeRecord())
    assert full is not None
    assert "% probability: 994 MiB now" in PROVOKED.in_short(full)


def test_a_soak_says_which_growth_it_excludes() -> None:
    leak_mib_per_h, total_mib = 1980.0, 81_559.0
    for seconds in (90.0, 300.0):
        future_rises_mib = leak_mib_per_h * seconds / 3600
        leaking = replace(device(40_000.0, growth_mib=future_rises_mib, seconds=seconds), mem_total_mib=total_mib)
        forecast = PROVOKED.forecast((leaking,), ProbeRecord())
        assert forecast is not None
        if forecast.rise.kind != "slope":
            (hidden,) = re.findall(r"growth below ([\d,]+) MiB an hour would not show", PROVOKED.in_short(forecast))
            assert float(hidden.replace(",", "")) >= leak_mib_per_h
    still = PROVOKED.forecast((device(100.0),), ProbeRecord())
    assert still is not None
    assert "flat (growth below 3 MiB an hour would not show)" in PROVOKED.in_short(still)
    growing = PROVOKED.forecast((device(100.0, growth_mib=50.0),), ProbeRecord())
    assert growing is not None
    assert "would not show" not in PROVOKED.in_short(growing)


def test_memory_that_runs_out_is_not_said_to_last_with_little_probability() -> None:
    full = PROVOKED.forecast((device(994.0, growth_mib=50.0),), ProbeRecord())
    assert full is not None
    said = PROVOKED.in_short(full)
    assert said.startswith(
        "memory runs out within 1 h with 99 % probability: 1044 MiB now, growing all the time, it may"
    )


def test_a_soak_too_short_for_any_config_names_the_minutes_that_would_do(tmp_path: Path) -> None:
    prober = Prober({}, needs_mib=(0.0, 15.4))
    soaked(tmp_path, prober, study=spec(probe={"headroom_pct": 0}, space={"num_envs": {"ladder": [64]}}), hours=300.0)
    *_, last = verdicts(view(tmp_path / "demo"), replace(PROVOKED, hours=300.0))
    assert "of no config it is 95 % sure that its memory lasts" in last
    assert "or soak longer: `--minutes " in last
