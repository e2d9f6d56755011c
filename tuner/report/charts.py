"""The pictures of a case: its configs, its search, its best's probe, its ladder, its race, and all trials as lines.

A rung is a value of the ladder, mostly a number of environments. A session is a trainer that is started once for many
configs; the plain command starts the trainer for each.
"""

import html
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import ceil
from typing import Any, NamedTuple

from tuner.export import SPEEDS, figure, in_words, race_row, score_text, with_error
from tuner.probe import FULL_PCT, METRICS, number_of
from tuner.records.trial import OK, RUNNING, TrialRecord
from tuner.report.facts import CaseFacts, memory_end, when_found
from tuner.search.standing import Standing
from tuner.study import Value, launched, rung_of, value_text

# Each colour has a contrast of at least 3 to 1 against the light and the dark background (WCAG 2.2, 1.4.11).
BEST = "#cf4358"
FRONT = "#2584ad"
OTHER = "#76839a"
THIRD = "#b0731a"
STAR = 13
"""The size of the chosen config's mark, in pixels."""

Trace = dict[str, Any]


class Picture(NamedTuple):
    """A picture and the text around it."""

    name: str
    title: str
    caption: str
    data: list[Trace]
    layout: dict[str, Any]
    height: int = 360


def escaped(words: str) -> str:
    """Return words as plotly's labels show them: plotly reads a few HTML tags there."""
    return html.escape(words, quote=False)


def shortened(value: float | None) -> float | None:
    """Return a number with five significant digits; None where it is unknown."""
    return None if value is None else float(f"{value:.5g}")


def trace(x: Iterable[Any], y: Iterable[Any], name: str, *, hover: str | None = None, **more: Any) -> Trace:
    """Return a series of dots with short numbers; `more` are keys of plotly's traces, such as another `mode`.

    `hover` is what the pointer shows of a dot.
    """
    xs = [shortened(value) if isinstance(value, float) else value for value in x]
    ys = [shortened(value) if isinstance(value, float) else value for value in y]
    hovering = {} if hover is None else {"hovertemplate": f"{hover}<extra></extra>"}  # without the series' name
    return {"x": xs, "y": ys, "name": name, "mode": "markers", **hovering, **more}


def marker_style(colour: str | list[str], *, size: int = 7, symbol: str | list[str]) -> Trace:
    """Return how the dots of a series look; lists give the colour and the symbol of each dot."""
    return {"color": colour, "size": size, "symbol": symbol}


def error_bars(known: Iterable[float | None]) -> dict[str, Any]:
    """Return the error bars for the standard errors of some values; an unknown error has no bar."""
    return {"type": "data", "array": [shortened(error) or 0.0 for error in known], "thickness": 1, "width": 3}


def axis(title: str, **more: Any) -> dict[str, Any]:
    """Return an axis with a title."""
    return {"title": {"text": title}, "zeroline": False, **more}


def objective_title(name: str) -> str:
    """Return the title of an objective's axis, with its unit where that is percent."""
    return f"{name}, %" if any(metric.name == name and metric.unit == "%" for metric in METRICS) else name


_COLOURS = (BEST, FRONT, THIRD, OTHER)


def race_scores(case: CaseFacts) -> Picture | None:
    """Return a picture of the scores of each run of the case's race against the time that the run has trained.

    None where no run has reported a score.
    """
    if not any(run.curve for run in case.view.race):
        return None
    data: list[Trace] = []
    for place, standing in enumerate(case.view.race_standings):
        line = {"color": _COLOURS[place % len(_COLOURS)], "width": 1.5}
        for number, run in enumerate(standing.runs):
            data.append(
                trace(
                    (at for at, _ in run.curve),
                    (score for _, score in run.curve),
                    escaped(in_words(run.config)),
                    hover=f"seed {run.seed}: %{{y}} after %{{x}} s",
                    mode="lines",
                    line=line,
                    legendgroup=standing.entrant,
                    showlegend=number == 0,  # the runs of a config share an entry
                )
            )
    caption = f"Each line is a run with a seed of its own. {race_sentence(case) or ''}".strip()
    layout = {"xaxis": axis("seconds of training"), "yaxis": axis("score")}
    return Picture(name="race", title="The race: what is learnt", caption=caption, data=data, layout=layout)


def race_sentence(case: CaseFacts) -> str | None:
    """Return a sentence about the config that learnt most in the case's race; None where there was no race."""
    row = race_row(case.view)
    if not row:
        return None
    return (
        f"In the race {row['race_winner']} learnt most: score {score_text(row['race_score'], row['race_score_se'])} "
        f"after {row['race_s']:.0f} s of training, mean of {number_of(row['race_runs'], 'run')}."
    )


