"""`tuner optimize --workers`: one worker process for each set of devices, all shown on one console."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from tuner.cli.introduction import introduction
from tuner.cli.options import STORAGE_VARIABLE, as_words
from tuner.cli.search import Search
from tuner.cli.work import EXIT_INTERRUPTED, EXIT_WITHOUT_BEST, interruptible
from tuner.devices.base import open_devices
from tuner.devices.cores import near_cores, share_cores
from tuner.devices.nvml import Nvml
from tuner.errors import TunerError
from tuner.export.summary import CaseSummary
from tuner.export.write import prepare_folder
from tuner.store.database import Database
from tuner.study.load import load
from tuner.workers.groups import device_groups
from tuner.workers.team import Event, Exit, Team, WorkerPlan


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
    options: Mapping[str, object],
    show: Callable[[], list[CaseSummary]],
) -> None:
    """Run one worker for each group of devices until all have ended; then show the study and end the command.

    `options` are passed on to each worker. Raises TunerError with the errors of workers that the user can fix.
    """
    bench = search.bench
    prepare_folder(bench.folder)
    with closing(Database(url)) as database:  # makes the schema, before several workers ask for it
        introduction(console, bench, search.cases, database.shown_url)
    search.prober.close()
    plans = _plans(url, groups, options, pin=bench.kind == "gpu" and not search.simulated)
    view = _TeamView(console)
    with interruptible(console) as interrupted:
        team = Team(plans)
        try:
            team.run(view.show, view.ended, interrupted.is_set)
        finally:
            view.close()
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
    """Prints the lines of all workers, each behind the worker's name, and on a terminal a live line for each worker."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._now: dict[str, str] = {}
        self._errors: dict[str, list[str]] = {}
        self.complaints: list[str] = []
        """The errors of workers that the user can fix, each text once."""
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None
        if self._live:
            self._live.start()

    def show(self, worker: str, event: Event) -> None:
        """Show an event of a worker."""
        if (line := event.get("line")) is not None:
            self._console.print(f"{worker}: {line.strip()}", style=event.get("style") or "", markup=False)
        elif "now" in event:
            self._now[worker] = event["now"] or ""
            self._refresh()
        elif text := event.get("complaint"):
            self._errors.setdefault(worker, []).append(text)

    def ended(self, worker: str, end: Exit) -> None:
        """Print how a worker ended, if it died."""
        self._now.pop(worker, None)
        self._refresh()
        said = "\n".join(self._errors.pop(worker, []))
        if end.died:
            how = f"was ended by signal {-end.code}" if end.code < 0 else f"ended with code {end.code}"
            then = "it is started again and repeats its trial" if end.again else "the next run repeats its trial"
            self._console.print(f"{worker} {how}; {then}", style="red", markup=False)
            if said:
                self._console.print(said, markup=False)
        elif end.code == 2 and (text := said.removeprefix("tuner: ")) not in self.complaints:
            self.complaints.append(text)

    def close(self) -> None:
        """Remove the live lines."""
        if self._live:
            self._live.stop()

    def _refresh(self) -> None:
        if self._live:
            lines = (f"{worker}: {text}" for worker, text in sorted(self._now.items()) if text)
            self._live.update(Text("\n".join(lines)), refresh=True)
