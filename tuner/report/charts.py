"""The pictures of a case: its configs, its search, its best's probe, its ladder, its race and all its trials."""

import html
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from tuner.export import figure, in_words, race_row, runs_by_config, score_text, with_error
from tuner.probe import FULL_PCT, METRICS
from tuner.records.trial import OK, RUNNING, TrialRecord
from tuner.report.facts import CaseFacts, memory_end, named_default, when_found
from tuner.search.scores import standings
from tuner.search.standing import Standing
from tuner.study import DEFAULT, VARIANT, Value, launched, rung_of, written

# Each colour has a contrast of at least 3 to 1 against the light and the dark background (WCAG 2.2, 1.4.11).
BEST = "#cf4358"
FRONT = "#2584ad"
OTHER = "#76839a"
THIRD = "#b0731a"
STAR = 13
"""The size of the chosen config's mark, in pixels."""

Trace = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Picture:
    """A picture and the text around it."""

    name: str
    title: str
    caption: str
    data: list[Trace]
    layout: dict[str, Any]
    height: int = 360


def text(words: str) -> str:
    """Return words as plotly's labels show them: plotly reads a few HTML tags there."""
    return html.escape(words, quote=False)


def short(value: float | None) -> float | None:
    """Return a number with five significant digits; None where it is unknown."""
    return None if value is None else float(f"{value:.5g}")


def trace(x: Iterable[Any], y: Iterable[Any], name: str, *, hover: str | None = None, **more: Any) -> Trace:
    """Return a series of dots, or what `more` says, with short numbers; `hover` is what the pointer shows of a dot."""
    numbers = ([short(value) if isinstance(value, float) else value for value in values] for values in (x, y))
    shown = {} if hover is None else {"hovertemplate": f"{hover}<extra></extra>"}
    return {**dict(zip("xy", numbers, strict=True)), "name": name, "mode": "markers", **shown, **more}


def dots(colour: str | list[str], *, size: int = 7, symbol: str | list[str] = "circle") -> Trace:
    """Return how the dots of a series look."""
    return {"color": colour, "size": size, "symbol": symbol}


def errors(known: Iterable[float | None]) -> dict[str, Any]:
    """Return the error bars of some values; an unknown error has no bar."""
    return {"type": "data", "array": [short(error) or 0.0 for error in known], "thickness": 1, "width": 3}


def axis(title: str, **more: Any) -> dict[str, Any]:
    """Return an axis with a title."""
    return {"title": {"text": title}, "zeroline": False, **more}


def of_objective(name: str) -> str:
    """Return the title of an objective's axis, with its unit where that is percent."""
    return f"{name}, %" if any(metric.name == name and metric.unit == "%" for metric in METRICS) else name


_COLOURS = (BEST, FRONT, THIRD, OTHER)


def curves(case: CaseFacts) -> Picture | None:
    """Return a picture of the scores of each run of the case's race against the time that the run has trained."""
    runs = runs_by_config(case.view.race)
    if not any(run.curve for made in runs.values() for run in made):
        return None
    data = [
        trace(
            (at for at, _ in run.curve),
            (score for _, score in run.curve),
            text(in_words(run.config)),
            hover=f"seed {run.seed}: %{{y}} after %{{x}} s",
            mode="lines",
            line={"color": _COLOURS[place % len(_COLOURS)], "width": 1.5},
            legendgroup=standing.entrant,
            showlegend=number == 0,
        )
        for place, standing in enumerate(standings(runs))
        for number, run in enumerate(standing.runs)
    ]
    caption = f"Each line is a run with a seed of its own. {winner(case) or ''}".strip()
    layout = {"xaxis": axis("seconds of training"), "yaxis": axis("score")}
    return Picture(name="race", title="The race: what is learnt", caption=caption, data=data, layout=layout)


def winner(case: CaseFacts) -> str | None:
    """Return a sentence about the config that learnt most in the case's race; None where there was no race."""
    won = race_row(case.view.race)
    if not won:
        return None
    return (
        f"In the race {won['race_winner']} learnt most: score {score_text(won['race_score'], won['race_score_se'])} "
        f"after {won['race_s']:.0f} s of training, mean of {won['race_runs']} run(s)."
    )


