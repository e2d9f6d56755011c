from itertools import islice
from pathlib import Path

import pytest
from tests_mimickit import pi_plus_checkout

from tuner.errors import StudyError, TrainerError
from tuner.study.spec import StudySpec
from tuner.tools.checkup import Finding, Severity
from tuner.tools.checkup.checks import check_named_trainer, check_parameters
from tuner.tools.checkup.command_check import Imported, check_imports
from tuner.trainers.base import Dependencies, Limit
from tuner.trainers.registry import open_trainer

WARP = Imported(module="warp", version="1.14.0")
NEWTON = Imported(module="newton", version="1.0.0")
NEEDED = Dependencies(
    python="/envs/mk/bin/python",
    modules=("warp", "newton", "trimesh", "scipy"),
    limits=(Limit(module="warp", below="1.13", beside=("newton", "1.0.0")),),
)


def command(text: str) -> dict[str, object]:
    return {"name": "command", "options": {"command": text, "cases": ["walk", "run"]}}


def study(**changes: object) -> StudySpec:
    trainer = command("{python} train.py {num_envs}")
    space = {"num_envs": {"ladder": [8]}}
    return StudySpec.model_validate({"name": "demo", "trainer": trainer, "space": space, "cases": ["w*"], **changes})


def missing(module: str) -> Imported:
    return Imported(module=module, error=f"ModuleNotFoundError: No module named '{module}'")


def test_versions_are_reported_with_the_python_that_has_them() -> None:
    (found,) = check_imports(NEEDED, [NEWTON, Imported(module="scipy")])
    assert (found.level, found.text) == (Severity.OK, "/envs/mk/bin/python imports newton 1.0.0, scipy")


def test_missing_modules_are_one_problem() -> None:
    _, found = check_imports(NEEDED, [NEWTON, missing("trimesh"), missing("scipy")])
    assert found.level is Severity.PROBLEM
    assert found.text.startswith("/envs/mk/bin/python lacks trimesh, scipy; install them there")


def test_a_broken_module_is_a_problem_of_its_own() -> None:
    lacking, broken = check_imports(NEEDED, [missing("scipy"), Imported(module="warp", error="OSError: libz.so")])
    assert (lacking.level, broken.level) == (Severity.PROBLEM, Severity.PROBLEM)
    assert "cannot import warp: OSError: libz.so" in broken.text


def test_a_warp_that_newton_does_not_work_with_is_a_problem() -> None:
    _, found = check_imports(NEEDED, [WARP, NEWTON])
    assert found.level is Severity.PROBLEM
    assert "warp 1.14.0 does not work beside newton 1.0.0" in found.text


def test_cases_are_counted_and_a_command_s_imports_are_not_known() -> None:
    cases, imports, _ = check_named_trainer(study())
    assert cases.text == "command: 1 of 2 cases selected"
    assert (imports.level, "not known" in imports.text) == (Severity.OK, True)


@pytest.mark.parametrize("file", ["gone.yaml", "joint_agent.yaml"])
def test_a_file_of_a_case_that_cannot_be_read_is_a_problem(tmp_path: Path, file: str) -> None:
    root = pi_plus_checkout(tmp_path / "MimicKit")
    args = root / "args/add_pi_plus_args.txt"
    if file == "gone.yaml":
        args.write_text(args.read_text().replace("toy_env.yaml", file))
    (root / "data/agents/joint_agent.yaml").write_text("a: [1")
    options = {"engine_config": "data/engines/newton_engine.yaml"}
    spec = study(trainer={"name": "mimickit", "root": str(root), "options": options}, cases=["add_pi_plus"])
    _, found = islice(check_named_trainer(spec), 2)
    assert (found.level, file in found.text) == (Severity.PROBLEM, True)


def test_parameters_that_are_left_out_are_named_with_the_reason() -> None:
    *_, found = check_named_trainer(study(space={"num_envs": {"ladder": [8]}, "num_workers": {"choices": [0]}}))
    assert found.text == "num_envs; num_workers left out: the command has no {num_workers} placeholder"


def test_a_parameter_that_only_an_override_misspells_is_raised() -> None:
    override = {"match": {"cases": ["run"]}, "space": {"num_env": {"choices": [4]}}}
    with pytest.raises(TrainerError, match="num_env"):
        list(check_named_trainer(study(overrides=[override])))


def test_what_a_study_cannot_use_is_raised(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="fly"):
        list(check_named_trainer(study(cases=["fly"])))
    with pytest.raises(TrainerError, match="args"):
        list(check_named_trainer(study(trainer={"name": "mimickit", "root": str(tmp_path)})))


def parameters(chosen: StudySpec) -> list[Finding]:
    """Check only the parameters, because the reference trainer's imports take seconds."""
    trainer = open_trainer(chosen.trainer)
    return list(check_parameters(trainer, chosen, trainer.cases()))


HIUTIL = {"choices": ["hiutil", "default"]}


