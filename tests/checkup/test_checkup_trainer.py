from pathlib import Path

import pytest

from tuner.checkup.finding import Level
from tuner.checkup.trainer import check_imports, check_trainer
from tuner.errors import StudyError, TrainerError
from tuner.study.spec import StudySpec
from tuner.trainers.dependencies import Dependencies, Imported, Limit

WARP = Imported(module="warp", version="1.14.0")
NEWTON = Imported(module="newton", version="1.0.0")
NEEDED = Dependencies(
    python="/envs/mk/bin/python",
    modules=("warp", "newton", "trimesh", "scipy"),
    limits=(Limit(module="warp", below="1.13", beside=("newton", "1.0.0")),),
)


def study(**changes: object) -> StudySpec:
    trainer = {"name": "command", "options": {"command": "train {num_envs}", "cases": ["walk", "run"]}}
    space = {"num_envs": {"ladder": [8]}}
    return StudySpec.model_validate({"name": "demo", "trainer": trainer, "space": space, "cases": ["w*"], **changes})


def missing(module: str) -> Imported:
    return Imported(module=module, error=f"ModuleNotFoundError: No module named '{module}'")


def test_versions_are_told_with_the_python_that_has_them() -> None:
    (found,) = check_imports(NEEDED, [NEWTON, Imported(module="scipy")])
    assert (found.level, found.text) == (Level.OK, "/envs/mk/bin/python imports newton 1.0.0, scipy")


def test_missing_modules_are_one_problem() -> None:
    _, found = check_imports(NEEDED, [NEWTON, missing("trimesh"), missing("scipy")])
    assert found.level is Level.PROBLEM
    assert found.text == "/envs/mk/bin/python lacks trimesh, scipy; install them there"


def test_a_broken_module_is_a_problem_of_its_own() -> None:
    _, lacking, broken = check_imports(NEEDED, [missing("scipy"), Imported(module="warp", error="OSError: libz.so")])
    assert (lacking.level, broken.level) == (Level.PROBLEM, Level.PROBLEM)
    assert "cannot import warp: OSError: libz.so" in broken.text


def test_a_warp_that_newton_does_not_work_with_is_a_problem() -> None:
    _, found = check_imports(NEEDED, [WARP, NEWTON])
    assert found.level is Level.PROBLEM
    assert "warp 1.14.0 does not work beside newton 1.0.0" in found.text


def test_cases_are_counted_and_a_command_s_imports_are_not_known() -> None:
    cases, imports, _ = check_trainer(study())
    assert cases.text == "command: 1 of 2 case(s) selected"
    assert (imports.level, "not known" in imports.text) == (Level.OK, True)


def test_parameters_that_are_left_out_are_named_with_the_reason() -> None:
    *_, found = check_trainer(study(space={"num_envs": {"ladder": [8]}, "num_workers": {"choices": [0]}}))
    assert found.text == "num_envs; num_workers left out: the command has no {num_workers} placeholder"


def test_a_parameter_that_only_an_override_misspells_is_raised() -> None:
    override = {"match": {"cases": ["run"]}, "space": {"num_env": {"ladder": [4]}}}
    with pytest.raises(TrainerError, match="num_env"):
        list(check_trainer(study(overrides=[override])))


def test_what_a_study_cannot_use_is_raised(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="fly"):
        list(check_trainer(study(cases=["fly"])))
    with pytest.raises(TrainerError, match="args"):
        list(check_trainer(study(trainer={"name": "mimickit", "root": str(tmp_path)})))
