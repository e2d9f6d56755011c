"""The sentences of a report."""

from collections.abc import Iterable

from tuner.export.bound import advice
from tuner.export.harmless import code, markdown
from tuner.export.wording import doubts, in_words, of_default, with_error
from tuner.probe.metrics import SAMPLES_PER_S
from tuner.probe.units import MIB_PER_GIB, duration
from tuner.report.facts import CaseFacts, StudyFacts
from tuner.study.space import rung_of

OBJECTIVES = {
    "min_avg_util": "the mean utilisation of the least busy device, in percent",
    "min_avg_sm": "the mean share of active multiprocessors on the least busy device, in percent",
    SAMPLES_PER_S: "the number of samples that all devices together train in a second",
}
ENDS = 3
"""The number of highest and of lowest cases that the head of a report names."""


def headline(study: StudyFacts) -> list[str]:
    """Return the first sentences of a report: how many trainable cases have a best, the highest and the lowest."""
    best = sorted((case for case in study.cases if _value(case) is not None), key=lambda case: -(_value(case) or 0.0))
    said = [_success(study, len(best))]
    if len(best) > 2 * ENDS:
        said += [f"Highest: {_listed(best[:ENDS])}.", f"Lowest: {_listed(best[-ENDS:])}."]
    return said


def _success(study: StudyFacts, best: int) -> str:
    """Return how many of the trainable cases have a best, how many have none, and how many have not begun."""
    begun, waiting = len(study.cases), study.waiting
    known = begun + len(waiting or ())
    which = f"{'begun' if waiting is None else 'trainable'} case{'s' if known > 1 else ''}"
    said = f"{best} of {known} {which} {'have' if known > 1 else 'has'} a best config"
    rest = [f"{begun - best} tried without success"] if best < begun else []
    rest += [f"{len(waiting)} not begun"] if waiting else []
    return f"{said}; {', '.join(rest)}." if rest else f"{said}."


def _value(case: CaseFacts) -> float | None:
    return case.summary.best.value if case.summary.best else None


def _listed(cases: Iterable[CaseFacts]) -> str:
    return ", ".join(f"{case.summary.case} {_value(case) or 0.0:.1f}" for case in cases)


def explained(study: StudyFacts) -> str:
    """Return sentences that explain the words of the first table."""
    names = dict.fromkeys(case.objective for case in study.cases)
    said = [f"{name} is {OBJECTIVES[name]}." for name in names if name in OBJECTIVES]
    said.append("A number after ± is a standard error.")
    rows = [case.summary for case in study.cases if case.summary.default]
    if any(row.default and rung_of(row.default.config, row.ladder) is None for row in rows):
        said.append("The default has the first value of each parameter.")
    elif rows:
        rest = "an unchanged agent, and the first value of each other parameter"
        said.append(f"The default has the same {rows[0].ladder} as the best, {rest}.")
    if tables := dict.fromkeys(case.summary.replay_of for case in study.cases if case.summary.replay_of):
        said.append(f"This is a replay of {', '.join(map(str, tables))}: no trainer ran.")
    return " ".join(said)


def verdict(case: CaseFacts) -> str:
    """Return a few sentences about the result of a case."""
    row, best = case.summary, case.summary.best
    if best is None:
        return f"No config of {row.case} may be the best: {row.status.replace('_', ' ')}."
    said = [f"The best config reaches {with_error(best.value, best.error)} {case.objective}{_beside_default(case)}."]
    said += [f"{line[0].upper()}{line[1:]}." for line in doubts(row)]
    if best.total_batch is not None:
        said.append(f"Its total batch is {best.total_batch:,.10g}.")
    if best.changes_learning:
        names = ", ".join(best.changes_learning)
        said.append(f"{names} {'change' if len(best.changes_learning) > 1 else 'changes'} what is learnt.")
    if rival := row.faster:
        said.append(
            f"Trial #{rival.trial} makes {rival.times or 0.0:.1f} times as many samples/s as the best, "
            f"at {with_error(rival.value, rival.error)}: {in_words(rival.config)}."
        )
    return " ".join(said)


