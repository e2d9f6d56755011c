"""Runs a command once, until its progress is understood, and measures how it used the devices."""

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
from tuner.drafting.printed import NOT_LET_IN, Output, PrintedLines, PrintedProgress, complaint
from tuner.errors import TrainerError
from tuner.export import prepare_results
from tuner.probe.count_files import COUNTED_INSIDE
from tuner.probe.probe_plan import StartProcess
from tuner.running.prober import run_in
from tuner.study import StudySpec
from tuner.study.command_words import missing_script
from tuner.trainers.command import CommandTrainer


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
