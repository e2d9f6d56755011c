"""The sentences of a report."""

from tuner.export import Topic, at_its_end, findings, in_use, sentences, trials
from tuner.probe import ITERATIONS_PER_S, MIB_PER_GIB, SAMPLES_PER_S
from tuner.report.facts import CaseFacts, StudyFacts
from tuner.study import rung_of

OBJECTIVES = {
    "min_avg_util": "the mean utilisation of the least busy device, in percent",
    "min_avg_sm": "the mean share of active multiprocessors on the least busy device, in percent",
    SAMPLES_PER_S: "the number of samples that all devices together train in a second",
    ITERATIONS_PER_S: "the number of iterations in a second, of which each has the same samples in all configs",
}


def headline(study: StudyFacts) -> list[str]:
    """Return the first sentences of a report: how many trainable cases have a best, the highest and the lowest."""
    known = ((case.summary.case, case.summary.best) for case in study.cases)
    best = sorted(((name, config.value) for name, config in known if config), key=lambda case: -case[1])
    named = [f"{name} {value:.1f}" for name, value in best]
    lines = [_success(study, len(best))]
    if len(best) > 2 * 3:
        lines += [f"Highest: {', '.join(named[:3])}.", f"Lowest: {', '.join(named[-3:])}."]
    return lines


def _success(study: StudyFacts, best: int) -> str:
    """Return how many of the trainable cases have a best, how many have none, and how many have not begun."""
    begun, waiting = len(study.cases), study.waiting
    known = begun + len(waiting or ())
    which = f"{'begun' if waiting is None else 'trainable'} case{'s' if known > 1 else ''}"
    text = f"{best} of {known} {which} {'have' if known > 1 else 'has'} a best config"
    ends = [f"{begun - best} tried without success"] if best < begun else []
    ends += [f"{len(waiting)} not begun"] if waiting else []
    return f"{text}; {', '.join(ends)}." if ends else f"{text}."


def explained(study: StudyFacts) -> str:
    """Return sentences that explain the words of the first table."""
    names = dict.fromkeys(case.summary.objective for case in study.cases)
    lines = [f"{name} is {OBJECTIVES[name]}." for name in names if name in OBJECTIVES]
    lines.append("A number after ± is a standard error.")
    rows = [case.summary for case in study.cases if case.summary.default]
    if any(row.default and rung_of(row.default.config, row.ladder) is None for row in rows):
        lines.append("The default has the first value of each parameter.")
    elif rows:
        agent = "an unchanged agent, and the first value of each other parameter"
        lines.append(f"The default has the same {rows[0].ladder} as the best, {agent}.")
    if len(study.cases) > 1:
        lines.append("The case whose best gains most over the default comes first.")
    return " ".join(lines)


def verdict(case: CaseFacts) -> str:
    """Return a few sentences about the result of a case."""
    row = case.summary
    known = findings(row)
    texts = [str(finding) for finding in known if finding.topic is Topic.RESULT]
    if row.best and row.best.total_batch is not None:
        texts.append(f"its total batch is {row.best.total_batch:,.10g}")
    if row.bound:
        texts.append(f"its devices: {row.profile}")
    return sentences(dict.fromkeys([*texts, *map(str, known)]))


def cost(case: CaseFacts) -> str:
    """Return a line with the number of trials of a case, how they ended, and how long its devices were in use."""
    devices = max(1, len(case.view.kept.devices))
    return f"{trials(case.summary) or 'no trials'}; {in_use(case.device_s / devices, devices)}"


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
    if case.first_best is None or not case.device_s:
        return "Each dot is a trial; the line is the highest measurement so far."
    ended_s, share = case.first_best.ended_s, 100.0 * case.first_best.ended_s / case.device_s
    text = f"Trial #{case.first_best.trial.number} first measured the best config, "
    text += f"after {ended_s:,.0f} device-seconds ({share:.0f} % of all)."
    why_ended = case.view.facts.ended
    if share < 99.5:
        text += f" The rest {'made sure that no other config is' if why_ended else 'found no config that is'} better."
    return text + (f" {sentences([at_its_end(why_ended)])}" if why_ended else "")


def memory_end(case: CaseFacts) -> str:
    """Return from which rung on configs ran out of memory; empty where none did."""
    return f"{case.summary.ladder} {case.out_of_memory[0]:,} ran out of memory." if case.out_of_memory else ""
