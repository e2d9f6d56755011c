"""The devices of all nodes of a trial, read by a watcher on each node: a process of the tuner's own; see `agent`.

A watcher that is gone or silent is lost. Until another one has answered on its node, ranks may still run there.
"""

import atexit
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import replace
from math import hypot
from queue import SimpleQueue
from statistics import fmean
from threading import Event, Thread
from typing import Any, NamedTuple

from tuner import probe
from tuner.devices.cards import Occupancy, Occupant
from tuner.errors import DeviceError, DeviceLostError, TunerError
from tuner.nodes import watcher as watching
from tuner.nodes.processes import USUAL_TIMING, NodeProcesses, Timing, drained
from tuner.nodes.watcher import BEAT, Command, Connect, Message, OpenDevices, Step, Watcher
from tuner.probe.own_files import Protection
from tuner.study import StudySpec


def ask_slurm(*command: str) -> str:
    """Run a command of SLURM, and return its output. If it fails, raises DeviceError with what it has printed."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60.0)  # s
    except subprocess.CalledProcessError as error:
        raise DeviceError(f"{command[0]} failed: {error.stderr.strip()}; see `scontrol ping`") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DeviceError(f"{command[0]} does not answer: {error}; see `scontrol ping`") from error
    return done.stdout


def allocated_hosts(environ: Mapping[str, str], wanted: int) -> tuple[str, ...]:
    """Return the names of the allocation's first `wanted` nodes. Raises DeviceError if it does not have so many."""
    remedy = f"submit with --launcher slurm, or begin with `salloc --nodes {wanted} --ntasks-per-node 1`"
    if (names := environ.get("SLURM_JOB_NODELIST")) is None:
        raise DeviceError(f"slurm.nodes is {wanted}, and this is not a SLURM allocation; {remedy}")
    hosts = tuple(ask_slurm("scontrol", "show", "hostnames", names).split())
    if len(hosts) < wanted:
        raise DeviceError(
            f"slurm.nodes is {wanted}, and the allocation has {probe.number_of(len(hosts), 'node')}: {names}; {remedy}"
        )
    return hosts[:wanted]


