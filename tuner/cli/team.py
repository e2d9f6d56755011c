"""`tuner optimize --workers`: one worker process for each set of devices, all shown on one console."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import typer
from rich.console import Console

from tuner.cli.introduction import introduction
from tuner.cli.options import STORAGE_VARIABLE, as_words
from tuner.cli.screen import Screen, open_screen
from tuner.cli.search import Search
from tuner.cli.work import EXIT_INTERRUPTED, EXIT_WITHOUT_BEST, interruptible
from tuner.devices.base import open_devices
from tuner.devices.cores import near_cores, share_cores
from tuner.devices.nvml import Nvml
from tuner.errors import TunerError
from tuner.export.case import CaseSummary
from tuner.export.write import prepare_folder
from tuner.running.events import from_json
from tuner.store.database import Database
from tuner.study.load import load
from tuner.workers.groups import device_groups
from tuner.workers.team import Exit, Line, Team, WorkerPlan


def divided(
    study: str, devices: str | None, *, replay: Path | None, workers: int | None, per_trial: int | None
) -> list[str]:
    """Return the devices of each worker; empty where neither `workers` nor `per_trial` is given.

    Raises StudyError or DeviceError where there are too few cards, or a study or a card cannot be used.
    """
    if workers is None and per_trial is None:
        return []
    if replay:
        return [""] * (workers or 1)
    asked = devices or load(study).devices
    cards = [device for device in open_devices(asked).devices if device.is_gpu]
    return device_groups(asked, len(cards), workers=workers, per_trial=per_trial)


def run_team(
    console: Console,
    search: Search,
    url: str,
    groups: Sequence[str],
    *,
    screen: Screen | None,
    options: Mapping[str, object],
    show: Callable[[], list[CaseSummary]],
) -> None:
    """Run one worker for each group of devices until all have ended; then show the study and end the command.

    What the workers do appears on `screen`, by default the console. `options` are passed on to each worker.
    Raises TunerError with the errors of workers that the user can fix.
    """
    bench = search.bench
    prepare_folder(bench.folder)
    with closing(Database(url)) as database:  # makes the schema, before several workers ask for it
        introduction(console, bench, search.cases, database.shown_url)
    search.prober.close()
    plans = _plans(url, groups, options, pin=bench.kind == "gpu" and not search.simulated)
    screen = screen or open_screen(console)
    view = _TeamView(screen)
    with interruptible(console) as interrupted:
        team = Team(plans)
        try:
            team.run(view.show, view.ended, interrupted.is_set)
        finally:
            screen.close()
            team.close()
    rows = [row for row in show() if row.case in {case.name for case in search.cases}]
    if interrupted.is_set():
        raise typer.Exit(EXIT_INTERRUPTED)
    if view.complaints:
        raise TunerError("\n".join(view.complaints))
    if not any(row.best for row in rows):
        raise typer.Exit(EXIT_WITHOUT_BEST)


def _plans(url: str, groups: Sequence[str], options: Mapping[str, object], *, pin: bool) -> list[WorkerPlan]:
    pinned = _cores(groups) if pin else [[] for _ in groups]
    plans: list[WorkerPlan] = []
    for number, (group, cores) in enumerate(zip(groups, pinned, strict=True), start=1):
        words = as_words({**options, "devices": group, "cores": ",".join(map(str, cores))})
        plans.append(
            WorkerPlan(
                name=f"worker {number}" + (f" ({group})" if group else ""),
                argv=[sys.executable, "-P", "-m", "tuner", "worker", "--led", *words],
                env={STORAGE_VARIABLE: url},
            )
        )
    return plans


def _cores(groups: Sequence[str]) -> list[list[int]]:
    """Return the cores of each worker, near its cards. Raises DeviceError when a card does not answer."""
    nvml = Nvml()
    cards = [[device.uuid for device in open_devices(group).devices if device.uuid] for group in groups]
    return share_cores([near_cores(nvml, uuids) for uuids in cards], os.sched_getaffinity(0))


class _TeamView:
    """Shows the events of all workers on one screen, and says how workers end."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._errors: dict[str, list[str]] = {}
        self.complaints: list[str] = []
        """The errors of workers that the user can fix, each text once."""

    def show(self, worker: str, line: Line) -> None:
        """Show what a worker has written."""
        if event := from_json(line):
            self._screen.show(event, worker)
        elif text := line.get("complaint"):
            self._errors.setdefault(worker, []).append(text)

    def ended(self, worker: str, end: Exit) -> None:
        """Say how a worker ended, if it died."""
        self._screen.forget(worker)
        said = "\n".join(self._errors.pop(worker, []))
        if end.died:
            how = f"was ended by signal {-end.code}" if end.code < 0 else f"ended with code {end.code}"
            then = "it is started again and repeats its trial" if end.again else "the next run repeats its trial"
            self._screen.say(f"{worker} {how}; {then}", style="red")
            if said:
                self._screen.say(said)
        elif end.code == 2 and (text := said.removeprefix("tuner: ")) not in self.complaints:
            self.complaints.append(text)
