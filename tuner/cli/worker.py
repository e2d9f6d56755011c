"""`tuner worker`, and the team of workers of `tuner optimize --workers`.

A worker is a process that probes on devices of its own. All workers of a study share its database.
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tuner.cli import work
from tuner.cli.hints import introduction
from tuner.cli.options import RUNS, STORAGE_VARIABLE, Devices, Hours, Runs, Storage, Study, as_words, open_console
from tuner.cli.screen import JsonScreen, Screen, open_screen
from tuner.devices.cards import disjoint_cores, near_cores
from tuner.devices.found import open_devices
from tuner.devices.nvml import Nvml
from tuner.errors import TunerError
from tuner.export import CaseSummary, prepare_study
from tuner.optimizing import Search, open_search
from tuner.probe import NVIDIA, MonotonicClock
from tuner.records.urls import database_url
from tuner.running.events import from_json, out_of_time
from tuner.running.loop import Budget
from tuner.running.workers import Exit, Line, WorkerPlan, WorkerTeam, device_groups
from tuner.store.database import Database
from tuner.study import load

Trials = Annotated[
    int | None, typer.Option("--n-trials", min=1, help="Finished trials per case; default: the study's.")
]
Replay = Annotated[
    Path | None, typer.Option(dir_okay=False, help="Probe a table of `tuner record` (.parquet), in simulated time.")
]


def devices_of_workers(
    study: str, devices: str | None, *, replay: Path | None, workers: int | None, per_trial: int | None
) -> list[str]:
    """Return the devices of each worker, as `--devices` names them; empty for a command that asks for no workers.

    Args:
        study: the study.
        devices: the devices that the command names; None for the study's.
        replay: a recorded table in place of devices; then each worker's devices are an empty text.
        workers: the number of workers; None beside `per_trial` for as many as the cards allow.
        per_trial: the cards of each worker; None for those that the study wants.

    Raises:
        StudyError: where the study cannot be used, or there are too few cards.
        DeviceError: where a card cannot be used.
    """
    if workers is None and per_trial is None:
        return []
    if replay:
        return [""] * (workers or 1)
    devices = load(study).devices_for(devices)
    cards_per_worker = ""
    if devices.startswith("auto"):  # `auto:2` wants two cards for each worker; the workers share all cards
        devices, _, cards_per_worker = devices.partition(":")
    cards = sum(device.is_gpu for device in open_devices(devices).devices)
    if cards_per_worker and cards and per_trial is None:
        per_trial = min(int(cards_per_worker), cards)
    return device_groups(devices, cards, workers=workers, per_trial=per_trial)


def run_team(
    console: Console,
    search: Search,
    url: str,
    groups: Sequence[str],
    *,
    screen: Screen | None,
    passed_on: Mapping[str, object],
    show: Callable[[], list[CaseSummary]],
) -> None:
    """Run one worker for each group of devices until all have ended; then show the study and end the command.

    Args:
        console: where lines appear.
        search: the study.
        url: the URL of its database.
        groups: the devices of each worker.
        screen: shows what the workers do; None for the console.
        passed_on: the options of each worker.
        show: shows the results of the study, and returns a summary of each case.

    Raises:
        TunerError: with the errors of workers that the user can fix.
    """
    bench = search.bench
    prepare_study(bench.folder)
    with closing(Database(url)):  # makes the schema, before several workers ask for it
        introduction(console, bench, search.cases, url, workers=len(groups))
    search.prober.close()  # each worker has its own
    plans = _worker_plans(url, groups, passed_on, pin=bench.kind == "gpu" and not search.simulated)
    screen = screen or open_screen(console)
    view = _TeamView(screen)
    with work.interruptible(console) as interrupted:
        team = WorkerTeam(plans)
        try:
            team.run(view.show, view.ended, interrupted.is_set)
        finally:
            screen.close()
            team.close()
    rows = [row for row in show() if row.case in {case.name for case in search.cases}]
    if interrupted.is_set():
        console.print("stopped early; rerun to resume")
        raise typer.Exit(work.EXIT_INTERRUPTED)
    if view.complaints:
        raise TunerError("\n".join(view.complaints))
    if not any(row.best for row in rows):
        raise typer.Exit(work.EXIT_WITHOUT_BEST)


def _worker_plans(url: str, groups: Sequence[str], passed_on: Mapping[str, object], *, pin: bool) -> list[WorkerPlan]:
    """Return how to start a worker for each group of devices; with `pin`, each on the CPU cores near its cards.

    `--led` makes a worker end together with this process.
    """
    cores_of_groups = _cores(groups) if pin else [[] for _ in groups]
    plans: list[WorkerPlan] = []
    for number, (group, cores) in enumerate(zip(groups, cores_of_groups, strict=True), start=1):
        name = f"worker {number} ({group})" if group else f"worker {number}"
        words = as_words({**passed_on, "devices": group, "cores": ",".join(map(str, cores))})
        argv = [sys.executable, "-P", "-m", "tuner", "worker", "--led", *words]  # -P: no file here replaces a module
        plans.append(WorkerPlan(name=name, argv=argv, env={STORAGE_VARIABLE: url}))
    return plans


def _cores(groups: Sequence[str]) -> list[list[int]]:
    """Return the CPU cores of each worker, near its cards. Raises DeviceError when a card does not answer.

    Only NVML says which cores are near. So no worker gets cores of its own where one of them has no NVIDIA card.
    """
    open_groups = [open_devices(group).devices for group in groups]
    uuids_of_groups = [[card.uuid for card in group if card.uuid and card.maker == NVIDIA] for group in open_groups]
    if not all(uuids_of_groups):
        return [[] for _ in groups]
    nvml = Nvml()
    return disjoint_cores([near_cores(nvml, uuids) for uuids in uuids_of_groups], os.sched_getaffinity(0))


class _TeamView:
    """Shows the events of all workers on one screen, and says how workers end."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._errors: dict[str, list[str]] = {}
        """Worker → the lines of error that it has written."""
        self.complaints: list[str] = []
        """The errors of workers that the user can fix, each text once."""

    def show(self, worker: str, line: Line) -> None:
        """Show what a worker has written."""
        if event := from_json(line):
            self._screen.show(event, worker)
        elif text := line.get("complaint"):
            self._errors.setdefault(worker, []).append(text)

    def ended(self, worker: str, end: Exit) -> None:
        """Print how a worker died; add an error that the user can fix (exit code 2) to `complaints`."""
        self._screen.remove_probe(worker)
        errors = "\n".join(self._errors.pop(worker, []))
        if end.died:  # by a signal, or by an error of tuner itself
            how = f"was ended by signal {-end.code}" if end.code < 0 else f"ended with code {end.code}"
            then = "it is started again and repeats its trial" if end.is_restarted else "the next run repeats its trial"
            self._screen.say(f"{worker} {how}; {then}", style="red")
            if errors:
                self._screen.say(errors)
        elif end.code == 2 and (text := errors.removeprefix("tuner: ")) not in self.complaints:
            self.complaints.append(text)


