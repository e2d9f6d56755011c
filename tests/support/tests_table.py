"""An invented trainer with sessions, recorded through the real loop, store and exporter."""

from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

from tests_loop import CASE, Quiet, bench, opened, spec

from tuner.export.recorded_table import export_tables
from tuner.probe.probe_plan import Answer, Next, ProbePlan, Stop, ending_after_last
from tuner.probe.quantities import Block, standard_error
from tuner.probe.result import STOPPED, DeviceSummary, Failure, FailureKind, ProbeResult
from tuner.running.events import CaseOutcome
from tuner.running.job import Job, Workbench
from tuner.running.loop import plan_recording, record_cases, recording_bench
from tuner.study import Config, StudySpec
from tuner.trainers.command import CommandTrainer

READY_S, COMMAND_S, ITERATION_S, AFTER_S = 30.0, 40.0, 2.0, 0.5
"""The seconds that a session and a command take to start, that an iteration takes, and that the end of a run takes."""
ITERATIONS = 5
"""The iterations of a whole probe."""
FITS = 64
"""The most environments that fit into memory."""
SPACE = {
    "num_envs": {"ladder": [8, 16, 64, 128, 256]},
    "agent_variant": {"choices": ["hiutil", "default"]},
    "batch_size": {"choices": [2, 1], "when": {"agent_variant": "hiutil"}},
    "num_workers": {"range": [0, 1]},
}
TRAINER = {
    "name": "command",
    "options": {
        "command": "train {num_envs} --agent {agent_variant} --batch {batch_size} --workers {num_workers}",
        "session": "serve {num_envs}",
        "cases": ["walk", "run"],
    },
}


KINDS = {
    "num_envs": {"ladder": [8, 16]},
    "headless": {"choices": [False, True]},
    "agent.lr": {"range": [0.01, 0.1], "log": True, "step": 10, "when": {"headless": True}},
    "num_workers": {"range": [0, 1], "step": 0.5},
}
KINDS_TRAINER = {
    "name": "command",
    "options": {
        "command": "train {num_envs} {flag:headless} agent.lr={agent.lr} --workers {num_workers}",
        "cases": ["walk", "run"],
    },
}
"""A space with booleans, fractions, a logarithmic range and a name with a dot: 2 x (1 + 2) x 3 configs."""


def study(**changes: object) -> StudySpec:
    return spec(**{"trainer": TRAINER, "space": SPACE, "search": {"trials": 12, "seeds_per_variant": 2}} | changes)


def workbench(folder: Path, chosen: StudySpec) -> Workbench:
    return replace(bench(folder, chosen), trainer=CommandTrainer(chosen.trainer))


def util_pct(config: Config) -> float:
    """Return the mean of a whole probe. More environments, smaller minibatches and more workers raise it."""
    return (
        60 + 8 * int(config["num_envs"]) ** 0.4 - 10 * int(config.get("batch_size", 3)) + float(config["num_workers"])
    )


def readings(config: Config) -> list[float]:
    """Return the utilisation in each iteration. It varies so much that no probe ends early."""
    return [util_pct(config) + 4 * (-1) ** iteration for iteration in range(ITERATIONS)]


class MadeUp:
    """Probes in sessions. A config that does not fit runs out of memory when the session starts."""

    def __init__(self) -> None:
        self.open_session: str | None = None
        self.results: list[ProbeResult] = []

    def close(self) -> None:
        self.open_session = None

    def __call__(self, plan: ProbePlan, stop: Stop) -> ProbeResult:
        warm = plan.request is not None
        is_open = warm and plan.session_key == self.open_session
        ready_s = 0.0 if is_open else READY_S
        blank = ProbeResult(
            config=plan.config,
            plan_digest=plan.digest,
            started_at="2026-11-21T10:00:00+00:00",
            total_s=(ready_s if warm else COMMAND_S) + AFTER_S,
            warm=warm,
            ready_s=ready_s if warm else None,
            host={"name": "here"},
        )
        fits = int(plan.config["num_envs"]) <= FITS
        result = self._run(blank, ending_after_last(stop)) if fits else self._short_of_memory(blank)
        self.open_session = None if result.failure or not warm else plan.session_key
        self.results.append(result)
        return result

    @staticmethod
    def _short_of_memory(blank: ProbeResult) -> ProbeResult:
        short_mib = 100.0 * (int(blank.config["num_envs"]) - FITS)
        failure = Failure(
            kind=FailureKind.GPU_OOM, rule="torch", detail="CUDA out of memory", rank=1, overshoot_mib=short_mib
        )
        return replace(blank, ready_s=None, failure=failure)

    @staticmethod
    def _run(blank: ProbeResult, stop: Stop) -> ProbeResult:
        values = readings(blank.config)
        result = blank
        for count, total in enumerate(accumulate(values), start=1):
            result = _after(blank, total / count, values[:count])
            match stop(result):
                case Answer(next=Next.INTERRUPTED):
                    return replace(blank, failure=STOPPED)
                case Answer(next=Next.ENOUGH):
                    return result
                case Answer(next=Next.PRUNED, reason=why):
                    return replace(result, stopped=why)
        return result


def _after(blank: ProbeResult, mean_pct: float, values: list[float]) -> ProbeResult:
    window_s = ITERATION_S * len(values)
    error_pct = standard_error([Block(ITERATION_S, value) for value in values])
    return replace(
        blank,
        start_up_s=blank.total_s - AFTER_S + ITERATION_S,
        window_s=window_s,
        trained_s=window_s,
        total_s=blank.total_s + ITERATION_S + window_s,
        iterations=len(values),
        samples=1000 * len(values),
        samples_per_s=1000 / ITERATION_S,
        samples_per_s_se=1.5,
        alloc_retries=0,
        devices=tuple(
            DeviceSummary(
                device=f"cuda:{rank}",
                source="nvml",
                util_mean_pct=mean_pct + 3.0 * rank,
                util_se_pct=error_pct,
                mem_peak_mib=40_000.0,
                mem_total_mib=100_000.0,
                mem_rises=((0.0, 40_000.0), (window_s, 40_000.0)),
                mem_floors=(40_000.0,) * 12,
                power_mean_w=300.0,
                energy_j=300.0 * window_s,
            )
            for rank in range(2)
        ),
    )


def recorded(
    folder: Path,
    prober: MadeUp,
    *,
    chosen: StudySpec | None = None,
    count: int | None = None,
    interrupted: Callable[[], bool] = lambda: False,
) -> tuple[CaseOutcome, Quiet]:
    """Record a case, or continue its recording, and write its table into `folder`."""
    desk = recording_bench(workbench(folder, chosen or study()))
    recording = plan_recording(desk, CASE, count)
    listener = Quiet()
    with opened(folder) as database:
        job = Job(
            bench=desk,
            database=database,
            probe=prober,
            listener=listener,
            interrupted=interrupted,
            open_session=lambda: prober.open_session,
        )
        ((_, outcome),) = record_cases(job, [recording])
        assert outcome is not None
    export_tables(f"sqlite:///{folder / 'study.db'}", desk.stored_name, folder)
    return outcome, listener