def test_a_parameter_that_no_config_reaches_is_left_out_with_the_reason() -> None:
    epochs = {"choices": [20], "when": {"agent_variant": "hiutl"}}
    space = {"num_envs": {"ladder": [8]}, "agent_variant": HIUTIL, "update_epochs": epochs}
    reachable = {"match": {"cases": ["add*"]}, "space": {"update_epochs": {"choices": [20]}}}
    (found,) = parameters(study(trainer={"name": "reference"}, space=space))
    assert found.text == "num_envs, agent_variant; update_epochs left out: no config has agent_variant=hiutl"
    (found,) = parameters(study(trainer={"name": "reference"}, space=space, overrides=[reachable]))
    assert found.text == "num_envs, agent_variant, update_epochs"


def test_a_command_that_takes_no_parameter_is_a_problem() -> None:
    *_, found = check_named_trainer(study(trainer=command("{python} train.py")))
    assert found.level is Severity.PROBLEM
    assert found.text == "none is searched; num_envs left out: the command has no {num_envs} placeholder"


@pytest.mark.parametrize("text", ["no-such-program {num_envs}", "./train.sh {num_envs}", "LR=1 python {num_envs}"])
def test_a_program_that_is_not_there_is_a_problem(text: str) -> None:
    _, _, found, _ = check_named_trainer(study(trainer=command(text)))
    assert (found.subject, found.level) == ("command", Severity.PROBLEM)
    assert f"there is no program {text.split(maxsplit=1)[0]!r}; no shell runs it: see trainer.python and" in found.text


def test_an_override_for_no_case_is_a_warning() -> None:
    _, found, *_ = check_named_trainer(study(overrides=[{"match": {"cases": ["fly*"]}, "search": {"trials": 3}}]))
    assert (found.level, found.text) == (Severity.WARNING, "no case matches 'fly*'")


def test_values_that_the_trainer_cannot_use_are_raised_all_at_once_wherever_they_stand() -> None:
    space = {"num_envs": {"ladder": [8]}, "agent_variant": {"choices": ["hiutil", "fast"]}}
    override = {"match": {"cases": ["add*"], "device": "gpu"}, "space": {"update_epochs": {"choices": [0, "a", 20]}}}
    with pytest.raises(TrainerError) as refusal:
        parameters(study(trainer={"name": "reference"}, space=space, overrides=[override]))
    first, *refused = str(refusal.value).splitlines()
    assert first == "3 values of the study's space cannot be used"
    assert [line.strip().split(":")[0] for line in refused[1:]] == ["update_epochs 0", "update_epochs 'a'"]
    assert "agent_variant 'fast': Input should be 'default' or 'hiutil'" in refused[0]


NEEDED_DEVICES = "it names neither {ranks} nor {devices}; see that it starts one rank on each of 2 devices"


def test_a_command_that_heeds_no_devices_is_a_warning_where_there_are_several() -> None:
    for text, ranks, warnings in [
        ("python train.py {num_envs}", 2, [NEEDED_DEVICES]),
        ("python train.py {num_envs}", 1, []),
        ("python train.py {num_envs}", None, []),
        ("python train.py {num_envs} -n {ranks}", 2, []),
        ("python train.py {num_envs} --on {devices}", 2, []),
    ]:
        found = check_named_trainer(study(trainer=command(text)), ranks)
        assert [one.text for one in found if one.level is Severity.WARNING] == warnings


def test_a_study_that_needs_samples_which_no_pattern_counts_has_a_problem() -> None:
    for progress, wants, is_found in [
        ([r"it (?P<iteration>\d+)"], {"objective": "samples_per_s"}, True),
        ([r"it (?P<iteration>\d+)"], {"constraints": {"samples_per_s": ">= 10"}}, True),
        ([r"it (?P<iteration>\d+)"], {"objective": "min_avg_util"}, False),
        ([r"it (?P<iteration>\d+)", r"n (?P<samples>\d+)"], {"objective": "samples_per_s"}, False),
        ([], {"objective": "samples_per_s"}, False),
    ]:
        trainer = {"name": "command", "options": {"command": "python train.py {num_envs}", "progress": progress}}
        found = check_named_trainer(study(trainer=trainer, cases=["*"], **wants))
        problems = [one.text for one in found if one.level is Severity.PROBLEM]
        assert bool(problems) is is_found
        assert all("no pattern of `progress` has the group (?P<samples>…)" in text for text in problems)


def test_a_program_of_the_trainer_s_environment_is_found(tmp_path: Path) -> None:
    for name in ("torchwalk", "python"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    trainer = command("torchwalk {num_envs}")
    assert "there is no program 'torchwalk'" in str([*check_named_trainer(study(trainer=trainer))])
    trainer["python"] = str(tmp_path / "python")
    assert not [one for one in check_named_trainer(study(trainer=trainer)) if one.level is Severity.PROBLEM]
