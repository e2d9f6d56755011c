"""A race of the bundled trainer on two CPU ranks, with real returns, in about five minutes: `pytest -m minutes`."""

from collections import Counter
from pathlib import Path

import pytest
from tests_cli import Tuner
from tests_docs import ROOT

from benchmarks.racing.reference import CASE, also, reader

pytestmark = [pytest.mark.minutes, pytest.mark.timeout(1200)]
HOURS = 0.06
"""For how long all runs train together: eight runs of 13 s and four of 27 s if four configs race."""


def test_the_bundled_trainers_configs_race_and_one_learns_most(tuner: Tuner, tmp_path: Path) -> None:
    place = ("--study", ROOT / "benchmarks/racing/reference.yaml", "--runs", tmp_path)
    code, out, err = tuner("optimize", *place, "--quiet")
    assert code == 0, out + err
    code, out, err = tuner("race", *place, "--hours", HOURS, "--seeds", 2, *also(reader(tmp_path)))
    assert code == 0, out + err
    runs = reader(tmp_path).races[CASE]
    assert not any(run.failure for run in runs)
    made = Counter(tuple(run.config.items()) for run in runs)
    assert len(made) >= 4
    assert min(made.values()) == 2
    assert all(run.trained_s >= run.seconds for run in runs)
    begun, ended = zip(*((run.curve[0][1], run.curve[-1][1]) for run in runs), strict=True)
    assert sum(ended) > 1.05 * sum(begun)
    assert "learns most" in out
    assert "Two equal configs would differ so in" in out
    assert "min_avg_util" in out
    assert "updates/s" in out
