"""Races of two public tasks: who reaches a fixed return first, the user's own command or what a search found?

    TASKS_PYTHON=PYTHON python -m benchmarks.racing.tasks --out benchmarks/results/race_tasks.md

`TASKS_PYTHON` has stable-baselines3, gymnasium and tyro. Each study is searched for samples/s. Its
race trains the own command, the fastest config and what lies between, four seeds each. If it is interrupted, the same
command goes on.
"""

import os
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean, stdev
from typing import Annotated

import typer

from benchmarks.scripts.commands import HERE as SCRIPTS
from tuner.devices.found import describe_machine, open_devices
from tuner.export.reader import StudyReader, connect
from tuner.export.wording import in_words
from tuner.records.case_record import RunRecord
from tuner.search.scores import Curve, score_at
from tuner.study.space import launch_digest

SB3 = """
trainer:
  name: command
  python: ${TASKS_PYTHON}
  options:
    command: python train_sb3.py --n-envs {n_envs} --n-steps {n_steps} --batch-size {batch_size} --eval-freq 100000000
      --device cpu --total-timesteps 100000000
    progress: sb3
space:
  n_envs: {choices: [4, 16, 64]}
  n_steps: {choices: [256, 64]}
  batch_size: {choices: [64, 256]}
"""
CLEANRL = """
trainer:
  name: command
  python: ${TASKS_PYTHON}
  options:
    command: python train_cleanrl.py --num-envs {num_envs} --num-steps {num_steps} --num-minibatches 4
      --update-epochs {update_epochs} --no-cuda --total-timesteps 100000000
    progress: cleanrl
space:
  num_envs: {choices: [4, 16, 64]}
  num_steps: {choices: [128, 32]}
  update_epochs: {choices: [4, 2]}
"""
BOTH = """
devices: cpu:1
objective: samples_per_s
probe: {iterations: 8, window_seconds: 5, max_seconds: 60}
search: {trials: 10}
"""
TASKS = {"sb3_cartpole": (SB3, "train_sb3.py"), "cleanrl_cartpole": (CLEANRL, "train_cleanrl.py")}
"""Name → the study without what both have, and the script."""
RETURN = 150.0
"""The fixed return: CartPole begins near 20 and ends at 500."""
PAGE = """# Races of two public tasks

`TASKS_PYTHON=PYTHON python -m benchmarks.racing.tasks --out benchmarks/results/race_tasks.md`

PPO on CartPole with Stable-Baselines3 and with CleanRL, one process each, from scratch. A search for samples/s comes
first. Then all configs train for the same time, {seeds} seeds each. The time to a return is the time until the mean
return over the last quarter of the time so far is {goal:.0f}. A run that does not get there counts with its whole time.
± is a standard error over seeds.

{machine}, {date}. The load average was {load}.

{tasks}
"""


def tuner(*words: str) -> str:
    """Run a command of the tuner, show what it prints, and return it. Ends the script where the command fails."""
    lines: list[str] = []
    command = [sys.executable, "-m", "tuner", *words]
    at_once = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=at_once) as running:
        for line in running.stdout or ():
            print(line, end="", flush=True)
            lines.append(line.rstrip())
    if running.returncode:
        sys.exit(running.returncode)
    return "\n".join(lines)


def reached_s(curve: Curve, whole_s: float) -> float:
    """Return when the score first is the fixed return; the whole time where it never is."""
    return next((at for at, _ in curve if (score_at(curve, at) or 0.0) >= RETURN), whole_s)


def rows(made: list[RunRecord], own: str) -> list[str]:
    """Return a row for each config: the runs of the first round, in which all configs train."""
    shortest_s = min(run.seconds for run in made)
    by_config: dict[str, list[RunRecord]] = {}
    for run in made:
        if run.seconds == shortest_s:
            by_config.setdefault(launch_digest(run.config), []).append(run)
    found = []
    for digest, runs in by_config.items():
        times = [reached_s(run.curve, shortest_s) for run in runs]
        scores = [score for run in runs if (score := score_at(run.curve, shortest_s)) is not None]
        who = " (own)" if digest == own else ""
        speeds = [run.samples_per_s for run in runs if run.samples_per_s]
        found.append(
            f"| {in_words(runs[0].config)}{who} | {len(runs)} | {_mean(times)} | {_mean(scores)} "
            f"| {fmean(speeds) if speeds else 0.0:,.0f} | {', '.join(f'{one:.0f}' for one in sorted(times))} |"
        )
    return found


def _mean(numbers: list[float]) -> str:
    error = stdev(numbers) / len(numbers) ** 0.5 if len(numbers) > 1 else 0.0
    return f"{fmean(numbers):.1f} ± {error:.1f}" if numbers else "-"


def main(
    out: Annotated[Path, typer.Option(help="The page.")],
    hours: Annotated[float, typer.Option(help="For how long all runs of a task train together.")] = 0.15,
    seeds: Annotated[int, typer.Option(help="Runs of each config in each round.")] = 4,
    runs: Annotated[Path, typer.Option(help="Where the studies lie; its results are kept.")] = Path("runs/tasks"),
    only: Annotated[list[str] | None, typer.Option(help="One task; repeat for more.")] = None,
) -> None:
    loads, parts, target = [os.getloadavg()[0]], [], out.absolute()
    runs.mkdir(parents=True, exist_ok=True)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path.cwd()), os.environ.get("PYTHONPATH", "")])
    os.chdir(runs)
    shutil.copy(SCRIPTS / "truth_file.py", ".")
    for name in only or TASKS:
        study, script = TASKS[name]
        shutil.copy(SCRIPTS / script, ".")
        Path(f"{name}.yaml").write_text(f"name: {name}\n{study}{BOTH}")
        place = ("--study", f"{name}.yaml")
        tuner("optimize", *place, "--quiet")
        printed = tuner("race", *place, "--train-hours", str(hours), "--seeds", str(seeds), "--trial", "0")
        loads.append(os.getloadavg()[0])
        case = StudyReader(connect(f"sqlite:///{Path('runs', name, 'study.db').resolve()}"), name).cases[0]
        own = launch_digest(case.record.defaults[0]) if case.record.defaults else ""
        parts += [
            f"## {name}",
            "",
            "| config | runs | time to the return, s | score at the end of round 1 | samples/s | the times, s |",
            "|---|---|---|---|---|---|",
            *rows(list(case.race), own),
            "",
            *("```", *(line.rstrip() for line in printed.splitlines()[-12:]), "```", ""),
        ]
    machine = describe_machine(open_devices("cpu:1"))
    target.write_text(
        PAGE.format(
            seeds=seeds,
            goal=RETURN,
            machine=f"{machine['cores']} cores of an {machine['cpu']}",
            date=datetime.now(UTC).date(),
            load=f"{min(loads):.0f} to {max(loads):.0f}",
            tasks="\n".join(parts),
        ).rstrip()
        + "\n"
    )


if __name__ == "__main__":
    typer.run(main)
