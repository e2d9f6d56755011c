"""The watcher of one node: `python -m tuner.devices.node_agent`, which `srun` starts for each node of a trial.

It starts the node's part of a plan and watches it as a probe of one machine is watched. What it sees it writes as JSON
lines to its standard output. It ends everything when its standard input closes, or when the other side is silent: no
end of a file reaches a task whose `srun` was killed.
"""

import base64
import json
import os
import pickle
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tuner.devices.found import launch_variables, open_devices
from tuner.errors import LaunchError, TunerError
from tuner.probe import HEAD, NODE_RANK, DeviceSource, MonotonicClock, ProbePlan, Process, SamplingRecorder
from tuner.probe.output import USUAL_BOUNDS, Tail
from tuner.progress import PROGRESS
from tuner.study import StudySpec, escaped

POLL_S = 0.05
"""Seconds that the watcher waits for a line before it looks for all else."""
BEAT_S = 1.0
"""Seconds between two signs of life, in both directions."""
SILENT_S = 30.0
"""Seconds without a sign of life after which the other side counts as gone."""

Say = Callable[..., None]


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeJob:
    """What a watcher is asked for. Without a plan, it only says which devices its node has."""

    spec: StudySpec
    number: int
    """The position of the node among those of the trial."""
    head: str = ""
    """The host of the first node, where the ranks meet."""
    plan: ProbePlan | None = None

    def packed(self) -> bytes:
        """Return the job as one line."""
        return base64.b64encode(pickle.dumps(self)) + b"\n"


class Other:
    """The side that has asked: it is there while its lines come."""

    def __init__(self) -> None:
        self.is_gone = threading.Event()
        self._heard_s = time.monotonic()
        threading.Thread(target=self._listen, daemon=True).start()
        threading.Thread(target=self._wait, daemon=True).start()
        signal.signal(signal.SIGTERM, lambda *_: self.is_gone.set())  # scancel, and the end of a job's time

    def _listen(self) -> None:
        while os.read(sys.stdin.fileno(), 1024):
            self._heard_s = time.monotonic()
        self.is_gone.set()

    def _wait(self) -> None:
        while time.monotonic() - self._heard_s < SILENT_S:
            time.sleep(BEAT_S)
        self.is_gone.set()
        time.sleep(SILENT_S)
        os._exit(1)  # a write to a pipe that nobody reads may never end; the guard then ends the trainer


def watch(job: NodeJob, other: Other, say: Say) -> None:
    """Do a job; tell of the devices, and then of the trainer until it has ended."""
    source = open_devices(job.spec.devices, memory_mib=job.spec.environment.memory_mib)
    say("devices", host=socket.gethostname(), label=source.label, devices=[asdict(device) for device in source.devices])
    if job.plan is None:
        return
    clock, plan = MonotonicClock(), part_of_plan(job, job.plan, source)
    process = Process(plan, clock)
    say("started")
    recorder = SamplingRecorder(source, clock, plan.slot.limits.sample_seconds)
    recorder.start(process.pid, 0.0)
    samples, tails, beat_s = 0, dict[str, Tail](), 0.0
    has_ended = False
    while not has_ended:
        if other.is_gone.is_set():
            process.end()
        has_ended = process.exit_code() is not None or process.left is not None
        for line in process.lines(0.0 if has_ended else POLL_S):
            say("line", text=line.text, stream=line.stream)
        for name, text in counted(plan.slot.counts, tails):
            say("count", name=name, text=text)
        if new := recorder.samples()[samples:]:
            samples += len(new)
            say("samples", samples=[asdict(sample) for sample in new])
        if recorder.lost:
            say("lost", why=recorder.lost)
        if clock.now() >= beat_s:
            beat_s = clock.now() + BEAT_S
            say("beat")
    recorder.stop()
    say("exit", code=process.exit_code(), left=process.left)


def part_of_plan(job: NodeJob, plan: ProbePlan, source: DeviceSource) -> ProbePlan:
    """Return the node's part of a plan: with its devices, and with files of its own for what is watched.

    The variables that begin the counting are set here, because the counts of all nodes are merged on the other side.
    """
    slot = replace(plan.slot, devices=source.devices, part=f"node-{job.number}")
    env = {**launch_variables(job.spec, source), **plan.env}
    env = {name: text if name != PROGRESS else escaped(str(slot.progress)) for name, text in env.items()}
    plan = replace(plan, slot=slot, env=env, files={})
    slot.console.parent.mkdir(parents=True, exist_ok=True)
    if not plan.is_counted:
        return plan
    slot.counts.mkdir(mode=0o700, exist_ok=True)
    counting = {name: escaped(plan.environment(os.environ)[name]) for name in ("PYTHONPATH", "TUNER_COUNT")}
    return replace(plan, env={**env, **counting}, is_counted=False)


def counted(folder: Path, tails: dict[str, Tail]) -> Iterator[tuple[str, str]]:
    """Yield the new lines of the files in which processes count, each with the name of its file."""
    for path in sorted(folder.glob("*.jsonl")):
        for text in tails.setdefault(path.name, Tail(path, USUAL_BOUNDS.tail_bytes)).read():
            yield path.name, text


def say(kind: str, **fields: Any) -> None:
    """Write a message, with the time on this node's clock."""
    sys.stdout.write(json.dumps({"kind": kind, "at_s": time.monotonic(), **fields}) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Do the job on the first line of the standard input."""
    line = bytearray()
    while not line.endswith(b"\n"):  # unbuffered, because the rest belongs to `Other`
        line += os.read(sys.stdin.fileno(), 1) or b"\n"
    job: NodeJob = pickle.loads(base64.b64decode(line))  # noqa: S301 - it comes from our own side of a pipe
    os.environ |= {NODE_RANK: str(job.number), HEAD: job.head}
    try:
        watch(job, Other(), say)
    except TunerError as error:
        say("refused", why=str(error), is_launch=isinstance(error, LaunchError))


if __name__ == "__main__":
    main()
