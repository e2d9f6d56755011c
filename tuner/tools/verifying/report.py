"""What a verification says: what is measured, what has changed, how fast the configs are now, and the verdict."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tuner.export import SPEEDS, CaseView, figure, in_words, with_error
from tuner.probe import duration
from tuner.records.changes import FACTS, changes
from tuner.store.opening import differences
from tuner.tools.verifying.slowdown import FINE, Slowdown
from tuner.tools.verifying.verification import Exit, Findings, Subject


def changed_settings(view: CaseView, identity: Mapping[str, Any]) -> Iterator[str]:
    """Yield which settings differ from those with which a case was measured; `identity` has those of now."""
    stored = view.facts.identity
    for line in differences(stored, dict(identity)) if stored else ():
        yield f"changed in the study file: {line.strip()}"


def introduction(subjects: Sequence[Subject], minutes: float, at_least: float) -> Iterator[str]:
    """Yield what is measured, and for how long."""
    for subject in subjects:
        yield f"{subject.name}: {in_words(subject.then.config)}"
    slower = 1.0 - at_least + FINE
    turns = "in turns" if len(subjects) > 1 else "again and again"
    yield f"measured {turns}, until {100 * slower:.3g} % slower would be seen, for up to {duration(60 * minutes)}"


def report(findings: Findings) -> Iterator[str]:
    """Yield what has changed, how fast the configs are now, the verdict, and what such a test can see."""
    *_, best = findings.subjects
    yield _since(best)
    for subject in findings.subjects:
        slowdown, then = findings.slowdown(subject), subject.reading
        yield (
            f"{subject.name}: {with_error(slowdown.times, slowdown.error, 3)} times the study's {figure(then.value)} "
            f"{SPEEDS[subject.metric]}, by {findings.rounds} runs and {subject.then.readings} of the study"
        )
    if gain := findings.gain:
        base, gain_in_study = findings.subjects[0], best.reading.value / findings.subjects[0].reading.value
        yield (
            f"the best makes {with_error(gain.times, gain.error, 3)} times the {SPEEDS[base.metric]} of {base.name}, "
            f"by {findings.rounds} pairs; in the study {gain_in_study:.2f} times"
        )
    slowdown_of_best = findings.slowdown(best)
    yield _verdict(findings, slowdown_of_best)
    power = {slower: slowdown_of_best.power(slower, findings.at_least) for slower in (0.03, 0.05, 0.10)}
    chances = (f"{100 * slower:.0f} %: {100 * chance:.0f} %" for slower, chance in power.items())
    yield f"the chance that such a test sees a slowdown of {', of '.join(chances)}"


def _verdict(findings: Findings, of_best: Slowdown) -> str:
    """Return the verdict as a sentence; `of_best` is the slowdown of the best."""
    *others, best = findings.subjects
    allowed = f"{findings.at_least:g} times its speed in the study"
    match findings.verdict:
        case Exit.SLOWER if others:
            is_too = findings.slowdown(others[0]).is_below(findings.at_least)
            return f"slower: {best.name} is below {allowed}, and {others[0].name} is {'too' if is_too else 'not'}"
        case Exit.SLOWER:
            return f"slower: {best.name} is below {allowed}"
        case Exit.UNKNOWN if of_best.is_below(findings.at_least):
            return (
                f"unknown: {best.name} is slower, and waited {100 * best.waits:.0f} % of its time for a processor that "
                "other programs used; verify again on a quiet machine"
            )
        case Exit.UNKNOWN:
            unseen = 100 * min(of_best.visible, 1.0)
            return f"unknown: runs differ so much that {unseen:.0f} % slower may stay unseen; see --minutes"
        case _:
            return f"it holds: {best.name} is not surely below {allowed}"


def _since(best: Subject) -> str:
    """Return what has changed since the study has measured the best, and what may have."""
    trial = best.then.trials[-1]
    before, now = trial.probe.facts, best.results[-1].facts
    same = [what for name, what in FACTS.items() if name in before and before[name] == now.get(name)]
    unknown = [what for name, what in FACTS.items() if name in now and name not in before]
    parts = [
        f"changed: {', '.join(changes(before, now)) or 'nothing'}",
        f"unchanged: {', '.join(same) or 'nothing'}",
        *([f"unknown of then: {', '.join(unknown)}"] if unknown else []),
    ]
    return f"since #{trial.number} of {(trial.probe.started_at or 'an unknown day')[:10]}, {'; '.join(parts)}"
