"""What commands that work on cases share: which cases and which config, a job that ends on Ctrl-C, the exit code."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Annotated, NamedTuple

import typer
from rich.console import Console

from tuner.cli.hints import introduction, what_to_repair
from tuner.cli.options import fall_silent, not_empty
from tuner.cli.screen import Screen, open_screen
from tuner.cli.show import open_reader
from tuner.errors import EmptyStoreError, StudyError, TunerError
from tuner.export import CaseSummary, CaseView, StudyReader, connect, prepare_study
from tuner.probe import LineSplitter, Prober
from tuner.records.urls import checked_url, database_url
from tuner.running.events import CaseOutcome, Event, ProbeEnded
from tuner.running.job import Job, Workbench, chosen_cases, open_job, open_workbench
from tuner.running.kept_file import keep_study_file
from tuner.running.prober import open_prober
from tuner.search.strategies import calibration_configs
from tuner.study import Case, Config, Parameter, Space, Value, literal_line, load, open_regular, value_text
from tuner.trainers.registry import open_trainer


def output_lines(log: Path) -> Iterator[str]:
    """Yield the lines of a training's output, however long the file and its lines are. Raises StudyError."""
    splitter = LineSplitter()
    try:
        with open_regular(log) as file:
            while chunk := file.read(1 << 20):
                yield from splitter.feed(chunk)
    except OSError as error:
        raise StudyError(f"{log} cannot be read: {error.strerror}; name the file with the training's output") from error
    yield from splitter.close()


def complete_cases(context: typer.Context, incomplete: str) -> list[str]:
    """Return what Tab offers after `--cases`: the trainable cases of the study that `--study` names on the line.

    Globs are separated by commas. So each case stands behind what the user has typed up to the last comma.
    """
    before, comma, begun = incomplete.rpartition(",")
    study = context.params.get("study")
    try:
        cases = open_trainer(load(study, to_show=True).trainer).cases() if study else []
    except (TunerError, OSError):  # a message would stand amid the line that the user types
        return []
    return [f"{before}{comma}{case.name}" for case in cases if case.trainable and case.name.startswith(begun)]


Cases = Annotated[
    list[str] | None,
    typer.Option(
        callback=not_empty,
        autocompletion=complete_cases,
        help="Globs of cases: separated by commas, or repeat the option; default: the study's.",
    ),
]


def one_case(bench: Workbench, cases: Sequence[str] | None, work: str = "this") -> Case:
    """Return the case that `cases` name, or the study's only case.

    Raises StudyError where several are meant; the message calls the command's work `work`, such as "a race".
    """
    chosen = chosen_cases(bench, cases)
    if len(chosen) != 1:
        known = ", ".join(case.name for case in chosen)
        named = " ".join(cases or ()) or "the study"
        raise StudyError(f"{work} is about one case, and {named} means {known}; name one with --cases")
    return chosen[0]


class SearchedCase(NamedTuple):
    """A case that has a search."""

    bench: Workbench
    case: Case
    url: str
    """That of the database, with the password."""
    view: CaseView


def searched_case(
    study: str, cases: Sequence[str] | None, work: str, *, devices: str | None, storage: str | None, runs: Path
) -> SearchedCase:
    """Return a study's workbench, the case that `cases` name, the URL of its database, and the results of the case.

    Raises StudyError where `cases` name several cases, as the command's `work` is about one, and where the case was not
    searched yet.
    """
    bench = open_workbench(study, devices=devices, runs=runs)
    case, url = one_case(bench, cases, work), database_url(storage, bench.folder)
    view = open_reader(url, bench.spec.name).case(case.name)
    if view is None:
        search = literal_line(["tuner", "optimize", "--study", study, "--cases", case.name])
        raise StudyError(f"{case.name} has no search yet: run `{search}`")
    return SearchedCase(bench, case, url, view)