class Nodes:
    """The devices of all nodes of a trial, the first node's first; a `DeviceSource` that also starts plans.

    Its watchers serve one probe after another. A lost watcher is started again before the next probe.
    """

    def __init__(
        self,
        spec: StudySpec,
        hosts: Sequence[str],
        clock: probe.Clock | None = None,
        *,
        connect: Connect = Step,
        timing: Timing = USUAL_TIMING,
    ) -> None:
        """Ask each node for its devices. Raises DeviceError if one does not answer, or has another number of them.

        Args:
            spec: The study.
            hosts: The names of the nodes.
            clock: Times the messages of the watchers; None for the real clock.
            connect: Starts a watcher on a host, and returns the connection to it.
            timing: How long watchers may take to answer.
        """
        self._spec, self._clock, self._connect, self._timing = spec, clock or probe.MonotonicClock(), connect, timing
        self._hosts, self._inbox = tuple(hosts), SimpleQueue[Message]()
        self._watchers: list[Watcher] = []
        self._processes: NodeProcesses | None = None
        """The processes of the last plan."""
        self._protections: list[Protection] = []
        """The protections of the person's files that stay open while ranks of a lost node may still write."""
        self._lost_numbers = set[int]()
        """The numbers of the nodes whose watcher is lost, until a new one has answered."""
        self._is_closed = Event()
        Thread(target=self._beat, name="beats", daemon=True).start()
        try:
            answers = self._start_watchers(range(len(hosts)))
            devices_by_node = [[probe.Device(**device) for device in answers[host]["devices"]] for host in hosts]
            counts = {host: len(devices) for host, devices in zip(hosts, devices_by_node, strict=True)}
            if len(set(counts.values())) > 1:
                raise DeviceError(f"the nodes have different numbers of devices: {counts}; name so many with `devices`")
            count = spec.devices_of_trial(len(devices_by_node[0]))
        except BaseException:
            self.close()
            raise
        self._head: str = answers[hosts[0]]["host"]
        """The host where the ranks meet."""
        self.label: str = answers[hosts[0]]["label"]
        numbered = enumerate(device for devices in devices_by_node for device in devices)
        # each node has named its own devices from `cuda:0` on
        renamed = [replace(device, name=f"{device.name.partition(':')[0]}:{rank}") for rank, device in numbered]
        self.devices = tuple(renamed[:count])

    def _beat(self) -> None:
        """Give all watchers signs of life until the nodes are closed."""
        while not self._is_closed.wait(self._timing.beat_s):
            for watcher in tuple(self._watchers):
                watcher.connection.send(BEAT)

    def _start_watchers(self, numbers: Sequence[int]) -> dict[str, Mapping[str, Any]]:
        """Start watchers on the hosts with these numbers, and return host → its message about its devices.

        Raises the error of a node that refuses, and DeviceError for a node that does not answer.
        """
        for number in numbers:
            watcher = Watcher(self._hosts[number], number, self._inbox, self._clock, self._connect)
            self._watchers[number : number + 1] = [watcher]  # replaces a lost watcher, or appends the first one
            watcher.ask(OpenDevices(spec=self._spec, number=number))
        return self._answers("devices", [self._watchers[number] for number in numbers])

    def _answers(self, kind: str, watchers: Sequence[Watcher]) -> dict[str, Mapping[str, Any]]:
        """Wait for a message of this kind from each of the watchers, and return host → its content.

        Raises the error of a node that refuses, and DeviceLostError for a node that does not answer.
        """
        answers: dict[str, Mapping[str, Any]] = {}
        waiting, srun_lines = list(watchers), list[str]()
        messages = watching.messages_until(self._inbox, self._clock, self._timing.start_s)
        while waiting and (message := next(messages, None)):
            host, content = message.watcher.host, message.content
            if content["kind"] == "srun":
                srun_lines.append(f"{host}: {content['text']}")
            elif content["kind"] in {kind, "refused", "gone"} and message.watcher in waiting:
                waiting.remove(message.watcher)
                if content["kind"] != "gone":
                    answers[host] = content
        for host, content in answers.items():  # only now: an answer that came later would count for the next request
            if content["kind"] == "refused":
                raise watching.refusal(host, content)
        if missing := [watcher.host for watcher in watchers if watcher.host not in answers]:
            why = "; ".join(srun_lines[-3:]) or "srun says nothing"
            raise DeviceLostError(f"{', '.join(missing)} tells no {kind}; {why}")
        return answers

    def close(self) -> None:
        """End the watchers. Harmless to repeat.

        If a lost node does not answer, the next tuner restores the person's files, as after a kill of this one.
        """
        if self._protections:
            with suppress(TunerError, RuntimeError):  # Python 3.12 starts no thread as it ends
                self._recover()
            while self._protections:  # some are left where a node did not answer
                self._protections.pop().leave()
        self._is_closed.set()
        watching.end_watchers(self._watchers, self._clock)
        self._watchers.clear()

    def _recover(self) -> None:
        """Start new watchers in place of lost ones, and then close the protections of the person's files.

        A new watcher answers only when nothing of the lost one runs any more. So nothing writes to the files then.
        Raises DeviceError if a node does not answer.
        """
        self._lost_numbers |= {watcher.number for watcher in self._watchers if watcher.is_gone}
        if self._lost_numbers:
            lost = [watcher for watcher in self._watchers if watcher.number in self._lost_numbers]
            # an earlier call may have started a watcher that has not answered, and still runs
            watching.end_watchers([watcher for watcher in lost if not watcher.is_gone], self._clock)
            self._start_watchers(sorted(self._lost_numbers))
            self._lost_numbers.clear()
        while self._protections:
            self._protections.pop().close()

    def part(self, positions: Sequence[int]) -> "Nodes":
        """Return some of the devices as a source of their own, which the same watchers serve."""
        part = copy(self)
        part.devices = tuple(self.devices[position] for position in positions)
        return part

    def occupancy(self) -> tuple[Occupancy, ...]:
        """Return how much of each card on all nodes is in use. Raises DeviceError.

        It first starts lost watchers again, so that no lost node runs anything.
        """
        self._recover()
        for watcher in self._watchers:
            watcher.ask(Command.READ_CARDS)
        answers = self._answers("cards", self._watchers)
        return tuple(_occupancy(card) for host in self._hosts for card in answers[host]["cards"])

    def oom_kills(self) -> int:
        """Return how many processes the kernels of all nodes have killed for lack of memory since boot."""
        return sum(watcher.oom_kills for watcher in self._watchers)

    def start(self, plan: probe.ProbePlan) -> NodeProcesses:
        """Start a plan's command on its nodes, and return its processes; a `StartProcess`."""
        of_plan = self._watchers[: plan.slot.nodes]
        self._processes = NodeProcesses(
            plan, of_plan, self._inbox, self._clock, head=self._head, protections=self._protections, timing=self._timing
        )
        return self._processes

    def attach(self, pid: int) -> None:
        """Do nothing: each watcher follows the processes of its node."""

    def sample(self, t_s: float) -> list[probe.DeviceSample]:
        """Return the samples of all nodes that have come since the last call. Raises DeviceLostError if a node is lost.

        `t_s` is the time now in seconds since the probe began, as for other sources. The samples keep their own times.
        """
        processes = self._processes
        if processes is None:  # no plan was started yet
            return []
        if processes.lost:
            raise DeviceLostError(processes.lost)
        origin_s = self._clock.now() - t_s  # the probe's beginning on the clock of the samples
        return [replace(sample, t_s=sample.t_s - origin_s) for sample in drained(processes.samples)]

    def with_nodes(self, result: probe.ProbeResult) -> probe.ProbeResult:
        """Return the result of the last probe with the names of its nodes."""
        return with_nodes(result, self._processes) if self._processes and result.launched else result


