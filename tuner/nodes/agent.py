"""The watcher of one node: `python -m tuner.nodes.agent`, which `srun` starts for each node of a trial.

It opens the node's devices once. Then it runs one part of a plan after another, and watches it as a probe of one
machine is watched. What it sees it writes as JSON lines to its standard output. It ends everything when its standard
input closes, or when the other side is silent: no end of a file reaches a task whose `srun` was killed.
"""

import errno
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import cache
from typing import Any

from tuner import probe
from tuner.count import counting
from tuner.devices.cards import Cards
from tuner.devices.found import launch_variables, open_devices, part_of
from tuner.errors import DeviceError, OutputError, TunerError
from tuner.nodes.messages import BEAT_S, ENDED_WITHIN_S, SILENT_S, Mailbox, Opening, Part, Word
from tuner.probe import own_files
from tuner.probe.output import USUAL_BOUNDS
from tuner.probe.progress_files import CountLines
from tuner.probe.run import kernel_oom_kills
from tuner.progress import PROGRESS
from tuner.study import escaped

POLL_S = 0.05
"""Seconds that the watcher waits for a line before it looks for all else."""


def say(kind: str, **fields: Any) -> None:
    """Write a message, with the time on this node's clock."""
    sys.stdout.write(json.dumps({"kind": kind, "at_s": time.monotonic(), **fields}) + "\n")
    sys.stdout.flush()


def refuse(error: Exception) -> None:
    """Write why a request cannot be met."""
    say("refused", error=type(error).__name__ if isinstance(error, TunerError) else "OutputError", why=f"{error}")


def listen(mailbox: Mailbox) -> None:
    """Read the standard input, and end this process where the tuner is silent and the end takes too long."""

    def read() -> None:
        while not mailbox.is_gone.is_set():
            mailbox.feed(os.read(sys.stdin.fileno(), 1 << 16))

    def wait() -> None:
        while not mailbox.is_gone.wait(BEAT_S):
            if mailbox.is_silent:
                mailbox.is_gone.set()
        time.sleep(SILENT_S)
        os._exit(1)  # a write to a pipe that nobody reads may never end; the guard then ends the trainer

    threading.Thread(target=read, daemon=True).start()
    threading.Thread(target=wait, daemon=True).start()
    for number in (signal.SIGTERM, signal.SIGUSR2):  # scancel, and the end of a job's time
        signal.signal(number, lambda *_: mailbox.is_gone.set())


def sole(name: str, limit_s: float) -> socket.socket:
    """Return what only one watcher of a name can hold, and what its end frees, however it ends (unix(7), abstract).

    So no trainer of an earlier watcher runs any more. Raises DeviceError where another one stays.
    """
    held, end_s = socket.socket(socket.AF_UNIX), time.monotonic() + limit_s
    while True:
        try:
            held.bind(f"\0tuner-{name}")
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > end_s:
                held.close()
                raise DeviceError(
                    f"another tuner of this allocation works on {socket.gethostname()}; wait for it, or end it"
                ) from error
            time.sleep(POLL_S)
        else:
            return held


def serve(mailbox: Mailbox, opening: Opening, clock: probe.Clock) -> None:
    """Open the devices, and meet requests until the tuner is gone."""
    spec, process, is_first_look = opening.spec, None, True
    source = open_devices(spec.devices, memory_mib=spec.environment.memory_mib)
    cards = Cards(source.devices)

    @cache
    def first(count: int) -> probe.DeviceSource:
        """Return so many devices, opened."""
        if count == len(source.devices):
            return source
        return part_of(source, range(count), memory_mib=spec.environment.memory_mib)

    say("devices", host=socket.gethostname(), label=source.label, devices=[asdict(device) for device in source.devices])
    while not mailbox.is_gone.is_set():
        try:
            match mailbox.next(BEAT_S):
                case Part() as part:
                    here = first(len(part.plan.slot.local_devices))
                    plan = part_of_plan(part, opening.number, here.devices, launch_variables(spec, here))
                    process = watch(plan, here, mailbox, clock)
                case Word.LOOK:  # all nodes have opened their devices, so nothing of an earlier tuner runs on any
                    if is_first_look:
                        own_files.clean_up()
                    is_first_look = False
                    left = process.left if process else None
                    say("cards", cards=[asdict(card) for card in cards.occupancy()], left=left)
                case _:
                    say("beat", oom_kills=kernel_oom_kills())
        except (TunerError, OSError) as error:
            refuse(error)