def need_same_devices(bench: Workbench, view: CaseView) -> None:
    """Raise StudyError where a case was measured on other devices than the bench has, by model or number."""
    stored, here = [name.partition(" ")[2] for name in view.record.devices], [device.model for device in bench.devices]
    if stored and stored != here:
        raise StudyError(
            f"{view.name} was measured on {', '.join(stored)}, so speeds on {', '.join(here)} do not compare; name "
            "such devices with --devices, or search anew in a study with another name"
        )


Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="NAME=VALUE, once per parameter; others have their values of the first probe."),
]


def first_config(bench: Workbench, case: Case, settings: Sequence[str]) -> Config:
    """Return the config that a study probes first, changed by settings such as `num_envs=64`.

    A search with a ladder of `auto` begins with a config that shows memory, any other with its default.
    Raises StudyError for a setting outside the space.
    """
    space = bench.space_for(case)
    configs = calibration_configs(space) if bench.needs_calibration(case) else space.start_configs(1)
    return config_with(space, configs[0], settings)


def config_with(space: Space, first: Config, settings: Sequence[str]) -> Config:
    """Return the config `first`, changed by settings. A parameter that only they bring into use has its first value.

    Raises StudyError for a setting outside the space, and for a parameter that is set twice.
    """
    wanted: dict[str, Value] = {}
    for text in settings:
        name, equals, given = text.partition("=")
        if not equals:
            raise StudyError(f"--set {text}: write {text}=VALUE")
        value = _value_of(name, given, space)
        if name in wanted:
            raise StudyError(f"--set {name} is given more than once; name one value")
        wanted[name] = value

    def pick(parameter: Parameter) -> Value:
        """Return a parameter's value: that of the settings, or else of the config `first`, or else its first value."""
        return wanted.get(parameter.name, first.get(parameter.name, parameter.values[0]))

    config = space.config_of(pick)
    for parameter in space.parameters:
        if parameter.name in wanted.keys() - config.keys():  # the config does not use what was set
            needed = " and ".join(map(str, parameter.conditions))
            raise StudyError(f"--set {parameter.name}: it is used only with {needed}; set that too")
    return config


def _value_of(name: str, given: str, space: Space) -> Value:
    """Return the value of the parameter `name` that the text `given` names. Raises StudyError where there is none."""
    for value in space.values(name):  # none for an unknown name
        if _names_value(given, value):
            return value
    if name not in space.names:
        known = ", ".join(space.names)
        raise StudyError(f"--set {name}={given}: no parameter {name!r} is searched; name one of {known}")
    raise StudyError(f"--set {name}={given}: {name} must be one of: {', '.join(map(value_text, space.values(name)))}")


def _names_value(text: str, value: Value) -> bool:
    """Return whether a text names a value; a number may be written in any form, such as 1e-4, and `True` as `true`."""
    if isinstance(value, bool):
        return value_text(value) == text.lower()
    if isinstance(value, str):
        return value == text
    try:
        return float(text) == value
    except ValueError:
        return False


def with_stored_rungs(bench: Workbench, url: str) -> Workbench:
    """Return a workbench with the rungs that earlier probes have given to an `auto` ladder, for each case.

    Without them, a config would have to wait for new probes. The workbench stays as it is where the database does not
    contain the study.
    """
    rungs = dict(bench.rungs)
    with suppress(EmptyStoreError):  # the study has not begun
        for case in StudyReader(connect(url), bench.stored_name).cases:
            if case.attributes.rungs:
                rungs[case.name] = case.attributes.rungs
    return replace(bench, rungs=rungs)


EXIT_WITHOUT_BEST = 1
"""The exit code of a command that has found no best config for any of its cases."""
EXIT_INTERRUPTED = 130
"""The exit code after Ctrl-C: 128 plus the number of SIGINT, as shells report it."""


