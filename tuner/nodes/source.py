"""The devices of all nodes of a trial, read by a watcher on each node; see `agent`."""

import atexit
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import replace
from itertools import chain
from math import hypot
from queue import SimpleQueue
from statistics import fmean
from threading import Event, Thread
from typing import Any

from tuner import probe
from tuner.devices.cards import Occupancy, Occupant
from tuner.errors import DeviceError, DeviceLostError, TunerError
from tuner.nodes.messages import BEAT, Opening, Word, refusal
from tuner.nodes.processes import USUAL_WAITS, NodeProcesses, Waits, drained
from tuner.nodes.watcher import Connect, Heard, Step, Watcher, end, until
from tuner.probe.own_files import Protection
from tuner.study import StudySpec


def ask_slurm(*command: str) -> str:
    """Run a command of SLURM and return what it prints. Raises DeviceError with what it says when it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60.0)
    except subprocess.CalledProcessError as error:
        raise DeviceError(f"{command[0]} failed: {error.stderr.strip()}; see `scontrol ping`") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DeviceError(f"{command[0]} does not answer: {error}; see `scontrol ping`") from error
    return done.stdout


def allocated(environ: Mapping[str, str], wanted: int) -> tuple[str, ...]:
    """Return the names of the allocation's nodes. Raises DeviceError where this is no allocation of so many nodes."""
    begin = f"submit with --launcher slurm, or begin with `salloc --nodes {wanted} --ntasks-per-node 1`"
    if (names := environ.get("SLURM_JOB_NODELIST")) is None:
        raise DeviceError(f"slurm.nodes is {wanted}, and this is no allocation of SLURM; {begin}")
    hosts = tuple(ask_slurm("scontrol", "show", "hostnames", names).split())
    if len(hosts) < wanted:
        raise DeviceError(f"slurm.nodes is {wanted}, and the allocation has {len(hosts)} node(s): {names}; {begin}")
    return hosts[:wanted]


