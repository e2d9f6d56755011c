"""A race of the bundled trainer on two CPU ranks: is the busiest config also the one that learns most?

    python -m benchmarks.racing.reference --out benchmarks/results/race.md

It searches the study beside this file, races the search's configs and those of `ALSO`, and writes the page. If it is
interrupted, the same command goes on.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from tuner.devices.found import describe_machine, open_devices
from tuner.export.reader import StudyReader, connect
from tuner.export.wording import in_words
from tuner.kept.case_record import KeptRun
from tuner.search.scores import score_at
from tuner.study.space import Config, launch_digest

STUDY = Path(__file__).with_suffix(".yaml")
NAME, CASE = "race", "deepmimic_pi_plus_ppo"
ALSO: tuple[Config, ...] = (
    {"num_envs": 256, "agent_variant": "hiutil", "update_epochs": 5},
    {"num_envs": 256, "agent_variant": "default", "update_epochs": 20},
    {"num_envs": 64, "agent_variant": "default", "update_epochs": 5},
)
"""Configs that race, too: on two cores one config may be the busiest, the fastest and the default."""
PARTS = (0.25, 0.5, 0.75, 1.0)
"""The parts of the first round's time at which the scores are shown."""
PAGE = """# A race of the reference trainer

`{command}`

Which config of the bundled trainer learns most in the same time, and did utilisation foretell it? All configs trained
the case `{case}` on two CPU ranks, from scratch and with real settings. The score is the mean tracking
reward of an iteration. [What a race is](../../docs/race.md).

{machine}, {date}. The load average is the mean number of programs that want to run: {load}.
These are CPU figures. Utilisation on a CPU is the share of the time in which a rank computes.

## What `tuner race` printed

```
{printed}
```

## How the scores grew

The mean of the runs of the first round. A score is the mean over the last quarter of a time.

{grown}
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


def main(
    out: Annotated[Path, typer.Option(help="The page.")],
    hours: Annotated[float, typer.Option(help="For how long all runs train together.")] = 0.3,
    seeds: Annotated[int, typer.Option(help="Runs of each config in each round.")] = 3,
    runs: Annotated[Path, typer.Option(help="Where the study lies.")] = Path("runs"),
) -> None:
    loads = [os.getloadavg()[0]]
    place = ("--study", str(STUDY), "--runs", str(runs))
    tuner("optimize", *place, "--quiet")
    loads.append(os.getloadavg()[0])
    printed = tuner("race", *place, *also(reader(runs)), "--hours", str(hours), "--seeds", str(seeds))
    loads.append(os.getloadavg()[0])
    machine = describe_machine(open_devices("cpu:2"))
    page = PAGE.format(
        command="python -m benchmarks.racing.reference --out benchmarks/results/race.md",
        case=CASE,
        machine=f"{machine['cores']} cores of an {machine['cpu']}",
        date=datetime.now(UTC).date(),
        load="{:.1f} before the search, {:.1f} before the race, {:.1f} after it".format(*loads),
        printed="\n".join(line.rstrip() for line in printed.splitlines() if not line.startswith("database")),
        grown=grown(reader(runs).cases[0].race),
    )
    out.write_text(page)


def reader(runs: Path, name: str = NAME) -> StudyReader:
    """Open a study that `tuner optimize` has searched."""
    return StudyReader(connect(f"sqlite:///{(runs / name / 'study.db').resolve()}"), name)


def also(found: StudyReader) -> list[str]:
    """Return the options that let the configs of `ALSO` race."""
    numbers = {launch_digest(trial.config): trial.number for trial in found.trials()}
    return [word for config in ALSO for word in ("--trial", str(numbers[launch_digest(config)]))]


def grown(runs: tuple[KeptRun, ...]) -> str:
    """Return a table of the scores over the first round's time, as Markdown."""
    shortest_s = min(run.seconds for run in runs)
    first = [run for run in runs if run.seconds == shortest_s]
    times_s = [part * shortest_s for part in PARTS]
    table = Table("config", *(f"after {time_s:.0f} s" for time_s in times_s), box=box.MARKDOWN)
    by_config: Mapping[str, list[KeptRun]] = {in_words(run.config): [] for run in first}
    for run in first:
        by_config[in_words(run.config)].append(run)
    for config, made in by_config.items():
        scores = [[score_at(run.curve, time_s) for run in made] for time_s in times_s]
        cells = [[score for score in column if score is not None] for column in scores]
        table.add_row(config, *(f"{fmean(column):.3f}" if column else "" for column in cells))
    console = Console(width=160)
    with console.capture() as captured:
        console.print(table)
    return "\n".join(line.rstrip() for line in captured.get().splitlines()).strip()


if __name__ == "__main__":
    typer.run(main)
