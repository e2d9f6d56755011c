"""`tuner init`, `tuner try` and `tuner doctor`: before a search, a study file, one probe, and a look at the machine."""

import shlex
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple, get_args

import typer
from rich.console import Console

from tuner import probe
from tuner.cli import options
from tuner.cli.hints import cut_ladders
from tuner.cli.work import EXIT_INTERRUPTED, Cases, Settings, first_config, interruptible, output_lines
from tuner.devices.found import open_devices
from tuner.drafting.making import Wanted, make_study
from tuner.errors import StudyError, TunerError
from tuner.export import in_words, prepare_results, with_error
from tuner.probe import number_of
from tuner.records.urls import database_url
from tuner.running.job import Workbench, chosen_cases, open_workbench
from tuner.running.prober import open_prober, run_in
from tuner.study import Case, Config, LaunchName, StudySpec, key_warnings, literal_line, load, shell_join
from tuner.tools.checkup import Finding, Severity
from tuner.tools.checkup.checks import check_up, check_up_machine, opened_devices, unchecked
from tuner.trainers.typed_command import typed_command

Command = Annotated[list[str] | None, typer.Argument(help="The command line to tune, after `--`.", show_default=False)]
Launch = Annotated[
    list[str] | None,
    typer.Option(
        "--launch",
        help=f"A ready-made space: {', '.join(get_args(LaunchName))}. Repeat for more. The command is not watched.",
    ),
]
OnDevices = Annotated[str | None, options.devices_option("as many as the command has ranks")]
Searches = Annotated[
    list[str] | None,
    typer.Option(
        "--search",
        help="A flag and its values: batch_size=32,64 or num_envs=256..65536. Repeat for more. "
        "Default: at a terminal, you are asked.",
    ),
]
Name = Annotated[str | None, typer.Option(help="The name of the study; default: that of the script.")]
OutFile = Annotated[Path | None, typer.Option("--out", dir_okay=False, help="The file; default: studies/NAME.yaml.")]
Seconds = Annotated[
    float, options.number_option("--seconds", 1, "How long to watch the command; longer while torch makes no step.")
]
Python = Annotated[
    str | None, typer.Option(help="The Python of the trainer's environment; default: the command's own.")
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite the file.")]
FreeBatch = Annotated[
    bool, typer.Option("--free-batch", help="Let batch and environments vary, which changes what is learnt.")
]
FreePrecision = Annotated[
    bool, typer.Option("--free-precision", help="Let the precision vary, which may change what is learnt.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Take what is proposed, without a question.")]


def init(
    command: Command = None,
    search: Searches = None,
    launch: Launch = None,
    name: Name = None,
    out: OutFile = None,
    devices: OnDevices = None,
    python: Python = None,
    seconds: Seconds = 60.0,
    free_batch: FreeBatch = False,
    free_precision: FreePrecision = False,
    yes: Yes = False,
    force: Force = False,
    runs: options.Runs = options.RUNS,
) -> None:
    """Make a study file: run a command once for up to a minute, and watch it.

    Example: tuner init -- python train.py --batch-size 32
    """
    wanted, console = Wanted.of(locals()), options.open_console()
    if not command:
        raise StudyError("name a command, as in `tuner init -- python train.py --batch-size 32`")
    study = study_of_command(console, command, wanted)
    console.print(f"next: `tuner try --study {shlex.quote(study)}` measures one config")


def study_of_command(console: Console, command: list[str], wanted: Wanted, *, to_search: bool = False) -> str:
    """Make the study of a command, and return how other commands name it; at a terminal, ask what to search.

    `to_search`: whether a search follows. Raises the errors of `make_study`.
    """
    ask = partial(_answer, width=console.width) if console.is_terminal and sys.stdin.isatty() else None
    return make_study(command, wanted, console.print, warn=options.say, ask=ask, to_search=to_search)


def _answer(prompt: str, width: int) -> str:
    """Show a question, wrapped between words, and return the line that a person types."""
    try:
        return input(f"{options.wrapped(prompt.strip(), width - len(' '))} ")
    except EOFError as end:
        raise typer.Abort from end


def _lines_of_progress(printed: Iterable[str], plan: probe.ProbePlan) -> Iterator[str]:
    """Yield the lines of a probe's output that match the plan's patterns for progress, such as that of an iteration."""
    reader = probe.ProgressReader(plan.progress, 0.0)
    for text in printed:
        before = reader.matched
        reader.feed(probe.OutputLine(t_s=0.0, text=text))
        if reader.matched > before:
            yield text


def advice(spec: StudySpec, plan: probe.ProbePlan, result: probe.ProbeResult, cards: int) -> Iterator[str]:
    """Yield what to change in a study file, by what one probe of it has measured on a machine with `cards` GPUs.

    A standard error is too large from twice the study's target error on.
    """
    limits = spec.probe
    has_note_about_samples = any(probe.NO_RATE in note for note in result.notes)  # every note is shown anyway
    if result.samples_per_s is None and not has_note_about_samples:
        how = "add `count: inside` and" if plan.is_counted else "add the group (?P<samples>…) to `progress`, or"
        yield f"no samples were counted, so samples/s are unknown: {how} `samples_per_iteration` to the options"
    if len(plan.slot.devices) == 1 < cards:
        yield f"1 of {cards} cards was used: if the command can start more ranks, name `devices` and use {{ranks}}"
    for name in spec.objectives:
        number, error = probe.value(result, name), probe.error(result, name)
        if number is None:
            yield f"{name} was not measured: name another `objective`"
        elif error is None:
            yield f"{name} has no error: raise probe.window_seconds above {limits.window_seconds:g}"
        elif error > 2 * probe.target_error(result, name, limits.target_error_pct):
            yield f"the error of {name} is large: raise probe.iterations or probe.window_seconds"
    longest_s = limits.max_start_seconds
    if result.start_up_s is not None and result.start_up_s > longest_s / 2:  # larger configs may start later
        yield f"the start takes {result.start_up_s:.0f} s of probe.max_start_seconds {longest_s:g}: raise it"


def attempt(
    study: options.Study,
    cases: Cases = None,
    settings: Settings = None,
    devices: options.Devices = None,
    runs: options.Runs = options.RUNS,
) -> None:
    """Probe one config of the first case and show what was counted and measured. The study's results stay as they are.

    Example: tuner try --study train --set num_workers=4
    """
    console = options.open_console()
    bench = open_workbench(study, devices=devices, runs=runs)
    chosen = chosen_cases(bench, cases)[0]
    config = first_config(bench, chosen, settings or [])
    for line in (*options.fallback_lines(bench.spec, study), *key_warnings(bench.spec), *cut_ladders(bench, [chosen])):
        console.print(line)
    prepare_results(bench.folder.parent)
    plan, result = _probe(console, bench, chosen, config)
    if result.failure and result.failure.kind is probe.FailureKind.INTERRUPTED:
        raise typer.Exit(EXIT_INTERRUPTED)
    _show_probe(console, bench, plan, result)
    if result.failure:
        kind, detail = result.failure.kind, result.failure.detail
        remedy = kind.remedy or f"read {plan.slot.console}"
        raise TunerError(f"{kind}: {detail}; {remedy}")
    cards = len(open_devices("auto").devices) if bench.kind == "gpu" else 0
    for line in advice(bench.spec_for(chosen), plan, result, cards):
        console.print(f"to change: {line}")
    console.print(f"next: `{literal_line(['tuner', 'optimize', '--study', study])}` searches")


class _Probed(NamedTuple):
    """A probe that has ended."""

    plan: probe.ProbePlan
    result: probe.ProbeResult


def _probe(console: Console, bench: Workbench, case: Case, config: Config) -> _Probed:
    """Print the command of a config, and return what its probe gave until it ended or Ctrl-C interrupted it."""

    def run(plan: probe.ProbePlan) -> _Probed:
        """Print the command of a plan, run it, and return what it gave."""
        console.print(f"case {case.name}: {in_words(config)}")
        options.print_to_copy(f"command: {shell_join(plan.argv)}", console)
        with interruptible(console) as stop_requested, closing(open_prober(bench, console.print)) as prober:

            def stop(_: probe.ProbeResult | None) -> probe.Answer:
                """Return whether the probe goes on: it does until Ctrl-C."""
                return probe.Answer(probe.Next.INTERRUPTED if stop_requested.is_set() else probe.Next.GO)

            result = prober(plan, stop)
        return _Probed(plan, probe.without_rough_speed(result, bench.spec_for(case).needed))

    return run_in(bench.slot(case, f"try/{case.name}", config), partial(bench.trainer.plan, case, config), run)


def _show_probe(console: Console, bench: Workbench, plan: probe.ProbePlan, result: probe.ProbeResult) -> None:
    """Print what a probe has printed, counted and measured."""
    printed = list(output_lines(plan.slot.console)) if plan.slot.console.is_file() else []
    matches = list(_lines_of_progress(printed, plan))
    counter = "iterations are counted inside the training" if plan.is_counted else "the trainer reports iterations"
    if plan.progress.patterns:
        counter = f"{len(matches)} matched `progress`"
    console.print(f"output: {probe.number_of(len(printed), 'line')}, {counter}; {plan.slot.console}")
    for line in (matches or printed)[-3:]:
        console.print(f"  {line.strip()[-140:]}")
    window = "" if result.window_s is None else f" in a window of {probe.duration(result.window_s)}"
    count = round(result.numbered_iterations or result.iterations)
    console.print(f"iterations: {count}{window}, the whole probe {probe.duration(result.total_s)}")
    if result.start_up_s is not None:
        console.print(f"  the first after {probe.duration(result.start_up_s)}")
    if result.iterations_per_s:
        console.print(f"  {1 / result.iterations_per_s:.3g} s each")
    for used, device in zip(result.devices, bench.devices, strict=False):  # a failed probe may have none
        mean_pct, peak_mib = used.util_mean_pct, used.mem_peak_mib
        util = "utilisation unknown" if mean_pct is None else f"{with_error(mean_pct, used.util_se_pct)} %"
        memory = "" if peak_mib is None else f", at most {peak_mib:.0f} MiB"
        console.print(f"{device.label}: {util}{memory}")
    for name in dict.fromkeys((*bench.spec.objectives, "samples_per_s")):
        number = probe.value(result, name)
        value = "-" if number is None else with_error(number, probe.error(result, name))
        console.print(f"{name}: {value}")
    for note in result.notes:
        console.print(f"note: {note}")


def doctor(
    command: Command = None,
    study: Annotated[str | None, options.STUDY] = None,
    devices: options.Devices = None,
    storage: options.Storage = None,
    runs: options.Runs = options.RUNS,
    as_json: options.Json = False,
) -> None:
    """Check this machine, and a study or a command if named; nothing is trained. Exit code 2 for a problem.

    Example: tuner doctor -- python train.py
    """
    if command and study:
        raise StudyError("name a --study or a command after `--`, not both")
    spec = load(study) if study else None
    console = options.open_console(stderr=as_json)
    with console.status("opening the devices"):
        source = opened_devices(spec.devices_for(devices) if spec else devices or "auto")
    if spec and study:
        url = database_url(storage, (runs / spec.name).resolve())
        checks = check_up(spec, source, requested=study, url=url, runs=runs)
        not_checked = ["whether a probe runs: `tuner try` starts one"]
    else:
        typed = typed_command(command) if command else None
        checks = check_up_machine(source, storage, runs, typed)
        not_checked = unchecked(source, storage, typed)
    if as_json:
        findings = list(checks)
        options.print_document({"study": spec and spec.name, "findings": findings, "not_checked": list(not_checked)})
    else:
        findings = _print_findings(console, checks)
        for text in not_checked:
            console.print(f"not checked: {text}")
    if problems := [f"{finding.subject}: {finding.text}" for finding in findings if finding.level is Severity.PROBLEM]:
        machine = "this machine or the command" if command else "this machine"
        about = f"study {spec.name}" if spec else machine
        raise TunerError("\n  ".join([f"{number_of(len(problems), 'problem')} with {about}", *problems]))


def _print_findings(console: Console, checks: Iterable[Finding]) -> list[Finding]:
    """Return the findings, after printing each as soon as it is known."""
    styles = {Severity.OK: "green", Severity.WARNING: "yellow", Severity.PROBLEM: "bold red"}
    findings: list[Finding] = []
    with console.status("checking"):  # the imports of a trainer can take a minute
        for finding in checks:
            findings.append(finding)
            console.print(f"{finding.level:8} {finding.subject}: {finding.text}", style=styles[finding.level])
    return findings
