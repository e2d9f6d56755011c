"""The sentences of a report."""

from tuner.export.words import in_words, with_error
from tuner.report.facts import CaseFacts, Point
from tuner.units import duration

MUCH_FASTER = 1.5
"""A report mentions another config if it makes at least this many times the best's samples/s."""
CLOSE = 10.0
"""The other config's objective must be at most this many points below the best's."""


def verdict(case: CaseFacts) -> str:
    """Return one or two sentences about the result of a case."""
    row, best = case.summary, case.summary.best
    if best is None or best.value is None:
        return f"No config of {row.case} may be the best: {row.status.replace('_', ' ')}."
    said = f"The best config reaches {with_error(best.value, best.error)} {case.objective}: {in_words(best.config)}."
    if best.vs_default is not None:
        said += f" It makes {best.vs_default:.2f} times the samples/s of the default at its rung."
    if best.changes_learning:
        names = ", ".join(best.changes_learning)
        said += f" {names} {'change' if len(best.changes_learning) > 1 else 'changes'} what is learnt."
    if (rival := faster(case)) is not None and best.samples_per_s and rival.samples_per_s:
        times = rival.samples_per_s / best.samples_per_s
        said += (
            f" Trial #{rival.trial} makes {times:.1f} times as many samples/s as the best, "
            f"at {with_error(rival.value, rival.error)}: {in_words(rival.config)}."
        )
    return said


def faster(case: CaseFacts) -> Point | None:
    """Return the config with the most samples/s among those almost as good as the best; None without a faster one."""
    best = case.summary.best
    if best is None or best.value is None or not best.samples_per_s or case.objective == "samples_per_s":
        return None
    near = [point for point in case.points if point.samples_per_s and point.value >= best.value - CLOSE]
    rival = max(near, key=lambda point: point.samples_per_s or 0.0, default=None)
    is_faster = rival and rival.samples_per_s and rival.samples_per_s >= MUCH_FASTER * best.samples_per_s
    return rival if is_faster else None


def cost(case: CaseFacts) -> str:
    """Return a line with the number of trials of a case, how they ended, and how long its devices were in use."""
    row = case.summary
    ends = {"ok": row.ok, "pruned": row.pruned, "failed": row.failed, "interrupted": row.interrupted}
    trials = ", ".join(f"{count} {name}" for name, count in ends.items() if count) or "no trials"
    seconds = sum(case.spent_s.values())
    devices = max(1, len(case.devices))
    return f"{trials}; {seconds:,.0f} device-seconds ({duration(seconds / devices)} on {devices} device(s))"
