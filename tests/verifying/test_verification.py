"""The runs of a verification, and what they come to, with a fake trainer."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests_counts import COUNTED_TRAINING
from tests_loop import CASE, DEVICES, Quiet, bench, failed, measured, opened, spec, view
from tests_replays import FakeClock

from tuner.errors import StudyError, TrainerError
from tuner.probe.probe_plan import Next, ProbePlan, Stop
from tuner.probe.result import DeviceSummary, FailureKind, ProbeResult
from tuner.running.events import CaseStarted, ProbeEnded
from tuner.running.job import Budget, Job
from tuner.running.loop import optimize
from tuner.store.database import Database
from tuner.tools.verifying import Findings, Outcome, Verification, changed_settings, introduction, report, subjects

SPEEDS = {0: 100.0, 1: 150.0, 2: 200.0}
"""Workers → samples/s."""
STUDY = spec(
    trainer={"name": "command", "options": {"command": "train {workers}", "cases": ["walk"]}},
    objective="samples_per_s",
    space={"workers": {"choices": [0, 1, 2]}},
    search={"trials": 3, "sampler": "random"},
)


class Bed:
    """A searched study of which configs are measured again."""

    def __init__(self, folder: Path, database: Database) -> None:
        self.clock, self.ran, self.folder = FakeClock(), list[int](), folder / "demo"
        self.times: Callable[[int, int], float] = lambda workers, run: 1.0
        """A config and the number of its run → the factor of its usual speed."""
        self.change: Callable[[ProbeResult], ProbeResult] = lambda result: result
        desk = bench(folder, STUDY)
        self.job = Job(bench=desk, database=database, probe=self.probe, interrupted=lambda: False)

    def probe(self, plan: ProbePlan, stop: Stop) -> ProbeResult:
        workers = int(plan.config["workers"])
        self.ran.append(workers)
        self.clock.advance(20.0)
        speed = SPEEDS[workers] * self.times(workers, self.ran.count(workers))
        result = replace(
            measured(plan, 70.0),
            samples_per_s=speed,
            samples_per_s_se=0.001 * speed,
            host={"driver": "550", "script": "train.py a"},
            training=replace(COUNTED_TRAINING, torch="2.11"),
        )
        if stop(result).next is Next.INTERRUPTED:
            return failed(plan, FailureKind.INTERRUPTED)
        return self.change(result)

    def work(self, minutes: float = 4.0) -> Verification:
        return Verification(self.job, CASE, view(self.folder), Budget(self.clock, minutes / 60.0), lambda line: None)

    def verified(self, *, minutes: float = 4.0, at_least: float = 0.99) -> Findings:
        findings = self.work(minutes).run(at_least)
        assert findings
        return findings


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return the database of a search, which each test gets a copy of."""
    folder = tmp_path_factory.mktemp("searched")
    with opened(folder / "demo") as database:
        optimize(Bed(folder, database).job, [CASE])
    return (folder / "demo/study.db").read_bytes()


@pytest.fixture
def bed(tmp_path: Path, searched: bytes) -> Iterator[Bed]:
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo/study.db").write_bytes(searched)
    with opened(tmp_path / "demo") as database:
        yield Bed(tmp_path, database)


def told(findings: Findings) -> str:
    return "\n".join(report(findings))


def test_equal_speeds_hold_and_the_configs_take_turns(bed: Bed) -> None:
    findings = bed.verified()
    assert findings.verdict is Outcome.HOLDS
    assert bed.ran[:4] == [0, 2, 2, 0]
    assert [len(subject.results) for subject in findings.subjects] == [findings.rounds] * 2
    assert findings.gain
    assert findings.gain.value == pytest.approx(2.0)
    text = told(findings)
    assert "it holds: the best" in text
    assert "pauses left out, the best makes 2.0" in text  # `tuner status` counts them
    assert "in the study 2.00 times" in text
    assert "changed: nothing; unchanged: driver, torch, script" in text


def test_the_study_stays_as_it_is(bed: Bed) -> None:
    before = view(bed.folder).counts.total()
    bed.verified()
    assert view(bed.folder).counts.total() == before


@pytest.mark.parametrize(("slower", "too"), [({0, 2}, "your command is too"), ({2}, "your command is not")])
def test_a_slower_best_is_said_and_whether_the_own_command_is_slower_too(bed: Bed, slower: set[int], too: str) -> None:
    bed.times = lambda workers, run: 0.95 if workers in slower else 1.0
    bed.change = lambda result: replace(result, host={"driver": "570", "script": "train.py b"})
    findings = bed.verified()
    assert findings.verdict is Outcome.SLOWER
    text = told(findings)
    assert "slower: the best" in text
    assert too in text
    assert "driver 550 → 570, script train.py a → train.py b" in text
    assert bed.verified(at_least=0.9).verdict is Outcome.HOLDS


def test_a_slower_own_command_alone_is_no_slowdown_of_the_best(bed: Bed) -> None:
    bed.times = lambda workers, run: 0.9 if workers == 0 else 1.0
    assert bed.verified().verdict is Outcome.HOLDS


def test_runs_go_on_until_they_are_fine_or_the_time_is_over(bed: Bed) -> None:
    bed.times = lambda workers, run: 1.0 + 0.01 * (-1) ** run
    rounds = [bed.verified(minutes=minutes).rounds for minutes in (0.1, 3.0)]
    assert rounds == [2, 4]
    bed.times = lambda workers, run: 1.0
    assert bed.verified(minutes=60.0).rounds < 6


