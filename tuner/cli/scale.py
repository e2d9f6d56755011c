"""`tuner scale`: what a trainer gains from more GPUs; `tuner compare`: the results of several machines side by side."""

from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from tuner import __version__
from tuner.cli.hints import written
from tuner.cli.options import RUNS, Runs, not_empty, open_console
from tuner.cli.plan import Settings, first_config
from tuner.cli.report import NEEDED
from tuner.cli.scale_tables import introduce, show_comparison, show_scaling, show_split, tell
from tuner.cli.work import EXIT_INTERRUPTED, chosen_cases, interruptible
from tuner.devices.found import describe_machine, links, open_devices
from tuner.errors import DeviceError, StudyError, TunerError, installs
from tuner.export.write import write_files
from tuner.probe.protocols import DeviceSource
from tuner.running.prober import prober_on
from tuner.running.workbench import open_workbench
from tuner.scaling.campaign import (
    Measuring,
    Scaled,
    begun,
    counts,
    measure_all,
    missing,
    routes,
    scaling_runs,
    split_runs,
)
from tuner.scaling.comparing import Machine, comparison_tsv, lines, read_prices, recommendation
from tuner.scaling.results import Results, read
from tuner.scaling.subjects import NAMES, built_in, of_study

Workloads = Annotated[
    list[str] | None, typer.Argument(help=f"Built-in workloads: {', '.join(NAMES)}; default: all of them.")
]
Study = Annotated[str | None, typer.Option("--study", "-s", help="Measure a case of this study instead.")]
OneCase = Annotated[str | None, typer.Option("--case", help="With --study: the case; default: the study's first.")]
Counts = Annotated[
    str | None, typer.Option("--gpus", help="Numbers of GPUs, such as 1,2; default: 1,2,4,8 as far as visible.")
]
Sizes = Annotated[
    str | None, typer.Option(help="Sizes of the one workload, such as 256,512; of a study: values of num_envs.")
]
Split = Annotated[
    bool, typer.Option("--split", help="Measure each card by itself, and divide independent work among the cards.")
]
NoP2p = Annotated[
    bool, typer.Option("--no-p2p", help="Measure only the way through the host's memory; default: each way there is.")
]
Shared = Annotated[bool, typer.Option("--shared", help="Measure although other programs work on the cards.")]
Cards = Annotated[
    str | None,
    typer.Option(
        "--devices",
        callback=not_empty,
        help="auto, cpu:RANKS or CUDA indices (0,1); default: auto, all that there are.",
    ),
]
Seconds = Annotated[float, typer.Option(min=0.5, help="The window of each measurement of a built-in workload.")]
Out = Annotated[
    Path | None,
    typer.Option(
        dir_okay=False, help="The file of results, to begin or to go on with; default: a new one in runs/scale."
    ),
]


def scale(
    workloads: Workloads = None,
    study: Study = None,
    case: OneCase = None,
    settings: Settings = None,
    sizes: Sizes = None,
    gpus: Counts = None,
    devices: Cards = None,
    split: Split = False,
    no_p2p: NoP2p = False,
    shared: Shared = False,
    seconds: Seconds = 3.0,
    out: Out = None,
    runs: Runs = RUNS,
) -> None:
    """Measure one GPU and several, alone and together, over each route; say how much is lost and where."""
    console = open_console()
    source = open_devices(devices or "auto")
    numbers = _counts(gpus, source, split=split)
    chosen_sizes = None if sizes is None else _numbers(sizes, "--sizes")
    if study:
        if workloads:
            raise StudyError(f"--study {study} names a trainer of its own; leave out {', '.join(workloads)}")
        bench = open_workbench(study, devices=devices, runs=runs)
        chosen = chosen_cases(bench, [case] if case else None)[0]
        subjects = [of_study(bench, chosen, first_config(bench, chosen, settings or []), chosen_sizes)]
    else:
        subjects = _built_in(workloads or NAMES, chosen_sizes, source, seconds)
    results = _blank(source, subjects)
    path = out or runs / "scale" / f"{results.written_at.replace(':', '-')}.json"
    results = begun(path, results)
    wanted = [one.wanted for one in subjects]
    planned = list(
        split_runs(wanted, len(source.devices))
        if split
        else scaling_runs(wanted, numbers, routes(results.links, on_gpu=results.on_gpu, p2p=not no_p2p))
    )
    left = missing(planned, results)
    introduce(console, results, planned, len(left))
    with interruptible(console) as interrupted:
        measuring = Measuring(
            source,
            open_prober=lambda part: prober_on(part, console.print, shared=shared),
            folder=(runs / "scale" / path.stem).resolve(),
            interrupted=interrupted.is_set,
        )
        named = {one.subject.name: one for one in subjects}
        with closing(measuring):
            results = measure_all(measuring, left, named, results, path=path, tell=partial(tell, console))
    (show_split if split else show_scaling)(console, results)
    if results.points:
        console.print(f"wrote {path}")
    if interrupted.is_set():
        console.print(f"interrupted; the same command with --out {path} goes on")
        raise typer.Exit(EXIT_INTERRUPTED)
    if not split:
        console.print(f"`tuner compare {path}` says whether more devices are worth it, and draws the curves")