@contextmanager
def job_on_console(
    console: Console,
    bench: Workbench,
    cases: Sequence[Case],
    url: str,
    prober: Prober | None = None,
    *,
    show: Callable[[], object] = lambda: None,
    screen: Screen | None = None,
    led: bool = False,
) -> Iterator[Job]:
    """Yield the job that runs a study's probes, after printing what it will do; close everything afterwards.

    Args:
        console: where the lines appear.
        bench: the study with its trainer and devices.
        cases: the cases that are worked on.
        url: the URL of the database.
        prober: runs the probes; None for that of the bench.
        show: shows and writes what was measured. It is called only when an error ends the job after a probe; otherwise
            the caller shows the results.
        screen: shows the progress; None for the console.
        led: whether another process has started this one as a worker: then it ends when its standard input closes.

    Raises:
        OutputError: where the study's folder cannot be used.
        StoreError: where the database cannot be used.
    """
    prober = prober or open_prober(bench, console.print)
    prepare_study(bench.folder)
    checked_url(url)  # called for its StoreError
    introduction(console, bench, cases, url)
    screen = screen or open_screen(console)
    has_measured = False

    def listen(event: Event) -> None:
        """Show an event, and note whether a probe has ended."""
        nonlocal has_measured
        has_measured = has_measured or isinstance(event, ProbeEnded)
        screen.show(event)

    try:
        with (
            interruptible(console, led=led) as interrupted,
            closing(screen),
            open_job(
                bench, url, prober, listener=listen, interrupted=interrupted.is_set, every_s=screen.every_s
            ) as job,
        ):
            keep_study_file(bench)
            listen(bench.started(cases))
            yield job
    except TunerError:
        if has_measured:
            with suppress(TunerError):  # the error that has ended the job is more important
                show()
        raise


def exit_by_outcomes(outcomes: Sequence[CaseOutcome], rows: Iterable[CaseSummary] = (), *, interrupted: bool) -> None:
    """End the command with the exit code that its outcomes call for; return where that is 0.

    It is 130 after Ctrl-C, 2 where a case stopped early, and 1 for a search without a best config in any of its cases.
    `rows` are the summaries of the study's cases. Raises TunerError that says what to repair, for exit code 2.
    """
    if interrupted:
        raise typer.Exit(EXIT_INTERRUPTED)
    if repairs := [text for outcome in outcomes if (text := what_to_repair(outcome))]:
        raise TunerError("\n".join(repairs))
    worked_on = {outcome.case.name for outcome in outcomes}
    own_rows = [row for row in rows if row.case in worked_on]
    # a case without any ended trial has neither
    if any(row.has_none_eligible for row in own_rows) and not any(row.best for row in own_rows):
        raise typer.Exit(EXIT_WITHOUT_BEST)


@contextmanager
def interruptible(console: Console, *, led: bool = False) -> Iterator[threading.Event]:
    """Yield an event that is set when the command should stop: by Ctrl-C, TERM or the loss of the terminal.

    A second Ctrl-C ends the command at once. A worker that another process has started (`led`) should also stop when
    its standard input closes, because that process has died.
    """
    stop_requested = threading.Event()
    if led:
        threading.Thread(target=_set_when_closed, args=(sys.stdin.fileno(), stop_requested), daemon=True).start()

    def ask(number: int, frame: FrameType | None) -> None:
        """Handle the first signal: set the event, and let Ctrl-C end the program from now on."""
        stop_requested.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)  # the next Ctrl-C raises KeyboardInterrupt
        if number == signal.SIGHUP:
            fall_silent(sys.stdout, sys.stderr)  # writing to a terminal that is gone raises an error
        console.print("stopping the probe; all results are kept; rerun to resume (Ctrl-C again stops at once)")

    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # `nohup` ignores SIGHUP
        numbers.append(signal.SIGHUP)
    handlers = {number: signal.signal(number, ask) for number in numbers}
    try:
        yield stop_requested
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _set_when_closed(descriptor: int, stop_requested: threading.Event) -> None:
    """Wait until the other end of a descriptor is closed, and set the event: the process that leads has died."""
    while os.read(descriptor, 1024):  # it waits; nothing to read means that the other end is closed
        pass
    stop_requested.set()
