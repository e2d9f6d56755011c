"""A real session that serves one run after another, and the reports of its trainer."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from tuner.probe import Sessions, reserved_port
from tuner.probe.probe_plan import MonotonicClock, RunningTrainer
from tuner.study import Case, Config
from tuner.trainers.base import Trainer, make_slot

Message = dict[str, Any]


class Served:
    """The sessions of one trainer for one case. Each run has its own folder."""

    def __init__(self, trainer: Trainer, case: str, folder: Path, *, port: int, gpu: bool) -> None:
        self.sessions = Sessions(MonotonicClock())
        self._trainer = trainer
        self._case = Case(name=case)
        self._slots = (make_slot(folder / str(number), gpu=gpu, port=port) for number in count())
        self._folder = folder

    def ask(self, config: Config, *, iterations: int) -> RunningTrainer:
        plan = self._trainer.warm_plan(self._case, config, next(self._slots))
        assert plan is not None
        assert plan.request is not None
        return self.sessions(replace(plan, request={**plan.request, "iterations": iterations}))

    def run(self, config: Config, *, iterations: int) -> int:
        """Request a run and follow it to its end; return its exit code."""
        run = self.ask(config, iterations=iterations)
        follow(run)
        return run.release()

    def told(self) -> list[list[Message]]:
        """Return the iteration records of each run of the only session so far."""
        (path,) = self._folder.rglob("progress.jsonl")
        runs: list[list[Message]] = [[]]
        for message in map(json.loads, path.read_text().splitlines()):
            if message["type"] == "done":
                runs.append([])
            elif message["type"] == "iteration":
                runs[-1].append(message)
        return runs

    def printed(self) -> list[str]:
        """Return what the only session so far has written to its console."""
        (path,) = self._folder.rglob("session/console.log")
        return path.read_text().splitlines()


@contextmanager
def served(trainer: Trainer, case: str, folder: Path, *, gpu: bool = False) -> Iterator[Served]:
    with reserved_port() as port:
        serving = Served(trainer, case, folder, port=port, gpu=gpu)
        try:
            yield serving
        finally:
            serving.sessions.close()


def follow(run: RunningTrainer, *, until: int | None = None) -> None:
    """Read the records of a run, to its end or until a rank reports iteration `until`."""
    while run.exit_code() is None:
        messages = [json.loads(line.text) for line in run.lines(0.05) if line.stream == "progress"]
        if until is not None and any(message.get("iteration") == until for message in messages):
            break