def tradeoff(case: CaseFacts) -> Picture | None:
    """Return a picture of all configs by objective and samples/s, with those that no other beats in both.

    None where the objective is a speed itself, so that there is nothing to weigh.
    """
    objective = case.summary.objective
    points = [point for point in case.points if point.samples_per_s is not None]
    if not points or objective in SPEEDS:
        return None
    front = sorted((point for point in points if case.on_front(point)), key=lambda point: point.samples_per_s or 0.0)
    beaten = [point for point in points if not case.on_front(point) and point.is_eligible]
    barred = [point for point in points if not point.is_eligible]
    stars = [point for point in points if case.is_best(point)]
    data = [
        _config_series(beaten, "measured", OTHER),
        _config_series(barred, "may not be the best", OTHER, symbol="circle-open"),
        _config_series(front, "no other is better in both", FRONT, mode="lines+markers", symbol="square"),
        _config_series(stars, "the best", BEST, size=STAR, symbol="star"),
    ]
    caption = (
        f"Each dot is a config. To the right it trains more samples per second, upwards its {objective} is higher. "
        "The line joins the configs that no other config beats in both."
    )
    if any(point.is_warm and point.value > star.value for point in points for star in stars):
        caption += " Configs above the best were measured in sessions alone, which may read too high."
    layout = {"xaxis": axis("samples per second", rangemode="tozero"), "yaxis": axis(objective_title(objective))}
    filled = [series for series in data if series["x"]]
    return Picture(name="choices", title="What else could be chosen", caption=caption, data=filled, layout=layout)


def _config_series(
    points: Sequence[Standing], name: str, colour: str, *, mode: str = "markers", size: int = 8, symbol: str = "circle"
) -> Trace:
    """Return a series of configs, by samples/s and objective."""
    return trace(
        *([point.samples_per_s for point in points], [point.value for point in points], name),
        hover="%{text}",
        text=[_hover_text(point) for point in points],
        error_y=error_bars(point.widened_error for point in points),
        mode=mode,
        marker=marker_style(colour, size=size, symbol=symbol),
        line={"color": colour, "width": 1.5},
    )


def _hover_text(point: Standing) -> str:
    """Return what the pointer shows of a config."""
    of_several = f", mean of {point.readings}" if point.readings > 1 else ""
    of_several += ", in a session" if point.is_warm else ""
    speed = f", {point.samples_per_s:,.0f} samples/s" if point.samples_per_s is not None else ""
    measured = escaped(f"#{point.trial} {with_error(point.value, point.widened_error)}{of_several}{speed}")
    return f"{measured}<br>{escaped(in_words(point.config))}"


def level_line(at: float, words: str) -> dict[str, Any]:
    """Return the parts of a layout that draw a horizontal line across the picture at a value, with words on it."""
    line = {"type": "line", "xref": "paper", "yref": "y", "x0": 0, "x1": 1, "y0": at, "y1": at}
    place = {"x": 1, "y": at, "xref": "paper", "xanchor": "right", "yanchor": "bottom"}
    style = {"color": THIRD, "width": 2, "dash": "dash"}
    return {"shapes": [{**line, "line": style}], "annotations": [{**place, "text": words, "showarrow": False}]}


def history(case: CaseFacts) -> Picture | None:
    """Return a picture of each measurement and the highest so far against time, with the default as a level line.

    None where no trial has given a number.
    """
    if not case.steps:
        return None
    # time
    devices = max(1, len(case.view.record.devices))
    is_long = case.device_s / devices > 180.0
    unit_s, unit = (60.0, "minutes") if is_long else (1.0, "seconds")
    times = [step.ended_s / devices / unit_s for step in case.steps]
    # a dot for each trial
    values = [step.value for step in case.steps]
    trials = [step.trial for step in case.steps]
    labels = [escaped(f"#{trial.number} {in_words(launched(trial.config))}") for trial in trials]
    bars = error_bars(trial.widened_error for trial in trials)
    marker = marker_style(OTHER, symbol=["circle-open" if trial.warm else "circle" for trial in trials])
    data = [trace(times, values, "a trial", hover="%{text}<br>%{y}", text=labels, error_y=bars, marker=marker)]
    # the line of the highest value, the star of the best, and the level of the default
    line = {"color": FRONT, "shape": "hv"}
    data.append(trace(times, accumulate(values, max), "highest so far", mode="lines", line=line))
    if step := case.first_best:
        star = marker_style(BEST, size=STAR, symbol="star")
        at = step.ended_s / devices / unit_s
        data.append(trace([at], [step.value], f"the best, #{step.trial.number}", marker=star))
    layout: dict[str, Any] = {
        "xaxis": axis(f"{unit} of probes", rangemode="tozero"),
        "yaxis": axis(objective_title(case.summary.objective)),
    }
    if case.view.default:
        layout |= level_line(case.view.default.value, case.view.default_name)
    sessions = " Hollow dots were measured in sessions." if any(trial.warm for trial in trials) else ""
    caption = f"{when_found(case)}{sessions}"
    return Picture(name="history", title="The best so far", caption=caption, data=data, layout=layout)


