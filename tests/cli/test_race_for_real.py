"""A race of the bundled trainer on two CPU ranks, with real returns, in about five minutes: `pytest -m minutes`."""

from collections import Counter
from pathlib import Path

import pytest
from tests_cli import Tuner
from tests_docs import ROOT

from tuner.export.reader import StudyReader, connect
from tuner.study.space import Config, launch_digest

pytestmark = [pytest.mark.minutes, pytest.mark.timeout(1200)]
HOURS = 0.06
"""For how long all runs train together: 22 runs of 5 to 22 s if six configs race, or 12 of 13 to 27 s with four."""
ALSO: tuple[Config, ...] = (
    {"num_envs": 256, "agent_variant": "hiutil", "update_epochs": 5},
    {"num_envs": 256, "agent_variant": "default", "update_epochs": 20},
    {"num_envs": 64, "agent_variant": "default", "update_epochs": 5},
)
"""Configs that race, too: on two cores one config may be the busiest, the fastest and the default."""


def test_the_bundled_trainers_configs_race_and_one_learns_most(tuner: Tuner, tmp_path: Path) -> None:
    place = ("--study", ROOT / "tests/data/race.yaml", "--runs", tmp_path)
    code, out, err = tuner("optimize", *place, "--quiet")
    assert code == 0, out + err
    code, out, err = tuner("race", *place, "--train-hours", HOURS, "--seeds", 2, *also(reader(tmp_path)))
    assert code == 0, out + err
    runs = reader(tmp_path).cases[0].race
    assert not any(run.failure for run in runs)
    made = Counter(tuple(run.config.items()) for run in runs)
    assert len(made) >= 4
    assert min(made.values()) == 2
    assert all(run.trained_s >= run.seconds for run in runs)
    longest_s = max(run.seconds for run in runs)
    assert any(run.curve[-1][1] > 1.05 * run.curve[0][1] for run in runs if run.seconds == longest_s)
    assert "learns most" in out
    assert "Two equal configs would differ so in" in out
    assert "min_avg_util" in out


def reader(runs: Path) -> StudyReader:
    return StudyReader(connect(f"sqlite:///{(runs / 'race/study.db').resolve()}"), "race")


def also(found: StudyReader) -> list[str]:
    """Return the options that let the configs of `ALSO` race."""
    numbers = {launch_digest(trial.config): trial.number for trial in found.trials()}
    return [word for config in ALSO for word in ("--trial", str(numbers[launch_digest(config)]))]
