from pathlib import Path

import pytest
from tests_loop import spec

from tuner.errors import StudyError
from tuner.study.spec import read_objectives
from tuner.study.study_file import load, narrowed

STUDY = """
name: demo
trainer: {name: reference}
space:
  num_envs: {ladder: [8, 16]}
objective: util,samples_per_s
"""


def test_objectives_stand_between_commas_and_have_short_names() -> None:
    for text, names in [
        ("min_avg_util", ("min_avg_util",)),
        ("sm", ("min_avg_sm",)),
        ("util,samples_per_s", ("min_avg_util", "samples_per_s")),
        (" samples_per_s , util ", ("samples_per_s", "min_avg_util")),
        ("util,,energy", ("min_avg_util", "", "energy")),
    ]:
        assert read_objectives(text) == names


def test_a_study_spells_its_objectives_alike_however_they_are_written() -> None:
    short, long = spec(objective="util, samples_per_s"), spec(objective="min_avg_util,samples_per_s")
    assert short.objective == long.objective == "min_avg_util,samples_per_s"
    assert narrowed(short, "walk", "cpu").objectives == ("min_avg_util", "samples_per_s")


@pytest.mark.parametrize(
    ("more", "where"),
    [
        ("search: {sampler: gain}", "study: search.sampler: gain"),
        ("overrides: [{search: {sampler: gain}, match: {device: cpu}}]", "overrides.0: search.sampler: gain"),
    ],
)
def test_gain_is_refused_for_several_objectives_among_the_other_errors(tmp_path: Path, more: str, where: str) -> None:
    path = tmp_path / "demo.yaml"
    path.write_text(STUDY + more)
    with pytest.raises(StudyError) as refusal:
        load(str(path))
    found = "min_avg_util,samples_per_s"
    assert f"{where} needs exactly one objective, not {found}; write tpe, or name one" in str(refusal.value)
    path.write_text(STUDY.replace("util,", "") + more)
    assert load(str(path)).objectives == ("samples_per_s",)