def along_ladder(case: CaseFacts) -> Picture | None:
    """Return a picture of the objective, SM activity, samples/s and memory, one below the other, against the rungs.

    None where fewer than two rungs were measured.
    """
    ladder = case.summary.ladder
    points = [point for point in case.points if rung_of(point.config, ladder) is not None]
    rungs = [rung for point in points if (rung := rung_of(point.config, ladder)) is not None]
    if ladder is None or len({*rungs}) < 2:
        return None
    rows = _rows_along(rungs, case, points)
    share = 1.0 / len(rows)  # of the height, for each row
    layout: dict[str, Any] = {"showlegend": False}
    data: list[Trace] = []
    number = ""
    for place, (title, lines) in enumerate(rows.items()):
        number = str(place + 1) if place else ""  # plotly calls the axes yaxis, yaxis2, yaxis3 …
        top = 1.0 - place * share
        layout[f"yaxis{number}"] = axis(title, domain=[top - 0.88 * share, top], nticks=4)  # 12 % are between rows
        data += [{**line, "xaxis": "x", "yaxis": f"y{number}"} for line in lines]
    ticks = _ladder_ticks({*rungs})
    labels = [f"{rung:,}" for rung in ticks]
    layout["xaxis"] = axis(ladder, type="log", tickvals=ticks, ticktext=labels, anchor=f"y{number}")  # below the last
    caption = f"Each dot is a config. {memory_end(case)}".strip()
    height = 120 + 120 * len(rows)
    return Picture(name="ladder", title="Along the ladder", caption=caption, data=data, layout=layout, height=height)


def _rows_along(rungs: Sequence[int], case: CaseFacts, points: Sequence[Standing]) -> dict[str, list[Trace]]:
    """Return the rows of the picture along the ladder, the top one first: the title of the axis → its series.

    `rungs` are those of the `points`. The best has a star. A row without a value is left out.
    """
    words = [escaped(in_words(point.config)) for point in points]

    def series(name: str, values: list[float | None], colour: str, symbol: str) -> list[Trace]:
        """Return the values of all `points` against their rungs as a list of one series; empty where none is known."""
        if all(value is None for value in values):
            return []
        symbols = ["star" if case.is_best(point) else symbol for point in points]
        colours = [BEST if mark == "star" else colour for mark in symbols]
        marker = {**marker_style(colours, symbol=symbols), "size": [STAR if mark == "star" else 7 for mark in symbols]}
        return [trace(rungs, values, name, hover="%{text}<br>%{y}", text=words, marker=marker)]

    objective = case.summary.objective
    memory = [point.memory_share_pct for point in points]
    rows = {
        objective_title(objective): series(objective, [point.value for point in points], FRONT, "square"),
        "SM active, %": series("SM active", [point.sm_pct for point in points], OTHER, "circle"),
        "samples/s": series("samples/s", [point.samples_per_s for point in points], THIRD, "diamond"),
        "memory, %": series("memory in use", memory, FRONT, "triangle-up"),
    }
    if too_large := case.out_of_memory:  # crosses at full memory
        full, marker = [FULL_PCT] * len(too_large), marker_style(BEST, size=9, symbol="x")
        hover = "%{x}: out of memory"
        rows["memory, %"].append(trace(too_large, full, "ran out of memory", hover=hover, marker=marker))
    return {title: lines for title, lines in rows.items() if lines}


def _ladder_ticks(rungs: Collection[int]) -> list[int]:
    """Return the rungs to write below a logarithmic axis, the largest first, with room between neighbours.

    There are seven at most; more would not fit beside each other on a phone.
    """
    least_ratio = (max(rungs) / min(rungs)) ** (1 / 6)  # of neighbours: six such steps span the axis
    chosen: list[int] = []
    for rung in sorted(rungs, reverse=True):
        if not chosen or chosen[-1] >= least_ratio * rung:
            chosen.append(rung)
    return chosen


