"""A comparison as tab-separated values."""

from collections.abc import Sequence

from tuner.export.tsv import Sheet, tsv
from tuner.scaling.comparing import Line
from tuner.scaling.laws import Measure
from tuner.scaling.losses import LOSSES
from tuner.scaling.rows import mean_pct


def comparison_tsv(lines: Sequence[Line], currency: str | None) -> str:
    """Return the lines as text with one column per number; a number that is not known is empty.

    Columns of prices exist only where there is a `currency`.
    """
    rows = [_columns(line, currency) for line in lines]
    return "".join(tsv(Sheet(list(rows[0]) if rows else [], rows)))


def _columns(line: Line, currency: str | None) -> dict[str, object]:
    row = line.row
    lost = {loss.name: loss for loss in row.losses}
    columns: dict[str, object] = {
        "machine": line.machine,
        "device": line.model,
        "workload": row.workload,
        "size": row.size,
        "unit": row.unit,
        "scaling": row.scaling,
        "devices": row.gpus,
        "route": row.route,
        **_measured("samples_per_s", row.samples_per_s),
        **_measured("ms_per_step", row.step_ms),
        **_measured("speed_up", row.speed_up),
        **_measured("efficiency_pct", row.efficiency_pct),
    }
    for name in LOSSES:
        loss = lost.get(name)
        columns |= _measured(f"{name.replace(' ', '_')}_ms", loss and Measure(loss.ms, loss.error_ms))
    columns |= {
        "util_pct": _rounded(mean_pct(row.devices, "util_mean_pct")),
        "sm_pct": _rounded(mean_pct(row.devices, "sm_mean_pct")),
        "mem_peak_mib": max((one.mem_peak_mib for one in row.devices if one.mem_peak_mib is not None), default=None),
    }
    if currency:
        columns |= {
            f"{currency}_per_hour": line.per_hour,
            **_measured(f"samples_per_{currency}", line.per_price),
            f"{currency}_per_million_samples": _rounded(line.per_million),
        }
    return columns


def _measured(name: str, one: Measure | None) -> dict[str, float | None]:
    return {name: one and _rounded(one.value), f"{name}_se": one and _rounded(one.error)}


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")
