"""Names the nodes in the result of a probe over several nodes: the node that failed, and a node that is too slow."""

import re
from collections.abc import Sequence
from dataclasses import replace
from math import hypot
from statistics import fmean
from typing import NamedTuple

from tuner.nodes.processes import NodeProcesses
from tuner.probe import Blame, DeviceSummary, Failure, FailureKind, ProbeResult, quoted

STRAGGLES_PCT = 10.0
"""A node that computes for so much longer than the fastest, in percent, is named (chosen)."""
SURE_ERRORS = 2.0
"""The standard errors by which the work of the two nodes has to differ (chosen)."""
NOT_CONNECTED = re.compile(r"Rendezvous(?:Connection|Timeout)Error|socket has timed out .* connect")
"""What torch prints on a node whose ranks do not reach the first node."""


def with_nodes(result: ProbeResult, processes: NodeProcesses) -> ProbeResult:
    """Return a result that names the node that failed, and a node that holds the others up."""
    failure, slow = result.failure, straggler(result.devices, [watcher.host for watcher in processes.watchers])
    if failure and processes.silent_at_end != failure.detail:  # such a detail names the node
        line = _line_without_connection(processes)
        if line and result.iterations == 0 and failure.kind.blame in {Blame.HOST, Blame.UNKNOWN}:
            detail = f"the ranks of the nodes do not meet: {line}"
        else:
            detail = ": ".join(filter(None, (_host_of(failure, processes), failure.detail)))
            detail = "; ".join(filter(None, (detail, processes.silent_at_end)))
        result = replace(result, failure=replace(failure, detail=detail))
    return replace(result, notes=(*result.notes, slow)) if slow else result


def _host_of(failure: Failure, processes: NodeProcesses) -> str | None:
    """Return the node that a failure is about; None if there is none, or several.

    It is the node whose kernel has killed processes, or the node whose console alone shows the failure's line. A detail
    shortens a long line and may say more before and after it, so the longest line in the detail decides. The last line
    before a silence blames nobody.
    """
    if failure.kind in {FailureKind.HANG, FailureKind.TOO_SLOW}:
        return None
    if failure.rule == "kernel":
        hosts = set(processes.short_of_memory)
    else:
        hosts, longest = set[str](), ""
        for watcher in processes.watchers:
            for line in (quoted(text.strip()) for text in watcher.recent):
                if line in failure.detail and len(line) > len(longest):
                    hosts, longest = {watcher.host}, line
                elif line and line == longest:
                    hosts.add(watcher.host)
    return hosts.pop() if len(hosts) == 1 else None


def _line_without_connection(processes: NodeProcesses) -> str | None:
    """Return the first line that tells of ranks without a connection, with its node; None without such a line."""
    lines = (f"{watcher.host}: {line}" for watcher in processes.watchers for line in watcher.recent)
    return next((line for line in lines if NOT_CONNECTED.search(line)), None)


class NodeWork(NamedTuple):
    """How busy a node is."""

    pct: float
    error_pct: float
    """The standard error of `pct`."""
    host: str


def straggler(devices: Sequence[DeviceSummary], hosts: Sequence[str]) -> str | None:
    """Say which node holds the others up; None if none does, or if the devices do not show it.

    Ranks that train together wait for the slowest in each step, so the node that works most of the time is the slowest.
    A GPU that waits in a collective counts as busy, so on GPUs the SM activity decides.
    """
    per_node = len(devices) // len(hosts)
    means_pct = [device.sm_mean_pct if device.is_gpu else device.util_mean_pct for device in devices]
    errors_pct = [(device.sm_se_pct if device.is_gpu else device.util_se_pct) or 0.0 for device in devices]
    known_pct = [mean_pct for mean_pct in means_pct if mean_pct]
    if not known_pct or len(known_pct) < len(devices):
        return None
    nodes: list[NodeWork] = []
    for number, host in enumerate(hosts):
        part = slice(number * per_node, (number + 1) * per_node)
        nodes.append(NodeWork(fmean(known_pct[part]), hypot(*errors_pct[part]) / per_node, host))
    fast, slow = min(nodes), max(nodes)
    longer_pct = 100.0 * (slow.pct / fast.pct - 1.0)
    if longer_pct < STRAGGLES_PCT or slow.pct - fast.pct < SURE_ERRORS * hypot(fast.error_pct, slow.error_pct):
        return None
    return f"{slow.host} works {longer_pct:.0f} % longer in each step than {fast.host}, which waits for it"
