"""Runs a command once, until its progress is understood, and measures how it used the devices.

The progress is counted inside, or read from printed lines, which match a preset or a plain form such as `step 12`, or
from calls of `report()`.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from tuner import probe
from tuner.count import ProcessCounts, TrainingCounts, has_started
from tuner.devices.found import launch_variables, open_devices
from tuner.drafting.command_template import WordChange
from tuner.drafting.draft import Draft
from tuner.errors import TrainerError
from tuner.export import prepare_results
from tuner.probe.count_files import COUNTED_INSIDE
from tuner.probe.probe_plan import StartProcess
from tuner.probe.progress_reader import FORMS
from tuner.running.prober import run_in
from tuner.study import StudySpec
from tuner.study.command_words import missing_script
from tuner.trainers.command import CommandTrainer
from tuner.trainers.command_options import PRESETS


class PrintedProgress(NamedTuple):
    """How the lines that a command prints, or its calls of `report`, show its progress."""

    reports: tuple[probe.Progress, ...]
    """The iterations that the lines report."""
    preset: str | None = None
    """The preset of a known trainer whose patterns match; None for a plain form, and for calls of `report`."""
    patterns: tuple[str, ...] = ()
    """The regular expressions that match the lines; empty for calls of `report`."""
    lines: tuple[str, ...] = ()
    """The last lines that complete an iteration."""
    contradiction: str = ""
    """Why the counts may be wrong, in words; empty where nothing speaks against them."""

    @property
    def is_plain(self) -> bool:
        """Whether the lines match no preset, but a usual form such as `step 12`: nothing is known of the trainer."""
        return self.preset is None and bool(self.patterns)

    @property
    def is_enough(self) -> bool:
        """Whether there are at least six iterations, over some seconds without the first two, which are often slow."""
        # a plain form waits longer, because lines of a preset, which say more, may still come
        least_s = 10.0 if self.is_plain else 5.0
        return len(self.reports) > 5 and self.reports[-1].t_s - self.reports[1].t_s >= least_s

    @property
    def counts_samples(self) -> bool:
        """Whether the lines say how many samples were used, and nothing speaks against it. A plain form never does."""
        return not self.contradiction and self.reports[-1].samples is not None

    @property
    def by(self) -> str:
        """What shows the progress, in words: a preset, lines of a plain form, or calls of `report`."""
        if self.preset:
            return f"the preset {self.preset}"
        return "lines of a plain form" if self.patterns else "report()"


class PrintedLines:
    """Reads the lines of a command in several ways at once, and finds the best way that shows its progress."""

    def __init__(self, likely_presets: Iterable[str] = ()) -> None:
        """Prepare the ways to read lines, in this order: calls of `report`, presets, and plain forms.

        Presets named `likely_presets` come first, then those with several patterns, which rarely match by chance.
        """
        surest_first = sorted(PRESETS, key=lambda name: len(PRESETS[name].progress) == 1)
        presets = dict.fromkeys((*likely_presets, *surest_first))
        self._ways = [  # the first that shows progress counts
            _Way(None, ()),
            *(_Way(name, PRESETS[name].progress) for name in presets),
            *(_Way(None, (form,)) for form in FORMS),
        ]

    def feed(self, lines: Iterable[probe.OutputLine]) -> None:
        """Read new lines of the run."""
        for line in lines:
            for way in self._ways:
                way.feed(line)

    @property
    def progress(self) -> PrintedProgress | None:
        """How the lines so far show progress; None where they show iterations at fewer than three moments."""
        return next(filter(None, (way.progress for way in self._ways)), None)


class _Way:
    """Reads the lines of a command in one way: by patterns of a preset, by a plain form, or as calls of `report`."""

    def __init__(self, preset: str | None, patterns: tuple[str, ...]) -> None:
        """Without `patterns`, calls of `report` are read instead of printed lines."""
        self._preset, self._patterns = preset, patterns
        self._reader = probe.ProgressReader(probe.LinePatterns(patterns=patterns), 0.0)
        self._reports: list[probe.Progress] = []
        self._lines: deque[str] = deque(maxlen=3)

    def feed(self, line: probe.OutputLine) -> None:
        """Read a line if it is of the right kind: a printed line where there are patterns, else a call of `report`."""
        is_printed = line.stream == "console"
        # a message, and none of the counting inside
        is_report = not is_printed and not probe.json_object(line.text).get(COUNTED_INSIDE)
        is_of_kind = is_printed if self._patterns else is_report
        if is_of_kind and (report := self._reader.feed(line)):
            self._reports.append(report)
            self._lines.append(line.text.strip())

    @property
    def progress(self) -> PrintedProgress | None:
        """How these lines show progress; None where they show iterations at fewer than three moments."""
        if len({report.t_s for report in self._reports}) < 3:  # numbered lines at one moment are a list, as of layers
            return None
        return PrintedProgress(
            preset=self._preset,
            patterns=self._patterns,
            reports=tuple(self._reports),
            lines=tuple(self._lines),
            contradiction=self._reader.count_problem or "",
        )


OTHER_WAYS = "let the command print lines such as `step 12`, or copy tuner/progress.py beside it and call report()"
"""How a command can be made to show its progress where nothing counts inside."""
NOT_LET_IN = "no Python process of the command let the counting in, as with `python -I` or in a container"
"""Why nothing was counted inside a command: the counting did not start in any of its processes."""


class Output:
    """The last lines that a command has printed, and the crash that they show."""

    def __init__(self) -> None:
        self.texts: deque[str] = deque(maxlen=2000)
        self.evidence = probe.Evidence()

    def feed(self, lines: Iterable[probe.OutputLine]) -> None:
        """Read new lines of the run; only what the command has printed is used, not messages to the tuner."""
        for line in lines:
            if line.stream == "console":
                self.texts.append(line.text)
                self.evidence.feed(line.text, line.t_s)

    @property
    def cause(self) -> str:
        """Why the command ended, as far as its lines show: the exception that began a crash, or else the last line."""
        failure = self.evidence.failure()
        return failure.detail if failure else self.evidence.crash_line()

    @property
    def tail(self) -> str:
        """The last three lines, in words."""
        last_lines = " | ".join(text.strip()[:200] for text in list(self.texts)[-3:])
        return f"the last lines: {last_lines}" if last_lines else "it printed nothing"

    @property
    def crash(self) -> str | None:
        """The exception that has probably ended some process; None where no line shows one."""
        return None if self.evidence.fatal_t_s is None else self.cause


def complaint(
    output: Output, exit_code: int | None, seconds: float, plan: probe.ProbePlan, *, is_counting: bool, steps: int
) -> str:
    """Return why a first run did not show the progress of its command, and what the user can do.

    Args:
        output: what the command has printed.
        exit_code: its exit code; None where it was ended while it ran.
        seconds: how long it was watched.
        plan: how it was started.
        is_counting: whether its Python could count steps, but no optimizer has made one.
        steps: the optimizer steps that were counted.
    """
    took = probe.duration(seconds)
    if exit_code not in {None, 0}:
        failure = output.evidence.failure()
        is_missing = failure is not None and failure.kind is probe.FailureKind.MISSING_DEPENDENCY
        remedy = "correct it, or type the full path of the Python that has it" if is_missing else "correct it"
        why = f"the command failed after {took} with exit code {exit_code}: {output.cause}; {remedy}, then try again"
    elif output.crash:
        why = f"the command printed an error, and trained nothing in {took}: {output.crash}; correct it, then try again"
    elif exit_code == 0:
        made = f" and {probe.number_of(steps, 'optimizer step')}" if steps else ", before three iterations were seen"
        unseen = "" if steps else f"; {output.tail}; if it made more, {OTHER_WAYS}"
        # counts begin at the third step, and `drafting.writing` asks for eight iterations of a probe
        longer = "a probe needs about 12, so let it train for longer"
        why = f"the command ended by itself after {took}{made}; {longer}{unseen}"
    else:
        why = _no_progress(output, seconds, is_counting=is_counting, steps=steps)
    return f"{why} (all its output is in {plan.slot.console})"


def _no_progress(output: Output, seconds: float, *, is_counting: bool, steps: int) -> str:
    """Return why a command that still runs shows no progress, and what the user can do.

    `is_counting`: whether its Python could count steps, but no optimizer has made one. `steps`: the optimizer steps
    that were counted.
    """
    took = probe.duration(seconds)
    if is_counting:
        more_s = 2 * 60 * max(1, round(seconds / 60))
        return (
            f"the script made no optimizer step of torch in {took}; {output.tail}; if its start takes longer, rerun "
            f"`tuner` with --seconds {more_s}; if it trains without torch, {OTHER_WAYS}"
        )
    remedies = f"give `tuner` a longer start with --seconds 300, {OTHER_WAYS}"
    remedies = remedies if steps else f"{NOT_LET_IN}; {remedies}"
    if not output.texts:
        return f"the command printed nothing in {took}; {remedies}"
    count = probe.number_of(len(output.texts), "line")
    return f"nothing in {count} of {took} counts iterations; {output.tail}; {remedies}"


class DeviceUse(NamedTuple):
    """How a command used one device while it was watched."""

    device: probe.Device
    util_pct: float | None
    """The mean utilisation in percent; None where it is unknown, as with `mem_peak_mib`."""
    mem_peak_mib: float | None
    worked: bool
    """Whether the command computed on it."""
    others_pct: float | None = None
    """The mean share of the processors that other programs used; known only for the CPU."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Watched:
    """What the first run of a command has shown: its progress, its processes, and how it used the devices."""

    printed: PrintedProgress | None = None
    """How its printed lines show the progress; None where steps and samples are counted inside the training."""
    training: TrainingCounts | None = None
    """What was counted inside the training; None where nothing was."""
    why_uncounted: str | None = None
    """Why nothing was counted inside; None where something was."""
    reports: tuple[probe.Progress, ...] = ()
    """Its iterations: counted inside, or printed."""
    processes: tuple[ProcessCounts, ...] = ()
    """What was counted in each of its processes."""
    samples: tuple[probe.DeviceSample, ...] = ()
    """The measurements of the devices."""
    seconds: float = 0.0
    """How long it was watched."""
    uses: tuple[DeviceUse, ...] = ()
    """How it used each device that was watched."""
    devices: str = ""
    """The devices that it used, as a study names them."""

    @property
    def iteration_s(self) -> float | None:
        """The mean seconds of an iteration after the first; None where only one was counted."""
        first, last = self.reports[0], self.reports[-1]
        count = last.iteration - first.iteration
        return (last.t_s - first.t_s) / count if count else None