def _occupancy(card: Mapping[str, Any]) -> Occupancy:
    """Return the occupancy of a card from a message."""
    occupants = tuple(Occupant(**occupant) for occupant in card["occupants"])
    return Occupancy(**{**card, "device": probe.Device(**card["device"]), "occupants": occupants})


def open_nodes(spec: StudySpec) -> Nodes:
    """Return the nodes of the allocation in which this process runs; they are closed with it. Raises DeviceError."""
    nodes = Nodes(spec, allocated_hosts(os.environ, spec.slurm.nodes))
    atexit.register(nodes.close)
    return nodes


NOT_CONNECTED = re.compile(r"Rendezvous(?:Connection|Timeout)Error|socket has timed out .* connect")
"""What torch prints on a node whose ranks do not reach the first node."""


def with_nodes(result: probe.ProbeResult, processes: NodeProcesses) -> probe.ProbeResult:
    """Return a probe's result whose failure names the host that failed, or the hosts that were silent.

    A note names a slow node that the others wait for. `processes`: those of the probe.
    """
    failure, silent_nodes = result.failure, processes.silent_at_end  # a sentence that names the silent nodes; or None
    if failure and failure.detail != silent_nodes:
        lines = (f"{watcher.host}: {line}" for watcher in processes.watchers for line in watcher.recent)
        not_connected = next((line for line in lines if NOT_CONNECTED.search(line)), None)
        # ranks that have trained had met, so the line does not explain their failure
        may_explain = result.iterations == 0 and failure.kind.blame in {probe.Blame.HOST, probe.Blame.UNKNOWN}
        if not_connected and may_explain:
            detail = f"the ranks of the nodes do not meet: {not_connected}"
        else:
            detail = ": ".join(filter(None, (_host_of(failure, processes), failure.detail)))
            detail = "; ".join(filter(None, (detail, silent_nodes)))
        result = replace(result, failure=replace(failure, detail=detail))
    slow = straggler(result.devices, [watcher.host for watcher in processes.watchers])
    return replace(result, notes=(*result.notes, slow)) if slow else result


def _host_of(failure: probe.Failure, processes: NodeProcesses) -> str | None:
    """Return the host of the node that a failure is about; None if it is about none or several.

    For processes that a kernel has killed, it is the host of this kernel. Otherwise it is the host whose console alone
    shows the line of the failure. The failure's detail may quote this line, shortened, between other words. So of the
    lines of all consoles, the longest that is in the detail decides.
    """
    if failure.kind in {probe.FailureKind.HANG, probe.FailureKind.TOO_SLOW}:
        return None  # their detail quotes the last line before a silence, which blames nobody
    if failure.rule == "kernel":
        hosts = set(processes.short_of_memory)
    else:
        hosts, longest = set[str](), ""
        for watcher in processes.watchers:
            for text in watcher.recent:
                line = probe.quoted(text.strip())  # shortened as in a detail
                if line in failure.detail and len(line) > len(longest):
                    hosts, longest = {watcher.host}, line
                elif line and line == longest:
                    hosts.add(watcher.host)
    return hosts.pop() if len(hosts) == 1 else None


class NodeWork(NamedTuple):
    """How busy the devices of a node are. Nodes are compared by this percentage, so it comes first."""

    pct: float
    error_pct: float
    """The standard error of `pct`."""
    host: str


def straggler(devices: Sequence[probe.DeviceSummary], hosts: Sequence[str]) -> str | None:
    """Return a sentence about the node that the others wait for; None if there is none, or if it cannot be known.

    Ranks that train together wait for the slowest in each step, so the node that works most of the time is the slowest.
    A GPU that waits in a collective counts as busy, so on GPUs the SM activity decides.

    Args:
        devices: The devices of all nodes, node by node, as many on each.
        hosts: The names of the nodes.
    """
    per_node = len(devices) // len(hosts)
    means_pct = [device.sm_mean_pct if device.is_gpu else device.util_mean_pct for device in devices]
    errors_pct = [(device.sm_se_pct if device.is_gpu else device.util_se_pct) or 0.0 for device in devices]
    known_pct = [mean_pct for mean_pct in means_pct if mean_pct]
    if not known_pct or len(known_pct) < len(devices):
        return None
    nodes: list[NodeWork] = []
    for number, host in enumerate(hosts):
        on_node = slice(number * per_node, (number + 1) * per_node)
        nodes.append(NodeWork(fmean(known_pct[on_node]), hypot(*errors_pct[on_node]) / per_node, host))
    fast, slow = min(nodes), max(nodes)
    longer_pct = 100.0 * (slow.pct / fast.pct - 1.0)
    if longer_pct < 10.0 or slow.pct - fast.pct < 2.0 * hypot(fast.error_pct, slow.error_pct):  # chosen
        return None
    return f"{slow.host} works {longer_pct:.0f} % longer in each step than {fast.host}, which waits for it"
