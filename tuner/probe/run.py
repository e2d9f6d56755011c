"""One probe from launch to result: start the trainer, watch it, end it, summarise.

The window is the iterations that the probe evaluates. Where a session serves probes, a trainer stays open after them.
"""

import os
import platform
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from tuner.count import DIVERGES, has_started
from tuner.probe import summaries
from tuner.probe.metrics import spread
from tuner.probe.probe_plan import Clock, Launch, Next, ProbePlan, Recorder, RunningTrainer, Stop, ending_after_last
from tuner.probe.progress_reader import ProgressReader
from tuner.probe.quantities import HOUR_S, Quantity, of_known
from tuner.probe.result import DeviceSample, DeviceSummary, Failure, ProbeResult, other_training
from tuner.probe.series import write_series
from tuner.probe.watch import ProbeEnd, Watch, idle_device
from tuner.probe.window import Window, find_window

_END_OF_ANSWER = {
    Next.ENOUGH: ProbeEnd.ENOUGH,
    Next.PRUNED: ProbeEnd.STOPPED,
    Next.OTHER_TRAINING: ProbeEnd.OTHER_TRAINING,
    Next.INTERRUPTED: ProbeEnd.INTERRUPTED,
}
"""How an answer ends a probe; after any other one the probe goes on."""


def kernel_oom_kills() -> int:
    """Return how many processes the kernel has killed for lack of memory since boot (proc(5), /proc/vmstat oom_kill).

    Returns 0 if the file cannot be read.
    """
    with suppress(OSError):
        rows = dict(line.split() for line in Path("/proc/vmstat").read_text().splitlines())
        return int(rows.get("oom_kill", 0))
    return 0


def run(
    plan: ProbePlan,
    *,
    launch: Launch,
    recorder: Recorder,
    clock: Clock,
    stop: Stop,
    oom_kills: Callable[[], int] = kernel_oom_kills,
) -> ProbeResult:
    """Run one probe, and return its result, whatever happens to the trainer.

    When this returns or raises, no process of the trainer runs any more. There are two exceptions: a healthy session
    stays open, and a process that hangs inside the kernel cannot be killed.

    Args:
        plan: What to run.
        launch: Starts the trainer, or hands the plan to an open session.
        recorder: Samples the devices meanwhile.
        clock: Times the probe.
        stop: Is asked after each iteration, and between, whether the probe goes on.
        oom_kills: Counts the processes that the kernel has killed for lack of memory where the trainer runs.

    Raises:
        OutputError, TrainerError: The tuner's own side fails.
    """
    return _Probe(plan, recorder, clock).run(launch, stop, oom_kills)


class _Ending(NamedTuple):
    """How a probe ended."""

    end: ProbeEnd
    reason: str | None = None
    """Why `stop` has given the probe up; None if it has not."""