def _beside_default(case: CaseFacts) -> str:
    best, default, name = case.summary.best, case.summary.default, of_default(case.summary)
    if best is None or default is None:
        return ""
    if default.config == best.config:
        return f"; it is {name}"
    if case.objective == SAMPLES_PER_S:
        return f", {best.value / default.value:.2f} times {name}" if default.value else ""
    points = best.value - default.value
    said = f", {abs(points):.1f} points {'above' if points >= 0 else 'below'} {name}"
    said += " (which was measured in sessions alone)" if default.measured == "warm" and points < 0 else ""
    ladder = case.summary.ladder
    ratio = best.vs_default if rung_of(best.config, ladder) == rung_of(default.config, ladder) else None
    ratio = ratio or (1.0 / default.times if default.times else None)
    return f"{said}, at {ratio:.2f} of its samples/s" if ratio is not None else said


def note(case: CaseFacts) -> str:
    """Return what there is to say about a case in a few paragraphs of Markdown."""
    best = case.summary.best
    config = f"Trial #{best.trial}: {code(in_words(best.config))}" if best else None
    rest = [markdown(one) for one in (limit(case), when_found(case), memory_end(case), cost(case)) if one]
    return "\n\n".join(filter(None, [markdown(verdict(case)), config, *rest]))


def limit(case: CaseFacts) -> str | None:
    """Return what limits the best of a case and what to do next; None where that is unknown."""
    row = case.summary
    if row.bound is None or row.profile is None:
        return None
    return f"{str(row.bound).capitalize()} ({row.profile}): {advice(row.bound, row.profile)}."


def cost(case: CaseFacts) -> str:
    """Return a line with the number of trials of a case, how they ended, and how long its devices were in use."""
    devices = max(1, len(case.devices))
    seconds = f"{case.whole_s:,.0f} device-seconds ({duration(case.whole_s / devices)} on {devices} device(s))"
    return f"{trials(case)}; {seconds}"


def trials(case: CaseFacts) -> str:
    """Return the number of trials of a case by how they ended."""
    row = case.summary
    ends = {
        "ok": row.ok,
        "pruned": row.pruned,
        "failed": row.failed,
        "interrupted": row.interrupted,
        "running": row.running,
    }
    return ", ".join(f"{number} {name}" for name, number in ends.items() if number) or "no trials"


def memory(case: CaseFacts) -> str:
    """Return the memory that the best uses and leaves free; empty where it is unknown."""
    if case.mem_peak_mib is None:
        return ""
    free = f", {case.headroom_pct:.0f}\u00a0%\u00a0free" if case.headroom_pct is not None else ""
    return f"{case.mem_peak_mib / MIB_PER_GIB:.1f}\u00a0GiB{free}"


def count(number: float | None) -> str:
    """Return a number without its fraction; empty where it is unknown."""
    return "" if number is None else f"{number:,.0f}"


def when_found(case: CaseFacts) -> str:
    """Return when the best was found, and what the search did afterwards."""
    if case.found is None or not case.whole_s:
        return "Each dot is a trial; the line is the highest measurement so far."
    share = 100.0 * case.found.ended_s / case.whole_s
    said = (
        f"Trial #{case.found.trial} first measured the best config, after {case.found.ended_s:,.0f} device-seconds "
        f"({share:.0f} % of all)."
    )
    rest = ""
    if share < 99.5:
        rest = (
            f" The rest {'made sure that no other config is' if case.why_ended else 'found no config that is'} better."
        )
    return said + rest + (f" The search ended by itself: {case.why_ended}." if case.why_ended else "")


def memory_end(case: CaseFacts) -> str:
    """Return where memory ends along the ladder, as measured and as predicted."""
    said = []
    if case.out_of_memory:
        said.append(f"{case.summary.ladder} {case.out_of_memory[0]:,} ran out of memory.")
    if case.memory and case.memory.end:
        said.append(f"By the straight line through the peaks, memory ends near {case.memory.end:,.0f}.")
    return " ".join(said)
