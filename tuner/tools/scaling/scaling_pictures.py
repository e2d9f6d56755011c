"""The page of a comparison, and its pictures."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tuner.report.charts import BEST, FRONT, OTHER, THIRD, Picture, Trace, axis, bars, errors, text, trace
from tuner.report.page import filled
from tuner.study import grouped
from tuner.tools.scaling.comparing import ROUTES, PricedRow, number, sized, topology
from tuner.tools.scaling.laws import Loss, Quantity
from tuner.tools.scaling.results import LINKS, Results
from tuner.tools.scaling.scaling_table import link_table

COLOURS = (FRONT, BEST, THIRD, OTHER)
LOSS_COLOURS = ("#76839a", "#b0731a", "#4c9a5f", "#8a63a6", "#8a63a6", "#2584ad", "#cf4358", "#cf4358")
"""The colour of each loss; losses that never stand in one bar share a colour."""
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "cross")


def page(
    machines: Mapping[str, Results], lines: Sequence[PricedRow], sentences: Sequence[str], currency: str | None
) -> str:
    """Return a comparison as one page of HTML."""
    return filled(
        "comparison.html",
        filters={"number": number, "sized": sized, "topology": topology},
        machines=machines,
        sentences=sentences,
        lines=lines,
        links=[(name, link) for name, results in machines.items() for link in link_table(results, LINKS)],
        pictures=pictures(lines, currency),
        currency=currency,
    )


def pictures(lines: Sequence[PricedRow], currency: str | None) -> list[Picture]:
    """Return the pictures of a comparison, as far as there is something to draw."""
    drawn: list[Picture] = []
    for scaling in ("weak", "strong"):
        own = [line for line in lines if line.row.scaling == scaling]
        if own:
            drawn += [_speed_up(own, scaling), _efficiency(own, scaling)]
    if any(line.row.losses for line in lines):
        drawn.append(_losses(lines))
    if currency and any(line.per_price for line in lines):
        drawn.append(_for_the_money(lines, currency))
    return drawn


def _speed_up(own: Sequence[PricedRow], scaling: str) -> Picture:
    most = [1, max(line.row.gpus for line in own)]
    ideal = trace(most, most, "ideal", mode="lines", line={"color": OTHER, "dash": "dot"})
    return Picture(
        name=f"speed-up-{scaling}",
        title=f"Speed-up, {scaling} scaling",
        caption=_ABOUT[scaling],
        data=[ideal, *_curves(own, lambda line: line.row.speed_up, 1.0)],
        layout={"xaxis": _devices(own), "yaxis": axis("times one device", rangemode="tozero")},
    )


def _efficiency(own: Sequence[PricedRow], scaling: str) -> Picture:
    return Picture(
        name=f"efficiency-{scaling}",
        title=f"Efficiency, {scaling} scaling",
        caption="The speed-up as a percentage of the number of devices.",
        data=_curves(own, lambda line: line.row.efficiency_pct, 100.0),
        layout={"xaxis": _devices(own), "yaxis": axis("%", rangemode="tozero")},
    )


_ABOUT = {
    "weak": "Each device has the same batch, however many devices there are. Bars are standard errors.",
    "strong": "All devices together have the same batch. Bars are standard errors.",
}


def _devices(lines: Sequence[PricedRow]) -> dict[str, Any]:
    return axis("devices", tickvals=sorted({1, *(line.row.gpus for line in lines)}))


def _curves(lines: Sequence[PricedRow], of: Callable[[PricedRow], Quantity], single: float) -> list[Trace]:
    """Return a curve for each machine, workload, size and route, from its one device on."""
    groups = grouped(lines, lambda line: f"{_workload(line)} over {ROUTES[line.row.route] if line.row.route else ''}")
    return [
        trace(
            [1, *(line.row.gpus for line in group)],
            [single, *(of(line).value for line in group)],
            text(name),
            error_y=errors([0.0, *(of(line).error for line in group)]),
            mode="lines+markers",
            line={"color": COLOURS[place % len(COLOURS)]},
            marker={"symbol": _SYMBOLS[place // len(COLOURS) % len(_SYMBOLS)], "size": 8},
        )
        for place, (name, group) in enumerate(groups.items())
    ]


def _losses(lines: Sequence[PricedRow]) -> Picture:
    shown = [line for line in lines if line.row.losses]
    names = [text(_named(line)) for line in shown]
    data = [
        bars([_share_pct(line, name) for line in shown], names, name, colour, hover="%{x:.3g} %")
        for name, colour in zip(Loss, LOSS_COLOURS, strict=True)
        if any(name in line.row.losses for line in shown)
    ]
    legend, margin = {"orientation": "h", "y": 1.0, "yanchor": "bottom"}, {"l": 52, "r": 14, "t": 70, "b": 44}
    names_axis = {"autorange": "reversed"}
    return Picture(
        name="losses",
        title="Where the time goes",
        caption="The losses of a step as a percentage of the step. A loss below 0 lies within its error, or is a gain.",
        data=data,
        layout={"barmode": "relative", "xaxis": axis("% of the step"), "yaxis": names_axis, "legend": legend}
        | {"margin": margin},
        height=180 + 24 * len(shown),
    )


def _share_pct(line: PricedRow, name: str) -> float:
    return 100 * line.row.losses[name].value / line.row.step_ms.value if name in line.row.losses else 0.0


def _for_the_money(lines: Sequence[PricedRow], currency: str) -> Picture:
    priced = [line for line in lines if line.row.scaling != "strong" and line.per_price]
    samples, names = (
        [line.per_price.value for line in priced if line.per_price],
        [text(_named(line)) for line in priced],
    )
    return Picture(
        name="money",
        title=f"Samples per {currency}",
        caption="The axis is logarithmic. Samples of different workloads are different things.",
        data=[bars(samples, names, "", FRONT, hover="%{x:,.0f}")],
        layout={"xaxis": axis(f"samples per {currency}", type="log"), "yaxis": {"autorange": "reversed"}},
        height=160 + 24 * len(priced),
    )


def _workload(line: PricedRow) -> str:
    return f"{line.machine}: {sized(line.row)}"


def _named(line: PricedRow) -> str:
    row = line.row
    route = f" {row.route}" if row.route else ""
    return f"{_workload(line)}, {row.gpus} x{route}{'' if row.scaling == 'single' else f', {row.scaling}'}"
