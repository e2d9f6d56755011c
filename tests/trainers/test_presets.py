from pathlib import Path

import pytest

from tuner.errors import TrainerError
from tuner.probe.output import LineSplitter
from tuner.probe.probe_plan import LinePatterns, OutputLine
from tuner.probe.progress_reader import ProgressReader
from tuner.study.spec import TrainerSpec
from tuner.trainers.base import make_slot
from tuner.trainers.command import CommandTrainer
from tuner.trainers.command_options import PRESETS

DATA = Path(__file__).parents[1] / "data"
RECORDED = {
    "sb3": ("progress/sb3.log", [1, 2, 3], [2048, 4096, 6144]),
    "rsl_rl": ("progress/rsl_rl.log", [0, 1, 2, 3, 4, 5], [6144, 12288, 18432, 24576, 30720, 36864]),
    "isaaclab": ("progress/rsl_rl.log", [0, 1, 2, 3, 4, 5], [6144, 12288, 18432, 24576, 30720, 36864]),
    "lightning": ("progress/lightning.log", [0, 1, 2, 3, 4, 5, 6, 7, 8], None),
    "lightning with tqdm": ("progress/lightning_tqdm.log", [1, 2, 3, 4, 5], None),
    "huggingface": ("progress/huggingface.log", list(range(1, 23)), None),
    "accelerate": ("progress/accelerate.log", list(range(1, 26)), None),
    "cleanrl": ("progress/cleanrl.log", [1, 2, 3, 4, 5, 6], [2048, 4096, 6112, 8192, 10240, 12288]),
    "skrl": ("progress/skrl.log", None, None),
    "tqdm": ("progress/skrl.log", None, None),
    "xgboost": ("progress/xgboost.log", list(range(1, 17)), None),  # of two models
    "mimickit": ("healthy/ok_cpu2.log", [0, 1, 2], [256, 512, 768]),
}
"""Preset → what the trainer really printed, and the iterations and samples in it.

A bar of tqdm that shows 0 is drawn before its first step, so it reports no iteration.
"""


def test_a_preset_counts_what_its_trainer_really_prints() -> None:
    for name, (file, iterations, samples) in RECORDED.items():
        lines = LineSplitter().feed((DATA / file).read_bytes())
        reader = ProgressReader(LinePatterns(patterns=PRESETS[name.partition(" ")[0]].progress), 0.0)
        found = [report for text in lines if (report := reader.feed(OutputLine(t_s=1.0, text=text)))]
        assert len(found) >= 3
        if iterations:
            assert [one.iteration for one in found] == iterations
        if samples:
            assert [one.samples for one in found] == samples


def test_a_preset_reads_the_return_that_its_trainer_really_prints() -> None:
    for name, score in [("mimickit", 14.0), ("sb3", 28.3), ("rsl_rl", 46.79), ("isaaclab", 46.79), ("cleanrl", 97.0)]:
        reader = ProgressReader(LinePatterns(patterns=PRESETS[name].progress), 0.0)
        for text in LineSplitter().feed((DATA / RECORDED[name][0]).read_bytes()):
            reader.feed(OutputLine(t_s=1.0, text=text))
        assert reader.score
        assert reader.score.value == score


def test_every_preset_has_a_recorded_sample() -> None:
    assert {name.partition(" ")[0] for name in RECORDED} == PRESETS.keys()


def test_a_study_names_a_preset_and_its_own_variables_win(tmp_path: Path) -> None:
    env = {"TTY_INTERACTIVE": "0", "A": "1"}
    source = command_trainer(progress="lightning", env=env)
    plan = source.plan(source.cases()[0], {"batch_size": 8}, make_slot(tmp_path))
    assert plan.progress.patterns == PRESETS["lightning"].progress
    assert env.items() <= plan.env.items()
    assert source.score_source == ""
    assert command_trainer(progress="sb3").score_source == PRESETS["sb3"].progress[-1]
    assert plan.env["TTY_COMPATIBLE"] == "1"


def test_an_unknown_preset_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        TrainerError, match=r"progress 'lightnin' is no preset; known: mimickit, .*xgboost; or write a list"
    ):
        command_trainer(progress="lightnin")


def command_trainer(**options: object) -> CommandTrainer:
    return CommandTrainer(TrainerSpec(name="command", options={"command": "train --batch {batch_size}", **options}))