class Nodes:
    """The devices of all nodes of a trial, the first node's first; a `DeviceSource` that also starts plans.

    Its watchers serve one probe after another. One that is lost is started again before the next probe.
    """

    def __init__(
        self,
        spec: StudySpec,
        hosts: Sequence[str],
        clock: probe.Clock | None = None,
        *,
        connect: Connect = Step,
        waits: Waits = USUAL_WAITS,
    ) -> None:
        """Ask each node for its devices. Raises DeviceError where a node does not answer, or has other devices."""
        self._spec, self._clock, self._connect, self._waits = spec, clock or probe.MonotonicClock(), connect, waits
        self._hosts, self._inbox = tuple(hosts), SimpleQueue[Heard]()
        self._watchers: list[Watcher] = []
        self._processes: NodeProcesses | None = None
        self._unsettled: list[Protection] = []
        """What keeps the person's files while ranks of a lost node may still write."""
        self._silent = set[int]()
        """The nodes whose watcher is lost, until a new one has answered."""
        self._is_closed = Event()
        Thread(target=self._beat, name="beats", daemon=True).start()
        try:
            answers = self._opened(range(len(hosts)))
            devices = [[probe.Device(**device) for device in answers[host]["devices"]] for host in hosts]
            counts = {host: len(own) for host, own in zip(hosts, devices, strict=True)}
            if len(set(counts.values())) > 1:
                raise DeviceError(f"the nodes have different numbers of devices: {counts}; name so many with `devices`")
            count = spec.devices_of_trial(len(devices[0]))
        except BaseException:
            self.close()
            raise
        self._head: str = answers[hosts[0]]["host"]
        """The host where the ranks meet."""
        self.label: str = answers[hosts[0]]["label"]
        numbered = enumerate(chain.from_iterable(devices))
        renamed = [replace(device, name=f"{device.name.partition(':')[0]}:{rank}") for rank, device in numbered]
        self.devices = tuple(renamed[:count])

    def _beat(self) -> None:
        while not self._is_closed.wait(self._waits.beat_s):
            for watcher in tuple(self._watchers):
                watcher.line.send(BEAT)

    def _opened(self, numbers: Sequence[int]) -> dict[str, Mapping[str, Any]]:
        """Start watchers on the hosts with these numbers, and return by host what each tells of its devices.

        Raises the error of a node that refuses, and DeviceError for one that does not answer.
        """
        for number in numbers:
            watcher = Watcher(self._hosts[number], number, self._inbox, self._clock, self._connect)
            self._watchers[number : number + 1] = [watcher]
            watcher.ask(Opening(spec=self._spec, number=number))
        return self._answers("devices", [self._watchers[number] for number in numbers])

    def _answers(self, kind: str, asked: Sequence[Watcher]) -> dict[str, Mapping[str, Any]]:
        """Return the messages of one kind with which watchers answer, by host.

        Raises the error of a node that refuses, and DeviceLostError for one that does not answer.
        """
        answers: dict[str, Mapping[str, Any]] = {}
        waiting, srun_lines = list(asked), list[str]()
        heard_all = until(self._inbox, self._clock, self._waits.start_s)
        while waiting and (heard := next(heard_all, None)):
            host, content = heard.watcher.host, heard.content
            if content["kind"] in {kind, "refused", "gone"} and heard.watcher in waiting:
                waiting.remove(heard.watcher)
                answers |= {host: content} if content["kind"] != "gone" else {}
            srun_lines += [f"{host}: {content['text']}"] if content["kind"] == "srun" else []
        for host, content in answers.items():
            if content["kind"] == "refused":
                raise refusal(host, content)
        if missing := [watcher.host for watcher in asked if watcher.host not in answers]:
            why = "; ".join(srun_lines[-3:]) or "srun says nothing"
            raise DeviceLostError(f"{', '.join(missing)} tells no {kind}; {why}")
        return answers

    def close(self) -> None:
        """End the watchers. Harmless to repeat.

        Where a lost node does not answer, the next tuner puts back the person's files, as after a kill of this one.
        """
        if self._unsettled:
            with suppress(TunerError, RuntimeError):  # Python 3.12 starts no thread as it ends
                self._settle()
            while self._unsettled:
                self._unsettled.pop().leave()
        self._is_closed.set()
        end(self._watchers, self._clock)
        self._watchers.clear()

    def _settle(self) -> None:
        """Start a lost watcher again, and put back the person's files. Raises DeviceError.

        A new watcher answers only when nothing of the lost one runs any more.
        """
        self._silent |= {watcher.number for watcher in self._watchers if watcher.is_gone}
        if self._silent:
            lost = [watcher for watcher in self._watchers if watcher.number in self._silent]
            end([watcher for watcher in lost if not watcher.is_gone], self._clock)  # they have not answered before
            self._opened(sorted(self._silent))
            self._silent.clear()
        while self._unsettled:
            self._unsettled.pop().close()

    def part(self, positions: Sequence[int]) -> "Nodes":
        """Return some of the devices as a source of their own, which the same watchers serve."""
        part = copy(self)
        part.devices = tuple(self.devices[position] for position in positions)
        return part

    def occupancy(self) -> tuple[Occupancy, ...]:
        """Return how much of each card is in use on all nodes, once no lost node runs anything. Raises DeviceError."""
        self._settle()
        for watcher in self._watchers:
            watcher.ask(Word.LOOK)
        answers = self._answers("cards", self._watchers)
        return tuple(_occupancy(card) for host in self._hosts for card in answers[host]["cards"])

    def oom_kills(self) -> int:
        """Return how many processes the kernels of all nodes have killed for lack of memory since boot."""
        return sum(watcher.oom_kills for watcher in self._watchers)

    def start(self, plan: probe.ProbePlan) -> NodeProcesses:
        """Start a plan's command on its nodes; a `StartProcess`."""
        watchers = self._watchers[: plan.slot.nodes]
        self._processes = NodeProcesses(
            plan, watchers, self._inbox, self._clock, head=self._head, unsettled=self._unsettled, waits=self._waits
        )
        return self._processes

    def attach(self, pid: int) -> None:
        """Do nothing: each watcher follows the processes of its node."""

    def sample(self, t_s: float) -> list[probe.DeviceSample]:
        """Return what has come since the last call. Raises DeviceLostError where a node is lost."""
        processes = self._processes
        if processes is None:
            return []
        if processes.lost:
            raise DeviceLostError(processes.lost)
        origin_s = self._clock.now() - t_s
        return [replace(sample, t_s=sample.t_s - origin_s) for sample in drained(processes.samples)]

    def named(self, result: probe.ProbeResult) -> probe.ProbeResult:
        """Return the result of the last probe with what it says of its nodes."""
        return with_nodes(result, self._processes) if self._processes and result.launched else result


