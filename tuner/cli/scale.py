"""`tuner scale` measures what more GPUs bring, `compare` compares machines, and `decide` says whether to move."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from tuner import __version__
from tuner.cli import options
from tuner.cli.options import number_option
from tuner.cli.screen import print_tables
from tuner.cli.slurm import resources, submit
from tuner.cli.work import EXIT_INTERRUPTED, Cases, Settings, first_config, interruptible, output_lines
from tuner.devices.found import describe_machine, links, open_devices, part_of
from tuner.errors import DeviceError, StudyError, TunerError
from tuner.nodes.source import Nodes
from tuner.probe import MIB_PER_GIB, DeviceSource, number_of, of_known
from tuner.running.job import chosen_cases, open_workbench
from tuner.running.prober import prober_on
from tuner.study import grouped
from tuner.tools.scaling import campaign, comparing
from tuner.tools.scaling.campaign import NAMES, built_in_subject, subject_of_study
from tuner.tools.scaling.comparing import Move, advice, printed_step_s
from tuner.tools.scaling.results import Measurement, Results, ScalingRow, link_table, rate, read, table
from tuner.trainers.registry import check_program

SHORT_NUMBERS = "k, M and G stand for a thousand, a million and a billion."


def introduce(console: Console, results: Results, planned: Sequence[campaign.Run], left: int) -> None:
    """Print what will be measured; `left` of the planned runs are still to make, and earlier calls made the others."""
    for subject in results.subjects:
        console.print(comparing.about(subject))
    for line in comparing.topology(results.links):
        console.print(line)
    devices = f"{len(results.devices)} x {results.devices[0]}"
    console.print(f"{len(planned)} measurements on {devices}, {left} of them still to make")
    for mode, meaning in comparing.MODES.items():
        if left and any(run.mode == mode for run in planned):
            console.print(f"{mode}: {meaning}")


def show_run(console: Console, measurements: Sequence[Measurement]) -> None:
    """Print a line for each measurement of a run: the workload, its GPUs, and its samples per second or failure."""
    for measured in measurements:
        gpus = f"{','.join(map(str, measured.gpus))}{comparing.over_route(measured.route)}"
        speed = f"{comparing.number(rate(measured))} samples/s"
        outcome = f"{measured.failure}: {measured.detail}" if measured.failure else speed
        console.print(f"  {comparing.workload_of(measured)} {measured.mode} on {gpus}: {outcome}")


def show_scaling(console: Console, results: Results) -> None:
    """Print the scaling tables of each workload, the links, and what they mean."""
    rows = table(results)
    if not rows:
        return
    console.print(SHORT_NUMBERS)
    for subject in results.subjects:
        of_subject = [row for row in rows if row.workload == subject.name]
        if not of_subject:
            continue
        console.print(f"{subject.name}, size in {subject.unit}" if subject.unit else subject.name)
        tables = [_speeds(of_subject), _steps(of_subject)]
        if with_losses := [row for row in of_subject if row.losses]:
            tables.append(_losses(with_losses))
        print_tables(console, *tables)
    if links := link_table(results):
        shown = Table("all-reduce", "GPUs", "route", "µs", "GB/s per GPU", box=box.SIMPLE)
        for link in links:
            cells = (f"{link.size_bytes:,} bytes", str(link.gpus), link.route, comparing.number(link.time_us))
            shown.add_row(*cells, f"{link.bus_gb_per_s:.3g}")
        print_tables(console, shown)
    for line in comparing.scaling_sentences(results, rows):
        console.print(line)


def show_comparison(console: Console, rows: Sequence[comparing.MachineRow]) -> None:
    """Print a table for each workload, with the rows of all machines."""
    console.print(SHORT_NUMBERS)
    for (workload, unit), of_workload in grouped(rows, lambda row: (row.row.workload, row.row.unit)).items():
        console.print(f"{workload}, size in {unit}" if unit else workload)
        shown = Table("machine", *_ROW_HEADS, "samples/s", "speed-up", box=box.SIMPLE)
        for row in of_workload:
            cells = [*_row_cells(row.row), comparing.short(row.row.samples_per_s), comparing.number(row.row.speed_up)]
            shown.add_row(row.machine, *cells)
        print_tables(console, shown)


_ROW_HEADS = ("size", "scaling", "GPUs", "route")
"""The headings of the first columns, which say what a row has measured."""


def _row_cells(row: ScalingRow) -> tuple[str, ...]:
    """Return the cells below `_ROW_HEADS`."""
    return ("" if row.size is None else f"{row.size:,}", row.scaling, str(row.gpus), row.route or "")


def _speeds(rows: Iterable[ScalingRow]) -> Table:
    """Return a table of samples per second, speed-up and efficiency."""
    shown = Table(*_ROW_HEADS, "samples/s", "speed-up", "efficiency", box=box.SIMPLE)
    for row in rows:
        cells = [*_row_cells(row), comparing.short(row.samples_per_s)]
        if row.scaling != "single":  # a single device has nothing to be compared with
            cells += [comparing.number(row.speed_up), f"{row.efficiency_pct.value:.0f} %"]
        shown.add_row(*cells)
    return shown


def _steps(rows: Iterable[ScalingRow]) -> Table:
    """Return a table of the time of a step, and of how busy and how full the devices were."""
    shown = Table(*_ROW_HEADS, "ms per step", "util %", "SM %", "GiB", box=box.SIMPLE)
    for row in rows:
        peak_mib = of_known(max, (device.mem_peak_mib for device in row.devices))
        busy_pct = [
            of_known(fmean, (getattr(device, name) for device in row.devices))
            for name in ("util_mean_pct", "sm_mean_pct")
        ]
        shares = ["" if percent is None else f"{percent:.0f}" for percent in busy_pct]
        gib = "" if peak_mib is None else f"{peak_mib / MIB_PER_GIB:.1f}"
        shown.add_row(*_row_cells(row), comparing.number(row.step_ms), *shares, gib)
    return shown


def _losses(rows: Iterable[ScalingRow]) -> Table:
    """Return a table of where the time of a step is lost."""
    shown = Table(*_ROW_HEADS, "lost of a step, ms", box=box.SIMPLE)
    for row in rows:
        shown.add_row(*_row_cells(row), ", ".join(f"{name} {loss.value:.3g}" for name, loss in row.losses.items()))
    return shown


Workloads = Annotated[
    list[str] | None, typer.Argument(help=f"Built-in workloads: {', '.join(NAMES)}; default: all of them.")
]
Counts = Annotated[
    str | None, typer.Option("--counts", help="Numbers of GPUs, such as 1,2; default: 1,2,4,8 as far as visible.")
]
Sizes = Annotated[
    str | None, typer.Option(help="Sizes of the one workload, such as 256,512; of a study: values of num_envs.")
]
Cards = Annotated[str | None, options.devices_option("auto, all that there are")]
Seconds = Annotated[float, number_option("--seconds", 0.5, "The window of each measurement of a built-in workload.")]
Out = Annotated[
    Path | None,
    typer.Option(
        dir_okay=False, help="The file of results, to begin or to go on with; default: a new one in runs/scale."
    ),
]


def scale(
    workloads: Workloads = None,
    study: Annotated[str | None, options.STUDY] = None,
    cases: Cases = None,
    settings: Settings = None,
    sizes: Sizes = None,
    gpus: Counts = None,
    devices: Cards = None,
    launcher: options.Launcher = "local",
    seconds: Seconds = 3.0,
    out: Out = None,
    runs: options.Runs = options.RUNS,
) -> None:
    """Measure one GPU and several, alone and together, over each route; say how much is lost and where.

    With --study, the first case of the study is measured in place of the built-in workloads.

    Example: tuner scale --counts 1,2
    """
    console = options.open_console()
    chosen_sizes = None if sizes is None else _numbers(sizes, "--sizes")
    if study and workloads:
        raise StudyError(f"--study {study} names a trainer of its own; leave out {', '.join(workloads)}")
    if launcher == "slurm":
        job_options = {"cases": cases, "set": settings, "sizes": sizes, "counts": gpus, "devices": devices}
        _submit(console, study, runs, {**job_options, "out": out and out.resolve()})
        return
    bench = open_workbench(study, devices=devices, runs=runs) if study else None
    nodes = bench.spec.slurm.nodes if bench else 1
    over_nodes = nodes > 1
    source = bench.source if bench and over_nodes else open_devices(devices or "auto")
    per_node = len(source.devices) // nodes if over_nodes else None  # None: all devices are of this machine
    counts = _counts(gpus, source, per_node)
    if bench:
        check_program(bench.trainer)
        chosen = chosen_cases(bench, cases)[0]
        subjects = [subject_of_study(bench, chosen, first_config(bench, chosen, settings or []), chosen_sizes)]
    else:
        subjects = _built_in(workloads or NAMES, chosen_sizes, source, seconds)
    # the runs, without those that an earlier call has measured already
    results = _empty_results(source, subjects, over_nodes=over_nodes)
    path = out or runs / "scale" / f"{results.written_at.replace(':', '-')}.json"
    results = campaign.earlier_results(path, results)
    variables = campaign.variables_of_trainers(bench)
    routes = campaign.routes(results.links, on_gpu=results.on_gpu, over_nodes=over_nodes, variables=variables)
    planned = list(campaign.scaling_runs(subjects, counts, routes, beside=not over_nodes))
    left = campaign.missing_runs(planned, results)
    introduce(console, results, planned, len(left))
    if limits := campaign.nccl_limits(variables) if results.on_gpu else "":
        console.print(f"{limits}: only routes that NCCL may then take are measured")
    with interruptible(console) as interrupted:
        measuring = campaign.Measuring(
            source.part if isinstance(source, Nodes) else partial(part_of, source),
            per_node=per_node,
            open_prober=lambda part: prober_on(part, console.print),
            folder=(runs / "scale" / path.stem).resolve(),
            interrupted=interrupted.is_set,
        )
        show = partial(show_run, console)
        with closing(measuring):
            results = campaign.measure_all(measuring, left, results, path=path, show=show)
    show_scaling(console, results)
    if results.points:
        console.print(f"wrote {path}")
    if interrupted.is_set():
        console.print(f"interrupted; rerun with --out {path} to resume")
        raise typer.Exit(EXIT_INTERRUPTED)
    console.print(f"`tuner compare {path}` says whether more devices are worth it")


def _submit(console: Console, study: str | None, runs: Path, job_options: Mapping[str, object]) -> None:
    """Submit a job that measures a case of a study; `job_options` are options of `tuner scale`.

    Raises StudyError without a study, and the errors of `submit`.
    """
    if study is None:
        raise StudyError("--launcher slurm needs --study: its `slurm` says what the job asks for")
    words = ["scale", *options.as_words({"study": study, **job_options, "runs": runs.resolve()})]
    spec = options.load_shown(console, study)
    folder = (runs / spec.name).resolve()
    (job,) = submit(spec, resources(spec, str(job_options["devices"] or "") or None), folder, words)
    console.print(f"submitted job {job}; its log in {folder / 'slurm'} shows the results")


def _built_in(
    names: Sequence[str], sizes: tuple[int, ...] | None, source: DeviceSource, seconds: float
) -> list[campaign.MeasuredSubject]:
    """Return the named workloads, each once, with `sizes` or with their usual ones; a measurement takes `seconds`.

    Raises StudyError for an unknown name, and for sizes where there are several workloads.
    """
    if sizes and len(names) > 1:
        raise StudyError(f"--sizes belong to one workload; name one of {', '.join(names)}")
    gpu = source.devices[0].is_gpu
    return [built_in_subject(name, gpu=gpu, window_s=seconds, sizes=sizes) for name in dict.fromkeys(names)]


def _empty_results(source: DeviceSource, subjects: Sequence[campaign.MeasuredSubject], *, over_nodes: bool) -> Results:
    """Return the results of a new call, which say what is measured on which machine, without a measurement yet."""
    return Results(
        written_at=datetime.now(UTC).isoformat(timespec="seconds"),
        tuner=__version__,
        machine=describe_machine(source),
        devices=tuple(device.model for device in source.devices),
        on_gpu=source.devices[0].is_gpu,
        links=() if over_nodes else links(source.devices),
        subjects=tuple(measured.subject for measured in subjects),
    )


def _counts(gpus: str | None, source: DeviceSource, per_node: int | None) -> tuple[int, ...]:
    """Return the numbers of devices to measure: those of the option `--counts` (`gpus`), or the usual ones for None.

    Raises DeviceError where there are fewer devices, and where a number does not fill nodes of `per_node` cards.
    """
    visible = len(source.devices)
    wanted = None if gpus is None else _numbers(gpus, "--counts")
    if wanted and max(wanted) > visible:
        devices = number_of(visible, "GPU" if source.devices[0].is_gpu else "CPU rank")
        raise DeviceError(f"--counts {gpus} asks for {max(wanted)}, and tuner sees {devices}; see --devices")
    counts = campaign.counts(wanted, visible)
    for count in counts:
        campaign.nodes_of(count, per_node)  # called for its DeviceError: a number that no whole nodes have
    return counts


def _numbers(text: str, option: str) -> tuple[int, ...]:
    """Return the whole numbers of an option in ascending order, each once. Raises StudyError for anything else."""
    parts = [part.strip() for part in text.split(",")]
    # 12 digits are more than any size has; thousands of digits cannot even be converted
    if not all(part.isdecimal() and len(part) <= 12 and int(part) > 0 for part in parts):
        raise StudyError(f"{option} {text[:40]!r}: write whole numbers of at least 1, separated by commas")
    return tuple(sorted({int(part) for part in parts}))


Files = Annotated[list[Path], typer.Argument(dir_okay=False, help="Files that `tuner scale --out` has written.")]


def compare(files: Files, as_json: options.Json = False) -> None:
    """Compare machines: speed-up, efficiency, and what to choose.

    Example: tuner compare old.json new.json
    """
    console = options.open_console(stderr=as_json)
    rows = comparing.all_rows(_machines(files))
    if not rows:
        raise TunerError(
            f"{', '.join(map(str, files))}: no baseline of a single device, so there is nothing to compare; "
            "`tuner scale --counts 1,2` measures one, too"
        )
    sentences = list(comparing.recommendation(rows))
    if as_json:
        options.print_document({"rows": rows, "sentences": sentences})
        return
    show_comparison(console, rows)
    for line in sentences:
        console.print(line)


def _machines(files: list[Path]) -> dict[str, Results]:
    """Return the name of each machine → its results. The name is that of the file, without its ending.

    Where several files have this name, their folders are put before it. Raises TunerError for a file that is named
    twice, and the errors of `read`.
    """
    stems = [file.stem for file in files]
    names = [file.stem if stems.count(file.stem) == 1 else f"{file.parent.name}/{file.stem}" for file in files]
    if len(set(names)) < len(names):
        raise TunerError(f"{', '.join(map(str, files))}: a file is named twice; name each result once")
    return {name: read(file) for name, file in zip(names, files, strict=True)}


StepsDone = Annotated[int, typer.Option(min=0, help="Steps that the training on one card has made.")]
StepsLeft = Annotated[int, typer.Option(min=1, help="Steps that it still has to make on one card.")]
StepSeconds = Annotated[
    float | None, number_option("--step-seconds", 1e-6, "Seconds a step on one card; needed without --log.")
]
OutputLog = Annotated[
    Path | None,
    typer.Option(exists=True, dir_okay=False, help="The training's output on one card, whose bar shows it/s or s/it."),
]
CardCount = Annotated[int, typer.Option("--cards", min=2, help="Cards of the job that may go on with it.")]
CardsSeconds = Annotated[float, number_option("--cards-step-seconds", 1e-6, "Seconds a step on all cards.")]
BatchPerCard = Annotated[
    bool, typer.Option("--batch-per-card", help="Each card has the batch of one: a step has so many times the samples.")
]
QueueHours = Annotated[float, number_option("--queue-hours", 0, "Hours until the job starts.")]
StartUp = Annotated[float, number_option("--start-up-seconds", 0, "From its start to a step.")]
CheckpointSteps = Annotated[int, typer.Option(min=1, help="A checkpoint is written after each so many steps.")]


def decide(
    steps_left: StepsLeft,
    cards: CardCount,
    cards_step_seconds: CardsSeconds,
    steps_done: StepsDone = 0,
    step_seconds: StepSeconds = None,
    log: OutputLog = None,
    batch_per_card: BatchPerCard = False,
    queue_hours: QueueHours = 0.0,
    start_up_seconds: StartUp = 0.0,
    checkpoint_steps: CheckpointSteps = 1,
) -> None:
    """Say whether a training on one card is worth a move to a job on several, and until when.

    Example: tuner decide --steps-left 50000 --cards 4 --step-seconds 0.5 --cards-step-seconds 0.2
    """
    step_s = printed_step_s(output_lines(log)) if log and step_seconds is None else step_seconds
    if step_s is None:
        shown = f"{log} shows no it/s or s/it" if log else "no step is known"
        raise StudyError(f"{shown}; say how long a step takes on one card: --step-seconds")
    batches_per_step = cards if batch_per_card else 1  # on all cards together
    move = Move(
        steps_done=steps_done,
        steps_left=steps_left,
        step_s=step_s,
        cards=cards,
        speed_up=step_s / cards_step_seconds * batches_per_step,
        queue_h=queue_hours,
        start_up_s=start_up_seconds,
        checkpoint_steps=checkpoint_steps,
    )
    console = options.open_console()
    for line in advice(move):
        console.print(line)