def over_time(case: CaseFacts) -> Picture | None:
    """Return a picture of each device's utilisation in the best's newest probe, with its iterations.

    The window, the part of the probe whose measurements count, is shaded. None where no utilisation was recorded.
    """
    series = case.series
    if series is None:
        return None
    # a line for each device
    data: list[Trace] = []
    for place, device in enumerate(series.devices):
        times, values = series.curve(device, "util_pct", 600)  # at most 600 points, as many as a screen can show
        line = {"color": _COLOURS[place % len(_COLOURS)], "width": 1}
        shares = [min(value, FULL_PCT) for value in values]  # shares of the CPU may read a little more
        data.append({"x": times, "y": shares, "name": device, "mode": "lines", "line": line})
    if not any(line["x"] for line in data):
        return None
    # the window as a box, and a dotted line at the end of each iteration, of the last 200
    whole_height = {"xref": "x", "yref": "paper", "y0": 0, "y1": 1}
    dotted = {"color": OTHER, "width": 1, "dash": "dot"}
    shapes = [{**whole_height, "type": "line", "x0": t_s, "x1": t_s, "line": dotted} for t_s in series.marks_s[-200:]]
    if window := series.window_s:
        box = {**whole_height, "type": "rect", "x0": window[0], "x1": window[1]}
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
    drawn = (draw(case) for draw in (history, tradeoff, race_scores, over_time, along_ladder))
    return [picture for picture in drawn if picture]


@dataclass(frozen=True, kw_only=True, slots=True)
class Axis:
    """One axis. Places go from 0, the bottom, to 1, the top."""

    name: str
    places: list[float | None]
    """The place of each trial; None where the trial has no such result."""
    ticks: list[tuple[float, str]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Parallel:
    """The axes, and what the lines between them are."""

    axes: list[Axis]
    kinds: list[str]
    """Of each trial: `best`, `ok` or `failed`."""
    words: list[str]
    """What the pointer shows of each trial."""


def parallel(case: CaseFacts) -> Parallel | None:
    """Return the picture of a case's trials; None where there are fewer than two trials or axes."""
    trials = [trial for trial in case.view.trials if trial.state != RUNNING and trial.config]
    if len(trials) < 2:
        return None
    configs = [launched(trial.config) for trial in trials]
    names = dict.fromkeys(name for config in configs for name in config)
    axes = [_parameter_axis(name, [config.get(name) for config in configs]) for name in names]
    axes.append(_result_axis(case.summary.objective, [trial.value if trial.status == OK else None for trial in trials]))
    if case.summary.objective != "samples_per_s":
        axes.append(_result_axis("samples/s", [trial.samples_per_s for trial in trials]))
    kinds = ["ok" if trial.status == OK else "failed" for trial in trials]
    for place, trial in enumerate(trials):
        if case.view.best and trial.launch_key == case.view.best.launch_key:
            kinds[place] = "best"
    with_several_values = [axis for axis in axes if len(axis.ticks) > 1]
    if len(with_several_values) < 2:
        return None
    return Parallel(axes=with_several_values, kinds=kinds, words=list(map(_text_of_line, trials)))


def _parameter_axis(name: str, values: Sequence[Value | None]) -> Axis:
    """Return the axis of a parameter: its values at equal distances, numbers in ascending order.

    `values`: that of each trial; None, the lowest place of the axis, where a trial does not use the parameter.
    """
    known = [value for value in dict.fromkeys(values) if value is not None]
    if not any(isinstance(value, str) for value in known):
        known.sort(key=float)
    ordered: list[Value | None] = [None, *known] if None in values else [*known]
    last = max(1, len(ordered) - 1)
    place_of = {value: index / last for index, value in enumerate(ordered)}
    labels = ["-" if value is None else value_text(value) for value in ordered]
    step = ceil(len(ordered) / 12)  # at most 12 labels can be read beside each other
    first = (len(ordered) - 1) % step  # so that the largest value has a label
    ticks = list(zip(place_of.values(), labels, strict=True))[first::step]
    return Axis(name=name, places=[place_of[value] for value in values], ticks=ticks)


def _result_axis(name: str, values: Sequence[float | None]) -> Axis:
    """Return the axis of a result, with five labels; without places and labels where all trials have one value."""
    known = [value for value in values if value is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    width = high - low
    if not width:
        return Axis(name=name, places=[None] * len(values), ticks=[])
    places = [None if value is None else round((value - low) / width, 4) for value in values]
    ticks = [(place, figure(low + place * width)) for place in (0.0, 0.25, 0.5, 0.75, 1.0)]
    return Axis(name=name, places=places, ticks=ticks)


def _text_of_line(trial: TrialRecord) -> str:
    """Return what is shown of a trial while the pointer is on its line."""
    value = "" if trial.value is None else f" {with_error(trial.value, trial.widened_error)}"
    return f"#{trial.number} {trial.status}{value}: {in_words(launched(trial.config))}"
