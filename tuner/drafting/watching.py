"""Runs a command until its progress is understood, and says how it used the devices."""

import re
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean

from tuner import probe
from tuner.count import ProcessCounts, TrainingCounts
from tuner.devices.found import launch_variables, open_devices
from tuner.drafting.draft import Draft
from tuner.drafting.printed import Found, PrintedLines
from tuner.errors import TrainerError
from tuner.probe.output import record
from tuner.probe.progress_files import COUNTED, counts, read_processes
from tuner.running.prober import run_in
from tuner.study import StudySpec
from tuner.trainers.command import CommandTrainer
from tuner.trainers.template import missing_script

WAYS = (
    "give a longer start with --seconds 300, name a --preset, let the command print lines such as `step 12`, or copy "
    "tuner/progress.py beside it and call report()"
)
"""How a command can be made to show its progress where nothing counts inside."""
_TERMINAL = re.compile(
    r"EOFError: EOF when reading a line|not a (?:tty|terminal|TTY)|Inappropriate ioctl|termios\.error|_curses\.error"
    r"|/dev/tty"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Used:
    """How a command used one device while it was watched."""

    device: probe.Device
    util_pct: float | None
    mem_peak_mib: float | None
    worked: bool
    """Whether the command computed on it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Watched:
    """What a command printed and how it used the devices."""

    found: Found | None = None
    """How its lines show the progress; None where steps and samples are counted inside."""
    training: TrainingCounts | None = None
    """What was counted inside; None where nothing was."""
    uncounted: str | None = None
    """Why nothing was counted inside."""
    reports: tuple[probe.Progress, ...] = ()
    """Its iterations: counted inside, or printed."""
    processes: tuple[ProcessCounts, ...] = ()
    """What was counted in each of its processes."""
    samples: tuple[probe.DeviceSample, ...] = ()
    seconds: float = 0.0
    """How long it was watched."""
    uses: tuple[Used, ...] = ()
    """How it used the devices."""
    devices: str = ""
    """The devices that it used, as a study names them."""

    @property
    def iteration_s(self) -> float | None:
        """The mean seconds of an iteration after the first; None where only one was counted."""
        first, last = self.reports[0], self.reports[-1]
        count = last.iteration - first.iteration
        return (last.t_s - first.t_s) / count if count else None


def watch(
    plan: probe.ProbePlan,
    *,
    launch: probe.Launch,
    recorder: probe.Recorder,
    clock: probe.Clock,
    limit_s: float,
    likely: Iterable[str] = (),
    rewritten: str = "",
) -> Watched:
    """Return what a plan does, which runs until its progress is understood, and is then ended with all processes.

    Args:
        plan: how to start the command.
        launch: starts it.
        recorder: measures the devices.
        clock: says the time.
        limit_s: the longest time without progress; with slow steps it is three times as long.
        likely: presets that are tried first.
        rewritten: which words of the command are not as typed.

    Raises:
        TrainerError: says what to do where the command fails, prints nothing, or shows no progress in time.
    """
    origin_s = clock.now()
    trainer = launch(plan)
    lines: deque[probe.OutputLine] = deque(maxlen=2000)  # the last lines say why a command failed
    counted, printed = CountedLines(origin_s), PrintedLines(likely)

    def is_clear_with(new: Sequence[probe.OutputLine]) -> bool:
        """Take lines into account, and return whether the progress is understood by now."""
        lines.extend(new)
        counted.feed(new)
        printed.feed(new)
        if counted.is_enough or counted.steps:  # printed lines do not matter where steps are counted
            return counted.is_enough
        found = printed.found
        return found is not None and _is_enough(found)

    try:
        recorder.start(trainer.pid, origin_s)
        is_over = False
        while not is_over:
            has_exited = trainer.exit_code() is not None  # asked first, so that the last lines are read below
            is_clear = is_clear_with(trainer.lines(0.0 if has_exited else 0.1))
            longest_s = 3.0 * limit_s if counted.steps else limit_s  # slow steps need longer
            is_over = is_clear or has_exited or clock.now() - origin_s >= longest_s
        exit_code = trainer.exit_code()
    finally:
        trainer.end()
        recorder.stop()
    seconds = clock.now() - origin_s
    processes = tuple(read_processes(plan.slot.counts))
    training = counted.training if counted.reports else None
    found = printed.found
    has_failed = exit_code not in {None, 0}  # None: it was ended while it ran
    if has_failed or (found is None and training is None):
        instead = f"; this run replaced words of yours: {rewritten}" if rewritten else ""
        raise TrainerError(f"{_complaint(lines, exit_code, seconds, plan)}{instead}")
    return Watched(
        found=None if training else found,
        training=training,
        uncounted=None if training else counted.why or _why_uncounted(processes),
        reports=tuple(counted.reports if training else found.reports if found else ()),
        processes=processes,
        samples=tuple(recorder.samples()),
        seconds=seconds,
    )


class CountedLines:
    """What was counted inside a training while it is watched."""

    def __init__(self, origin_s: float) -> None:
        """`origin_s` is when the training was started."""
        self._reader = probe.ProgressReader(probe.LinePatterns(), origin_s)
        self.reports: list[probe.Progress] = []
        self.training: TrainingCounts | None = None
        self.why: str | None = None
        """Why samples are not counted."""
        self.has_begun = False
        """Whether an optimizer has made a step."""

    def feed(self, lines: Iterable[probe.OutputLine]) -> None:
        """Take the messages among some lines into account."""
        for line in lines:
            if line.stream == "console":
                continue
            message = record(line.text)
            self.training = counts(message.get("counts")) or self.training
            self.why = message.get("why", self.why)
            self.has_begun = self.has_begun or bool(message.get("begun"))
            if message.get(COUNTED) and (report := self._reader.feed(line)):
                self.reports.append(report)

    @property
    def steps(self) -> bool:
        """Whether an optimizer steps and its samples may be counted."""
        return self.has_begun and self.why is None

    @property
    def is_enough(self) -> bool:
        """Whether two steps or more were counted over five seconds."""
        is_long = len(self.reports) > 1 and self.reports[-1].t_s - self.reports[0].t_s >= 5.0
        return self.training is not None and is_long


def _why_uncounted(processes: Sequence[ProcessCounts]) -> str:
    """Return why nothing was counted inside a training."""
    if not processes:
        return "no Python process of the command let the counting in, as with `python -I` or in a container"
    off = next((process.off[0] for process in processes if process.off), None)
    return off or "no optimizer of torch has made enough steps"


def _is_enough(printed: Found) -> bool:
    """Return whether six iterations over five seconds were printed; over ten, where a preset may still match."""
    reports, least_s = printed.reports, 10.0 if printed.is_plain else 5.0
    return len(reports) > 5 and reports[-1].t_s - reports[1].t_s >= least_s


def _complaint(lines: Iterable[probe.OutputLine], exit_code: int | None, seconds: float, plan: probe.ProbePlan) -> str:
    """Return why a command cannot be understood, and what the user can do."""
    texts = [line.text for line in lines if line.stream == "console"]
    took = probe.duration(seconds)
    log = f"all its output is in {plan.slot.console}"
    if terminal := next((text for text in texts if _TERMINAL.search(text)), None):
        return (
            f"the command needs a terminal, and a probe has none: {terminal.strip()}; "
            f"answer its questions by options, then try again ({log})"
        )
    if exit_code not in {None, 0}:
        evidence = probe.Evidence()
        for line in lines:
            evidence.feed(line.text, line.t_s)
        failure = evidence.failure()
        why = failure.detail if failure else evidence.last_words()
        remedy = "correct it"
        if failure and failure.kind is probe.FailureKind.MISSING_DEPENDENCY:
            remedy = "correct it, or name the Python that has it by --python"
        return f"the command failed after {took} with exit code {exit_code}: {why}; {remedy}, then try again ({log})"
    if exit_code == 0:
        return (
            f"the command ended by itself after {took}, before three iterations were seen; "
            f"let it train for longer ({log})"
        )
    if not texts:
        return f"the command printed nothing in {took}; {WAYS}"
    last_lines = " | ".join(text.strip()[:200] for text in texts[-3:])
    why = f"nothing in {probe.number_of(len(texts), 'line')} of {took} counts iterations; the last lines: {last_lines}"
    return f"{why}; {WAYS} ({log})"


def first_run(name: str, drafted: Draft, folder: Path, limit_s: float) -> Watched:
    """Return what a draft's command does with its own values in at most `limit_s` seconds; its files go to `folder`.

    Raises TrainerError where the command cannot be understood, DeviceError where devices cannot be read.
    """
    space = drafted.space() or {"nothing": {"choices": [0]}}  # a study needs a parameter
    spec = StudySpec.model_validate({"name": name, "trainer": drafted.trainer, "space": space})
    trainer, source, clock = CommandTrainer(spec.trainer), open_devices(drafted.devices), probe.MonotonicClock()
    if program := trainer.missing_program():
        way = "activate the environment that has it, or name its Python by --python"
        if program.endswith(".py"):
            way = f"write `python {program}` where Python starts it"
        raise TrainerError(f"no program {program} is found; {way}")
    if missing := missing_script(drafted.command.words, trainer.folder):
        raise TrainerError(f"there is no {missing} in {trainer.folder}; correct its name, or start tuner in its folder")
    variables = launch_variables(spec, source) | {"TUNER_COUNT_FLOPS": "1"}
    watched = run_in(
        probe.Slot(devices=source.devices, out_dir=folder.resolve(), limits=spec.probe, variables=variables),
        partial(trainer.plan, trainer.cases()[0], drafted.config),
        partial(
            watch,
            launch=partial(probe.Process, clock=clock),
            recorder=probe.SamplingRecorder(source, clock, spec.probe.sample_seconds),
            clock=clock,
            limit_s=limit_s,
            likely=drafted.likely,
            rewritten=", ".join(drafted.template.changes),
        ),
    )
    uses = tuple(used(watched.reports, watched.samples, source.devices))
    ranks = watched.training.ranks if watched.training else None
    return replace(watched, uses=uses, devices=devices_of(drafted.devices, ranks, uses))


def used(
    reports: Sequence[probe.Progress], samples: Sequence[probe.DeviceSample], devices: Sequence[probe.Device]
) -> list[Used]:
    """Return how a command used each device, from its first iteration on; from its start where there is only one."""
    begin_s = reports[0].t_s if len(reports) > 1 else 0.0
    return [
        _used(device, [sample for sample in samples if sample.device == place], begin_s)
        for place, device in enumerate(devices)
    ]


def _used(device: probe.Device, samples: Sequence[probe.DeviceSample], begin_s: float) -> Used:
    """Return how a command used one device: its share of busy time from `begin_s` on, and its memory from the start."""
    shares = [sample.util_pct for sample in samples if sample.util_pct is not None and sample.t_s >= begin_s]
    memory = [sample.mem_used_mib for sample in samples if sample.mem_used_mib is not None]
    util_pct = fmean(shares) if shares else None
    if device.is_gpu:
        grew = bool(memory) and max(memory) - memory[0] > 300.0  # MiB: the least that a process of CUDA takes
        worked = (util_pct or 0.0) > 0 or grew
    else:
        worked = (util_pct or 0.0) >= probe.IDLE_PCT  # a launcher that only waits takes less
    return Used(device=device, util_pct=util_pct, mem_peak_mib=max(memory, default=None), worked=worked)


def devices_of(watched: str, ranks: int | None, uses: Sequence[Used]) -> str:
    """Return the devices that a command has used, as a study names them.

    Args:
        watched: the devices that were watched, as a study names them.
        ranks: the processes whose optimizer steps, where these are counted: on the CPU, each is a rank.
        uses: how each device was used.
    """
    working = [use.device for use in uses if use.worked]
    is_cpu = not uses[0].device.is_gpu
    if is_cpu and ranks:
        return f"cpu:{ranks}"
    if len(working) in {0, len(uses)}:  # all of them, or it is unknown which
        return watched
    if is_cpu:
        return f"cpu:{len(working)}"
    return ",".join(device.name.removeprefix("cuda:") for device in working)
