import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tuner.errors import TrainerError
from tuner.probe.probe_plan import LinePatterns, OutputLine
from tuner.probe.progress_reader import ProgressReader
from tuner.probe.result import Score
from tuner.study.spec import ProbeSpec, TrainerSpec
from tuner.trainers.base import check_trainer, make_slot
from tuner.trainers.command_options import PRESETS
from tuner.trainers.mimickit import DRIVER, MimicKitTrainer

ROOT = Path(__file__).parents[1] / "data" / "mimickit"
CONFIG = {"num_envs": 64, "agent_variant": "hiutil"}


def trainer(root: Path | str = ROOT, python="", **options):
    return MimicKitTrainer(TrainerSpec(name="mimickit", root=str(root), python=python, options=options))


def case(name, source=None):
    return next(case for case in (source or trainer()).cases() if case.name == name)


def flags(plan):
    """Return the flags of a plan's command → their values."""
    words: dict[str, list[str]] = {}
    for word in plan.argv[2:]:
        if word.startswith("--"):
            words[word] = []
        else:
            words[list(words)[-1]].append(word)
    return words


@pytest.fixture
def checkout(tmp_path):
    return Path(shutil.copytree(ROOT, tmp_path / "checkout"))


def test_it_keeps_the_contract(tmp_path):
    configs = [CONFIG, CONFIG | {"num_envs": 32}, CONFIG | {"agent_variant": "default"}, CONFIG | {"update_epochs": 30}]
    for name in ("deepmimic_toy_ppo", "amp_toy"):
        check_trainer(trainer(), case=name, configs=configs, out_dir=tmp_path / "probe")


def test_cases_are_the_argument_files_and_those_that_train_an_agent_are_trainable():
    cases = {case.name: case for case in trainer().cases()}

    assert list(cases) == ["add_lost", "amp_toy", "deepmimic_toy_ppo", "dof_toy", "view_toy"]
    assert {name for name, case in cases.items() if case.trainable} == {"add_lost", "amp_toy", "deepmimic_toy_ppo"}
    assert cases["view_toy"].mode == "test"
    assert cases["deepmimic_toy_ppo"].options == {
        "arg_file": "args/deepmimic_toy_ppo_args.txt",
        "agent_config": "data/agents/separate_agent.yaml",
        "env_config": "data/envs/toy_env.yaml",
        "engine_config": "data/engines/toy_engine.yaml",
    }


@pytest.mark.parametrize(("gpu", "devices"), [(True, ["cuda:0", "cuda:1"]), (False, ["cpu", "cpu"])])
def test_the_command_runs_the_case_on_all_devices_until_the_tuner_ends_it(tmp_path, gpu, devices):
    slot = make_slot(tmp_path, gpu=gpu, port=40123, iterations=8)

    plan = trainer(python="some/venv/python").plan(case("deepmimic_toy_ppo"), CONFIG, slot)

    assert plan.argv[:2] == (str(Path("some/venv/python").absolute()), "mimickit/run.py")
    assert flags(plan) == {
        "--arg_file": ["args/deepmimic_toy_ppo_args.txt"],
        "--engine_config": ["data/engines/toy_engine.yaml"],
        "--agent_config": [str(tmp_path / "agent.yaml")],
        "--mode": ["train"],
        "--visualize": ["false"],
        "--logger": ["txt"],
        "--devices": devices,
        "--master_port": ["40123"],
        "--num_envs": ["64"],
        "--max_samples": [str(64 * 2 * 16 * (1000 * 8 + 2))],
        "--out_dir": [str(tmp_path / "train")],
    }
    assert plan.cwd == ROOT
    assert plan.env == {"PYTHONUNBUFFERED": "1", "NCCL_P2P_DISABLE": "1"}
    assert plan.expected == (tmp_path / "train" / "model.pt", tmp_path / "train" / "log.txt")
    assert plan.base_agent == "data/agents/separate_agent.yaml"
    assert list(map(str, plan.files)) == [plan.agent_config] == [str(tmp_path / "agent.yaml")]


def test_a_folder_that_looks_like_a_reference_is_none(tmp_path):
    folder = tmp_path / "${HOME}"

    command = trainer().plan(case("deepmimic_toy_ppo"), CONFIG, make_slot(folder)).command({"HOME": "/home"})

    assert str(folder / "agent.yaml") in command


