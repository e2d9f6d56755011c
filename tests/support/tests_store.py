"""Shared by the tests of the store: a small study of one case, and worker processes beside the test's own process.

As a script, this file starts such workers. Each line of its input has a database URL and pairs of named pipes. A worker
answers each command from its pipe with one line of JSON. The command `open` opens the database. The command `probe N`
begins and ends N trials, and returns their configs. The command `ask` begins one trial, keeps it open, and returns its
config.
"""

import gc
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import chain, count
from pathlib import Path
from typing import Any

import psutil
from optuna.pruners import BasePruner, NopPruner
from optuna.trial import FrozenTrial, TrialState
from tests_space import USUAL

from tuner.records.case_record import CaseRecord
from tuner.records.trial import ProbeRecord
from tuner.search.strategies import by_drawing
from tuner.search.verdict import Verdict
from tuner.store.case_study import CaseStudy, OwnTrial
from tuner.store.database import Database
from tuner.study import Config, SearchSpec, Space, described, launch_digest

NAME = "demo/amp_walk"
CASE = CaseRecord(case="amp_walk", method="amp", mode="train", trainer={"name": "command"}, devices=("cuda:0",))
MANY = 1000
"""A target that no test reaches."""

OUT_OF_MEMORY = Verdict(state=TrialState.PRUNED, status="gpu_oom", constraint=2.0)
CRASH = Verdict(state=TrialState.FAIL, status="crash")
RETRY = Verdict(state=TrialState.FAIL, status="nccl", retry=True)


def identity(space: Space = USUAL, **changes: Any) -> dict[str, Any]:
    """Return an identity. `changes` replace whole keys."""
    known = {"space": described(space), "trainer": {"name": "command", "command": "train"}, "pruner": {"patience": 3}}
    return known | {"objective": "min_avg_util"} | changes


def case_study(
    database: Database,
    *,
    space: Space = USUAL,
    pruner: BasePruner | None = None,
    known: dict[str, Any] | None = None,
    name: str = NAME,
    case: CaseRecord | None = None,
) -> CaseStudy:
    """Start or resume the case's study. `known` and `case` replace its usual identity and record."""
    return CaseStudy(
        database,
        name,
        space=space,
        strategy=lambda count: by_drawing(space, SearchSpec(seeds_per_variant=2), resumed_at=count),
        pruner=pruner or NopPruner(),
        identity=known or identity(space),
        case=case or CASE,
    )


@contextmanager
def opened(url: str, sleep: Callable[[float], None] = time.sleep) -> Iterator[Database]:
    database = Database(url, sleep=sleep)
    try:
        yield database
    finally:
        database.close()


def ok(value: float) -> Verdict:
    return Verdict(state=TrialState.COMPLETE, status="ok", value=value)


def ask(study: CaseStudy, target: int = MANY) -> OwnTrial:
    asked = study.ask(target)
    assert asked is not None
    return asked


def tell(study: CaseStudy, asked: OwnTrial, verdict: Verdict, **probe: Any) -> None:
    """Store a verdict. `probe` replaces parts of the record."""
    record = ProbeRecord(status=verdict.status, config=asked.config, digest=launch_digest(asked.config), **probe)
    study.tell(asked, verdict, record)


def probe(study: CaseStudy, verdict: Verdict, count: int = 1) -> list[Config]:
    """Probe so many configs with the same verdict; return the configs."""
    configs = []
    for _ in range(count):
        asked = ask(study)
        tell(study, asked, verdict)
        configs.append(asked.config)
    return configs


def repeats(configs: Sequence[Config]) -> list[Config]:
    """Return the configs that occur earlier in the list, too."""
    return [config for position, config in enumerate(configs) if config in configs[:position]]


def stored(database: Database, name: str = NAME) -> list[FrozenTrial]:
    """Return a study's trials from the database."""
    return database.storage.get_all_trials(database.storage.get_study_id_from_name(name))


def states(database: Database, name: str = NAME) -> dict[str, int]:
    """Count a study's trials in each state."""
    return dict(Counter(trial.state.name for trial in stored(database, name)))


class Worker:
    """A worker process, and the test's ends of its named pipes. Each worker first says its process id."""

    def __init__(self, asked: Path, answers: Path) -> None:
        self._asked, self._answers = asked.open("w"), answers.open()  # closed by `end`
        self.pid: int = self.answer()

    def send(self, command: str) -> None:
        self._asked.write(f"{command}\n")
        self._asked.flush()

    def answer(self) -> Any:
        return json.loads(self._answers.readline())

    def kill(self) -> None:
        """End the worker as `kill -9` does, and wait for its end."""
        process = psutil.Process(self.pid)
        process.kill()
        process.wait()

    def end(self) -> None:
        """Ask for no more, and wait until the worker has closed the database."""
        self._asked.close()
        with self._answers as answers:
            answers.read()


Team = Callable[..., AbstractContextManager[list[Worker]]]
"""Starts workers on the database at a URL, one or as many as are asked for, until the context ends."""


@contextmanager
def teams(folder: Path) -> Iterator[Team]:
    """Start a process that has loaded all that workers need, which takes a second. The workers are its forks."""
    with subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, text=True) as process:
        numbers = count()

        @contextmanager
        def started(url: str, size: int = 1) -> Iterator[list[Worker]]:
            pipes = [(folder / f"{next(numbers)}.asked", folder / f"{next(numbers)}.answers") for _ in range(size)]
            for pipe in chain(*pipes):
                os.mkfifo(pipe)
            assert process.stdin is not None
            process.stdin.write(json.dumps([url, [[*map(str, pair)] for pair in pipes]]) + "\n")
            process.stdin.flush()
            with ExitStack() as stack:
                team = [Worker(*pair) for pair in pipes]
                for worker in team:
                    stack.callback(worker.end)
                yield team

        yield started


def _work(url: str, asked: Path, answers: Path) -> None:
    with asked.open() as commands, answers.open("w") as told, ExitStack() as stack:
        print(json.dumps(os.getpid()), file=told, flush=True)
        for line in commands:
            command, *count = line.split()
            database = stack.enter_context(opened(url))
            if command == "open":
                answer: object = command
            elif command == "ask":
                answer = ask(case_study(database)).config
            else:
                answer = probe(case_study(database), ok(50.0), int(*count))
            print(json.dumps(answer), file=told, flush=True)


def _fork() -> None:
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel collects workers that have ended
    for line in sys.stdin:
        url, pipes = json.loads(line)
        for asked, answers in pipes:
            if os.fork() == 0:
                return _work(url, Path(asked), Path(answers))
    return None


if __name__ == "__main__":
    _fork()
