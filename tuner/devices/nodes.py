"""The nodes of a SLURM allocation as one machine: their devices, and a command that runs on all of them at once.

For each probe, `srun --overlap` starts a watcher on each node; see `node_agent`. What the watchers see comes back
through the pipes of `srun`: no port is opened for it, and no file is waited for.

The clocks of nodes differ. Each message tells the time on its node's clock, and the fastest message tells by how much
that clock is behind ours; the error is the time that this message travelled.
"""

import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from io import TextIOWrapper
from typing import IO, Any, cast

from tuner.devices.node_agent import BEAT_S, SILENT_S, NodeJob
from tuner.errors import DeviceError, DeviceLostError, LaunchError, TrainerError
from tuner.probe import Clock, Device, DeviceSample, MonotonicClock, OutputLine, ProbePlan, record
from tuner.probe.output import USUAL_BOUNDS, Bounds, Log, plain, unwritable
from tuner.probe.process import prepare
from tuner.probe.progress_files import CountFiles
from tuner.study import StudySpec, open_anew

START_S = 120.0
"""Seconds that the watchers have to start: `srun` waits for busy nodes."""
LEAVE_S = 10.0
"""Seconds that the other nodes have to end after one has failed, so that the cause is heard and not only the echo."""
QUIET_S = 5.0
"""Seconds without a sign of life after which a node is named where the probe fails for any reason."""
UNMET = re.compile(r"Rendezvous(?:Connection|Timeout)Error|socket has timed out .* connect")
"""What torch prints on a node whose ranks do not reach those of the first node."""
_TIMES = ("t_s", "at_s", "thin_from_s")
"""The fields of a message that are times on a node's clock."""


def allocated(environ: Mapping[str, str], wanted: int) -> tuple[str, ...]:
    """Return the names of the allocation's nodes. Raises DeviceError where this is no allocation of so many nodes."""
    begin = f"submit with --launcher slurm, or begin with `salloc --nodes {wanted} --ntasks-per-node 1`"
    if (names := environ.get("SLURM_JOB_NODELIST")) is None:
        raise DeviceError(f"slurm.nodes is {wanted}, and this is no allocation of SLURM; {begin}")
    command = ("scontrol", "show", "hostnames", names)
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=START_S)
    except (OSError, subprocess.SubprocessError) as error:
        raise DeviceError(f"{' '.join(command)} fails: {error}") from error
    hosts = tuple(done.stdout.split())
    if len(hosts) < wanted:
        raise DeviceError(f"slurm.nodes is {wanted}, and the allocation has {len(hosts)} node(s): {names}; {begin}")
    return hosts[:wanted]


def srun(host: str) -> list[str]:
    """Return the command that starts a watcher on a node, beside all else that runs in the allocation."""
    options = ["--overlap", "--nodes=1", "--ntasks=1", "--cpu-bind=none", f"--nodelist={host}"]
    if cores := os.environ.get("SLURM_CPUS_PER_TASK"):  # a step does not inherit it from its job; see srun(1)
        options.append(f"--cpus-per-task={cores}")
    return ["srun", *options, sys.executable, "-P", "-m", "tuner.devices.node_agent"]


