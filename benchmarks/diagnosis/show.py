"""Shows what `tuner diagnose` says of four studies, and how long 10,000 trials take.

    python -m benchmarks.diagnosis.show --out benchmarks/results/diagnose.md

Two studies are made with Optuna's own `create_trial` and `add_trials`. The third is run here by plain Optuna code, so
its numbers differ a little each time. The fourth is a real search of ours.
"""

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean, stdev

import optuna
from optuna.trial import FrozenTrial
from sqlalchemy import create_engine, text

from benchmarks.costs.export import STUDY, fill, in_own_process
from benchmarks.diagnosis.studies import HEALTHY, STARVED, add, drawn, run_plain
from tuner.devices.found import describe_machine, open_devices
from tuner.diagnosis.diagnosing import diagnose
from tuner.diagnosis.study_times import TrialEnd, TrialTimes, estimate
from tuner.export.reader import connect

OURS = "sqlite:///benchmarks/results/pi_plus_auto_two_h200/study.db"
STORAGE = "sqlite:///optuna.db"
TRIALS = 10_000
PLAIN_TRIALS = 24
SEEDS = 300

HEAD = """\
# What `tuner diagnose` says

`python -m benchmarks.diagnosis.show --out benchmarks/results/diagnose.md`

{date}, {cpu} with {cores} cores, shared with other work (load {load:.0f}), no GPU. Optuna {optuna}.

"""
STARVED_HEAD = """\
## A starved study

200 trials: 8 complete, 173 pruned by PatientPruner(2) over Hyperband, 15 failed, 4 still running. A start-up takes 30
to 60 s. Four trials run at once, with two loader workers each. The options tell what somebody has watched.
"""
ESTIMATED_HEAD = """\
Without an option, the start-up is estimated. It was drawn between 30 and 60 s, so its mean is 45 s.
"""
HEALTHY_HEAD = """\
## A healthy study

60 trials, 40 of them complete after 20 minutes. A start-up takes 15 to 25 s.
"""
PLAIN_HEAD = """\
## Plain Optuna code

24 trials by TPE and successive halving in two threads. Each trial starts a process that imports torch and trains a
small net on this machine. The code knows nothing of `tuner`. The processes needed {mean:.1f} s in the mean until they
trained, between {least:.1f} and {most:.1f} s.
"""
OURS_HEAD = """\
## A real search of ours

The search of pi_plus with MimicKit on two H200s, from `pi_plus_auto_two_h200/study.db`. Two of its three cases were
searched at the same time.
"""
ESTIMATES_HEAD = """\
## How good the estimated start-up is

Each study was drawn again with 300 other seeds. "Within" is the share of the estimates that differ from the true mean
by at most twice the shown error.

| study | true mean, s | estimates | their mean, s | their standard deviation, s | within |
|---|---|---|---|---|---|
"""
TIME_HEAD = """\

\
## Time

Each diagnosis ran in a process of its own. The seconds include no import.

| study | wall, s | CPU, s | memory, MiB |
|---|---|---|---|
"""
REPORTS = """
insert into trial_intermediate_values (trial_id, step, intermediate_value, intermediate_value_type)
with recursive steps(step) as (select 1 union all select step + 1 from steps where step < 10)
select trial_id, step, 0.5, 'FINITE' from trials, steps
"""
"""Ten reported values for each trial."""
MOMENTS = """
update trials set datetime_start = datetime('2026-11-21', '+' || number || ' seconds'),
datetime_complete = datetime('2026-11-21', '+' || (number + 40 + number % 7) || ' seconds')
"""
"""A trial begins each second, so that 43 run at once."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        out.write_text(
            "".join(
                [_head(), *_studies(Path(folder)), ESTIMATES_HEAD, *_estimates(), TIME_HEAD, *_times(Path(folder))]
            ),
            encoding="utf-8",
        )


def _head() -> str:
    machine = describe_machine(open_devices("cpu:1"))
    facts = {"cpu": machine["cpu"], "cores": machine["cores"], "load": os.getloadavg()[0]}
    return HEAD.format(date=datetime.now(UTC).date().isoformat(), optuna=optuna.__version__, **facts)


def _studies(folder: Path) -> Iterator[str]:
    url = f"sqlite:///{folder}/optuna.db"
    add(url, "starved", STARVED, at_once=4, workers=2, running=4)
    add(url, "healthy", HEALTHY, at_once=4, workers=4)
    startups_s = run_plain(url, "plain", trials=PLAIN_TRIALS)
    machine = "--gpus 1 --gpu-memory 24"
    watched = f"--startup-seconds 45 --duty 83 --cores 12 {machine} --memory-used 12"
    pruner = "--pruner 'PatientPruner(HyperbandPruner(), 2)'"
    yield STARVED_HEAD + _shown(folder, f"--storage {STORAGE} --study-name starved {watched} {pruner}")
    yield ESTIMATED_HEAD + _shown(folder, f"--storage {STORAGE} --study-name starved")
    busy = f"--duty 96 --cores 16 {machine} --memory-used 20"
    yield HEALTHY_HEAD + _shown(folder, f"--storage {STORAGE} --study-name healthy {busy}")
    true_s = {"mean": fmean(startups_s), "least": min(startups_s), "most": max(startups_s)}
    yield PLAIN_HEAD.format(**true_s) + _shown(folder, f"--storage {STORAGE} --study-name plain --cores 2")
    yield OURS_HEAD + _shown(Path.cwd(), f"--storage {OURS} --study-name pi_plus")


def _shown(folder: Path, options: str) -> str:
    """Run `tuner diagnose` in a folder, and return the command and what it printed."""
    argv = [sys.executable, "-m", "tuner", "diagnose", *shlex.split(options)]
    printed = subprocess.run(argv, cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout
    lines = "\n".join(line.rstrip() for line in printed.splitlines())
    return f"\n```console\n$ tuner diagnose {options}\n{lines}\n```\n\n"


def _estimates() -> Iterator[str]:
    for name, kinds, true_s in (("starved", STARVED, 45.0), ("healthy", HEALTHY, 20.0)):
        found = [line for seed in range(SEEDS) if (line := estimate(map(timed, drawn(kinds, 4, 4, seed=seed))))]
        startups = [line.startup_s for line in found]
        within = sum(abs(line.startup_s - true_s) <= 2 * line.error_s for line in found) / len(found)
        yield f"| {name} | {true_s:g} | {len(found)} | {fmean(startups):.1f} | {stdev(startups):.1f} | {within:.0%} |\n"


def timed(trial: FrozenTrial) -> TrialTimes:
    """Return what the diagnosis reads of a trial of Optuna."""
    began, ended = trial.datetime_start, trial.datetime_complete
    return TrialTimes(
        end=TrialEnd.COMPLETE,
        began_s=began and began.timestamp(),
        ended_s=ended and ended.timestamp(),
        reports=len(trial.intermediate_values),
    )


def _times(folder: Path) -> Iterator[str]:
    ours, foreign = f"sqlite:///{folder}/ours.db", f"sqlite:///{folder}/foreign.db"
    fill(ours, 10, TRIALS // 10)
    fill(foreign, 1, TRIALS)
    engine = create_engine(foreign)
    with engine.begin() as connection:
        connection.execute(text("delete from study_user_attributes"))
        connection.execute(text("update studies set study_name = :name"), {"name": STUDY})
        connection.execute(text(REPORTS))
        connection.execute(text(MOMENTS))
    engine.dispose()
    for what, url in (("ours, 10 cases", ours), ("of another program, 10 reports per trial", foreign)):
        wall_s, cpu_s, grown_mib = in_own_process(diagnosed, url)
        yield f"| {TRIALS:,} trials {what} | {wall_s:.2f} | {cpu_s:.2f} | {grown_mib:,.0f} |\n"


def diagnosed(url: str) -> int:
    return diagnose(connect(url), STUDY).facts.trials


if __name__ == "__main__":
    main()
