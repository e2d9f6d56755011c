"""Shared by the tests of the store: a small study of one case, and worker processes beside the test's own process.

As a script, this file starts such workers. Its arguments are a database URL and pairs of pipes. A worker answers each
command from its pipe with one line of JSON. The command `open` opens the database. The command `probe N` begins and
ends N trials, and returns their configs. The command `ask` begins one trial, keeps it open, and returns its config.
"""

import gc
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain
from typing import Any

import psutil
from optuna.pruners import BasePruner, NopPruner
from optuna.trial import FrozenTrial
from tests_space import USUAL

from tuner.kept.case_record import KeptCase
from tuner.kept.trial import KeptProbe
from tuner.search.strategies import by_drawing
from tuner.search.verdict import State, Verdict
from tuner.store.case_study import Asked, CaseStudy
from tuner.store.database import Database
from tuner.study.space import Config, Space, described, launch_digest
from tuner.study.spec import SearchSpec

NAME = "demo/amp_walk"
CASE = KeptCase(case="amp_walk", method="amp", mode="train", trainer={"name": "command"}, devices=("cuda:0",))
MANY = 1000
"""A target that no test reaches."""

OUT_OF_MEMORY = Verdict(state=State.PRUNED, status="gpu_oom", constraint=2.0)
CRASH = Verdict(state=State.FAIL, status="crash")
RETRY = Verdict(state=State.FAIL, status="nccl", retry=True)


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
    case: KeptCase | None = None,
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
def opened(url: str) -> Iterator[Database]:
    database = Database(url)
    try:
        yield database
    finally:
        database.close()


def ok(value: float) -> Verdict:
    return Verdict(state=State.COMPLETE, status="ok", value=value)


def ask(study: CaseStudy, target: int = MANY) -> Asked:
    asked = study.ask(target)
    assert asked is not None
    return asked


def tell(study: CaseStudy, asked: Asked, verdict: Verdict, **probe: Any) -> None:
    """Store a verdict. `probe` replaces parts of the record."""
    record = KeptProbe(status=verdict.status, config=asked.config, digest=launch_digest(asked.config), **probe)
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
    """A worker process, and the test's ends of its pipes. Each worker first says its process id."""

    def __init__(self, asked: int, answers: int) -> None:
        self._asked, self._answers = open(asked, "w"), open(answers)  # noqa: SIM115 - closed by `end`
        self.pid = 0

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
        self._asked.close()
        self._answers.close()


@contextmanager
def workers(url: str, count: int = 1) -> Iterator[list[Worker]]:
    """Start so many workers and wait until each takes commands. They are forks of one process that has loaded all."""
    pipes = [(os.pipe(), os.pipe()) for _ in range(count)]
    theirs = [(asked, answers) for (asked, _), (_, answers) in pipes]
    ours = [Worker(asked, answers) for (_, asked), (answers, _) in pipes]
    command = [sys.executable, __file__, url, json.dumps(theirs)]
    with ExitStack() as stack:
        process = subprocess.Popen(command, pass_fds=[*chain(*theirs)])
        stack.callback(process.wait)
        for worker in ours:
            stack.callback(worker.end)
        for end in chain(*theirs):
            os.close(end)
        for worker in ours:
            worker.pid = worker.answer()
        yield ours


def _work(url: str, asked: int, answers: int) -> None:
    with open(asked) as commands, open(answers, "w") as told, ExitStack() as stack:
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


def _fork(url: str, pipes: list[tuple[int, int]]) -> None:
    gc.freeze()
    for mine in pipes:
        if os.fork() == 0:
            for end in chain(*pipes):
                if end not in mine:
                    os.close(end)  # so that each worker sees the end of its commands
            return _work(url, *mine)
    for end in chain(*pipes):
        os.close(end)
    for _ in pipes:
        os.wait()
    return None


if __name__ == "__main__":
    _fork(sys.argv[1], json.loads(sys.argv[2]))