def longest_start_s(limit_s: float) -> float:
    """Return for how many seconds a command whose steps are counted inside is watched before its first step.

    `limit_s` is the usual time to watch a command, in seconds. Five times as long is allowed, up to 300 s, or `limit_s`
    itself where it is longer.
    """
    # first steps came after up to 90 s on a busy machine with two cores, and large models load three times as long
    return max(limit_s, min(5 * limit_s, 300.0))


def watch(
    plan: probe.ProbePlan,
    *,
    launch: StartProcess,
    recorder: probe.Recorder,
    clock: probe.Clock,
    limit_s: float,
    likely_presets: Iterable[str] = (),
    changes: Sequence[WordChange] = (),
    check: Callable[[Sequence[ProcessCounts]], None] = lambda _: None,
) -> Watched:
    """Run a command until its progress is understood, end it with all its processes, and return what it did.

    Args:
        plan: how to start the command.
        launch: starts it.
        recorder: measures the devices.
        clock: says the time.
        limit_s: the seconds after which a command without progress is ended. Where steps are counted inside the
            training, it may take longer until the first one (`longest_start_s`), and three times as long from then on.
        likely_presets: presets that are tried first.
        changes: the words of the command that are not as typed: an error about one of them says so.
        check: is called once, at the first step of an optimizer, with what is known of the command's processes: by then
            they have parsed their flags. Its errors end the run.

    Raises:
        TrainerError: says what to do where the command fails, prints nothing, or shows no progress in time.
    """
    origin_s = clock.now()
    trainer = launch(plan)
    counts, output, printed = trainer.counts, Output(), PrintedLines(likely_presets)
    reader, counted = probe.ProgressReader(probe.LinePatterns(), origin_s), list[probe.Progress]()
    begun_s: float | None = None  # when an optimizer was known to have made a step

    def is_stepping() -> bool:
        """Return whether an optimizer has made a step, and nothing says that samples cannot be counted."""
        return begun_s is not None and counts.why_uncounted is None

    def is_understood() -> bool:
        """Return whether the lines so far show the progress: by counts, or by printed lines without any counts."""
        if counts.training and len(counted) > 1 and counted[-1].t_s - counted[0].t_s >= 5.0:
            return True
        # where steps are counted, printed lines do not matter
        return not is_stepping() and printed.progress is not None and printed.progress.is_enough

    def longest_s() -> float:
        """Return after how many seconds from its start the command is ended, by what is known of it now."""
        if is_stepping():  # slow steps need longer
            return (begun_s or 0.0) + 3.0 * limit_s
        may_step = begun_s is None and printed.progress is None and output.crash is None
        return longest_start_s(limit_s) if may_step and has_started(plan.slot.counts) else limit_s

    try:
        recorder.start(trainer.pid, origin_s)
        is_over = False
        while not is_over:
            has_exited = trainer.exit_code() is not None  # asked first, so that the last lines are read below
            new_lines = trainer.lines(0.0 if has_exited else 0.1)
            output.feed(new_lines)
            printed.feed(new_lines)
            counted += filter(None, map(reader.feed, filter(_is_counted, new_lines)))
            if counts.has_begun and begun_s is None:
                begun_s = clock.now() - origin_s
                check(counts.processes)
            is_over = is_understood() or has_exited or clock.now() - origin_s >= longest_s()
        exit_code = trainer.exit_code()
    finally:
        trainer.end()
        recorder.stop()
    seconds = clock.now() - origin_s
    counts.read()  # what the processes have noted since the last lines
    processes = tuple(counts.processes)
    training = counts.training if counted else None
    progress = printed.progress
    has_failed = exit_code not in {None, 0}  # None: it was ended while it ran
    if has_failed or (progress is None and training is None):
        steps = max((process.steps for process in processes), default=0)
        is_counting = begun_s is None and has_started(plan.slot.counts)
        why = complaint(output, exit_code, seconds, plan, is_counting=is_counting, steps=steps)
        named = [str(change) for change in changes if change.is_named_in(why)]
        instead = f"; to start a probe, the tuner {' and '.join(named)}" if named else ""
        raise TrainerError(f"{why}{instead}")
    return Watched(
        printed=None if training else progress,
        training=training,
        why_uncounted=None if training else counts.why_uncounted or _why_uncounted(processes),
        reports=tuple(counted if training else progress.reports if progress else ()),
        processes=processes,
        samples=tuple(recorder.samples()),
        seconds=seconds,
    )


