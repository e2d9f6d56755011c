"""Whether a probe failed and why, from how it ended, which rank lagged and what its output says. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import StrEnum

from tuner.probe.evidence import NO_OUTPUT, OUT_OF_MEMORY, Evidence
from tuner.probe.kinds import KILLED, FailureKind
from tuner.probe.probe_plan import Device
from tuner.probe.result import STOPPED, Failure, ProbeResult, Progress, unreadable


def laggard(progress: Iterable[Progress], ranks: int) -> Failure | None:
    """Return the failure of a rank that is more than one iteration behind another; None where the ranks are in step.

    Where a rank of the plan is silent and a rank that the plan does not have reports, the failure is that of the
    latter: one of the plan's ranks can never report.
    """
    reached = dict.fromkeys(range(ranks), -1)
    reported = {one.rank: one.iteration for one in progress if one.rank is not None}
    reached |= {rank: iteration for rank, iteration in reported.items() if rank in reached}
    slowest = min(reached, key=reached.__getitem__)
    if stray := sorted(reported.keys() - reached.keys()) if reached[slowest] < 0 else []:
        wrong = f"rank {stray[-1]} reports iterations, but the ranks of {ranks} device(s) are counted from 0"
        return Failure(kind=FailureKind.CRASH, rule="ranks", detail=wrong, rank=stray[-1])
    if reached[slowest] >= max(reached.values()) - 1:
        return None
    silent = "has reported no iteration; leave `rank` out if one rank reports for all ranks"
    behind = f"rank {slowest} {'fell behind' if reached[slowest] >= 0 else silent}"
    return Failure(kind=FailureKind.HANG, rule="silence", detail=behind, rank=slowest)


IDLE_PCT = 0.5
"""A CPU rank below this share, in percent, is idle: a launcher that only waits takes less. A GPU is idle at 0 alone."""
LEAST_IDLE_S = 1.0
"""A window shorter than this, in seconds, says nothing about idleness: devices are read every tenth of a second."""


class ProbeEnd(StrEnum):
    """Why a probe is over."""

    ENOUGH = "enough"
    """All iterations that were asked for have been seen."""
    EXITED = "exited"
    """The trainer ended by itself."""
    FATAL = "fatal"
    """A rank died, and no iteration came afterwards."""
    UNMATCHED = "unmatched"
    """Lines that look like progress came for a while, and no pattern matched one."""
    HANG = "hang"
    """Lines and iterations stopped coming."""
    OUT_OF_TIME = "out_of_time"
    """The probe reached its time limit."""
    STOPPED = "stopped"
    """The pruner stopped it."""
    LOST = "lost"
    """The devices can no longer be read."""
    INTERRUPTED = "interrupted"
    """The user interrupted it, or the study's time is over."""


def classify(
    evidence: Evidence,
    end: ProbeEnd,
    *,
    exit_code: int | None,
    missing: Sequence[str],
    measured: bool,
    oom_kills: int,
    seen: int = 0,
    behind: Failure | None = None,
    lost: str | None = None,
    unmatched: Sequence[str] = (),
    unread: str | None = None,
    backlog: str | None = None,
    silent: bool = False,
) -> Failure | None:
    """Decide whether a probe failed and why; None when its window counts.

    - `missing` names expected files that do not exist.
    - `measured` says whether there is a window.
    - `oom_kills` counts the processes that the kernel killed for lack of memory during the probe.
    - `seen` counts the iterations that all ranks reported.
    - `behind` is the failure of the rank that the others wait for: see `laggard`.
    - `lost` says why the devices can no longer be read.
    - `unmatched` holds the last lines that look like progress although no pattern matches them.
    - `unread` says why a progress file gives no iteration.
    - `backlog` says that a progress file grows faster than it is read.
    - `silent` says whether a plain command has neither printed nor reported anything.
    """
    if end is ProbeEnd.INTERRUPTED:
        return STOPPED
    if (end is ProbeEnd.HANG and evidence.fatal_t_s is not None) or (end is ProbeEnd.OUT_OF_TIME and evidence.certain):
        end = ProbeEnd.FATAL  # the other ranks kept on writing lines
    if end is ProbeEnd.EXITED and evidence.reported:
        end = ProbeEnd.FATAL  # whatever its exit code
    named = evidence.failure()
    out_of_memory = evidence.certain and named is not None and named.kind in OUT_OF_MEMORY
    if not out_of_memory and _ran_its_course(end, exit_code, missing, measured, behind):
        return None
    if lost is not None and not out_of_memory:
        return unreadable(lost)
    if oom_kills and (named is None or named.rule == KILLED):
        return Failure(kind=FailureKind.HOST_OOM, rule="kernel", detail=f"the kernel ended {oom_kills} process(es)")
    if backlog and named is None and evidence.fatal_t_s is None and (end is not ProbeEnd.EXITED or exit_code == 0):
        return Failure(kind=FailureKind.NO_READING, rule="backlog", detail=backlog)
    known = named or _untold(end, exit_code, unmatched, unread, silent=silent)
    return known or _unexplained(end, exit_code, missing, evidence, seen=seen, behind=behind, unread=unread)


