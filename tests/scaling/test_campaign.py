"""A campaign keeps each measurement at once, and ends early only where nothing else can succeed."""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from tests_nodes import FakeCluster
from tests_scaling import FUSION, point, results

from tuner.devices.cpu import CpuSource, usable_cores
from tuner.devices.found import part_of
from tuner.errors import DeviceError, DeviceLostError, OutputError, TrainerError
from tuner.nodes.source import Nodes
from tuner.probe import THREADS
from tuner.probe.probe_plan import DeviceSource, Next, ProbePlan, Stop
from tuner.probe.result import STOPPED, Failure, FailureKind, ProbeResult
from tuner.study.spec import StudySpec
from tuner.tools.scaling.campaign import (
    Measuring,
    built_in_subject,
    earlier_results,
    measure_all,
    missing_runs,
    nodes_of,
    routes,
    scaling_runs,
)
from tuner.tools.scaling.results import Results, read, write

SPEC = {"name": "demo", "trainer": {"name": "command"}, "space": {"num_envs": {"ladder": [2]}}}
Rate = Callable[[ProbePlan], float | Failure | None]


class KnownProber:
    """A `Prober` whose probes take no time: `rate` knows the samples per second of a plan, or the failure."""

    open_session = None

    def __init__(self, rate: Rate) -> None:
        self._rate = rate
        self.closed = False

    def utilisation(self) -> tuple[float | None, ...]:
        return ()

    def __call__(self, plan: ProbePlan, stop: Stop) -> ProbeResult:
        found = self._rate(plan)
        blank = ProbeResult(config=plan.config, plan_digest=plan.digest, started_at="", total_s=1.0)
        if isinstance(found, Failure):
            return replace(blank, failure=found)
        if found is None:
            return blank
        return replace(
            blank,
            total_s=5.0,
            window_s=4.0,
            trained_s=4.0,
            iterations=8,
            iterations_per_s=40.0,  # it reports every 20th step
            samples_per_s=found,
            samples_per_s_se=found / 100,
        )

    def close(self) -> None:
        """Remember it."""
        self.closed = True


class Campaign:
    """All runs of one workload on two devices."""

    def __init__(self, folder: Path, name: str = "ppo") -> None:
        self._folder = folder
        scaled = built_in_subject(name, gpu=False, window_s=1.0, sizes=(16, 32))
        self.probers: list[KnownProber] = []
        self.plans: list[ProbePlan] = []
        self.path = folder / "results.json"
        self.kept: list[int] = []
        """The number of points in the file after each run."""
        self.runs = list(scaling_runs([scaled], (1, 2), ("host",)))

    def measure(self, rate: Rate, known: Results | None = None) -> Results:
        def noted(plan: ProbePlan) -> float | Failure | None:
            self.plans.append(plan)
            return rate(plan)

        def opened(_: object) -> KnownProber:
            self.probers.append(KnownProber(noted))
            return self.probers[-1]

        measuring = Measuring(partial(part_of, CpuSource(2)), open_prober=opened, folder=self._folder)
        try:
            return measure_all(
                measuring,
                self.runs,
                known or results(on_gpu=False),
                path=self.path,
                show=lambda points: self.kept.append(len(read(self.path).points)),
            )
        finally:
            measuring.close()


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    return Campaign(tmp_path)


def test_every_run_is_measured_and_kept_at_once(campaign: Campaign) -> None:
    done = campaign.measure(lambda plan: 100.0 * len(plan.slot.devices))
    assert campaign.kept == [1, 2, 4, 6, 7, 8]
    assert done == read(campaign.path)
    assert {(one.mode, len(one.gpus), one.samples_per_s) for one in done.points} == {
        ("single", 1, 100.0),
        ("beside", 1, 100.0),
        ("joined", 2, 200.0),
    }
    assert {one.samples_per_step for one in done.points if one.mode == "joined"} == {200.0 / 40.0}


