"""A study opened with its trainer and devices: what is searched, and what must not change."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests_cli import study_file
from tests_loop import bounded

from tuner.cli.slurm import job_bench
from tuner.devices.cpu import cpu_model
from tuner.devices.found import launch_variables
from tuner.errors import DeviceError, StudyError, TrainerError
from tuner.running.job import Workbench, chosen_cases, open_workbench
from tuner.study.cases import Case
from tuner.study.space import described
from tuner.study.spec import StudySpec
from tuner.trainers.mimickit import MimicKitTrainer
from tuner.trainers.registry import not_searched

WALK, RUN = Case(name="walk"), Case(name="run")
SPACE = {"num_envs": {"ladder": [8, 16]}, "pruner_patience": {"choices": [3, 2]}}
AUTO = {"num_envs": {"ladder": "auto", "min": 8, "max": 64}}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def opened(tmp_path: Path, **changes: Any) -> Workbench:
    return open_workbench(str(study_file(tmp_path, **changes)))


def test_the_study_s_folder_is_absolute_and_named_after_it(tmp_path: Path) -> None:
    assert opened(tmp_path).folder == (tmp_path / "runs/demo").resolve()


def test_devices_are_the_study_s_or_those_asked_for(tmp_path: Path) -> None:
    bench = opened(tmp_path)
    assert ([device.name for device in bench.devices], bench.kind) == (["cpu:0", "cpu:1"], "cpu")
    assert len(open_workbench(str(study_file(tmp_path)), devices="cpu:3").devices) == 3


def test_a_fallback_shows_in_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MIMICKIT_ROOT", raising=False)
    bench = open_workbench("pi_plus", devices="cpu:2")
    assert (bench.requested_study, bench.spec.name, bench.trainer.name) == ("pi_plus", "reference", "reference")
    assert bench.folder.name == "reference"


@pytest.mark.parametrize("warm", [True, False])
def test_on_several_nodes_each_probe_is_cold_whatever_an_override_says(tmp_path: Path, warm: bool) -> None:
    trainer = {"name": "command", "options": {"command": "torchrun --nnodes {nodes} {num_envs}", "cases": ["walk"]}}
    overrides = [{"match": {"cases": ["walk"]}, "probe": {"warm": warm}}]
    changes = {"trainer": trainer, "overrides": overrides, "slurm": {"nodes": 2, "gpus": 1}, "probe": {"warm": warm}}
    bench = job_bench(str(study_file(tmp_path, **changes)), devices=None, runs=tmp_path)
    (case,) = chosen_cases(bench, ["walk"])
    assert bench.spec_for(case).probe.warm is False
    assert bench.identity_for(case)["nodes"] == 2


def test_the_study_s_own_variables_reach_the_trainer(tmp_path: Path) -> None:
    own = {"NCCL_DEBUG": "WARN", "OMP_NUM_THREADS": "7"}
    variables = opened(tmp_path, environment={"nccl_p2p": "off", "variables": own}).variables
    assert variables.items() >= {"NCCL_P2P_DISABLE": "1", **own}.items()
    assert "NCCL_P2P_DISABLE" not in opened(tmp_path).variables


def test_exported_threads_stay_as_in_the_person_s_own_run(tmp_path: Path) -> None:
    bench = opened(tmp_path)
    assert launch_variables(bench.spec, bench.source, {"OMP_NUM_THREADS": "9"})["OMP_NUM_THREADS"] == "9"
    assert launch_variables(bench.spec, bench.source, {})["OMP_NUM_THREADS"] != "9"


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"objective": "utilisation"}, StudyError, ["'utilisation'", "min_avg_util"]),
        (
            {"objective": "util,speed,min_avg_util,energy", "constraints": {"speed": ">= 10", "heat": "<= 9"}},
            StudyError,
            ["'speed' is unknown", "'energy' is unknown", "'min_avg_util' is named 2 times", ".speed", ".heat"],
        ),
        ({"objective": "energy_j"}, StudyError, ["'energy_j'", "joules_per_sample"]),
        ({"objective": "cost_per_million_samples"}, StudyError, ["samples_per_price", "`prices`"]),
        ({"prices": {"per_hour": {"NVIDIA H200": 3.5}}}, StudyError, ["no price of"]),
        ({"constraints": {"speed": ">= 10"}}, StudyError, ["constraints.speed", "samples_per_s"]),
        ({"trainer": {"name": "isaac"}}, TrainerError, ["'isaac'", "mimickit"]),
        ({"devices": "97"}, DeviceError, ["97"]),
    ],
)
def test_what_cannot_be_opened_is_named(
    tmp_path: Path, changes: dict[str, Any], error: type[Exception], words: list[str]
) -> None:
    with pytest.raises(error) as refusal:
        opened(tmp_path, **changes)
    for word in words:
        assert word in str(refusal.value)


def test_overrides_change_the_space_of_their_cases(tmp_path: Path) -> None:
    override = {"match": {"cases": ["run*"], "device": "cpu"}, "space": {"num_envs": {"ladder": [2]}}}
    bench = opened(tmp_path, overrides=[override])
    assert (bench.space_for(WALK).values("num_envs"), bench.space_for(RUN).values("num_envs")) == ((8, 16), (2,))


@pytest.mark.parametrize(("pruner", "why"), [("hyperband_patient", None), ("none", "no probe is pruned")])
def test_patience_is_searched_only_where_the_pruner_has_it(tmp_path: Path, pruner: str, why: str | None) -> None:
    bench = opened(tmp_path, space=SPACE, pruner={"name": pruner})
    assert ("pruner_patience" in bench.space_for(WALK).names) is (why is None)
    assert not_searched(bench.spec, bench.trainer) == ({"pruner_patience": why} if why else {})


def test_a_parameter_whose_condition_nothing_meets_is_reported(tmp_path: Path) -> None:
    epochs, workers = ({"choices": [20], "when": {"num_envs": rungs}} for rungs in ([7, 9], [8, 9]))
    space = {**SPACE, "update_epochs": epochs, "num_workers": workers}
    bench = opened(tmp_path, trainer={"name": "reference"}, space=space)
    assert not_searched(bench.spec, bench.trainer) == {"update_epochs": "no config has num_envs=7 or 9"}
    assert set(bench.space_for(WALK).names) == {"num_envs", "pruner_patience", "num_workers"}


def test_several_objectives_go_without_a_pruner(tmp_path: Path) -> None:
    bench = opened(tmp_path, space=SPACE, objective="util,samples_per_s", pruner={"patience": 7})
    spec = bench.spec_for(WALK)
    assert (spec.pruner.name, spec.pruner.patience) == ("none", 7)
    assert bench.space_for(WALK).names == ("num_envs",)


def test_a_parameter_that_the_trainer_declines_is_not_searched_and_reported() -> None:
    raw = {
        "name": "demo",
        "trainer": {"name": "mimickit", "root": "nowhere", "python": "python3"},
        "space": {"num_envs": {"ladder": [8]}, "num_workers": {"choices": [0, 2]}},
    }
    spec = StudySpec.model_validate(raw)
    assert not_searched(spec, MimicKitTrainer(spec.trainer)) == {"num_workers": "mimickit has no DataLoader"}


def test_a_parameter_that_the_trainer_does_not_know_is_refused(tmp_path: Path) -> None:
    bench = opened(tmp_path, space={**SPACE, "depth": {"choices": [1, 2]}})
    with pytest.raises(TrainerError, match="depth"):
        bench.space_for(WALK)


def test_an_empty_space_is_refused_with_the_reason(tmp_path: Path) -> None:
    bench = opened(tmp_path, space={"num_workers": {"choices": [0, 2]}})
    with pytest.raises(StudyError, match=r"left out \(num_workers: the command has no \{num_workers\} placeholder\)"):
        bench.space_for(WALK)


@pytest.mark.parametrize("patience", [0, "long", 1.5])
def test_a_patience_that_counts_no_iterations_is_refused(tmp_path: Path, patience: object) -> None:
    bench = opened(tmp_path, space={**SPACE, "pruner_patience": {"choices": [1, patience]}})
    with pytest.raises(TrainerError, match=f"pruner_patience {patience!r}: iterations, a whole number"):
        bench.space_for(WALK)


@pytest.mark.parametrize(
    ("space", "most", "rungs"),
    [
        (SPACE, 12, (8,)),
        ({"num_envs": {"choices": [16, 8, 12]}}, 12, (8, 12)),
        (AUTO, 40, (8, 16, 32, 40)),
        (AUTO, 8, (8,)),
    ],
)
def test_rungs_that_the_trainer_cannot_run_are_left_out(
    tmp_path: Path, space: dict[str, Any], most: int, rungs: tuple[int, ...]
) -> None:
    whole = opened(tmp_path, space=space)
    bench = bounded(whole, most, "walk")
    assert bench.space_for(WALK).values("num_envs") == rungs
    assert bench.identity_for(WALK)["space"] == described(bench.space_for(WALK)) != described(whole.space_for(WALK))
    assert bench.space_for(RUN) == whole.space_for(RUN)
    ends = [bench.ladder_end_for(case) for case in (WALK, RUN)]
    assert [end and end.num_envs for end in ends] == [most, None]


@pytest.mark.parametrize(
    "space", [SPACE, {"num_envs": {"choices": [16, 8]}}, AUTO, {"pruner_patience": {"choices": [2]}}]
)
def test_an_end_beyond_the_study_s_own_changes_nothing(tmp_path: Path, space: dict[str, Any]) -> None:
    whole = opened(tmp_path, space={"num_envs": {"ladder": [8]}, **space})
    bench = bounded(whole, 64)
    assert (bench.space_for(WALK), bench.ladder_end_for(WALK)) == (whole.space_for(WALK), None)


@pytest.mark.parametrize("space", [SPACE, AUTO])
def test_a_case_without_a_rung_left_is_named_with_the_reason(tmp_path: Path, space: dict[str, Any]) -> None:
    bench = bounded(opened(tmp_path, space=space), 7, "walk")
    message = "no rung is left for walk: the smallest is 8, and command can run num_envs up to 7: its buffer is small"
    for refused in (bench.space_for, bench.ladder_end_for):
        with pytest.raises(StudyError, match=message):
            refused(WALK)


def test_rungs_that_were_made_are_those_of_the_case_up_to_its_end(tmp_path: Path) -> None:
    bench = bounded(opened(tmp_path, space=AUTO), 40)
    assert bench.needs_calibration(WALK)
    made = bench.with_rungs(WALK, (8, 16, 24))
    assert not made.needs_calibration(WALK)
    assert made.space_for(WALK).values("num_envs") == (8, 16, 24)
    assert made.identity_for(WALK) == bench.identity_for(WALK)


def test_the_identity_survives_the_database_s_json(tmp_path: Path) -> None:
    identity = opened(tmp_path, space=SPACE).identity_for(WALK)
    assert json.loads(json.dumps(identity)) == identity


@pytest.mark.parametrize(
    ("changes", "differs"),
    [
        ({"space": {"num_envs": {"ladder": [8, 32]}}}, {"space"}),
        ({"pruner": {"patience": 4}}, {"pruner"}),
        ({"objective": "samples_per_s"}, {"objective"}),
        ({"probe": {"iterations": 6}}, {"iterations"}),
        ({"devices": "cpu:3"}, {"devices"}),
        ({"environment": {"variables": {"OMP_NUM_THREADS": "1"}}}, {"variables"}),
        ({"search": {"trials": 99, "seeds_per_variant": 1, "seed": 5}}, set()),
        ({"cases": ["run"]}, set()),
    ],
)
def test_the_identity_changes_with_what_makes_values_comparable(
    tmp_path: Path, changes: dict[str, Any], differs: set[str]
) -> None:
    before, after = opened(tmp_path).identity_for(WALK), opened(tmp_path, **changes).identity_for(WALK)
    assert {name for name in before if before[name] != after[name]} == differs


def test_the_identity_has_no_secret_key_of_a_variable(tmp_path: Path) -> None:
    secret = {"WANDB_API_KEY": "a1b2 c3=d4", "MY_PASSWORD": "${MINE:-}", "HUB": "hf_abcdefghijklmnop1234"}
    variables = {**secret, "OMP_NUM_THREADS": "1", "TRACKER": "postgres://me:hunter22@host/db"}
    identity = opened(tmp_path, environment={"variables": variables}).identity_for(WALK)
    assert identity["variables"] == {"OMP_NUM_THREADS": "1", "TRACKER": "postgres://me:***@host/db"}


@pytest.mark.parametrize("changes", [{"pruner": {"name": "none"}}, {"objective": "util,samples_per_s"}])
def test_a_study_without_a_pruner_has_none_in_its_identity(tmp_path: Path, changes: dict[str, Any]) -> None:
    pruned, whole = opened(tmp_path).identity_for(WALK), opened(tmp_path, **changes).identity_for(WALK)
    assert pruned.keys() - whole.keys() == {"pruner"}


def test_constraints_belong_to_the_identity_however_they_are_spelt(tmp_path: Path) -> None:
    without, one, same, other = (
        opened(tmp_path, **changes).identity_for(WALK)
        for changes in (
            {},
            {"constraints": {"samples_per_s": ">= 0.8 * default"}},
            {"constraints": {"samples_per_s": ">=0.80*default"}},
            {"constraints": {"samples_per_s": ">= 0.9 * default"}},
        )
    )
    assert one == same == {**without, "constraints": {"samples_per_s": ">= 0.8 * default"}}
    assert one != other
    assert "constraints" not in without


RULES = {"command": "train --tp={tp} --pp={pp} --dp={dp}", "computed": {"dp": "{ranks} / ({tp} * {pp})"}}


def test_a_config_that_a_rule_forbids_is_no_point_of_the_space(tmp_path: Path) -> None:
    degrees = {"choices": [1, 2, 4]}
    bench = opened(tmp_path, trainer={"name": "command", "options": RULES}, space={"tp": degrees, "pp": degrees})
    assert len(bench.devices) == 2
    space = bench.space_for(bench.trainer.cases()[0])
    assert {(config["tp"], config["pp"]) for config in space.configs()} == {(1, 1), (1, 2), (2, 1)}
    assert {"tp": 2, "pp": 2} not in space


def test_a_space_in_which_a_rule_forbids_everything_is_refused(tmp_path: Path) -> None:
    space = {"tp": {"choices": [3]}, "pp": {"choices": [3, 5]}}
    bench = opened(tmp_path, trainer={"name": "command", "options": RULES}, space=space)
    with pytest.raises(StudyError, match=r"no config can run; .*dp .* is 0\.\d+, which is no whole number"):
        bench.space_for(bench.trainer.cases()[0])


COMMAND = {"name": "command", "options": {"command": "train.py --tp {tp} --pp {pp}", "progress": "tqdm"}}
DEGREES = {"tp": {"choices": [1, 2, 4]}, "pp": {"choices": [1, 2, 4]}}


def test_rules_leave_out_configs_and_values_that_no_config_has(tmp_path: Path) -> None:
    rules = ["{ranks} % ({tp} * {pp}) == 0", "{tp} <= {ranks}", "{pp} <= {ranks}"]
    bench = opened(tmp_path, trainer=COMMAND, space=DEGREES, rules=rules)
    space = bench.space_for(Case(name="command"))
    assert [tuple(config.values()) for config in space.configs()] == [(1, 1), (1, 2), (2, 1)]
    assert space.values("tp") == (1, 2)
    assert bench.identity_for(Case(name="command"))["rules"] == rules


def test_a_huge_space_whose_rules_leave_nothing_ends_with_the_rule(tmp_path: Path) -> None:
    space = {name: {"range": [1, 1000]} for name in ("p0", "p1")}
    words = " ".join(f"{{{name}}}" for name in space)
    trainer = {"name": "command", "options": {"command": f"train.py {words}", "progress": "tqdm"}}
    bench = opened(tmp_path, trainer=trainer, space=space, rules=["{p0} < {p1} - 999"])
    with pytest.raises(StudyError, match=r"no config can run; .*the rule .* leaves it out"):
        bench.space_for(Case(name="command"))


def test_the_price_of_all_devices_is_the_study_s(tmp_path: Path) -> None:
    model = cpu_model()
    study = str(study_file(tmp_path, prices={"per_hour": {model: 2.0}}, objective="cost_per_million_samples"))
    bench = open_workbench(study, devices="cpu:2")
    assert bench.slot(WALK, "0", {}).price_per_hour == 4.0
    assert bench.spec.objectives == ("samples_per_price",)
