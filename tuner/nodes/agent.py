"""The watcher of one node: `python -m tuner.nodes.agent`, which `srun` starts for each node of a trial.

It opens the node's devices once. Then it runs one part of a plan after another (a part is what a plan does on this
node), and watches it as a probe of one machine is watched. It writes what the part prints, counts and uses as JSON
lines to its standard output. It ends the part and itself when its standard input closes, or when the tuner gives no
sign of life: where `srun` was killed, the input does not close.
"""

import base64
import errno
import json
import os
import pickle
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from queue import Empty, SimpleQueue
from typing import Any

from tuner import probe
from tuner.count import counting
from tuner.devices.cards import Cards
from tuner.devices.found import launch_variables, open_devices, part_of
from tuner.errors import DeviceError, OutputError, TunerError
from tuner.nodes.watcher import BEAT_S, ENDED_WITHIN_S, SILENT_S, Command, OpenDevices, Request, RunPart
from tuner.probe.count_files import CountLines
from tuner.probe.output import USUAL_BOUNDS
from tuner.probe.own_files import clean_up
from tuner.probe.run import kernel_oom_kills
from tuner.progress import PROGRESS
from tuner.study import escaped

POLL_S = 0.05
"""Seconds that the watcher waits for a line of the trainer before it looks for requests, counts and samples."""


class Mailbox:
    """The requests of the tuner as the watcher gets them, and by their times whether the tuner still runs."""

    def __init__(self, clock: probe.Clock) -> None:
        """Receive the requests of the tuner. `clock`: times the silence of the tuner."""
        self.is_gone = threading.Event()
        """Set once the tuner has closed the pipe, or gives no sign of life any more."""
        self._clock, self._heard_s = clock, clock.now()
        self._part_of_line = b""
        """The beginning of a request whose end has not come yet."""
        self._waiting: SimpleQueue[Request] = SimpleQueue()

    def feed(self, chunk: bytes) -> None:
        """Take the bytes that have come from the tuner; an empty chunk means that it has closed the pipe."""
        self._heard_s = self._clock.now()
        *lines, self._part_of_line = (self._part_of_line + chunk).split(b"\n")
        for line in filter(None, lines):  # an empty line is a mere sign of life
            self._waiting.put(pickle.loads(base64.b64decode(line)))  # noqa: S301 - from our own side of a pipe
        if not chunk:
            self.is_gone.set()

    def next(self, timeout_s: float) -> Request | None:
        """Return the next request; None if none comes within `timeout_s`."""
        with suppress(Empty):
            return self._waiting.get(timeout=timeout_s) if timeout_s else self._waiting.get_nowait()
        return None

    @property
    def is_silent(self) -> bool:
        """Whether the tuner has given no sign of life for too long."""
        return self._clock.now() - self._heard_s > SILENT_S


def say(kind: str, **fields: Any) -> None:
    """Write a message to the tuner, with the time on this node's clock."""
    sys.stdout.write(json.dumps({"kind": kind, "at_s": time.monotonic(), **fields}) + "\n")
    sys.stdout.flush()


def refuse(error: Exception) -> None:
    """Tell the tuner the error because of which a request fails. An error of Python is about a file of this node."""
    name = type(error).__name__ if isinstance(error, TunerError) else "OutputError"
    say("refused", error=name, why=f"{error}")


def listen(mailbox: Mailbox) -> None:
    """Read requests in a thread, and end this process where it does not end by itself after the tuner is gone."""

    def read() -> None:
        """Give the mailbox what the tuner writes, until the tuner is gone."""
        while not mailbox.is_gone.is_set():
            mailbox.feed(os.read(sys.stdin.fileno(), 1 << 16))

    def watch_tuner() -> None:
        """Note a silent tuner as gone, and end this process `SILENT_S` after that: `serve` may hang."""
        while not mailbox.is_gone.wait(BEAT_S):
            if mailbox.is_silent:
                mailbox.is_gone.set()
        time.sleep(SILENT_S)
        os._exit(1)  # a write to a pipe that nobody reads may never end; the guard then ends the trainer

    threading.Thread(target=read, daemon=True).start()
    threading.Thread(target=watch_tuner, daemon=True).start()
    for number in (signal.SIGTERM, signal.SIGUSR2):  # scancel, and the end of a job's time
        signal.signal(number, lambda *_: mailbox.is_gone.set())


def node_lock(name: str, limit_s: float) -> socket.socket:
    """Wait until no other watcher holds the lock `name` on this node, and return the lock: a bound socket.

    The kernel frees the socket when its watcher ends, however that ends (unix(7), abstract). So the holder knows that
    no trainer of an earlier watcher runs any more. Raises DeviceError if another watcher holds it for `limit_s` more.
    """
    lock, end_s = socket.socket(socket.AF_UNIX), time.monotonic() + limit_s
    while True:
        try:
            lock.bind(f"\0tuner-{name}")  # a name that begins with 0 is no file
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > end_s:
                lock.close()
                problem = f"another tuner of this allocation works on {socket.gethostname()}"
                raise DeviceError(f"{problem}; wait for it, or end it") from error
            time.sleep(POLL_S)
        else:
            return lock


