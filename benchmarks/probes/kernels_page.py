"""The page of results of the benchmark of precision and kernels. Pure."""

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from benchmarks.probes.kept_rows import Row
from benchmarks.probes.kernels_rows import CASE, DEFAULT, LIMITS, METRICS
from tuner.trainers.reference.launch_settings import STEPS_PER_ITERATION, run_config


def page(found: Sequence[Row]) -> str:
    """Return the page of results."""
    ran = [one for one in found if one["samples_per_s"]]
    default = next((one for one in ran if one["name"] == DEFAULT), None)
    top = max((one for one in ran), key=lambda one: float(one["samples_per_s"]), default=None)
    facts = json.loads(found[0]["facts"]) if found else {}
    lines = [
        "# Precision and kernels of the reference trainer",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, one {found[0]['device'] if found else 'device'}, case `{CASE}`. "
        "`python -m benchmarks.probes.kernels` measured each row as one probe, and writes this page with `--show`.",
        "",
    ]
    if default and top:
        times = float(top["samples_per_s"]) / float(default["samples_per_s"])
        lines += [
            f"**{top['name']}** makes {times:.1f} times the samples/s of the trainer's own defaults: "
            f"{_number(top, 'samples_per_s')} against {_number(default, 'samples_per_s')}.",
            "",
        ]
    heads = ["row", "environments", "minibatch", "samples/s", "±", "times default", "util, %", "SM, %", "tensor, %"]
    heads += ["DRAM, %", "memory, MiB", *(f"bound by {name}" for name in LIMITS)]
    lines += [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    lines += [f"| {' | '.join(_cells(one, default))} |" for one in found]
    lines += ["", *(f"- {name}: {fact}" for name, fact in facts.items() if name != "auto"), "", *_explained()]
    return "\n".join(lines)


def _cells(one: Row, default: Row | None) -> Iterator[str]:
    config = json.loads(one["config"])
    agent = run_config(config).agent(hidden_units=1)
    yield one["name"]
    yield f"{config['num_envs']:,}"
    yield f"{min(agent.minibatch_of(config['num_envs']), config['num_envs'] * STEPS_PER_ITERATION):,}"
    yield _number(one, "samples_per_s") or one["outcome"].split(":")[0]
    yield _number(one, "samples_per_s_se")
    known = default and one["samples_per_s"]
    yield f"{float(one['samples_per_s']) / float(default['samples_per_s']):.2f}" if default and known else ""
    yield from (_number(one, metric, digits=1) for metric in METRICS[1:-1])
    yield _number(one, "mem_peak_mib")
    yield from (_number(one, name) for name in LIMITS)


def _number(one: Row, column: str, digits: int = 0) -> str:
    return f"{float(one[column]):,.{digits}f}" if one[column] else ""


def _explained() -> Iterator[str]:
    yield "The bounds are in samples/s. Each says what would be reached if only this limit counted:"
    yield ""
    yield "- memory: the bytes of all layers, gradients and moments of Adam at the bandwidth of the data sheet, as if"
    yield "  nothing stayed in a cache. A compiled loss moves fewer bytes, and the cache holds the weights."
    yield "- launches: all operations that are launched one by one, at the measured time of a launch."
    yield "- arithmetic: the products of all layers at the dense rate of the data sheet in this number format."
    yield "- clips: the clips of an iteration, prepared by one process or by its workers, at the time of a clip."