def _is_counted(line: probe.OutputLine) -> bool:
    """Return whether a line is a message about an iteration that was counted inside the training."""
    return line.stream == "progress" and COUNTED_INSIDE in probe.json_object(line.text)


def _why_uncounted(processes: Sequence[ProcessCounts]) -> str:
    """Return in words why nothing was counted inside a training."""
    if not processes:
        return NOT_LET_IN
    reasons = (reason for process in processes for reason in process.off)
    return next(reasons, "no optimizer of torch has made enough steps")


def first_run(
    name: str, drafted: Draft, folder: Path, limit_s: float, check: Callable[[Sequence[ProcessCounts]], None]
) -> Watched:
    """Run a draft's command with its own values, and return what it showed. Its files go to `folder`.

    After `limit_s` seconds without progress, the run ends. `check` is called once, at the first step of an optimizer,
    with what is known of the command's processes. Raises TrainerError where the program is missing or shows no
    progress, DeviceError where devices cannot be read, and the errors of `check`.
    """
    space = drafted.space() or {"nothing": {"choices": [0]}}  # a study needs a parameter
    spec = StudySpec.model_validate({"name": name, "trainer": drafted.trainer, "space": space})
    trainer, source, clock = CommandTrainer(spec.trainer), open_devices(drafted.devices), probe.MonotonicClock()
    if program := trainer.missing_program():
        way = "activate the environment that has it, or type the full path of its Python"
        if program.endswith(".py"):
            way = f"write `python {program}` where Python starts it"
        elif (trainer.folder / program).is_file():
            way = f"the file may not be executed: `chmod +x {program}`"
        elif {"&&", ";", "|"} & {*drafted.command.words}:
            way = "no shell runs the command; write `bash -c '…'`"
        raise TrainerError(f"no program {program} is found; {way}")
    if missing := missing_script(drafted.command.words, trainer.folder):
        raise TrainerError(f"there is no {missing} in {trainer.folder}; correct its name, or start tuner in its folder")
    # in a first run, the counting also records flags and files
    variables = launch_variables(spec, source) | {"TUNER_COUNT_FIRST": "1"}
    prepare_results(folder.parent.parent)  # makes the folder `runs` of all studies
    watched = run_in(
        probe.Slot(devices=source.devices, out_dir=folder.resolve(), limits=spec.probe, variables=variables),
        partial(trainer.plan, trainer.cases()[0], drafted.config),
        partial(
            watch,
            launch=partial(probe.Process, clock=clock),
            recorder=probe.SamplingRecorder(source, clock, spec.probe.sample_seconds),
            clock=clock,
            limit_s=limit_s,
            likely_presets=drafted.command.presets,
            changes=drafted.template.changes,
            check=check,
        ),
    )
    uses = tuple(device_uses(watched.reports, watched.samples, source.devices))
    ranks = watched.training.ranks if watched.training else None
    return replace(watched, uses=uses, devices=devices_of(drafted.devices, ranks, uses))