Cores = Annotated[str | None, typer.Option(help="CPU cores for this worker and its probes, such as 0,1,2.")]
Led = Annotated[
    bool,
    typer.Option("--led", hidden=True, help="Write progress as JSON lines, and end when the standard input closes."),
]


def worker(
    study: Study,
    cases: work.Cases = None,
    n_trials: Trials = None,
    devices: Devices = None,
    hours: Hours = None,
    replay: Replay = None,
    storage: Storage = None,
    runs: Runs = RUNS,
    cores: Cores = None,
    led: Led = False,
) -> None:
    """Probe for a study that several workers share; start one for each set of cards, on any number of hosts.

    Example: tuner worker --study train --devices 2,3
    """
    if cores:
        os.sched_setaffinity(0, _core_numbers(cores))
    budget = Budget(MonotonicClock(), hours)
    console = open_console(quiet=led)  # a leading `tuner optimize --workers` reads JSON lines in place of text
    screen = JsonScreen() if led else None
    search = open_search(study, cases=cases, devices=devices, replay=replay, runs=runs, say=console.print)
    url = database_url(None if search.simulated else storage, search.bench.folder)
    with work.job_on_console(console, search.bench, search.cases, url, search.prober, screen=screen, led=led) as job:
        outcomes = search.run(job, budget, n_trials)
        interrupted = job.interrupted()
    if budget.is_over():
        console.print(out_of_time(budget))
    work.exit_by_outcomes(outcomes, interrupted=interrupted)


def _core_numbers(cores: str) -> set[int]:
    """Return the cores of an option. Raises typer.BadParameter where this process may not use one of them."""
    allowed = os.sched_getaffinity(0)
    try:
        numbers = {int(word) for word in cores.split(",")}
    except ValueError:
        numbers = set[int]()
    if not numbers or not numbers <= allowed:
        raise typer.BadParameter(f"{cores!r} is no list of cores of this machine, such as 0,1,2", param_hint="--cores")
    return numbers
