"""The page of results, from the files of `tuner scale`: tables, pictures, and what `tuner compare` says.

    python -m benchmarks.scaling.page benchmarks/results/scaling/*.json

It writes README.md and compare.tsv beside the first file, and a picture of each file with several devices. Two files
NAME.json and NAME_split.json go together: the second one comes from `tuner scale --split`.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.scaling.picture import draw
from tuner.scaling.comparing import (
    Machine,
    comparison_tsv,
    lines,
    number,
    recommendation,
    scaling_sentences,
    short,
    sized,
    split_sentences,
    topology,
)
from tuner.scaling.laws import LOSSES
from tuner.scaling.results import LINKS, Results, read
from tuner.scaling.scaling_table import LinkRow, ScalingRow, divisions, fits, link_table, mean_pct, table

SPLIT = "_split"
WIDE = 400
HEAD = """# What `tuner scale` has measured

`python -m benchmarks.scaling.page benchmarks/results/scaling/*.json` has written this page from the files beside it,
which come from `tuner scale`. k, M and G stand for a thousand, a million and a billion.
[What the columns mean](../../../docs/scaling.md).
"""
NO_GPUS = """
**Not measured:** two or more GPUs. No file here comes from such a machine. So this page has no figure of our own for
NVLink, for P2P off, for `pipeline` on several GPUs, or for `--split` on GPUs. That code has run on CPU ranks alone.
"""
TAIL = """
## How the CPU figures were taken

`two_cpu_ranks.json` comes from `tuner scale --devices cpu:2 --seconds 2` on a machine on which others worked, too.
The load average was 3.3, 1.7 and 2.1 before its three calls. Before the second and the third call, runs were taken out
of the file during which other processes used 15 % of the processors or more. So these runs were made again.
Before the third call, all runs `beside` were taken out, too, because in them the programs count as others.

## Published figures, as claims of others

We have not checked these speed-ups of two cards over one.

| cards    | over NVLink | DDP  |
|----------|-------------|------|
| 2 x H100 | 1.78        | 1.56 |
| 2 x A100 | 1.70        | 1.50 |

## On your machine

```console
$ python -m benchmarks.scaling.machine --out FOLDER
```

This takes at most nine minutes, and the same command goes on if they were not enough. With several GPUs it measures
all workloads over each route, then `--split` beside a second load on one card. With one GPU it measures each workload
with many sizes.
"""


def scaling(rows: Sequence[ScalingRow]) -> Table:
    heads = ("workload", "scaling", "devices", "route", "samples/s", "ms per step", "speed-up", "efficiency, %")
    shown = Table(*heads, "util, %", "SM, %", "GiB", box=box.MARKDOWN)
    for row in rows:
        peaks = [one.mem_peak_mib for one in row.devices if one.mem_peak_mib is not None]
        util, sm = (mean_pct(row.devices, field) for field in ("util_mean_pct", "sm_mean_pct"))
        shown.add_row(
            *(sized(row), row.scaling, str(row.gpus), row.route or ""),
            *(short(row.samples_per_s), number(row.step_ms)),
            *(map(number, (row.speed_up, row.efficiency_pct)) if row.scaling != "single" else ("", "")),
            *("" if one is None else f"{one:.0f}" for one in (util, sm)),
            f"{max(peaks) / 1024:.1f}" if peaks else "",
        )
    return shown


def losses(rows: Sequence[ScalingRow]) -> Table:
    names = [name for name in LOSSES if any(name in row.losses for row in rows)]
    shown = Table("workload", "scaling", "devices", "route", "ms per step", *names, box=box.MARKDOWN)
    for row in rows:
        if row.losses:
            found = {
                name: f"{one.value:.3g}" + (f" ± {one.error:.2g}" if one.error else "")
                for name, one in row.losses.items()
            }
            cells = (found.get(name, "") for name in names)
            shown.add_row(sized(row), row.scaling, str(row.gpus), row.route or "", number(row.step_ms), *cells)
    return shown


def links(rows: Sequence[LinkRow]) -> Table:
    shown = Table("bytes", "devices", "route", "µs per all-reduce", "GB/s per device", box=box.MARKDOWN)
    for one in rows:
        size = f"{one.size_bytes:,}"
        shown.add_row(size, str(one.gpus), one.route, number(one.time_us), f"{one.bus_gb_per_s:.3g}")
    return shown


def markdown(shown: Table) -> str:
    console = Console(width=WIDE)
    with console.capture() as captured:
        console.print(shown)
    return "\n" + "\n".join(line.rstrip() for line in captured.get().splitlines() if line.strip()) + "\n"


def bullets(sentences: Iterable[str]) -> str:
    return "\n" + "".join(f"- {one}\n" for one in sentences)


def section(path: Path, results: Results) -> Iterator[str]:
    """Yield the parts of the page about one file, and draw its picture."""
    facts = ", ".join(f"{name} {value}" for name, value in results.machine.items())
    yield f"\n## {path.stem}: {len(results.devices)} x {results.devices[0]}\n\n{results.written_at[:10]}. {facts}.\n"
    rows = table(results)
    several = any(row.losses for row in rows)
    yield markdown(scaling(rows))
    yield bullets([*topology(results.links), *scaling_sentences(results, rows, fits(rows))])
    if several:
        draw(rows, path.with_suffix(".png"))
        yield f"\n![Speed-ups and losses]({path.with_suffix('.png').name})\n\nThe losses of a step, in ms:\n"
        yield markdown(losses(rows))
    if measured := link_table(results, LINKS):
        yield markdown(links(measured))
    if (split := path.with_stem(path.stem + SPLIT)).exists():
        divided = read(split)
        yield f"\nWith `--split` ({split.name}):\n" + bullets(split_sentences(divided, divisions(divided)))


def main() -> None:
    paths = [path for path in map(Path, sys.argv[1:]) if not path.stem.endswith(SPLIT)]
    machines = [Machine(name=path.stem, results=read(path)) for path in paths]
    compared = lines(machines, None)
    several = any(one.results.on_gpu and len(one.results.devices) > 1 for one in machines)
    parts = [HEAD, *([] if several else [NO_GPUS])]
    parts += [part for path, one in zip(paths, machines, strict=True) for part in section(path, one.results)]
    parts += ["\n## What `tuner compare` says\n", bullets(recommendation(compared, ""))]
    parts += [
        "\n[compare.tsv](compare.tsv) has all numbers. `tuner compare` also draws them, on a page of 5 MB.\n",
        TAIL,
    ]
    folder = paths[0].parent
    (folder / "README.md").write_text("".join(parts))
    (folder / "compare.tsv").write_text(comparison_tsv(compared, None))


if __name__ == "__main__":
    main()