def serve(mailbox: Mailbox, opening: OpenDevices, clock: probe.Clock) -> None:
    """Open the devices of this node, and do what the tuner requests until it is gone, such as to run a part of a plan.

    Args:
        mailbox: The requests after the first.
        opening: The first request, which names the devices.
        clock: Times the parts of plans.
    """
    spec, is_first_look = opening.spec, True
    process: probe.Process | None = None  # that of the last part
    source = open_devices(spec.devices, memory_mib=spec.environment.memory_mib)
    cards = Cards(source.devices)

    say("devices", host=socket.gethostname(), label=source.label, devices=[asdict(device) for device in source.devices])
    while not mailbox.is_gone.is_set():
        try:
            match mailbox.next(BEAT_S):
                case RunPart() as part:
                    devices, count = source, len(part.plan.slot.local_devices)
                    if count < len(source.devices):
                        devices = part_of(source, range(count), memory_mib=spec.environment.memory_mib)
                    plan = part_of_plan(part, opening.number, devices.devices, launch_variables(spec, devices))
                    process = run_part(plan, devices, mailbox, clock)
                case Command.READ_CARDS:
                    if is_first_look:  # all nodes have opened their devices, so nothing of an earlier tuner still runs
                        clean_up()
                    is_first_look = False
                    still_running = process.still_running if process else None
                    say("cards", cards=[asdict(card) for card in cards.occupancy()], still_running=still_running)
                case _:  # no request in time, or the end of a part that has ended by itself
                    say("beat", oom_kills=kernel_oom_kills())
        except (TunerError, OSError) as error:
            refuse(error)


def run_part(plan: probe.ProbePlan, source: probe.DeviceSource, mailbox: Mailbox, clock: probe.Clock) -> probe.Process:
    """Run a node's part of a plan, end it once the tuner asks, and return its process when it has ended.

    Meanwhile the tuner is told what the part prints, counts and uses.
    """
    process = probe.Process(plan, clock)
    recorder = probe.SamplingRecorder(source, clock, plan.slot.limits.sample_seconds)
    counts = CountLines(plan.slot.counts, USUAL_BOUNDS.tail_bytes)
    next_beat_s, has_ended = 0.0, False
    try:
        say("started", oom_kills=kernel_oom_kills())
        recorder.start(process.pid, 0.0)
        while not has_ended:
            if mailbox.is_gone.is_set() or mailbox.next(0.0) is Command.END_PART:
                process.end()
            has_ended = process.exit_code() is not None or process.still_running is not None
            for line in process.lines(0.0 if has_ended else POLL_S):  # after the end, once more for the last lines
                say("line", text=line.text, stream=line.stream)
            for count in counts.read():
                say("count", name=count.name, text=count.text)
            if new := recorder.take_new():
                say("samples", samples=[asdict(sample) for sample in new])
            if recorder.lost:
                say("lost", why=recorder.lost)
            if clock.now() >= next_beat_s:
                next_beat_s = clock.now() + BEAT_S
                say("beat")
    finally:
        process.end()
        recorder.stop()
    say("exit", code=process.exit_code(), still_running=process.still_running, oom_kills=kernel_oom_kills())
    return process


def part_of_plan(
    part: RunPart, number: int, devices: tuple[probe.Device, ...], variables: Mapping[str, str]
) -> probe.ProbePlan:
    """Return a node's part of a plan: with its devices, their variables, and log files of its own.

    Three things are done by the tuner for all nodes, and are switched off in the part:

    - It merges the counts. The node's processes do count, by the variables that are added here, and the watcher sends
      their counts on without merging them.
    - It writes the plan's files.
    - It protects the person's files. A copy that this node made late would hold a probe's content.

    Raises OutputError if no files can be made.
    """
    os.environ |= {probe.NODE_RANK: str(number), probe.HEAD: part.head}  # the plan's command refers to them
    plan = part.plan
    slot = replace(plan.slot, devices=devices, part=f"node-{number}")
    progress_file = {PROGRESS: escaped(str(slot.progress))} if PROGRESS in plan.env else {}
    env = {**variables, **plan.env, **progress_file}
    part_plan = replace(plan, slot=slot, env=env, files={}, is_counted=False, protects_files=False)
    try:
        folder = slot.counts if plan.is_counted else slot.console.parent
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        problem = f"{error.filename} cannot be made: {error.strerror}"
        raise OutputError(f"{problem}; --runs must be a folder that all nodes share") from error
    if not plan.is_counted:
        return part_plan
    counting_variables = counting(slot.counts, part_plan.environment(os.environ))
    escaped_variables = {name: escaped(text) for name, text in counting_variables.items()}  # a plan's `env` has `${…}`
    return replace(part_plan, env={**env, **escaped_variables})


def main() -> None:
    """Do what the requests on the standard input ask; the first one is an `OpenDevices`."""
    clock = probe.MonotonicClock()
    mailbox = Mailbox(clock)
    listen(mailbox)
    opening = mailbox.next(SILENT_S)
    if not isinstance(opening, OpenDevices):
        return
    try:
        # The lock keeps two watchers from training on the same devices: one of an earlier tuner may still be ending.
        # It has ended after this time, even where it hangs in a write.
        earlier_s = ENDED_WITHIN_S + SILENT_S
        lock = node_lock(f"{os.environ.get('SLURM_JOB_ID')}-{os.environ.get('SLURMD_NODENAME')}", earlier_s)
        serve(mailbox, opening, clock)
        lock.close()
    except (TunerError, OSError) as error:
        refuse(error)


if __name__ == "__main__":
    main()