@pytest.mark.parametrize(("differ", "unseen"), [(0.2, r"\d\d? % slower"), (0.9, "any slowdown")])
def test_runs_that_differ_much_say_nothing(bed: Bed, differ: float, unseen: str) -> None:
    bed.times = lambda workers, run: 1.0 + differ * (-1) ** run
    findings = bed.verified()
    assert findings.verdict is Outcome.UNKNOWN
    assert re.search(f"unknown: runs differ so much that {unseen} may stay unseen", told(findings))


def test_a_test_that_would_miss_a_slowdown_of_five_percent_says_nothing(bed: Bed) -> None:
    bed.times = lambda workers, run: 1.0 + 0.02 * (-1) ** run
    findings = bed.verified(minutes=0.1)
    assert findings.slowdown(findings.subjects[-1]).detectable > 0.05
    assert findings.verdict is Outcome.UNKNOWN


def test_waits_for_a_processor_that_explain_a_slowdown_leave_it_unknown(bed: Bed) -> None:
    bed.times = lambda workers, run: 0.8

    def waited(result: ProbeResult) -> ProbeResult:
        device = DEVICES[0]
        summary = DeviceSummary(device=device.name, source="process_cpu", util_mean_pct=50.0, delayed_mean_pct=20.0)
        return replace(result, devices=(summary,))

    bed.change = waited
    findings = bed.verified()
    assert findings.verdict is Outcome.UNKNOWN
    assert "waited 20 % of its time for a processor" in told(findings)


def test_a_config_that_fails_or_has_no_speed_ends_the_verification(bed: Bed) -> None:
    bed.change = lambda result: replace(result, samples_per_s=None)
    with pytest.raises(TrainerError, match="its samples_per_s could not be measured"):
        bed.verified()
    job = replace(bed.job, probe=lambda plan, stop: failed(plan, FailureKind.GPU_OOM, "no memory is left"))
    work = Verification(job, CASE, view(bed.folder), Budget(bed.clock, 1.0), lambda line: None)
    with pytest.raises(TrainerError, match="your command fails now: gpu_oom: no memory is left"):
        work.run(0.99)


def test_another_training_is_refused(bed: Bed) -> None:
    larger = replace(COUNTED_TRAINING, signature=replace(COUNTED_TRAINING.signature, samples_per_step=64.0))
    bed.change = lambda result: replace(result, training=larger)
    with pytest.raises(TrainerError, match=r"trains something else .*samples per optimizer step: 32 → 64"):
        bed.verified()


def test_another_torch_is_said(bed: Bed) -> None:
    bed.change = lambda result: replace(result, training=replace(COUNTED_TRAINING, torch="2.13"))
    assert "changed: torch 2.11 → 2.13" in told(bed.verified())


def test_an_interrupted_verification_says_nothing(bed: Bed) -> None:
    left = iter(range(3))
    bed.job = replace(bed.job, interrupted=lambda: next(left, None) is None)
    assert bed.work().run(0.99) is None


def test_where_the_own_command_is_the_best_it_runs_alone(bed: Bed) -> None:
    known = view(bed.folder)
    (alone,) = subjects(known, {"workers": 2})
    assert alone.name == "your command (the best)"
    assert [subject.name for subject in subjects(known, None)] == ["the default", "the best"]


def test_what_is_measured_and_which_settings_have_changed_is_said(bed: Bed) -> None:
    work = bed.work()
    lines = list(introduction(work.subjects, 4.0, 0.95))
    assert lines[:2] == ["your command: workers=0", "the best: workers=2"]
    assert "until 7 % slower would be seen, for up to 4 min 00 s; four runs" in lines[2]
    identity = bed.job.bench.identity_for(CASE)
    assert not list(changed_settings(view(bed.folder), identity))
    (line,) = changed_settings(view(bed.folder), {**identity, "iterations": [1, 9]})
    assert "iterations: was [1, 8], is [1, 9]" in line


def test_without_a_best_nothing_is_verified(bed: Bed) -> None:
    with pytest.raises(StudyError, match="no best config yet for walk"):
        subjects(replace(view(bed.folder), trials=()), None)


def test_a_best_that_only_sessions_have_measured_is_not_verified(bed: Bed) -> None:
    known = view(bed.folder)
    warm = tuple(replace(trial, probe=replace(trial.probe, warm=True)) for trial in known.trials)
    with pytest.raises(StudyError, match="only sessions have measured the best of walk"):
        subjects(replace(known, trials=warm), None)


def test_a_search_that_goes_on_says_what_has_changed(bed: Bed) -> None:
    quiet, other = Quiet(), STUDY.model_copy(update={"name": "other"})
    job = replace(bed.job, bench=replace(bed.job.bench, spec=other), listener=quiet)
    older = {**bed.job.bench.facts, "cores": "999", "driver": "550"}
    bed.change = lambda result: replace(result, host=older)
    optimize(replace(job, trials=1), [CASE])
    bed.change = lambda result: replace(result, training=replace(COUNTED_TRAINING, torch="2.13"))
    optimize(replace(job, trials=3), [CASE])
    first, second = quiet.of(CaseStarted)
    assert first.changed == ()
    assert [change.split()[0] for change in second.changed] == ["cores"]
    notes = [note for ended in quiet.of(ProbeEnded) for note in ended.notes]
    assert notes == ["torch 2.11 → 2.13 since the newest trial, so speeds may differ"]
