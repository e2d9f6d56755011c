from dataclasses import replace
from pathlib import Path

import pytest
from tests_replays import scripted_plan

from tuner.probe.probe_plan import ProbePlan
from tuner.study.spec import ProbeSpec


def planned(out_dir: Path, *words: str) -> ProbePlan:
    blank = scripted_plan(out_dir, [], ProbeSpec())
    return replace(blank, argv=("train", "--out-dir", str(out_dir), *words), files={out_dir / "a": f"into {out_dir}"})


@pytest.mark.parametrize("home", ["/home/me", "/home/José", '/home/the "fast" one'])
def test_the_same_probe_has_the_same_digest_whatever_its_folder_is_called(home: str) -> None:
    plan = planned(Path(home, "0001"))
    assert plan.digest == planned(Path(home, "0002")).digest == planned(Path("/elsewhere")).digest
    assert plan.digest != planned(Path(home, "0001"), "--more").digest
