"""Measures how long a worker on a second host takes to join a large study on PostgreSQL, and to leave it.

    python -m benchmarks.costs.joining [--trials 10000]

The study has one real trial and many synthetic ones. One worker probes for it. A second worker starts in its own
namespaces of host name and process ids (unshare(1)), so it counts as another host. The script needs the rights of
root. It prints the seconds until the second worker begins its first probe, and the seconds from its Ctrl-C to its end.
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

import psutil
import typer
from rich import box
from rich.console import Console
from rich.table import Table
from sqlalchemy import Engine, create_engine, insert, text

from benchmarks.costs.replayed import stoppable_server
from benchmarks.costs.scale import SPACE, trial_rows

HOST = "node2"
TRAINER = (
    "import itertools, time\nfor step in itertools.count():\n    time.sleep(0.1)\n    print('step', step, flush=True)\n"
)
STUDY = """
name: joined
trainer:
  name: command
  options:
    command: "{{python}} train.py {parameters}"
    progress: ['step (?P<iteration>\\d+)']
    samples_per_iteration: "{{p0}}"
devices: cpu:1
objective: samples_per_s
space: {{{space}}}
search: {{sampler: tpe, trials: 1000000}}
"""
JOINED = """
select count(*) from trials natural join trial_user_attributes
where state = 'RUNNING' and key = 'lease' and value_json like :host
"""
LOOK_S = 0.02
JOIN_S = 300.0


def main(
    trials: Annotated[int, typer.Option(help="Trials of the study before the second worker joins.")] = 10_000,
    times: Annotated[int, typer.Option(help="How often a worker joins and leaves.")] = 3,
) -> None:
    table = Table("trials", "worker", "first probe after, s", "CPU until then, s", "ended after, s", box=box.MARKDOWN)
    with tempfile.TemporaryDirectory() as name, stoppable_server() as server:
        folder, engine = Path(name), create_engine(server.url)
        write_study(folder)
        environment = os.environ | {"TUNER_STORAGE": server.url}
        subprocess.run(worker("--n-trials", "1"), cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)
        fill(engine, trials)
        first = subprocess.Popen(worker(), cwd=folder, env=environment, stdout=subprocess.DEVNULL)
        try:
            for number in range(1, times + 1):
                table.add_row(
                    f"{trials:,}", str(number), *(f"{part:.1f}" for part in visit(folder, environment, engine))
                )
        finally:
            first.send_signal(signal.SIGINT)
            first.wait()
    Console().print(table)


def write_study(folder: Path) -> None:
    names = [parameter.name for parameter in SPACE.parameters]
    space = ", ".join(f"{one.name}: {{choices: {list(one.values)}}}" for one in SPACE.parameters)
    parameters = " ".join(f"{{{name}}}" for name in names)
    (folder / "train.py").write_text(TRAINER)
    (folder / "joined.yaml").write_text(STUDY.format(parameters=parameters, space=space))


def worker(*options: str) -> list[str]:
    return [sys.executable, "-m", "tuner", "worker", "--study", "joined.yaml", *options]


def fill(engine: Engine, trials: int) -> None:
    """Add synthetic trials behind the real first one."""
    with engine.begin() as connection:
        study_id = connection.execute(text("select study_id from studies")).scalar_one()
        for model, rows in trial_rows(study_id, range(1, trials), random.Random(0)).items():
            connection.execute(insert(model), rows)
        connection.execute(
            text("select setval(pg_get_serial_sequence('trials', 'trial_id'), max(trial_id)) from trials")
        )


def visit(folder: Path, environment: dict[str, str], engine: Engine) -> tuple[float, float, float]:
    """Let a worker of another host join and leave.

    Return the seconds until its first probe, its CPU seconds until then, and the seconds from Ctrl-C to its end.
    """
    own = [
        "unshare",
        "--uts",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "sh",
        "-c",
        'hostname "$0" && exec "$@"',
        HOST,
    ]
    begun_s = time.monotonic()
    joining = subprocess.Popen([*own, *worker()], cwd=folder, env=environment, stdout=subprocess.DEVNULL)
    try:
        while not joined(engine):
            if joining.poll() is not None or time.monotonic() - begun_s > JOIN_S:
                raise SystemExit("the second worker has begun no probe")
            time.sleep(LOOK_S)
        first_probe_s = time.monotonic() - begun_s
        (process,) = psutil.Process(joining.pid).children()
        used = process.cpu_times()
        left_s = time.monotonic()
        process.send_signal(signal.SIGINT)
        joining.wait()
        return first_probe_s, used.user + used.system, time.monotonic() - left_s
    finally:
        joining.kill()


def joined(engine: Engine) -> bool:
    with engine.connect() as connection:
        return bool(connection.execute(text(JOINED), {"host": f'%"{HOST} %'}).scalar_one())


if __name__ == "__main__":
    typer.run(main)