def device_uses(
    reports: Sequence[probe.Progress], samples: Sequence[probe.DeviceSample], devices: Sequence[probe.Device]
) -> list[DeviceUse]:
    """Return how a command used each device.

    The utilisation is the mean from the first iteration on, or from the start if there is only one iteration.
    """
    begin_s = reports[0].t_s if len(reports) > 1 else 0.0
    uses: list[DeviceUse] = []
    for place, device in enumerate(devices):
        of_device = [sample for sample in samples if sample.device == place]
        memory = [sample.mem_used_mib for sample in of_device if sample.mem_used_mib is not None]
        util_pct = probe.of_known(fmean, [sample.util_pct for sample in of_device if sample.t_s >= begin_s])
        if device.is_gpu:
            has_grown = bool(memory) and max(memory) - memory[0] > 300.0  # MiB: the least that a process of CUDA takes
            worked = (util_pct or 0.0) > 0 or has_grown
        else:
            worked = (util_pct or 0.0) >= probe.IDLE_PCT  # a launcher that only waits takes less of a CPU
        others_pct = probe.of_known(fmean, [sample.others_pct for sample in of_device])
        uses.append(DeviceUse(device, util_pct, max(memory, default=None), worked, others_pct))
    return uses


def devices_of(watched: str, ranks: int | None, uses: Sequence[DeviceUse]) -> str:
    """Return the devices that a command has used, as a study names them; all that were watched if this is unknown.

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
