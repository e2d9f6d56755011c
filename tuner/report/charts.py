"""The pictures of a search and of a race, and the order of all pictures on the page."""

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

from tuner.export.tables import race_row, runs_by_config
from tuner.export.wording import figure, in_words, with_error
from tuner.report.facts import CaseFacts
from tuner.report.figures import (
    BEST,
    FRONT,
    OTHER,
    THIRD,
    Picture,
    Trace,
    along_ladder,
    axis,
    errors,
    note,
    over_time,
    short,
    text,
    upright,
)
from tuner.report.words import when_found
from tuner.search.scores import standings
from tuner.search.standing import Standing
from tuner.study.space import written

_COLOURS = (BEST, FRONT, THIRD, OTHER)


def curves(case: CaseFacts) -> Picture | None:
    """Draw the scores of each run of the case's race against the time that the run has trained."""
    runs = runs_by_config(case.race)
    if not any(run.curve for made in runs.values() for run in made):
        return None
    data = [
        {
            "x": [short(at) for at, _ in run.curve],
            "y": [short(score) for _, score in run.curve],
            "name": text(in_words(run.config)),
            "legendgroup": standing.config,
            "showlegend": number == 0,
            "mode": "lines",
            "line": {"color": _COLOURS[place % len(_COLOURS)], "width": 1.5},
            "hovertemplate": f"seed {run.seed}: %{{y}} after %{{x}} s<extra></extra>",
        }
        for place, standing in enumerate(standings(runs))
        for number, run in enumerate(runs[standing.config])
    ]
    return Picture(
        name="race",
        title="The race: what is learnt",
        caption=f"Each line is a run with a seed of its own. {winner(case) or ''}".strip(),
        data=data,
        layout={"xaxis": axis("seconds of training"), "yaxis": axis("score")},
    )


def winner(case: CaseFacts) -> str | None:
    """Return a sentence about the config that learnt most in the case's race; None where there was no race."""
    won = race_row(case.race)
    if not won:
        return None
    error = "" if won["race_score_se"] is None else f" ± {won['race_score_se']:.3g}"
    return (
        f"In the race {won['race_winner']} learnt most: score {figure(won['race_score'])}{error} "
        f"after {won['race_s']:.0f} s of training, mean of {won['race_runs']} run(s)."
    )


def choices(case: CaseFacts) -> Picture | None:
    """Draw the objective against samples/s of all measured configs, with the configs that no other beats in both."""
    known = [point for point in case.points if point.samples_per_s is not None]
    if not known:
        return None
    front = sorted((point for point in known if case.on_front(point)), key=lambda point: point.samples_per_s or 0.0)
    others = [point for point in known if not case.on_front(point) and point.is_eligible]
    barred = [point for point in known if not point.is_eligible]
    stars = [point for point in known if case.is_best(point)]
    data = [
        _dots(others, "measured", OTHER),
        _dots(barred, "may not be the best", OTHER, symbol="circle-open"),
        _dots(front, "no other is better in both", FRONT, mode="lines+markers", symbol="square"),
        _dots(stars, "the best", BEST, size=13, symbol="star"),
    ]
    is_above = any(point.is_warm and point.value > best.value for point in known for best in stars)
    above = " Configs above the best were measured in sessions alone, which may read too high." if is_above else ""
    return Picture(
        name="choices",
        title="What else could be chosen",
        caption="Each dot is a config. To the right it trains more samples per second, upwards it keeps the least busy "
        "device busier. The line joins the configs that no other config beats in both." + above,
        data=[one for one in data if one["x"]],
        layout={"xaxis": axis("samples per second", rangemode="tozero"), "yaxis": axis(case.objective)},
    )


def history(case: CaseFacts) -> Picture | None:
    """Draw each measurement and the highest so far against the device-seconds of the search."""
    if not case.steps:
        return None
    spent_s = [round(step.ended_s, 1) for step in case.steps]
    dots = {
        "x": spent_s,
        "y": [short(step.value) for step in case.steps],
        "error_y": errors(step.error for step in case.steps),
        "text": [text(f"#{step.trial} {in_words(step.config)}") for step in case.steps],
        "hovertemplate": "%{text}<br>%{y}<extra></extra>",
        "name": "a trial",
        "mode": "markers",
        "marker": {"color": OTHER, "size": 7},
    }
    highest = [short(value) for value in accumulate((step.value for step in case.steps), max)]
    line = {
        "x": spent_s,
        "y": highest,
        "name": "highest so far",
        "mode": "lines",
        "line": {"color": FRONT, "shape": "hv"},
    }
    layout: dict[str, Any] = {"xaxis": axis("device-seconds", rangemode="tozero"), "yaxis": axis(case.objective)}
    if case.found:
        found_s = round(case.found.ended_s, 1)
        layout["shapes"] = [upright(found_s, BEST)]
        layout["annotations"] = [note(found_s, f"best found, #{case.found.trial}", left=found_s > case.whole_s / 2)]
    return Picture(name="history", title="The search", caption=when_found(case), data=[dots, line], layout=layout)


