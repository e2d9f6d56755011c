"""`tuner verify`: its exit codes, and what it needs."""

from pathlib import Path

from test_race_command import begun
from tests_cli import Tuner


def test_the_exit_code_is_the_verdict(tuner: Tuner, tmp_path: Path) -> None:
    study, trainer = begun(tmp_path), tmp_path / "train.py"
    trainer.write_text(trainer.read_text().replace("samples=envs *", "samples=2 *"))
    code, out, err = tuner("verify", "--study", study, "--minutes", 0.01)
    assert (code, err) == (1, "")
    assert "the default (the best): num_envs=64" in out
    assert "changed in the study file" in out
    assert "slower: the default" in out


def test_a_study_without_a_best_cannot_be_verified(tuner: Tuner, tmp_path: Path) -> None:
    code, _, err = tuner("verify", "--study", begun(tmp_path), "--cases", "run")
    assert code == 2
    assert "run has no search yet: run `tuner optimize" in err