def test_a_command_to_train_with_has_no_end_and_the_loggers_of_the_case(tmp_path):
    probe, training = (
        trainer().plan(case("amp_toy"), CONFIG, replace(make_slot(tmp_path), to_train=to_train))
        for to_train in (False, True)
    )

    assert flags(probe).keys() - flags(training).keys() == {"--logger", "--max_samples"}
    assert flags(training).items() <= flags(probe).items()


def test_the_agent_file_is_written_as_the_config_wants_it(tmp_path):
    plan = trainer().plan(case("amp_toy"), CONFIG | {"update_epochs": 30}, make_slot(tmp_path))

    agent = YAML(typ="safe").load(plan.files[tmp_path / "agent.yaml"])
    assert (agent["update_epochs"], agent["batch_size"]) == (30, 2)


def test_plans_share_a_session_where_the_environments_are_the_same(tmp_path):
    first, second, other = (
        trainer().plan(case("amp_toy"), config, make_slot(tmp_path))
        for config in (CONFIG, CONFIG | {"agent_variant": "default"}, CONFIG | {"num_envs": 32})
    )

    assert first.session_key == second.session_key != other.session_key


@pytest.mark.parametrize("thin", [True, False])
def test_a_warm_plan_is_the_same_probe_as_one_run_of_a_session(tmp_path, thin):
    source = trainer(python="some/venv/python")
    slot = replace(make_slot(tmp_path), limits=ProbeSpec(iterations=8, thin=thin))
    cold, warm = (plan(case("amp_toy"), CONFIG, slot) for plan in (source.plan, source.warm_plan))

    assert warm.argv[:2] == (cold.argv[0], str(DRIVER))
    own = ("--agent_config", "--mode", "--logger", "--max_samples", "--out_dir")
    assert flags(warm) == {flag: values for flag, values in flags(cold).items() if flag not in own}
    assert warm.request == {
        "config": CONFIG,
        "iterations": 1000 * 8 + 2,
        "agent_config": str(tmp_path / "agent.yaml"),
        "out_dir": str(tmp_path / "train"),
        "thin": thin,
    }
    assert (warm.progress, warm.expected) == (LinePatterns(), ())
    assert warm == replace(cold, argv=warm.argv, progress=warm.progress, expected=warm.expected, request=warm.request)


def test_configs_with_equal_session_keys_ask_for_the_same_command(tmp_path):
    source, toy = trainer(), case("amp_toy")
    configs = [CONFIG, CONFIG | {"agent_variant": "default"}, CONFIG | {"num_envs": 32}]
    keys = [source.session_key(toy, config) for config in configs]
    commands = [source.warm_plan(toy, config, make_slot(tmp_path)).argv for config in configs]

    assert keys[0] == keys[1] == "mimickit/amp_toy/data/engines/toy_engine.yaml/64"
    assert keys[2] not in keys[:2]
    assert commands[0] == commands[1] != commands[2]
    assert len({source.warm_plan(toy, config, make_slot(tmp_path)).digest for config in configs}) == 3


def test_the_engine_of_the_study_replaces_the_one_of_the_case(tmp_path):
    other = "data/engines/other_engine.yaml"
    engine = trainer(engine_config=other)

    plan = engine.plan(case("amp_toy"), CONFIG, make_slot(tmp_path))

    assert flags(plan)["--engine_config"] == [other]
    assert case("amp_toy", engine).options["engine_config"] == other
    assert engine.fingerprint() != trainer().fingerprint()


def test_an_interpreter_without_a_path_is_left_to_the_path(tmp_path):
    assert trainer().plan(case("amp_toy"), CONFIG, make_slot(tmp_path)).argv[0] == "python3"


@pytest.mark.parametrize("width", [9, 20])
def test_the_printed_table_shows_iteration_and_samples(width):
    rows = [
        f"| {key:>{width}} | {value:>15} |" for key, value in (("Iteration", 7), ("Wall_Time", 0.1), ("Samples", 512))
    ]
    rows += [f"| {key:>{width}} |               9 |" for key in ("Iterations", "Normalizer_Samples")]

    found = [
        match.groupdict()
        for row in rows
        for pattern in PRESETS["mimickit"].progress
        if (match := re.search(pattern, row))
    ]

    assert found == [{"iteration": "7"}, {"samples": "512"}]