def _untold(
    end: ProbeEnd, exit_code: int | None, unmatched: Sequence[str], unread: str | None, *, silent: bool
) -> Failure | None:
    """Return the failure of a trainer that may have trained but has reported no iteration."""
    finished = end is ProbeEnd.EXITED and exit_code == 0
    shown = [unread] if unread and finished and not unmatched else unmatched
    if shown and (finished or end in {ProbeEnd.UNMATCHED, ProbeEnd.OUT_OF_TIME}):
        detail = f"no line matched `progress` and nothing called report(); the last lines: {' | '.join(shown)}"
        return Failure(kind=FailureKind.NO_PROGRESS, rule="unmatched", detail=detail)
    if silent and (finished or end in {ProbeEnd.HANG, ProbeEnd.OUT_OF_TIME}):
        detail = f"the trainer {'ended with exit code 0; it ' if finished else ''}printed nothing"
        slow = "" if finished else "; its start may be slow, as on a busy machine: then the same command tries again"
        said = f"{detail} and nothing called report(){f'; {unread}' if unread else ''}{slow}"
        return Failure(kind=FailureKind.NO_PROGRESS, rule="silent", detail=said)
    return None


def _ran_its_course(
    end: ProbeEnd, exit_code: int | None, missing: Sequence[str], measured: bool, behind: Failure | None
) -> bool:
    if end is ProbeEnd.EXITED:
        return measured and exit_code == 0 and not missing and behind is None
    return end is ProbeEnd.STOPPED or (measured and end in {ProbeEnd.ENOUGH, ProbeEnd.OUT_OF_TIME})


def _unexplained(
    end: ProbeEnd,
    exit_code: int | None,
    missing: Sequence[str],
    evidence: Evidence,
    *,
    seen: int,
    behind: Failure | None,
    unread: str | None,
) -> Failure:
    last_words = evidence.last_words()
    many = f"enough iterations ({seen} seen)" if seen else "an iteration was seen"
    said = last_words if last_words == NO_OUTPUT else f"the last line: {last_words}"
    said = f"{unread}; {said}" if unread else said
    too_early = f"before {many}; {said}"
    finished = end is ProbeEnd.EXITED and exit_code == 0
    if behind is not None and (finished or end in {ProbeEnd.HANG, ProbeEnd.OUT_OF_TIME}):
        return replace(behind, detail=f"{behind.detail}; {said}")
    known = {
        ProbeEnd.HANG: (FailureKind.HANG, "silence", f"no new iteration; {said}"),
        ProbeEnd.ENOUGH: (FailureKind.CRASH, "no window", f"the window is too short {too_early}"),
        ProbeEnd.OUT_OF_TIME: (FailureKind.TOO_SLOW, "time limit", f"the time limit came {too_early}"),
    }
    if finished and seen and not missing and evidence.fatal_t_s is None:
        done = f"the trainer was done after {seen} iteration(s), before the window was long enough; {said}"
        known[end] = (FailureKind.NO_READING, "too short", done)
    if end in known:
        kind, rule, detail = known[end]
        return Failure(kind=kind, rule=rule, detail=detail)
    if finished:
        lack = f"without {', '.join(missing)}" if missing else too_early
        return Failure(kind=FailureKind.CRASH, rule="incomplete", detail=f"the trainer ended with exit code 0, {lack}")
    rank = evidence.cause.rank if evidence.cause else None
    code = "" if end is ProbeEnd.FATAL else f"exit code {exit_code}: "
    return Failure(kind=FailureKind.CRASH, rule="exit", detail=f"{code}{last_words}", rank=rank)


def idle_device(result: ProbeResult, devices: Sequence[Device]) -> Failure | None:
    """Return the failure of a probe that advanced while a device did nothing; None where every device worked.

    `devices` are those of the plan, in the order of `result.devices`. On a single device, idleness is no failure: that
    device must have made the iterations.
    """
    if len(devices) < 2 or (result.window_s or 0.0) < LEAST_IDLE_S:
        return None
    shares = zip(devices, result.devices, strict=False)
    idle = [device.name for device, one in shares if _is_idle(device, one.util_mean_pct)]
    if not idle:
        return None
    detail = f"{', '.join(idle)} did nothing while iterations advanced"
    return Failure(kind=FailureKind.IDLE_DEVICE, rule="idle", detail=detail)


def _is_idle(device: Device, mean_pct: float | None) -> bool:
    if mean_pct is None:
        return False
    return mean_pct <= 0.0 if device.is_gpu else mean_pct < IDLE_PCT
