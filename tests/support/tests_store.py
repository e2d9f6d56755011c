"""What the tests of the store share: a small study of one case, and worker processes beside the test's own.

Run as a script with a database URL, this file is such a worker: it answers each command on its standard input with one
line of JSON. `open` opens the database; `probe N` asks and tells N trials and gives their configs; `ask` asks for one
trial, keeps it, and gives its config.
"""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from optuna.pruners import BasePruner, NopPruner
from optuna.trial import FrozenTrial
from tests_space import USUAL

from tuner.kept.case import KeptCase
from tuner.kept.probe import KeptProbe
from tuner.search.searching import by_drawing
from tuner.search.trials import launch_digest
from tuner.search.verdict import State, Verdict
from tuner.store.database import Database
from tuner.store.study import Asked, CaseStudy
from tuner.study.space import Config, Space
from tuner.study.spec import SearchSpec

NAME = "demo/amp_walk"
CASE = KeptCase(case="amp_walk", method="amp", mode="train", trainer={"name": "command"}, devices=("cuda:0",))
MANY = 1000
"""A target out of reach."""

OUT_OF_MEMORY = Verdict(state=State.PRUNED, status="gpu_oom", constraint=2.0)
CRASH = Verdict(state=State.FAIL, status="crash")
RETRY = Verdict(state=State.FAIL, status="nccl", retry=True)


def identity(space: Space = USUAL, **changes: Any) -> dict[str, Any]:
    """Give what must not change; `changes` replace whole keys."""
    known = {"space": space.describe(), "trainer": {"name": "command", "command": "train"}, "pruner": {"patience": 3}}
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
    """Start or resume the case's study; `known` and `case` replace its usual identity and record."""
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
    """Tell a verdict; `probe` goes into the record."""
    record = KeptProbe(status=verdict.status, config=asked.config, digest=launch_digest(asked.config), **probe)
    study.tell(asked, verdict, record)


def probe(study: CaseStudy, verdict: Verdict, count: int = 1) -> list[Config]:
    """Ask and tell the same verdict so often; give the configs."""
    configs = []
    for _ in range(count):
        asked = ask(study)
        tell(study, asked, verdict)
        configs.append(asked.config)
    return configs


def repeats(configs: Sequence[Config]) -> list[Config]:
    """Give the configs that occur earlier in the list, too."""
    return [config for position, config in enumerate(configs) if config in configs[:position]]


def stored(database: Database, name: str = NAME) -> list[FrozenTrial]:
    """Give a study's trials as the database has them."""
    return database.storage.get_all_trials(database.storage.get_study_id_from_name(name))


def states(database: Database, name: str = NAME) -> dict[str, int]:
    """Count a study's trials in each state."""
    return dict(Counter(trial.state.name for trial in stored(database, name)))


class Worker:
    """A worker process."""

    def __init__(self, url: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def send(self, command: str) -> None:
        assert self._process.stdin
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        assert self._process.stdout
        return json.loads(self._process.stdout.readline())

    def kill(self) -> None:
        """End it as `kill -9` does, and wait for its end."""
        self._process.kill()
        self._process.wait()

    def end(self) -> None:
        self._process.communicate()


@contextmanager
def workers(url: str, count: int = 1) -> Iterator[list[Worker]]:
    """Start so many workers and wait until each takes commands."""
    with ExitStack() as stack:
        started = [Worker(url) for _ in range(count)]
        for worker in started:
            stack.callback(worker.end)
        assert [worker.answer() for worker in started] == ["ready"] * count
        yield started


def _work(url: str) -> None:
    print(json.dumps("ready"), flush=True)  # noqa: T201 - the answers
    with ExitStack() as stack:
        for line in sys.stdin:
            command, *count = line.split()
            database = stack.enter_context(opened(url))
            if command == "open":
                answer: object = command
            elif command == "ask":
                answer = ask(case_study(database)).config
            else:
                answer = probe(case_study(database), ok(50.0), int(*count))
            print(json.dumps(answer), flush=True)  # noqa: T201 - the answers


if __name__ == "__main__":
    _work(sys.argv[1])