def test_a_root_that_is_no_checkout_says_what_to_set(tmp_path, checkout):
    shutil.rmtree(checkout / "args")
    for root, message in (("", "no root"), (tmp_path, "no MimicKit checkout"), (checkout, "it has no args")):
        with pytest.raises(TrainerError, match=rf"{message}.*MIMICKIT_ROOT"):
            trainer(root).cases()


def test_a_case_whose_files_cannot_be_read_says_so_beside_the_others(tmp_path, checkout):
    (checkout / "args" / "odd_args.txt").write_bytes(b"--mode tr\xe4in")
    (checkout / "args" / "away_args.txt").mkdir()
    (checkout / "data" / "envs" / "toy_env.yaml").unlink()
    faults = {case.name: case.fault for case in trainer(checkout).cases() if case.fault}
    assert faults.keys() == {"add_lost", "amp_toy", "away", "deepmimic_toy_ppo", "dof_toy", "odd", "view_toy"}
    assert "lost_agent.yaml" in faults["add_lost"]
    assert faults["amp_toy"].endswith("has no file data/envs/toy_env.yaml")
    assert "Is a directory" in faults["away"]
    assert "odd_args.txt is not UTF-8 (byte 9)" in faults["odd"]
    odd = next(case for case in trainer(checkout).cases() if case.name == "odd")
    with pytest.raises(TrainerError, match=r"odd_args\.txt is not UTF-8"):
        trainer(checkout).plan(odd, CONFIG, make_slot(tmp_path))


def test_an_agent_file_that_cannot_be_read_is_named(tmp_path, checkout):
    with pytest.raises(TrainerError, match=r"has no file data/agents/lost_agent\.yaml"):
        trainer().plan(case("add_lost"), CONFIG, make_slot(tmp_path))
    (checkout / "data" / "agents" / "joint_agent.yaml").write_bytes(b"agent_name: \xff")
    with pytest.raises(TrainerError, match=r"joint_agent\.yaml is not UTF-8"):
        trainer(checkout).plan(case("amp_toy"), CONFIG, make_slot(tmp_path))


def test_a_ladder_ends_where_the_replay_buffer_of_the_case_s_agent_is_full(checkout):
    source = trainer(checkout)
    end = source.ladder_end(case("amp_toy"))

    assert end
    assert end.num_envs == 6250
    assert end.reason.startswith("data/agents/joint_agent.yaml keeps disc_buffer_size 200000 samples")
    assert source.ladder_end(case("deepmimic_toy_ppo")) is None


def test_an_agent_file_that_cannot_be_used_ends_no_ladder_before_its_plan_says_so(tmp_path, checkout):
    (checkout / "data" / "agents" / "joint_agent.yaml").write_text("- AMP")
    for name in ("add_lost", "amp_toy"):
        assert trainer(checkout).ladder_end(case(name)) is None
        with pytest.raises(TrainerError, match="agent"):
            trainer(checkout).plan(case(name), CONFIG, make_slot(tmp_path))


def test_a_race_has_its_seed_and_the_row_of_its_score(tmp_path):
    source = trainer(score_row="Train_Return")
    slot = replace(make_slot(tmp_path), seed=7)
    plan = source.plan(case("amp_toy", source), {"num_envs": 4}, slot)
    assert source.score_source == "Train_Return"
    assert plan.argv[plan.argv.index("--rand_seed") + 1] == "7"
    reader = ProgressReader(plan.progress, 0.0)
    for row in ("|  Iteration | 1 |", "|  Test_Return | 21.6 |", "| Train_Return |  -10.4 |"):
        reader.feed(OutputLine(t_s=1.0, text=row))
    assert reader.score == Score(1.0, -10.4)


def test_options_are_checked():
    with pytest.raises(TrainerError, match=r"trainer\.options\.engine: unknown key; known: engine_config"):
        trainer(engine="x")
    with pytest.raises(TrainerError, match="has no file data/engines/none"):
        trainer(engine_config="data/engines/none.yaml").cases()


@pytest.mark.parametrize("num_envs", [None, 0, "many", 1.5])
def test_num_envs_must_be_a_whole_number(tmp_path, num_envs):
    config = {} if num_envs is None else {"num_envs": num_envs}
    with pytest.raises(TrainerError, match=rf"mimickit needs a whole number above 0 for num_envs, found {num_envs!r}"):
        trainer().plan(case("amp_toy"), config, make_slot(tmp_path))