def choices(case: CaseFacts) -> Picture | None:
    """Return a picture of all configs by objective and samples/s, with those that no other beats in both."""
    known = [point for point in case.points if point.samples_per_s is not None]
    if not known:
        return None
    front = sorted((point for point in known if case.on_front(point)), key=lambda point: point.samples_per_s or 0.0)
    plain = [point for point in known if not case.on_front(point) and point.is_eligible]
    barred = [point for point in known if not point.is_eligible]
    stars = [point for point in known if case.is_best(point)]
    data = [
        _points(plain, "measured", OTHER),
        _points(barred, "may not be the best", OTHER, symbol="circle-open"),
        _points(front, "no other is better in both", FRONT, mode="lines+markers", symbol="square"),
        _points(stars, "the best", BEST, size=STAR, symbol="star"),
    ]
    is_above = any(point.is_warm and point.value > best.value for point in known for best in stars)
    above = " Configs above the best were measured in sessions alone, which may read too high." if is_above else ""
    caption = (
        "Each dot is a config. To the right it trains more samples per second, upwards it keeps the least busy "
        "device busier. The line joins the configs that no other config beats in both." + above
    )
    layout = {
        "xaxis": axis("samples per second", rangemode="tozero"),
        "yaxis": axis(of_objective(case.summary.objective)),
    }
    shown = [drawn for drawn in data if drawn["x"]]
    return Picture(name="choices", title="What else could be chosen", caption=caption, data=shown, layout=layout)


def _points(
    points: Sequence[Standing], name: str, colour: str, *, mode: str = "markers", size: int = 8, symbol: str = "circle"
) -> Trace:
    """Return a series of configs, by samples/s and objective."""
    return trace(
        *([point.samples_per_s for point in points], [point.value for point in points], name),
        hover="%{text}",
        text=[_hover(point) for point in points],
        error_y=errors(point.error for point in points),
        mode=mode,
        marker=dots(colour, size=size, symbol=symbol),
        line={"color": colour, "width": 1.5},
    )


def _hover(point: Standing) -> str:
    """Return what the pointer shows of a config."""
    of_several = f", mean of {point.readings}" if point.readings > 1 else ""
    of_several += ", in a session" if point.is_warm else ""
    speed = f", {point.samples_per_s:,.0f} samples/s" if point.samples_per_s is not None else ""
    measured = text(f"#{point.trial} {with_error(point.value, point.error)}{of_several}{speed}")
    return f"{measured}<br>{text(in_words(point.config))}"


def level(at: float, words: str) -> dict[str, Any]:
    """Return a level line over the whole picture, and the words on it, as parts of a layout."""
    line = {"type": "line", "xref": "paper", "yref": "y", "x0": 0, "x1": 1, "y0": at, "y1": at}
    place = {"x": 1, "y": at, "xref": "paper", "xanchor": "right", "yanchor": "bottom"}
    style = {"color": THIRD, "width": 2, "dash": "dash"}
    return {"shapes": [{**line, "line": style}], "annotations": [{**place, "text": words, "showarrow": False}]}


def history(case: CaseFacts) -> Picture | None:
    """Return a picture of each measurement and the best so far against time, with the user's own command as a line."""
    if not case.steps:
        return None
    devices = max(1, len(case.view.kept.devices))
    unit_s, unit = (60.0, "minutes") if case.device_s / devices > 180.0 else (1.0, "seconds")
    spent, values = [step.ended_s / devices / unit_s for step in case.steps], [step.value for step in case.steps]
    trials = [step.trial for step in case.steps]
    labels = [text(f"#{trial.number} {in_words(launched(trial.config))}") for trial in trials]
    bars = errors(trial.error for trial in trials)
    marker = dots(OTHER, symbol=["circle-open" if trial.warm else "circle" for trial in trials])
    each = trace(spent, values, "a trial", hover="%{text}<br>%{y}", text=labels, error_y=bars, marker=marker)
    line = {"color": FRONT, "shape": "hv"}
    highest = trace(spent, accumulate(values, max), "highest so far", mode="lines", line=line)
    layout: dict[str, Any] = {
        "xaxis": axis(f"{unit} of probes", rangemode="tozero"),
        "yaxis": axis(of_objective(case.summary.objective)),
    }
    data = [each, highest]
    if case.view.default:
        layout |= level(case.view.default.value, named_default(case))
    if first := case.first_best:
        name = f"the best, #{first.trial.number}"
        data.append(
            trace([first.ended_s / devices / unit_s], [first.value], name, marker=dots(BEST, size=STAR, symbol="star"))
        )
    sessions = " Hollow dots were measured in sessions." if any(trial.warm for trial in trials) else ""
    caption = f"{when_found(case)}{sessions}"
    return Picture(name="history", title="The best so far", caption=caption, data=data, layout=layout)