def test_programs_stay_open_until_other_ranks_are_needed(campaign: Campaign) -> None:
    campaign.measure(lambda _: 100.0)
    assert len(campaign.probers) == 1 + 2 + 1
    assert all(prober.closed for prober in campaign.probers)


class GrowingProber(KnownProber):
    """A `Prober` that measures until it is not asked for more: after each second the error is known, in percent."""

    def __init__(self, errors_pct: Sequence[float]) -> None:
        super().__init__(lambda _: 100.0)
        self._errors_pct = errors_pct
        self.seconds = 0
        """The length of the window with which the last probe ended."""

    def __call__(self, plan: ProbePlan, stop: Stop) -> ProbeResult:
        for seconds, error_pct in enumerate(self._errors_pct, start=1):
            self.seconds = seconds
            measured = replace(super().__call__(plan, stop), window_s=seconds, samples_per_s_se=error_pct)
            if stop(measured).next is not Next.MORE:
                return measured
        raise AssertionError("the probe was to end earlier")


@pytest.mark.parametrize(
    ("errors_pct", "seconds"), [((2,), 1), ((90, 30, 8), 3), ((90,) * 9, 4)], ids=["steady", "slow start", "never"]
)
def test_a_measurement_goes_on_while_its_speed_is_not_steady(
    errors_pct: tuple[float, ...], seconds: int, tmp_path: Path
) -> None:
    scaled = built_in_subject("ppo", gpu=False, window_s=1.0, sizes=(16,))
    prober = GrowingProber(errors_pct)
    with closing(Measuring(partial(part_of, CpuSource(1)), open_prober=lambda _: prober, folder=tmp_path)) as measuring:
        measuring.measure(next(scaling_runs([scaled], (1,), ("gloo",))))
    assert prober.seconds == seconds


def test_the_route_reaches_the_ranks(campaign: Campaign) -> None:
    campaign.measure(lambda _: 100.0)
    off = [plan.env.get("NCCL_P2P_DISABLE") for plan in campaign.plans]
    assert off == [None if len(plan.slot.devices) == 1 else "1" for plan in campaign.plans]


