"""A trainer in a module outside the package: the example fulfils the contract and runs. Other classes are refused."""

import sys
from pathlib import Path

import pandas as pd
import pytest
from tests_cli import run_in

from tuner.errors import TrainerError
from tuner.study.space import Config
from tuner.study.spec import TrainerSpec
from tuner.trainers.base import check_trainer
from tuner.trainers.registry import open_trainer

EXAMPLE = Path(__file__).parents[2] / "examples/own_trainer"


@pytest.fixture(autouse=True)
def restored_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])


def test_the_example_keeps_the_contract(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLE)
    trainer = open_trainer(TrainerSpec(name="walkers:WalkersTrainer"))
    configs: list[Config] = [{"num_envs": 8}, {"num_envs": 16}]
    check_trainer(trainer, case="Isaac-Velocity-Rough-G1-v0", configs=configs, out_dir=tmp_path / "probe")
    assert trainer.declines["num_workers"] == "walkers does not vary it"


def test_the_example_is_optimised_and_its_tables_have_its_methods_and_files(tmp_path: Path) -> None:
    run_in(EXAMPLE, "optimize", "--study", "walkers.yaml", "--runs", tmp_path)
    tables = (tmp_path / "walkers" / f"{name}.tsv" for name in ("case_manifest", "best_by_case"))
    manifest, best = (pd.read_csv(table, sep="\t") for table in tables)
    assert [*manifest.columns] == ["case", "method", "mode", "terrain", "trainer"]
    assert [*manifest["terrain"]] == ["Isaac-Velocity-Flat-G1-v0.usd", "Isaac-Velocity-Rough-G1-v0.usd"]
    assert {*manifest["method"]} == {"velocity"}
    assert [*best["num_envs"]] == [32, 32]


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("", "absent:Mine", r"'absent:Mine' cannot be imported: ModuleNotFoundError: No module named 'absent'"),
        ("", "own_empty:Mine", r"AttributeError: module 'own_empty' has no attribute 'Mine'; install its package"),
        ("1 / 0", "own_broken:Mine", r"'own_broken:Mine' cannot be imported: ZeroDivisionError"),
        ("Mine = dict", "own_dict:Mine", r"'own_dict:Mine' is no trainer; derive the class from tuner\.trainers\.base"),
        (
            "from tuner.trainers.base import Trainer\nclass Mine(Trainer):\n    name = 'mine'",
            "own_half:Mine",
            r"'own_half:Mine' lacks accepts, cases, fingerprint, plan; see tuner\.trainers\.base\.Trainer",
        ),
    ],
)
def test_what_is_no_trainer_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, name: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    if text or name == "own_empty:Mine":
        Path(f"{name.partition(':')[0]}.py").write_text(text)
    with pytest.raises(TrainerError, match=message):
        open_trainer(TrainerSpec(name=name))
