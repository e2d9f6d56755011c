import sys
from importlib import metadata
from pathlib import Path

import pytest

from tuner.errors import TrainerError
from tuner.study.spec import TrainerSpec
from tuner.tools.checkup.command_check import Imported, conflicts, import_all
from tuner.trainers.base import Dependencies, Limit
from tuner.trainers.mimickit import dependencies
from tuner.trainers.registry import open_trainer

MODULES = {
    "plain": "__version__ = '1.2'",
    "loud": "print('hello'); import os; os.write(1, b'hello')",
    "lacking": "import nowhere",
    "rude": "raise ValueError('first line\\nsecond')",
    "blind": "import os; __version__ = 'CUDA_VISIBLE_DEVICES=%r' % os.environ['CUDA_VISIBLE_DEVICES']",
    "deadly": "import os; os._exit(3)",
}


@pytest.fixture(autouse=True)
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in MODULES.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


def imported(*names: str) -> list[Imported]:
    return import_all(Dependencies(python=sys.executable, modules=names))


def test_versions_are_the_module_s_own_or_its_package_s() -> None:
    assert imported("plain", "typing_extensions") == [
        Imported(module="plain", version="1.2"),
        Imported(module="typing_extensions", version=metadata.version("typing_extensions")),
    ]


def test_what_a_module_prints_is_no_answer() -> None:
    assert imported("loud", "plain") == [Imported(module="loud"), Imported(module="plain", version="1.2")]


def test_what_a_script_in_place_of_python_prints_is_no_answer(tmp_path: Path) -> None:
    script = tmp_path / "python.sh"
    script.write_text(f"#!/bin/sh\nprintf 'caf\\351 is active\\n'\nexec {sys.executable} \"$@\"\n")
    script.chmod(0o755)
    answers = import_all(Dependencies(python=str(script), modules=("plain", "nowhere")))
    assert [(one.version, one.missing) for one in answers] == [("1.2", False), (None, True)]


def test_a_missing_module_is_distinguished_from_a_broken_one() -> None:
    nowhere, lacking, rude = imported("nowhere", "lacking", "rude")
    assert (nowhere.missing, lacking.missing, rude.missing) == (True, False, False)
    assert lacking.error == "ModuleNotFoundError: No module named 'nowhere'"
    assert rude.error == "ValueError: first line"


def test_a_module_that_ends_its_python_is_the_last_one() -> None:
    plain, deadly = imported("plain", "deadly", "loud")
    assert plain.error is None
    assert deadly.module == "deadly"
    assert "exit code 3" in (deadly.error or "")


def test_no_gpu_is_shown_to_it() -> None:
    (blind,) = imported("blind")
    assert blind.version == "CUDA_VISIBLE_DEVICES=''"


def test_a_python_that_is_not_there_is_named() -> None:
    with pytest.raises(TrainerError, match=r"/nowhere/python cannot be started: No such file.*trainer\.python"):
        import_all(Dependencies(python="/nowhere/python", modules=("json",)))


def test_newer_modules_that_break_the_simulator_are_named() -> None:
    for versions, complaints in [
        ({"newton": "1.0.0", "warp": "1.12.1"}, 0),
        ({"newton": "1.0.0", "warp": "1.13.0"}, 1),
        ({"newton": "1.0.0", "warp": "2.0.0.dev3"}, 1),
        ({"newton": "1.1.0", "warp": "1.13.0"}, 0),
        ({"warp": "1.13.0"}, 0),
        ({"newton": "1.0.0"}, 0),
        ({"newton": "1.0.0", "warp": None}, 0),
        ({"pyglet": "2.1.19"}, 0),
        ({"pyglet": "3.0"}, 1),
    ]:
        limits = dependencies("python3", "newton_engine.yaml").limits
        found = list(conflicts([Imported(module=name, version=version) for name, version in versions.items()], limits))
        assert len(found) == complaints


def test_a_conflict_says_what_to_install() -> None:
    limit = Limit(module="warp", below="1.13", beside=("newton", "1.0.0"))
    both = [Imported(module="newton", version="1.0.0"), Imported(module="warp", version="1.14.0")]
    (complaint,) = conflicts(both, [limit])
    assert complaint == "warp 1.14.0 does not work beside newton 1.0.0; install a version below 1.13"


@pytest.mark.parametrize(
    ("engine", "first"),
    [("data/engines/newton_engine.yaml", "warp"), ("isaac_gym_engine.yaml", "isaacgym"), ("", "torch")],
)
def test_what_mimickit_imports_follows_its_simulator(engine: str, first: str) -> None:
    options = {"engine_config": engine} if engine else {}
    trainer = open_trainer(TrainerSpec(name="mimickit", python="/envs/mk/bin/python", options=options))
    assert trainer.dependencies is not None
    assert trainer.dependencies.python == "/envs/mk/bin/python"
    assert trainer.dependencies.modules[0] == first
    assert "torch" in trainer.dependencies.modules


def test_what_a_command_imports_is_not_known() -> None:
    assert open_trainer(TrainerSpec(name="command", options={"command": "train"})).dependencies is None