MOST_DIGITS, SHOWN = 12, 40
"""How many digits a number of GPUs or a size may have, and how much of a wrong text a message repeats."""


def _built_in(
    names: Sequence[str], sizes: tuple[int, ...] | None, source: DeviceSource, seconds: float
) -> list[Scaled]:
    if sizes and len(names) > 1:
        raise StudyError(f"--sizes belong to one workload; name one of {', '.join(names)}")
    gpu = source.devices[0].is_gpu
    return [built_in(name, gpu=gpu, window_s=seconds, sizes=sizes) for name in dict.fromkeys(names)]


def _blank(source: DeviceSource, subjects: Sequence[Scaled]) -> Results:
    return Results(
        written_at=datetime.now(UTC).isoformat(timespec="seconds"),
        tuner=__version__,
        machine=describe_machine(source),
        devices=tuple(device.model for device in source.devices),
        on_gpu=source.devices[0].is_gpu,
        links=links(source.devices),
        subjects=tuple(one.subject for one in subjects),
    )


def _counts(gpus: str | None, source: DeviceSource, *, split: bool) -> tuple[int, ...]:
    """Return the numbers of GPUs to measure. Raises DeviceError where there are fewer."""
    there, kind = len(source.devices), "GPU(s)" if source.devices[0].is_gpu else "CPU rank(s)"
    known = f"tuner sees {there} {kind}; see --devices"
    asked = None if gpus is None else _numbers(gpus, "--gpus")
    if split and asked:
        raise StudyError(f"--split measures every visible card; leave out --gpus {gpus}, or choose with --devices")
    if split and there < 2:
        raise DeviceError(f"--split divides work among cards, and {known}")
    if asked and max(asked) > there:
        raise DeviceError(f"--gpus {gpus} asks for {max(asked)}, and {known}")
    return counts(asked, there)


def _numbers(text: str, option: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and len(part) <= MOST_DIGITS and int(part) > 0 for part in parts):
        raise StudyError(f"{option} {text[:SHOWN]!r}: write whole numbers of at least 1, separated by commas")
    return tuple(sorted({int(part) for part in parts}))


Files = Annotated[list[Path], typer.Argument(dir_okay=False, help="Files that `tuner scale --out` has written.")]
PricesFile = Annotated[
    Path | None, typer.Option("--prices", dir_okay=False, help="A YAML file with the price of a device for an hour.")
]
PageFolder = Annotated[Path, typer.Option(file_okay=False, help="The folder for compare.html and compare.tsv.")]


def compare(files: Files, prices: PricesFile = None, out: PageFolder = RUNS / "compare") -> None:
    """Compare machines: speed-up, efficiency, samples for the money, and what to choose."""
    console = open_console()
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise TunerError(f"tuner compare needs {', '.join(missing)}: {installs('report')} installs it")
    machines = _machines(files)
    needed = [(one.name, one.results.devices[0]) for one in machines]
    known = None if prices is None else read_prices(prices, needed)
    currency = known.currency if known else None
    rows = lines(machines, known)
    if not rows:
        raise TunerError(
            f"{', '.join(map(str, files))}: no baseline of a single device, so there is nothing to compare; "
            "`tuner scale --gpus 1,2` measures one, too"
        )
    sentences = list(recommendation(rows, currency or ""))
    show_comparison(console, rows, currency)
    for line in sentences:
        console.print(line)
    from tuner.scaling.scaling_pictures import page  # noqa: PLC0415 - the extra `report` brings plotly and jinja2

    text = page(machines, rows, sentences, currency)
    texts = {"compare.html": [text.encode()], "compare.tsv": [comparison_tsv(rows, currency).encode()]}
    written(console, write_files(out.resolve(), texts))


def _machines(files: list[Path]) -> list[Machine]:
    """Read the files. A machine has the name of its file; the folder tells files of one name apart."""
    stems = [file.stem for file in files]
    names = [file.stem if stems.count(file.stem) == 1 else f"{file.parent.name}/{file.stem}" for file in files]
    if len(set(names)) < len(names):
        raise TunerError(f"{', '.join(map(str, files))}: a file is named twice; name each result once")
    return [Machine(name=name, results=read(file)) for name, file in zip(names, files, strict=True)]