def along_ladder(case: CaseFacts) -> Picture | None:
    """Return a picture of utilisation, SM activity, samples/s and memory, one below the other, by rung."""
    ladder = case.summary.ladder
    at_rung = [(point, rung_of(point.config, ladder)) for point in case.points]
    points = [point for point, rung in at_rung if rung is not None]
    rungs = [rung for _, rung in at_rung if rung is not None]
    if ladder is None or len(set(rungs)) < 2:
        return None
    words = [text(in_words(point.config)) for point in points]
    unlike = {point.config[VARIANT] for point in points if point.config.get(VARIANT, DEFAULT) != DEFAULT}

    def along(name: str, values: list[float | None], colour: str, symbol: str) -> Trace:
        """Return a series of values against the rungs."""
        colours = [BEST if case.is_best(point) else colour for point in points]
        plain = [symbol if not unlike or point.config.get(VARIANT) in unlike else f"{symbol}-open" for point in points]
        marks = ["star" if case.is_best(point) else mark for point, mark in zip(points, plain, strict=True)]
        marker = {**dots(colours, symbol=marks), "size": [STAR if mark == "star" else 7 for mark in marks]}
        return trace(rungs, values, name, hover="%{text}<br>%{y}", text=words, marker=marker)

    memory = along("memory in use", [point.memory_share_pct for point in points], FRONT, "triangle-up")
    rows = [
        (
            of_objective(case.summary.objective),
            [along(case.summary.objective, [point.value for point in points], FRONT, "square")],
        ),
        ("SM active, %", [along("SM active", [point.sm_pct for point in points], OTHER, "circle")]),
        ("samples/s", [along("samples/s", [point.samples_per_s for point in points], THIRD, "diamond")]),
        ("memory, %", [memory, *_memory(case)]),
    ]
    drawn = [(title, [line for line in traces if any(y is not None for y in line["y"])]) for title, traces in rows]
    drawn = [(title, traces) for title, traces in drawn if traces]
    ticks, share = _ticks(set(rungs)), 1.0 / len(drawn)
    layout: dict[str, Any] = {"showlegend": False}
    data: list[Trace] = []
    number = ""
    for place, (title, traces) in enumerate(drawn):
        number = str(place + 1) if place else ""
        layout[f"yaxis{number}"] = axis(title, domain=[1.0 - (place + 0.88) * share, 1.0 - place * share], nticks=4)
        data += [{**line, "xaxis": "x", "yaxis": f"y{number}"} for line in traces]
    labels = [f"{rung:,}" for rung in ticks]
    layout["xaxis"] = axis(ladder, type="log", tickvals=ticks, ticktext=labels, anchor=f"y{number}")
    filled = (
        f" Filled: {VARIANT}={', '.join(map(written, sorted(unlike, key=str)))}; hollow: {DEFAULT}." if unlike else ""
    )
    caption, height = f"Each dot is a config.{filled} {memory_end(case)}".strip(), 120 + 120 * len(drawn)
    return Picture(name="ladder", title="Along the ladder", caption=caption, data=data, layout=layout, height=height)


def _ticks(rungs: Collection[int], most: int = 6) -> list[int]:
    """Return the rungs to write below a logarithmic axis, the largest first, with room between neighbours.

    They are about `most`; more would not fit beside each other on a phone.
    """
    apart = (max(rungs) / min(rungs)) ** (1 / most)
    chosen: list[int] = []
    for rung in sorted(rungs, reverse=True):
        if not chosen or chosen[-1] >= apart * rung:
            chosen.append(rung)
    return chosen


def _memory(case: CaseFacts) -> list[Trace]:
    """Return where configs ran out of memory."""
    if not (ended := case.out_of_memory):
        return []
    full, marker = [FULL_PCT] * len(ended), dots(BEST, size=9, symbol="x")
    return [trace(ended, full, "ran out of memory", hover="%{x}: out of memory", marker=marker)]