def test_programs_beside_each_other_share_the_cores(campaign: Campaign, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(THREADS, raising=False)
    campaign.measure(lambda _: 100.0)
    beside = [plan for plan in campaign.plans if "-beside" in plan.slot.out_dir.name]
    assert {plan.env[THREADS] for plan in beside} == {str(max(1, usable_cores() // 2))}


def test_over_nodes_one_program_after_another_has_the_first_devices(tmp_path: Path) -> None:
    cluster, plans = FakeCluster(), list[ProbePlan]()

    def opened(part: DeviceSource) -> KnownProber:
        def noted(plan: ProbePlan) -> float:
            assert part.devices == plan.slot.devices
            plans.append(plan)
            return 100.0

        return KnownProber(noted)

    spec = StudySpec.model_validate({**SPEC, "slurm": {"nodes": 2, "gpus": 2}})
    scaled = built_in_subject("ppo", gpu=True, window_s=1.0, sizes=(32,))
    runs = list(scaling_runs([scaled], (1, 2, 4), routes((), on_gpu=True, over_nodes=True), beside=False))
    with closing(Nodes(spec, ("a", "b"), cluster.clock, connect=cluster)) as nodes:
        measuring = Measuring(nodes.part, open_prober=opened, folder=tmp_path, per_node=2)
        for run in runs:
            measuring.measure(run)
    placed = {(len(plan.slot.devices), plan.slot.nodes) for plan in plans}
    assert placed == {(1, 1), (2, 1), (4, 2)}
    assert {run.mode for run in runs} == {"single", "joined"}
    assert not any("CUDA_VISIBLE_DEVICES" in plan.env for plan in plans)


def test_nodes_have_equally_many_devices_of_a_trial() -> None:
    assert [nodes_of(count, 4) for count in (1, 4, 6, 8, 12)] == [1, 1, 2, 2, 3]
    assert nodes_of(7, None) == 1
    with pytest.raises(DeviceError, match=r"5 devices leave a node with fewer .* 6 for 2 nodes, or up to 4"):
        nodes_of(5, 4)


def test_a_size_that_fails_leaves_the_others(campaign: Campaign) -> None:
    full = Failure(kind=FailureKind.GPU_OOM, rule="", detail="CUDA out of memory")
    done = campaign.measure(lambda plan: full if plan.config["num_envs"] == 32 else 100.0)
    assert campaign.kept[-1] == 8
    assert {one.size for one in done.points if one.samples_per_s} == {16}
    assert {one.detail for one in done.points if one.failure} == {"CUDA out of memory"}


@pytest.mark.parametrize(("kind", "said"), [(FailureKind.GPU_LOST, "ppo: gone"), (FailureKind.GPU_BUSY, "wait for")])
def test_a_card_that_leaves_ends_the_campaign_and_what_was_measured_is_kept(
    kind: FailureKind, said: str, campaign: Campaign
) -> None:
    gone = Failure(kind=kind, rule="", detail="gone")
    with pytest.raises(DeviceError, match=f"{said}.*; {campaign.path} keeps 7 measurements"):
        campaign.measure(lambda plan: gone if len(plan.slot.devices) == 2 else 100.0)
    assert sum(one.samples_per_s is not None for one in read(campaign.path).points) == 6


@pytest.mark.parametrize(("kind", "tried"), [(FailureKind.CRASH, 3), (FailureKind.MISSING_DEPENDENCY, 1)])
def test_failures_before_anything_has_run_end_the_campaign(kind: FailureKind, tried: int, campaign: Campaign) -> None:
    with pytest.raises(TrainerError, match=f"ppo: {kind}: broken"):
        campaign.measure(lambda _: Failure(kind=kind, rule="", detail="broken"))
    assert len(campaign.kept) == tried


def test_a_card_that_does_not_answer_at_all_costs_no_result(campaign: Campaign) -> None:
    def rate(plan: ProbePlan) -> float:
        if len(plan.slot.devices) == 2:
            raise DeviceLostError("cuda:1 does not answer")
        return 100.0

    with pytest.raises(DeviceLostError, match=r"cuda:1 does not answer; .* keeps 6 measurements"):
        campaign.measure(rate)
    assert len(read(campaign.path).points) == 6


def test_an_interrupted_run_is_left_out(campaign: Campaign) -> None:
    done = campaign.measure(lambda plan: STOPPED if plan.config["num_envs"] == 32 else 100.0)
    assert [one.size for one in done.points] == [16]


def test_an_interrupted_campaign_makes_only_the_runs_that_are_missing(campaign: Campaign, tmp_path: Path) -> None:
    blank, whole = results(on_gpu=False), campaign.runs
    assert earlier_results(campaign.path, blank) == blank
    full = Failure(kind=FailureKind.GPU_OOM, rule="", detail="CUDA out of memory")
    asked = iter([100.0, full, 100.0, 100.0, STOPPED, STOPPED])
    campaign.measure(lambda _: next(asked))
    left = missing_runs(whole, earlier_results(campaign.path, blank))
    assert left == [whole[1], *whole[3:]]
    campaign.runs = left
    campaign.measure(lambda _: 100.0, earlier_results(campaign.path, blank))
    assert missing_runs(whole, earlier_results(campaign.path, blank)) == []
    assert len(read(campaign.path).points) == 8


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (results(cards=4), "holds results of another machine.*devices there"),
        (
            results(subjects=(replace(FUSION, text="is new"),)),
            "results of another fusion.*There: trains a network; here: is new",
        ),
    ],
)
def test_other_results_are_kept(found: Results, said: str, tmp_path: Path) -> None:
    write(results(point("single", 9.0)), tmp_path / "mine.json")
    with pytest.raises(OutputError, match=said):
        earlier_results(tmp_path / "mine.json", found)


def test_a_trainer_that_counts_nothing_is_refused(campaign: Campaign) -> None:
    with pytest.raises(TrainerError, match="counts no samples"):
        campaign.measure(lambda _: None)
