"""`tuner verify`: its exit codes, and what it needs."""

from pathlib import Path

from test_race_command import begun
from tests_cli import Tuner


def test_the_exit_code_says_whether_the_speed_holds(tuner: Tuner, tmp_path: Path) -> None:
    asked = ("verify", "--study", begun(tmp_path), "--minutes", 0.01)
    code, out, err = tuner(*asked)
    assert (code, err) == (0, "")
    assert "the default (the best): num_envs=64" in out
    assert "it holds" in out
    assert "changed in the study file" in out
    trainer = tmp_path / "train.py"
    trainer.write_text(trainer.read_text().replace("samples=envs *", "samples=2 *"))
    code, out, _ = tuner(*asked)
    assert code == 1
    assert "slower: the default" in out


def test_a_study_without_a_best_cannot_be_verified(tuner: Tuner, tmp_path: Path) -> None:
    code, _, err = tuner("verify", "--study", begun(tmp_path), "--cases", "run")
    assert code == 2
    assert "run has no search yet: run `tuner optimize" in err