class _Probe:
    """The state of one probe while it runs."""

    POLL_S = 0.05
    """A probe waits at most this many seconds for a line before it asks again whether to go on."""

    def __init__(self, plan: ProbePlan, recorder: Recorder, clock: Clock) -> None:
        """Begin the time of a probe, whose trainer starts later."""
        self._plan = plan
        self._recorder = recorder
        self._clock = clock
        self._origin_s = clock.now()
        self._reader = ProgressReader(plan.progress, self._origin_s)
        self._watch = Watch(plan.slot.limits, self._reader, len(plan.slot.devices))
        self._nothing_measured = ProbeResult(
            config=plan.config,
            plan_digest=plan.digest,
            started_at=datetime.now(UTC).isoformat(timespec="seconds"),
            total_s=0.0,
            host={
                "name": platform.node(),
                "system": f"{platform.system()} {platform.release()}",
                "devices": ", ".join(sorted({device.identity for device in plan.slot.devices})),
            },
        )
        """What is known before the start; each result adds what was measured."""

    def run(self, launch: Launch, stop: Stop, oom_kills: Callable[[], int]) -> ProbeResult:
        """Run the probe until its trainer has ended or a session is free for the next probe, and return its result."""
        oom_kills_before = oom_kills()
        trainer = launch(self._plan)
        try:
            self._recorder.start(trainer.pid, self._origin_s)
            end, reason = self._follow(trainer, ending_after_last(stop))
            is_healthy = end in {ProbeEnd.ENOUGH, ProbeEnd.STOPPED, ProbeEnd.EXITED}  # its session may serve another
            exit_code = trainer.release() if is_healthy else trainer.end()
        except BaseException:
            trainer.end()
            raise
        finally:
            self._recorder.stop()
        ran_out = end is ProbeEnd.EXITED
        result, window = self._result(ran_out=ran_out, is_over=True), self._window(ran_out=ran_out)
        samples, devices = self._recorder.samples(), self._recorder.source.devices
        write_series(self._plan.slot.out_dir, samples, devices, marks=self._watch.marks, window=window)
        if end is ProbeEnd.OTHER_TRAINING:
            return self._failed(result, other_training(reason or ""))
        # `os.path.exists` is False also for what cannot be looked at
        missing = [path.name for path in self._plan.expected if not os.path.exists(path)]  # noqa: PTH110
        failure = self._watch.failure(
            end,
            exit_code=exit_code,
            missing=missing,
            measured=(result.window_s or 0.0) >= self._plan.slot.limits.window_seconds,
            oom_kills=oom_kills() - oom_kills_before,
            lost=self._recorder.lost,
            in_session=self._plan.request is not None,
            is_counted=self._plan.is_counted and has_started(self._plan.slot.counts),
        )
        failure = failure or idle_device(result, self._plan.slot.devices)  # what the output shows comes first
        return replace(self._failed(result, failure) if failure else result, stopped=reason)

    def _failed(self, result: ProbeResult, failure: Failure) -> ProbeResult:
        """Return a failed probe's result without its window: utilisation after a rank has died means nothing.

        Peaks of memory and power stay, because they belong to the whole probe. So does what other programs used: a
        failure for lack of time names it.
        """
        source, others_pct = self._recorder.source, self._others_pct()
        measured = result.devices
        if not measured and others_pct is not None:  # without a window
            measured = tuple(DeviceSummary(device=device.name, source=source.label) for device in source.devices)
        devices = tuple(
            DeviceSummary(
                device=summary.device,
                source=summary.source,
                mem_peak_mib=summary.mem_peak_mib,
                mem_total_mib=summary.mem_total_mib,
                power_max_w=summary.power_max_w,
                others_mean_pct=others_pct,
            )
            for summary in measured
        )
        other_programs, notes = summaries.others_in_words(devices), result.notes
        if other_programs and failure.kind.invalidity == "timeout":  # as `hang` and `too_slow` have it
            failure = replace(failure, detail=f"{failure.detail}; {other_programs} meanwhile")
            notes = tuple(note for note in notes if summaries.LOADED not in note)  # that is of the window
        blank = self._without_window(result.total_s)
        return replace(blank, failure=failure, devices=devices, notes=notes, alloc_retries=result.alloc_retries)

    def _others_pct(self) -> float | None:
        """Return the mean share of the processors that other programs used during the probe; None if unknown."""
        return of_known(fmean, (sample.others_pct for sample in self._recorder.samples()))

    def _now_s(self) -> float:
        """Return the seconds since the probe began."""
        return self._clock.now() - self._origin_s

    def _follow(self, trainer: RunningTrainer, stop: Stop) -> _Ending:
        """Read the lines of the trainer until the probe is over, and return how it ended.

        After some iterations, `stop` gets the result so far; otherwise it gets None. Its answer may end the probe.
        """
        next_result_s = 0.0  # the seconds of training from which on an iteration gives the next result
        wants_more = False
        while True:
            # news of the trainer
            exited = trainer.exit_code() is not None  # first, so that the last lines before the exit are read below
            lines = trainer.lines(0.0 if exited else self.POLL_S)
            now_s = self._now_s()  # before `stop`, because `stop` may wait for a database while the trainer goes on
            advanced = self._watch.feed(lines)

            # the answer of `stop` to them
            trained_s = self._now_s() - self._watch.marks[0].t_s if advanced else 0.0
            has_result = advanced and (trained_s < 60.0 or trained_s >= next_result_s)  # as `Stop` says
            answer = stop(self._result(ran_out=False) if has_result else None)
            is_last = answer.next is Next.LAST_ITERATION
            if has_result:  # what it wants holds until the next result
                wants_more = answer.next is Next.MORE
                next_result_s = 0.0 if is_last else min(1.02 * trained_s, answer.next_result_s)

            # the first reason to end counts
            if end := _END_OF_ANSWER.get(answer.next):
                return _Ending(end, answer.reason)
            if advanced and self._watch.has_enough and not wants_more:
                return _Ending(ProbeEnd.ENOUGH)
            if end := self._watch.reason_to_end(now_s):
                return _Ending(end)
            if self._recorder.lost is not None:
                return _Ending(ProbeEnd.LOST)
            if is_last or (advanced and self._watch.is_last_iteration(needs_more=wants_more)):
                trainer.last_iteration(self._watch.marks[-1].iteration + 1)
            if exited:
                return _Ending(ProbeEnd.EXITED)

    def _result(self, *, ran_out: bool, is_over: bool = False) -> ProbeResult:
        """Return the result as far as the marks and samples so far show it; without a window, only what needs none.

        Args:
            ran_out: Whether the trainer ended by itself.
            is_over: Whether the probe is over. Then a window counts even if its batches may be those that the loader
                had ready before the first iteration.
        """
        window, blank = self._window(ran_out=ran_out), self._without_window(self._now_s())
        if window is None or (window.is_queued and not is_over):
            return blank
        shares = summaries.busy_shares(self._watch.progress, window, len(self._plan.slot.devices))
        count_problem = self._reader.count_problem or summaries.samples_problem(window)
        speed = None if count_problem else summaries.samples_per_s(window)
        steps = None if self._reader.count_problem or window.is_queued else summaries.iterations_per_s(window)
        devices = self._summaries(window, shares)
        per_joule = summaries.samples_per_joule(speed, devices, window.trained_s)
        diverges = self._watch.training is not None and self._watch.training.signature.diverges
        price = self._plan.slot.price_per_hour
        per_price = speed.times(HOUR_S / price) if speed and price is not None else None
        return replace(
            blank,
            window_s=window.seconds,
            trained_s=window.trained_s,
            iterations=window.iterations,
            change=window.change,
            samples_per_s=speed and speed.value,
            samples_per_s_se=speed and speed.error,
            iterations_per_s=steps and steps.value,
            iterations_per_s_se=steps and steps.error,
            samples_per_joule=per_joule and per_joule.value,
            samples_per_joule_se=per_joule and per_joule.error,
            samples_per_price=per_price and per_price.value,
            samples_per_price_se=per_price and per_price.error,
            step_share=summaries.step_share(window),
            busy_spread_pct=of_known(spread, [share and share.value for share in shares]),
            alloc_retries=self._alloc_retries(),
            level_changed=window.last_level is not None,
            devices=devices,
            notes=(*summaries.notes(window, shares, devices, count_problem), *([DIVERGES] if diverges else [])),
        )

    def _without_window(self, total_s: float) -> ProbeResult:
        """Return the result so far with the numbers that need no window. `total_s`: the seconds that the probe took."""
        marks = self._watch.marks
        return replace(
            self._nothing_measured,
            total_s=total_s,
            start_up_s=marks[0].t_s if marks else None,
            iteration=marks[-1].iteration if marks else None,
            samples=marks[-1].samples if marks else None,
            iterations=len(marks),
            score=self._reader.score,
            training=self._watch.training,
        )

    def _window(self, *, ran_out: bool) -> Window | None:
        """Return the window of the marks so far; None if it is empty. `ran_out`: the trainer has ended by itself."""
        limits = self._plan.slot.limits
        return find_window(
            self._watch.marks,
            warmup_iterations=limits.warmup_iterations,
            ran_out=ran_out,
            least_s=limits.window_seconds,
            least_iterations=max(1, min(limits.min_iterations, limits.iterations) - limits.warmup_iterations),
            queue=self._plan.progress.queue,
        )

    def _summaries(self, window: Window, shares: Sequence[Quantity | None]) -> tuple[DeviceSummary, ...]:
        """Return the summary of each device. On the CPU, a busy share that ranks report replaces the utilisation."""
        source, last_s = self._recorder.source, self._watch.marks[-1].t_s
        by_device: list[list[DeviceSample]] = [[] for _ in source.devices]
        for sample in self._recorder.samples():
            by_device[sample.device].append(sample)
        measured = tuple(
            summaries.summarise(samples, window, device, source.label, until_s=last_s)
            for device, samples in zip(source.devices, by_device, strict=True)
        )
        is_reported = any(report.busy_s is not None for report in self._watch.progress)
        is_cpu = not any(device.is_gpu for device in source.devices)
        return summaries.with_busy_shares(measured, shares) if is_reported and is_cpu else measured

    def _alloc_retries(self) -> int | None:
        """Return the allocator retries of all ranks so far, as reported or else as counted inside; None if unknown."""
        reports = [report for report in self._watch.progress if report.alloc_retries is not None]
        by_rank = {report.rank: report.alloc_retries or 0 for report in reports}  # the newest of each rank
        counted = self._watch.training.alloc_retries if self._watch.training else None
        return sum(by_rank.values()) if by_rank else counted