def _occupancy(card: Mapping[str, Any]) -> Occupancy:
    """Return what a message says of a card."""
    occupants = tuple(Occupant(**occupant) for occupant in card["occupants"])
    return Occupancy(**{**card, "device": probe.Device(**card["device"]), "occupants": occupants})


def open_nodes(spec: StudySpec) -> Nodes:
    """Return the nodes of the allocation in which this process runs; they are closed with it. Raises DeviceError."""
    nodes = Nodes(spec, allocated(os.environ, spec.slurm.nodes))
    atexit.register(nodes.close)
    return nodes


UNMET = re.compile(r"Rendezvous(?:Connection|Timeout)Error|socket has timed out .* connect")
"""What torch prints on a node whose ranks do not reach those of the first node."""


def with_nodes(result: probe.ProbeResult, processes: NodeProcesses) -> probe.ProbeResult:
    """Return a result that names the node that failed, and the one that holds the others up."""
    failure, slow = result.failure, straggler(result.devices, [watcher.host for watcher in processes.watchers])
    if failure and processes.quiet != failure.detail:
        lines = (f"{watcher.host}: {line}" for watcher in processes.watchers for line in watcher.recent)
        unmet = next((line for line in lines if UNMET.search(line)), None)
        if unmet and result.iterations == 0 and failure.kind.blame in {probe.Blame.HOST, probe.Blame.UNKNOWN}:
            detail = f"the ranks of the nodes do not meet: {unmet}"
        else:
            detail = ": ".join(filter(None, (_host_of(failure, processes), failure.detail)))
            detail = "; ".join(filter(None, (detail, processes.quiet)))
        result = replace(result, failure=replace(failure, detail=detail))
    return replace(result, notes=(*result.notes, slow)) if slow else result


def _host_of(failure: probe.Failure, processes: NodeProcesses) -> str | None:
    """Return the node that a failure is about; None where none or several are.

    It is the one whose kernel has killed processes, or the one whose console alone shows the failure's line. A detail
    shortens a long line and may say more before and after it, so the longest line that it holds decides. The last line
    before a silence blames nobody.
    """
    if failure.kind in {probe.FailureKind.HANG, probe.FailureKind.TOO_SLOW}:
        return None
    if failure.rule == "kernel":
        hosts = set(processes.short_of_memory)
    else:
        lines = [
            (probe.quoted(text.strip()), watcher.host) for watcher in processes.watchers for text in watcher.recent
        ]
        held = [(line, host) for line, host in lines if line and line in failure.detail]
        longest = max((line for line, _ in held), key=len, default="")
        hosts = {host for line, host in held if line == longest}
    return hosts.pop() if len(hosts) == 1 else None


def straggler(devices: Sequence[probe.DeviceSummary], hosts: Sequence[str]) -> str | None:
    """Say which node holds the others up; None where none does, or where the devices do not show it.

    Ranks that train together wait for the slowest in each step, so the node that works most of the time is the slowest.
    A GPU that waits in a collective counts as busy, so there the SM activity decides.
    """
    each = len(devices) // len(hosts)
    read = [
        (device.sm_mean_pct, device.sm_se_pct) if device.is_gpu else (device.util_mean_pct, device.util_se_pct)
        for device in devices
    ]
    known = [(mean_pct, error_pct or 0.0) for mean_pct, error_pct in read if mean_pct]
    if not known or len(known) < len(devices):
        return None
    parts = [known[number * each : (number + 1) * each] for number in range(len(hosts))]
    nodes = [
        (fmean(pct for pct, _ in part), hypot(*(error for _, error in part)) / each, place)
        for place, part in enumerate(parts)
    ]
    (least, error_of_least, fast), (most, error_of_most, slow) = min(nodes), max(nodes)
    longer_pct = 100.0 * (most / least - 1.0)
    if longer_pct < 10.0 or most - least < 2.0 * hypot(error_of_least, error_of_most):  # both chosen
        return None
    return f"{hosts[slow]} works {longer_pct:.0f} % longer in each step than {hosts[fast]}, which waits for it"
