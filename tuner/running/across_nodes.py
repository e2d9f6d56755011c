"""What the result of a probe over several nodes says of its nodes: which failed, and which holds the others up."""

from collections.abc import Sequence
from dataclasses import replace
from math import hypot
from statistics import fmean

from tuner.devices.nodes import Nodes
from tuner.probe import Blame, DeviceSummary, ProbeResult

STRAGGLES_PCT = 10.0
"""A node that computes for so much longer than the fastest, in percent, is named."""
SURE_ERRORS = 2.0
"""The standard errors by which its work has to differ."""


def with_nodes(result: ProbeResult, nodes: Nodes) -> ProbeResult:
    """Return a result that names the node that failed, and the one that holds the others up."""
    failure, slow = result.failure, straggler(result.devices, nodes.hosts)
    if failure and nodes.quiet != failure.detail:
        host = nodes.host_of(failure.detail)
        detail = f"{f'{host}: ' if host else ''}{failure.detail}{f'; {nodes.quiet}' if nodes.quiet else ''}"
        if result.iterations == 0 and failure.kind.blame in {Blame.HOST, Blame.UNKNOWN} and nodes.unmet:
            detail = f"the ranks of the nodes do not meet: {nodes.unmet}"
        result = replace(result, failure=replace(failure, detail=detail))
    return replace(result, notes=(*result.notes, slow)) if slow else result


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