def watch(plan: probe.ProbePlan, source: probe.DeviceSource, mailbox: Mailbox, clock: probe.Clock) -> probe.Process:
    """Run a node's part of a plan, and return its process when it has ended; tell all that is seen meanwhile."""
    process = probe.Process(plan, clock)
    recorder = probe.SamplingRecorder(source, clock, plan.slot.limits.sample_seconds)
    try:
        say("started", oom_kills=kernel_oom_kills())
        recorder.start(process.pid, 0.0)
        _follow(process, plan, recorder, mailbox, clock)
    finally:
        process.end()
        recorder.stop()
    say("exit", code=process.exit_code(), left=process.left, oom_kills=kernel_oom_kills())
    return process


def _follow(
    process: probe.Process,
    plan: probe.ProbePlan,
    recorder: probe.SamplingRecorder,
    mailbox: Mailbox,
    clock: probe.Clock,
) -> None:
    """Tell what a process prints, counts and uses, until it has ended or was ended."""
    counts, beat_s, has_ended = CountLines(plan.slot.counts, USUAL_BOUNDS.tail_bytes), 0.0, False
    while not has_ended:
        if mailbox.is_gone.is_set() or mailbox.next(0.0) is Word.END:
            process.end()
        has_ended = process.exit_code() is not None or process.left is not None
        for line in process.lines(0.0 if has_ended else POLL_S):
            say("line", text=line.text, stream=line.stream)
        for count in counts.read():
            say("count", name=count.name, text=count.text)
        if new := recorder.fresh():
            say("samples", samples=[asdict(sample) for sample in new])
        if recorder.lost:
            say("lost", why=recorder.lost)
        if clock.now() >= beat_s:
            beat_s = clock.now() + BEAT_S
            say("beat")


def part_of_plan(
    part: Part, number: int, devices: tuple[probe.Device, ...], variables: Mapping[str, str]
) -> probe.ProbePlan:
    """Return a node's part of a plan: with its devices, their variables, and files of its own for what is watched.

    The variables that begin the counting are set here, because the counts of all nodes are merged on the other side.
    Files are kept as they were by the other side, too: a copy that this node made late would hold a probe's content.
    Raises OutputError where no files can be made.
    """
    os.environ |= {probe.NODE_RANK: str(number), probe.HEAD: part.head}
    plan = part.plan
    slot = replace(plan.slot, devices=devices, part=f"node-{number}")
    own = {PROGRESS: escaped(str(slot.progress))} if PROGRESS in plan.env else {}
    env = {**variables, **plan.env, **own}
    part_plan = replace(plan, slot=slot, env=env, files={}, is_counted=False, protects_files=False)
    try:
        (slot.counts if plan.is_counted else slot.console.parent).mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(
            f"{error.filename} cannot be made: {error.strerror}; --runs must be a folder that all nodes share"
        ) from error
    if not plan.is_counted:
        return part_plan
    begun = counting(slot.counts, part_plan.environment(os.environ))
    return replace(part_plan, env={**env, **{name: escaped(text) for name, text in begun.items()}})


def main() -> None:
    """Meet the requests on the standard input, the first of which is an `Opening`."""
    clock = probe.MonotonicClock()
    mailbox = Mailbox(clock)
    listen(mailbox)
    opening = mailbox.next(SILENT_S)
    if not isinstance(opening, Opening):
        return
    try:
        earlier_s = ENDED_WITHIN_S + SILENT_S  # in which an earlier watcher ends, even where it hangs in a write
        held = sole(f"{os.environ.get('SLURM_JOB_ID')}-{os.environ.get('SLURMD_NODENAME')}", earlier_s)
        serve(mailbox, opening, clock)
        held.close()
    except (TunerError, OSError) as error:
        refuse(error)


if __name__ == "__main__":
    main()