class Watcher:
    """The watcher of one node, as this side knows it."""

    def __init__(self, host: str, job: NodeJob, inbox: "queue.SimpleQueue[Heard]", clock: Clock) -> None:
        """Start it; what it tells goes to the inbox."""
        self.host, self.number = host, job.number
        self.code: int | None = None
        """The exit code of the node's part of the trainer; None while it runs."""
        self.behind_s = float("inf")
        """What has to be added to a time of the node's clock."""
        self.heard_s = clock.now()
        self.recent: deque[str] = deque(maxlen=2000)
        """The last lines of its console."""
        self._inbox, self._clock = inbox, clock
        self.process = subprocess.Popen(
            srun(host),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._requests, self._answers = cast("tuple[IO[bytes], IO[bytes]]", (self.process.stdin, self.process.stdout))
        self.write(job.packed())
        self._reader = threading.Thread(target=self._read, name=host, daemon=True)
        self._reader.start()

    def write(self, line: bytes) -> None:
        """Send a line; nothing happens where nobody is there to read it."""
        with suppress(OSError, ValueError):
            self._requests.write(line)
            self._requests.flush()

    def ask_to_end(self) -> None:
        """Let the watcher end everything on its node."""
        with suppress(OSError):
            self._requests.close()

    def join(self, limit_s: float) -> None:
        """Wait until it has ended, at most so long."""
        self._reader.join(max(0.0, limit_s))

    def _read(self) -> None:
        with self._answers:
            for raw in self._answers:
                self._take(raw.decode(errors="replace").rstrip("\n"))
        self.process.wait()
        self._inbox.put((self, self._clock.now(), {"kind": "gone"}))

    def _take(self, text: str) -> None:
        self.heard_s, message = self._clock.now(), record(text)
        if {"kind", "at_s"} <= message.keys():
            self.behind_s = min(self.behind_s, self.heard_s - message["at_s"])
        else:
            message = {"kind": "srun", "text": plain(text)}
        self._inbox.put((self, self.heard_s, message))


Heard = tuple[Watcher, float, Mapping[str, Any]]
"""A message: who told it, when it arrived, and what it says."""


class NodeProcesses:
    """A plan that runs on all nodes; a `StartedProcess`."""

    pid = 0

    def __init__(
        self, plan: ProbePlan, jobs: Mapping[str, NodeJob], clock: Clock, bounds: Bounds = USUAL_BOUNDS
    ) -> None:
        """Start the plan's command on each node. Raises the errors of `Launch`, and DeviceError without `srun`."""
        self._clock, self._bounds, self._origin_s = clock, bounds, clock.now()
        prepare(plan)
        try:
            self._log = Log(plan.slot.console, bounds.log_bytes)
        except OSError as error:
            raise unwritable(plan.slot.console, error) from error
        self._counts = CountFiles(plan.slot.counts, bounds.tail_bytes) if plan.is_counted else None
        self._count_files, self._stack = dict[str, TextIOWrapper](), ExitStack()
        self._folder = plan.slot.counts
        self.samples: deque[DeviceSample] = deque()
        """What devices showed and nobody has taken yet; times are on this side's clock."""
        self.lost: str | None = None
        """Why a node cannot be watched any more; None while all can."""
        self.quiet: str | None = None
        """Which nodes told nothing at the end; None where all did."""
        self._failed_s: float | None = None
        self._early: list[OutputLine] = []
        self.left: str | None = None
        """The processes that still run after `end`; None when there are none."""
        self._per_node = len(plan.slot.local_devices)
        self._closed = threading.Event()
        self._inbox: queue.SimpleQueue[Heard] = queue.SimpleQueue()
        self.watchers = started(jobs, self._inbox, clock)
        threading.Thread(target=self._beat, name="beats", daemon=True).start()
        try:
            self._await_start()
        except BaseException:
            self.end()
            raise

    def _await_start(self) -> None:
        """Wait until each node has started its part, or until `lost` says which one cannot be watched.

        What nodes print meanwhile is kept for `lines`. Raises LaunchError or TrainerError where a node refuses.
        """
        waiting = {watcher.number: watcher.host for watcher in self.watchers}
        for watcher, heard_s, message in until(self._inbox, self._clock, START_S):
            if message["kind"] == "refused":
                raise (LaunchError if message["is_launch"] else TrainerError)(f"{watcher.host}: {message['why']}")
            if message["kind"] == "started":
                del waiting[watcher.number]
            self._early += self._heard(watcher, heard_s, message)
            if not waiting or self.lost:
                return
        self.lost = f"{', '.join(waiting.values())}: no watcher has started within {START_S:g} s"

    def lines(self, timeout_s: float) -> list[OutputLine]:
        """Return the new lines of all nodes; see `RunningTrainer.lines`."""
        lines, self._early = self._early, []
        with suppress(queue.Empty):
            lines += self._heard(*self._inbox.get(timeout=timeout_s or 1e-3))
            while True:
                lines += self._heard(*self._inbox.get_nowait())
        now_s = self._clock.now()
        self.lost = self.lost or self._silent(SILENT_S)
        counted = self._counts.read() if self._counts else ()
        self._log.check()
        return lines + [OutputLine(t_s=now_s - self._origin_s, text=text, stream="progress") for text in counted]

    def _silent(self, limit_s: float) -> str | None:
        running = [watcher for watcher in self.watchers if watcher.code is None]
        silent = [watcher.host for watcher in running if self._clock.now() - watcher.heard_s > limit_s]
        return f"{', '.join(silent)} has told nothing for {limit_s:g} s" if silent else None

    def _heard(self, watcher: Watcher, heard_s: float, message: Mapping[str, Any]) -> list[OutputLine]:
        match message:
            case {"kind": "srun", "text": text} | {"kind": "line", "text": text, "stream": "console"}:
                watcher.recent.append(text)
                self._log.write([f"{watcher.host}: {text}"])
                is_aside = message["kind"] == "srun" and "error" not in text
                return [] if is_aside else [OutputLine(t_s=heard_s - self._origin_s, text=text)]
            case {"kind": "line", "text": text}:
                text = on_our_clock(text, watcher.behind_s)
                return [OutputLine(t_s=heard_s - self._origin_s, text=text, stream="progress")]
            case {"kind": "count", "name": name, "text": text}:
                self._keep_count(f"{watcher.number}-{name}", on_our_clock(text, watcher.behind_s))
            case {"kind": "samples", "samples": samples}:
                for sample in samples:
                    place = watcher.number * self._per_node + sample["device"]
                    self.samples.append(
                        DeviceSample(**sample | {"t_s": sample["t_s"] + watcher.behind_s, "device": place})
                    )
            case {"kind": "lost", "why": why}:
                self.lost = self.lost or f"{watcher.host}: {why}"
            case {"kind": "exit", "code": code, "left": left}:
                self._ended(watcher, -1 if code is None else code, heard_s)
                self.left = f"{watcher.host}: {left}" if left else self.left
            case {"kind": "gone"} if watcher.code is None:
                self._ended(watcher, watcher.process.returncode or -1, heard_s)
                if not self._closed.is_set():
                    self.lost = self.lost or self._gone(watcher)
            case _:
                pass
        return []

    def _keep_count(self, name: str, text: str) -> None:
        """Write what a process has counted to a file of ours, from which all nodes' counts are merged."""
        try:
            if name not in self._count_files:
                file = TextIOWrapper(open_anew(self._folder / name), encoding="utf-8", line_buffering=True)
                self._count_files[name] = self._stack.enter_context(file)
            self._count_files[name].write(f"{text}\n")
        except OSError as error:
            raise unwritable(self._folder / name, error) from error

    def _ended(self, watcher: Watcher, code: int, heard_s: float) -> None:
        watcher.code = code
        if code and self._failed_s is None:
            self._failed_s = heard_s

    def _gone(self, watcher: Watcher) -> str:
        said = next((text for text in reversed(watcher.recent) if text.startswith("srun: error")), "srun says nothing")
        return f"the watcher of {watcher.host} is gone ({said})"

    def exit_code(self) -> int | None:
        """Return the exit code of the node that failed first, or 0 once all are done; None while any runs.

        After a failure, the other nodes have some seconds to tell of it, too.
        """
        now_s, codes = self._clock.now(), [watcher.code for watcher in self.watchers]
        is_over = self._failed_s is not None and now_s - self._failed_s > LEAVE_S
        if is_over:
            self.lost = self.lost or self._silent(QUIET_S)
        if self.lost and not self._closed.is_set():
            return None  # lost devices end the probe, too, and tell more
        return next(filter(None, codes), 0) if None not in codes or is_over else None

    def last_iteration(self, iteration: int) -> None:
        """Do nothing: a command takes no requests."""

    def release(self) -> int:
        """End everything: a command serves one probe only."""
        return self.end()

    def end(self) -> int:
        """End every process on all nodes, wait for them, and return the exit code."""
        if not self._closed.is_set():
            self.quiet = self.lost or self._silent(QUIET_S)
            self._closed.set()
            end(self.watchers, self._clock, self._bounds)
            self._early += self.lines(0.0)
            self._stack.close()
            self._log.close()
        return next((watcher.code for watcher in self.watchers if watcher.code), 0)

    def _beat(self) -> None:
        while not self._closed.wait(BEAT_S):
            for watcher in self.watchers:
                watcher.write(b"\n")


def started(jobs: Mapping[str, NodeJob], inbox: "queue.SimpleQueue[Heard]", clock: Clock) -> list[Watcher]:
    """Start a watcher for the job of each node. Raises DeviceError where there is no `srun`."""
    try:
        return [Watcher(host, job, inbox, clock) for host, job in jobs.items()]
    except OSError as error:
        raise DeviceError(f"srun cannot be started: {error.strerror}") from error


def end(watchers: Sequence[Watcher], clock: Clock, bounds: Bounds) -> None:
    """End what runs on the nodes, and wait for it; TERM lets `srun` end a step that does not end (srun(1))."""
    for watcher in watchers:
        watcher.ask_to_end()
    limit_s = bounds.term_grace_s + bounds.kill_s
    for number in (signal.SIGTERM, signal.SIGKILL, None):
        end_s = clock.now() + limit_s
        for watcher in watchers:
            watcher.join(end_s - clock.now())
        if number:
            for watcher in watchers:
                watcher.process.send_signal(number)
        limit_s = bounds.term_grace_s


def until(inbox: "queue.SimpleQueue[Heard]", clock: Clock, limit_s: float) -> Iterator[Heard]:
    """Yield what is heard, until nothing comes any more within the limit."""
    end_s = clock.now() + limit_s
    with suppress(queue.Empty):
        while (left_s := end_s - clock.now()) > 0:
            yield inbox.get(timeout=left_s)


def on_our_clock(text: str, behind_s: float) -> str:
    """Return a message of a trainer with its times on this side's clock."""
    message = record(text)
    times = {name: message[name] + behind_s for name in _TIMES if isinstance(message.get(name), int | float)}
    return json.dumps(message | times) if times else text


class Nodes:
    """The devices of all nodes of a trial, the first node's first; a `DeviceSource` that also starts plans."""

    def __init__(self, spec: StudySpec, hosts: Sequence[str], clock: Clock | None = None) -> None:
        """Ask each node for its devices. Raises DeviceError where a node does not answer, or has other devices."""
        self.hosts = tuple(hosts)
        self._clock = clock or MonotonicClock()
        self._processes: NodeProcesses | None = None
        inbox: queue.SimpleQueue[Heard] = queue.SimpleQueue()
        jobs = {host: NodeJob(spec=spec, number=number) for number, host in enumerate(hosts)}
        watchers = started(jobs, inbox, self._clock)
        told: dict[int, Mapping[str, Any]] = {}
        said: list[str] = []
        for watcher, _, message in until(inbox, self._clock, START_S):
            if message["kind"] == "devices":
                told[watcher.number] = message
            said += [f"{watcher.host}: {message[key]}" for key in ("why", "text") if key in message]
            if len(told) == len(hosts) or (message["kind"] == "gone" and watcher.number not in told):
                break
        end(watchers, self._clock, USUAL_BOUNDS)
        if silent := [host for number, host in enumerate(hosts) if number not in told]:
            raise DeviceError(f"{', '.join(silent)} tells no devices; {'; '.join(said[-3:]) or 'srun says nothing'}")
        found = [[Device(**device) for device in told[number]["devices"]] for number in range(len(hosts))]
        counts = {host: len(devices) for host, devices in zip(hosts, found, strict=True)}
        if len(set(counts.values())) > 1:
            raise DeviceError(f"the nodes have different numbers of devices: {counts}; name so many with `devices`")
        self.label: str = told[0]["label"]
        self._jobs = {host: replace(job, head=told[0]["host"]) for host, job in jobs.items()}
        numbered = enumerate(device for devices in found for device in devices)
        self.devices = tuple(
            replace(device, name=f"{device.name.partition(':')[0]}:{rank}") for rank, device in numbered
        )

    def start(self, plan: ProbePlan) -> NodeProcesses:
        """Start a plan's command on all nodes; a `StartProcess`."""
        jobs = {host: replace(job, plan=plan) for host, job in self._jobs.items()}
        self._processes = NodeProcesses(plan, jobs, self._clock)
        return self._processes

    def attach(self, pid: int) -> None:
        """Do nothing: each watcher follows the processes of its node."""

    def sample(self, t_s: float) -> list[DeviceSample]:
        """Return what has come since the last call. Raises DeviceLostError where a node is lost."""
        processes = self._processes
        if processes is None:
            return []
        if processes.lost:
            raise DeviceLostError(processes.lost)
        origin_s = self._clock.now() - t_s
        new = [processes.samples.popleft() for _ in range(len(processes.samples))]
        return [replace(sample, t_s=sample.t_s - origin_s) for sample in new]

    @property
    def quiet(self) -> str | None:
        """Which nodes told nothing at the end of the last probe; None where all did."""
        return self._processes.quiet if self._processes else None

    @property
    def unmet(self) -> str | None:
        """The first line of the last probe that tells of ranks that do not meet; None without one."""
        watchers = self._processes.watchers if self._processes else []
        lines = (f"{watcher.host}: {line}" for watcher in watchers for line in watcher.recent if UNMET.search(line))
        return next(lines, None)

    def host_of(self, line: str) -> str | None:
        """Return the node whose console has shown a line in the last probe; None where none or several have."""
        watchers = self._processes.watchers if self._processes else []
        known = [watcher.host for watcher in watchers if line in watcher.recent]
        return known[0] if len(known) == 1 else None


def open_nodes(spec: StudySpec) -> Nodes:
    """Return the nodes of the allocation in which this process runs. Raises DeviceError."""
    return Nodes(spec, allocated(os.environ, spec.slurm.nodes))