def parameters(case: CaseFacts) -> Picture | None:
    """Draw the effect of each parameter with its doubt."""
    if not case.effects:
        return None
    names = [text(f"{one.parameter}: {written(one.value)} → {written(one.best)}") for one in case.effects]
    data = {
        "x": [short(one.change) for one in case.effects],
        "y": names,
        "error_x": errors(2.0 * one.error if one.error is not None else None for one in case.effects)
        | {"color": OTHER},
        "text": [f"{one.pairs} pair(s)" for one in case.effects],
        "hovertemplate": "%{y}<br>%{x} (%{text})<extra></extra>",
        "name": "effect",
        "mode": "markers",
        "marker": {"color": [FRONT if one.is_sure else OTHER for one in case.effects], "size": 9},
    }
    return Picture(
        name="parameters",
        title="What each parameter changes",
        caption="The mean difference between configs that differ in this parameter alone, with two standard errors "
        "(matched pairs). Grey: the difference is within its doubt.",
        data=[data],
        layout={
            "xaxis": axis(f"change of {case.objective}", zeroline=True),
            "yaxis": {**axis(""), "autorange": "reversed", "automargin": True},
            "showlegend": False,
        },
        height=130 + 26 * len(names),
    )


def spending(case: CaseFacts) -> Picture | None:
    """Draw what the device-seconds were spent on, before and after the best was found."""
    shown = [*case.spent, *([case.waited] if case.waited.whole_s >= 1.0 else [])]
    if not case.spent:
        return None
    names = [one.what for one in shown]
    bars = [
        ("until the best was found", FRONT, [one.until_found_s for one in shown]),
        ("afterwards, to be certain", OTHER, [one.after_s for one in shown]),
    ]
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "x": [round(value) for value in values],
            "y": names,
            "name": name,
            "marker": {"color": colour},
            "hovertemplate": "%{y}: %{x} device-seconds<extra>%{fullData.name}</extra>",
        }
        for name, colour, values in bars
        if any(values)
    ]
    waiting = " Waiting lies between the probes and is not part of their sum." if case.waited.whole_s >= 1.0 else ""
    return Picture(
        name="spending",
        title="Where the device-seconds went",
        caption=f"The probes took {case.whole_s:,.0f} device-seconds.{waiting}",
        data=data,
        layout={
            "barmode": "stack",
            "xaxis": axis("device-seconds"),
            "yaxis": {**axis(""), "autorange": "reversed", "automargin": True},
        },
        height=150 + 34 * len(names),
    )


def _dots(
    points: Sequence[Standing], name: str, colour: str, *, mode: str = "markers", size: int = 8, symbol: str = "circle"
) -> Trace:
    return {
        "x": [short(point.samples_per_s) for point in points],
        "y": [short(point.value) for point in points],
        "error_y": errors(point.error for point in points),
        "text": [_hover(point) for point in points],
        "hovertemplate": "%{text}<extra></extra>",
        "name": name,
        "mode": mode,
        "marker": {"color": colour, "size": size, "symbol": symbol},
        "line": {"color": colour, "width": 1.5},
    }


def _hover(point: Standing) -> str:
    of_several = f", mean of {point.readings}" if point.readings > 1 else ""
    of_several += ", in a session" if point.is_warm else ""
    speed = f", {point.samples_per_s:,.0f} samples/s" if point.samples_per_s is not None else ""
    return (
        text(f"#{point.trial} {with_error(point.value, point.error)}{of_several}{speed}")
        + "<br>"
        + text(in_words(point.config))
    )


PICTURES: tuple[Callable[[CaseFacts], Picture | None], ...] = (
    choices,
    curves,
    history,
    over_time,
    parameters,
    along_ladder,
    spending,
)


def pictures(case: CaseFacts) -> list[Picture]:
    """Return the pictures of a case, as far as there is something to draw."""
    return [picture for draw in PICTURES if (picture := draw(case))]
