"""What the result of a probe over several nodes says of its nodes: which failed, and which holds the others up."""

import re
from collections.abc import Sequence
from dataclasses import replace
from math import hypot
from statistics import fmean

from tuner.nodes.processes import NodeProcesses
from tuner.probe import Blame, DeviceSummary, Failure, FailureKind, ProbeResult, quoted

STRAGGLES_PCT = 10.0
"""A node that computes for so much longer than the fastest, in percent, is named."""
SURE_ERRORS = 2.0
"""The standard errors by which its work has to differ."""
UNMET = re.compile(r"Rendezvous(?:Connection|Timeout)Error|socket has timed out .* connect")
"""What torch prints on a node whose ranks do not reach those of the first node."""


def with_nodes(result: ProbeResult, processes: NodeProcesses) -> ProbeResult:
    """Return a result that names the node that failed, and the one that holds the others up."""
    failure, slow = result.failure, straggler(result.devices, [watcher.host for watcher in processes.watchers])
    if failure and processes.quiet != failure.detail:
        unmet = _unmet(processes)
        if unmet and result.iterations == 0 and failure.kind.blame in {Blame.HOST, Blame.UNKNOWN}:
            detail = f"the ranks of the nodes do not meet: {unmet}"
        else:
            detail = ": ".join(filter(None, (_host_of(failure, processes), failure.detail)))
            detail = "; ".join(filter(None, (detail, processes.quiet)))
        result = replace(result, failure=replace(failure, detail=detail))
    return replace(result, notes=(*result.notes, slow)) if slow else result


def _host_of(failure: Failure, processes: NodeProcesses) -> str | None:
    """Return the node that a failure is about; None where none or several are.

    It is the one whose kernel has killed processes, or the one whose console alone shows the failure's line. A detail
    shortens a long line and may say more before and after it, so the longest line that it holds decides. The last line
    before a silence blames nobody.
    """
    if failure.kind in {FailureKind.HANG, FailureKind.TOO_SLOW}:
        return None
    if failure.rule == "kernel":
        hosts = set(processes.short_of_memory)
    else:
        lines = [(quoted(text.strip()), watcher.host) for watcher in processes.watchers for text in watcher.recent]
        held = [(line, host) for line, host in lines if line and line in failure.detail]
        longest = max((line for line, _ in held), key=len, default="")
        hosts = {host for line, host in held if line == longest}
    return hosts.pop() if len(hosts) == 1 else None


def _unmet(processes: NodeProcesses) -> str | None:
    """Return the first line that tells of ranks that do not meet; None without one."""
    lines = (f"{watcher.host}: {line}" for watcher in processes.watchers for line in watcher.recent)
    return next((line for line in lines if UNMET.search(line)), None)


def straggler(devices: Sequence[DeviceSummary], hosts: Sequence[str]) -> str | None:
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
    if longer_pct < STRAGGLES_PCT or most - least < SURE_ERRORS * hypot(error_of_least, error_of_most):
        return None
    return f"{hosts[slow]} works {longer_pct:.0f} % longer in each step than {hosts[fast]}, which waits for it"
