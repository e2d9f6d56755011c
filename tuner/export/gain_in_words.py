"""The gain of a case's best in words, for each place that tells it. `speed_gain` computes it; here are its forms.

A gain in a speed is a factor. Any other gain is a difference of the objective, and the factor of samples/s follows. A
session is a trainer that is started once for many configs; the plain command starts the trainer for each. A rung is a
value of the ladder, mostly a number of environments.
"""

from typing import NamedTuple

from tuner.export.speed_gain import BestGain
from tuner.export.summary import CaseSummary, ConfigRow
from tuner.export.wording import SPEEDS, figure, unit, with_error

PERCENT = {"min_avg_util": "Utilisation", "min_avg_sm": "SM activity"}
"""The objectives in percent → how a headline names them."""


def gain_clause(row: CaseSummary, best: ConfigRow) -> str:
    """Return the end of a sentence about the best: by how much it beats the default, or why that is unknown."""
    default, gain, name = row.default, row.gain, row.default_name
    if default is None:
        if best.vs_default is None:
            return f"; {name} has not been measured"
        return f", at {best.vs_default:.2f} times the default's samples/s"  # known by probes that the pruner stopped
    if row.is_default_best:
        return f"; it is {name}"
    name += f", #{default.trial}"
    if gain is None:
        least = f"; the best is probably at least {row.least_gain} times as fast" if row.least_gain else ""
        why = session_note(row) or f"it cannot be compared with the best{least}"
        return f"; {name}, has {with_error(default.value, default.error)}; {why}"
    if row.objective in SPEEDS:
        text = f", {gain.factor}{gain.over} {name}" if gain.times else ""
    else:
        difference = gain.difference(".1f").removeprefix("-")
        text = f", {difference} percentage points {'above' if gain.after >= gain.before else 'below'} {name}"
        if times := row.times_default:
            whose = "its samples/s" if times == gain.times else "the samples/s of the default of the best's rung"
            text += f", at {times:.2f} times {whose}"
    return f"{text}, as sessions have measured both: {gain.values}" if text and gain.in_sessions else text


def gain_text(row: CaseSummary) -> str:
    """Return in a few words how much the best gains over the default; empty where there is no default."""
    if row.best is None or row.default is None:
        return ""
    if row.is_default_best:
        is_alone = row.ok <= row.best.readings and not row.pruned
        return "no other was measured" if is_alone else "none, the default is best"
    if row.gain is None:
        return f"at least {row.least_gain} times as fast" if row.least_gain else "unknown"
    if row.objective in SPEEDS:
        return f"{row.gain.times:.3g} times{row.gain.over}, from {figure(row.gain.before)}" if row.gain.times else ""
    points = f"{row.gain.difference('+.1f')} percentage points from {row.gain.before:.1f}"
    if not row.times_default:
        return points
    whose = "" if row.times_default == row.gain.times else " as the default of its rung"
    return f"{points}, {row.times_default:.2g} times as fast{whose}"


class Headline(NamedTuple):
    """The first line of a case in large type, and a sentence below it."""

    text: str
    below: str


def gain_headline(objective: str, gain: BestGain, name: str) -> Headline:
    """Return a gain in large type, and the sentence below it, without capital; `name` is that of the default.

    Of an objective that is no speed, both values are shown, or the difference where only sessions measured both.
    """
    if objective in SPEEDS and gain.times:
        speeds = f"{figure(gain.before)} → {figure(gain.after)} {SPEEDS[objective]}"
        of_what = f"{gain.over}{'; its steps' if gain.overall else ''}: {speeds}"
        return Headline(f"{gain.times:.3g} times as fast{'' if gain.in_sessions else of_what}", f"{gain.factor} {name}")
    metric, is_percent = PERCENT.get(objective, objective), objective in PERCENT
    text = f"{metric} {gain.before:.1f} → {gain.after:.1f}{' %' if is_percent else ''}"
    difference = gain.difference("+.1f")
    if gain.in_sessions or "±" in difference:  # the plain command's value of the best is another one, or hardly known
        text = f"{metric} {difference}{' percentage points' if is_percent else ''}"
    return Headline(text, f"it makes {gain.times:.2g} times the samples/s of {name}" if gain.times else "")


def session_note(row: CaseSummary) -> str:
    """Return a sentence where the plain command has not measured both the best and the default; otherwise "".

    Values of the plain command and of sessions cannot be compared. The sentence says that the gain is that of sessions,
    where these have measured both, or else that it is unknown.
    """
    best, default, gain = row.best, row.default, row.gain
    if best and gain and gain.in_sessions:
        return f"the gain is that of sessions, which measured both: {gain.values} {unit(row.objective)}"
    if best and default and gain is None and default.measured != best.measured:
        ways = {"warm": "sessions alone have", "cold": "the plain command alone has"}
        return f"the gain is unknown: {ways[default.measured]} measured the default, and not the best"
    return ""
