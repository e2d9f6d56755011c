"""Says what a search has found for a command: its speed beside the user's own, what changes, and the line to copy."""

import shlex
from collections.abc import Iterator, Sequence
from math import hypot

from tuner.drafting.command_lines import retyped
from tuner.drafting.draft import typed_words
from tuner.export import SPEEDS, CaseView, figure, with_error
from tuner.running.workbench import Workbench
from tuner.search.standing import Standing
from tuner.study import Case, launch_digest
from tuner.trainers.command import CommandTrainer

LARGE = 1000.0
"""A speed from which digits after the point say nothing."""


def to_copy(bench: Workbench, view: CaseView, command: Sequence[str]) -> Iterator[str]:
    """Yield lines for the person who typed the command; nothing where nothing has run."""
    best, trainer = view.best, bench.trainer
    if best is None or not isinstance(trainer, CommandTrainer):
        return
    own = bench.space_for(Case(name=view.name)).own or {}
    mine = next((one for one in view.configs if one.launch == launch_digest(own)), None)
    yield f"your command: {_speed(mine, view)}"
    if mine and mine.launch == best.launch:
        none = "no other config is better" if len(view.configs) > 1 else "no other config was measured"
        yield f"{none}; your command stays as it is"
        return
    yield f"the best:     {_speed(best, view)}{_gain(best, mine, view)}"
    if doubt := view.assumes:
        yield f"  {doubt}"
    if all(trial.probe.epochs == 0 for one in (best, mine or best) for trial in one.trials):
        yield "  no run has come to a second epoch; where a script keeps its data in memory, later epochs may be faster"
    ranks = len(bench.devices)
    before, after = trainer.with_computed(own, ranks), trainer.with_computed(best.config, ranks)
    whys = dict.fromkeys(view.changes_learning(best.config), "; this changes what is learnt")
    whys |= dict.fromkeys(after.keys() - best.config.keys(), "; the total batch stays")
    for name in {**before, **after}:
        if name not in before:
            yield f"  {name}: {after[name]}; it had no effect before"
        elif name not in after:
            yield f"  {name}: has no effect any more"
        elif str(before[name]) != str(after[name]):
            yield f"  {name}: {before[name]} → {after[name]}{whys.get(name, '')}"
    env, words = typed_words(command)
    if line := retyped(words, bench.spec.trainer.command, after, before):
        yield "the command line to copy:"
        yield shlex.join([*(f"{name}={value}" for name, value in env.items()), *line])


def _gain(best: Standing, mine: Standing | None, view: CaseView) -> str:
    """Return how many times as fast the best is as the person's own command; empty where that is unknown."""
    if mine is None or _uncounted(mine, view):
        return ""
    if why := view.unlike_best(mine):
        return f"; how many times as many is unknown: {why}"
    is_speed = view.objective in SPEEDS
    (fast, unsure), (slow, doubt) = (
        (one.value, one.error) if is_speed else (one.samples_per_s, one.speed_error) for one in (best, mine)
    )
    if not fast or not slow:
        return ""
    times = fast / slow
    error = None if unsure is None or doubt is None else times * hypot(unsure / fast, doubt / slow)
    return f", {with_error(times, error, 2)} times as many, by {best.readings + mine.readings} runs"


def _uncounted(one: Standing, view: CaseView) -> str | None:
    return next((why for trial in one.trials if (why := view.uncounted.get(trial.number))), None)


def _speed(one: Standing | None, view: CaseView) -> str:
    if one is None:
        return "not measured"
    if why := _uncounted(one, view):
        return f"not measured: {why}"
    if view.objective in SPEEDS:
        return f"{with_error(one.value, one.error, 0 if one.value >= LARGE else None)} {SPEEDS[view.objective]}"
    speed = "" if one.samples_per_s is None else f", {figure(one.samples_per_s)} samples/s"
    return f"{one.value:.1f} {view.objective}{speed}"