def over_time(case: CaseFacts) -> Picture | None:
    """Return a picture of each device's utilisation in the best's newest probe, with window and iterations."""
    series = case.series
    if series is None:
        return None
    data: list[Trace] = []
    for place, device in enumerate(series.devices):
        times, values = series.of(device, "util_pct", 600)  # more points would not be seen
        line = {"color": _COLOURS[place % len(_COLOURS)], "width": 1}
        shares = [min(value, FULL_PCT) for value in values]
        data.append({"x": times, "y": shares, "name": device, "mode": "lines", "line": line})
    if not any(line["x"] for line in data):
        return None
    upright = {"type": "line", "xref": "x", "yref": "paper", "y0": 0, "y1": 1}
    dotted = {"line": {"color": OTHER, "width": 1, "dash": "dot"}}
    shapes: list[dict[str, Any]] = [{**upright, "x0": t_s, "x1": t_s, **dotted} for t_s in series.marks_s[-200:]]
    if window := series.window_s:
        box = {"type": "rect", "xref": "x", "yref": "paper", "x0": window[0], "x1": window[1], "y0": 0, "y1": 1}
        shapes.insert(0, {**box, "fillcolor": "rgba(37,132,173,0.16)", "line": {"width": 0}, "layer": "below"})
    trial = case.summary.best.trial if case.summary.best else 0
    seconds, busy = axis("seconds since the start of the probe"), axis("utilisation, %", range=[0, 103])
    return Picture(
        name="over_time",
        title="The best's probe over time",
        caption=f"Utilisation of each device in trial #{trial}. The shaded part is the window that counts; each dotted "
        "line is the end of an iteration.",
        data=data,
        layout={"xaxis": seconds, "yaxis": busy, "shapes": shapes},
    )


def pictures(case: CaseFacts) -> list[Picture]:
    """Return the pictures of a case, as far as there is something to draw."""
    drawn = (draw(case) for draw in (history, choices, curves, over_time, along_ladder))
    return [picture for picture in drawn if picture]


Axis = dict[str, Any]
"""The name of an axis, the place of each trial from 0 at the bottom to 1, or None without a result, and its ticks."""


def parallel(case: CaseFacts) -> dict[str, Any] | None:
    """Return the picture of a case's trials; None where there are fewer than two.

    It has the axes, and of each trial its kind (`best`, `ok` or `failed`) and the words that the pointer shows.
    """
    trials = [trial for trial in case.view.trials if trial.state != RUNNING and trial.config]
    if len(trials) < 2:
        return None
    configs = [launched(trial.config) for trial in trials]
    names = dict.fromkeys(name for config in configs for name in config)
    axes = [_of_parameter(name, [config.get(name) for config in configs]) for name in names]
    axes.append(_of_result(case.summary.objective, [trial.value if trial.status == OK else None for trial in trials]))
    if case.summary.objective != "samples_per_s":
        axes.append(_of_result("samples/s", [trial.samples_per_s for trial in trials]))
    best = case.view.best.launch if case.view.best else None
    kinds = ["best" if trial.launch == best else "ok" if trial.status == OK else "failed" for trial in trials]
    shown = [axis for axis in axes if len(axis["ticks"]) > 1]
    return {"axes": shown, "kinds": kinds, "words": list(map(_words, trials))}


def _of_parameter(name: str, values: Sequence[Value | None]) -> Axis:
    """Return the axis of a parameter: its values have equal distances, numbers in their order."""
    known = [value for value in dict.fromkeys(values) if value is not None]
    if not any(isinstance(value, str) for value in known):
        known.sort(key=float)
    ordered = ([None] if None in values else []) + known
    place = {value: index / max(1, len(ordered) - 1) for index, value in enumerate(ordered)}
    step = -(-len(ordered) // 12)  # more ticks would not be readable beside each other
    labels = ["-" if value is None else written(value) for value in ordered]
    ticks = [(place[value], label) for value, label in zip(ordered, labels, strict=True)][::-step][::-1]
    return {"name": name, "places": [place[value] for value in values], "ticks": ticks}


def _of_result(name: str, values: Sequence[float | None]) -> Axis:
    """Return the axis of a result."""
    known = [value for value in values if value is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    width = high - low
    if not width:
        return {"name": name, "places": [None] * len(values), "ticks": []}
    places = [None if value is None else round((value - low) / width, 4) for value in values]
    ticks = [(at / 4, figure(low + at / 4 * width)) for at in range(5)]
    return {"name": name, "places": places, "ticks": ticks}


def _words(trial: TrialRecord) -> str:
    """Return what the pointer shows of a trial."""
    got = "" if trial.value is None else f" {with_error(trial.value, trial.error)}"
    return f"#{trial.number} {trial.status}{got}: {in_words(launched(trial.config))}"
