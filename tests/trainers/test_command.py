import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.errors import ConfigRefusedError, TrainerError
from tuner.probe.probe_plan import Device, Slot
from tuner.study.space import Config
from tuner.study.spec import ProbeSpec, TrainerSpec
from tuner.trainers.base import check_trainer, make_slot
from tuner.trainers.command import CommandTrainer
from tuner.trainers.command_options import LAUNCH_FACTS, CommandOptions

COMMAND = "train --envs {num_envs} --workers {num_workers} --prefetch {prefetch_factor} --on {devices} --port {port}"


def trainer(*, root="", python="", **options):
    spec = TrainerSpec(name="command", root=str(root), python=python, options={"command": COMMAND, **options})
    return CommandTrainer(spec)


def plan(source, slot, **config):
    return source.plan(source.cases()[0], config, slot)


def test_it_keeps_the_contract(tmp_path):
    configs: list[Config] = [{"num_envs": 8}, {"num_envs": 16}, {"num_envs": 8, "num_workers": 2, "prefetch_factor": 4}]
    check_trainer(trainer(cases=["walk", "run"]), case="run", configs=configs, out_dir=tmp_path / "probe")


def test_placeholders_take_the_config_and_the_slot(tmp_path):
    words = ["{python}", "-m", "it", "{case}", "{out_dir}/x", "{port}", "{ranks}", "{devices}", "{iterations}", "{lr}"]
    source = trainer(command=words)

    argv = plan(source, make_slot(tmp_path, gpu=True, port=40123, iterations=8), lr=0.5).argv

    assert argv == (
        *(sys.executable, "-m", "it", "command", f"{tmp_path}/x", "40123", "2", "cuda:0,cuda:1", "8000", "0.5"),
    )
    assert plan(trainer(command="{python}", python="python3"), make_slot(tmp_path)).argv == ("python3",)


def test_a_value_or_a_folder_that_looks_like_a_reference_is_none(tmp_path):
    source, folder = trainer(command="run ${KEY} {tag} {out_dir}", env={"TAG": "{tag}"}), tmp_path / "${KEY:-x}"
    one, environ = plan(source, make_slot(folder), tag="${KEY}"), {"KEY": "k"}

    assert one.command(environ) == ("run", "k", "${KEY}", str(folder))
    found = one.environment(environ)
    assert (found["TAG"], found["TUNER_PROGRESS"]) == ("${KEY}", str(folder / "progress.jsonl"))
    assert one.digest == plan(source, make_slot(tmp_path), tag="${KEY}").digest
    assert not one.hidden({}).items() & environ.items()


def test_a_text_is_split_as_a_shell_would(tmp_path):
    source = trainer(command="run 'two words' --name=\"{case} x\"")

    assert plan(source, make_slot(tmp_path)).argv == ("run", "two words", "--name=command x")


def test_parameters_that_do_not_count_are_left_out_with_their_flags(tmp_path):
    argv = plan(trainer(), make_slot(tmp_path, port=40123), num_envs=8, num_workers=0).argv

    assert argv == ("train", "--envs", "8", "--workers", "0", "--on", "cpu,cpu", "--port", "40123")


def test_a_command_to_train_with_has_the_programs_own_number_of_iterations(tmp_path):
    source = trainer(command="train --iterations {iterations} --port {port}")

    assert plan(source, replace(make_slot(tmp_path, port=40123), to_train=True)).argv == ("train", "--port", "40123")


def test_a_command_to_train_with_has_none_of_the_variables_that_let_a_probe_watch(tmp_path):
    source = trainer(progress="lightning", env={"RANKS": "{ranks}"})

    probe, training = (plan(source, replace(make_slot(tmp_path), to_train=to_train)).env for to_train in (False, True))

    assert training == {"RANKS": "2", "NCCL_P2P_DISABLE": "1"}
    assert probe.keys() - training.keys() == {"PYTHONUNBUFFERED", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "TUNER_PROGRESS"}


def test_a_number_of_threads_is_the_command_s_own(tmp_path):
    source, slot = trainer(env={"OMP_NUM_THREADS": "{num_workers}"}), make_slot(tmp_path)
    slot = replace(slot, variables={"OMP_NUM_THREADS": "8"})
    threads = [plan(source, slot, **config).env["OMP_NUM_THREADS"] for config in ({"num_workers": 3}, {"num_envs": 8})]
    assert threads == ["3", "8"]


def test_it_accepts_what_it_has_placeholders_for_and_declines_the_other_standard_parameters():
    source = trainer(command="train {num_envs} {lr} {port}", env={"WORKERS": "{num_workers}"})

    assert source.accepts == {"num_envs", "lr", "num_workers"}
    assert source.declines.keys() == {"agent_variant", "update_epochs", "batch_size", "prefetch_factor"}
    assert source.declines["batch_size"] == "the command has no {batch_size} placeholder"


def test_the_environment_is_the_options_then_the_slots_then_the_progress_file(tmp_path):
    source = trainer(env={"RANKS": "{ranks}", "NCCL_P2P_DISABLE": "0", "WORKERS": "{num_workers}"})

    made = plan(source, make_slot(tmp_path), num_envs=8)

    # the digest of a plan has these alone, so another one here makes `plan --best` say that all studies have changed
    assert made.env == {
        "PYTHONUNBUFFERED": "1",
        "RANKS": "2",
        "NCCL_P2P_DISABLE": "1",
        "TUNER_PROGRESS": str(tmp_path / "progress.jsonl"),
    }
    assert made.environment({})["HYDRA_FULL_ERROR"] == "1"
    assert made.environment({"HYDRA_FULL_ERROR": "0"})["HYDRA_FULL_ERROR"] == "0"


def test_a_configuration_file_gets_computed_values_too(tmp_path):
    (tmp_path / "train.yaml").write_text("optim: {batch: 16, accumulate: 4}  # a step has 128\n")
    files = {"train.yaml": {"batch": "optim.batch", "accumulate": "optim.accumulate"}}
    options = {"command": "train train.yaml", "files": files, "computed": {"accumulate": "128 / ({batch} * {ranks})"}}
    source = trainer(root=tmp_path, **options)
    (text,) = plan(source, make_slot(tmp_path / "out"), batch=32).files.values()
    assert text == "optim: {batch: 32, accumulate: 2}  # a step has 128\n"
    assert source.needs == {"batch"}


def test_progress_is_the_option(tmp_path):
    patterns = [r"epoch (?P<iteration>\d+)", r"seen (?P<samples>\d+)"]

    assert plan(trainer(progress=patterns), make_slot(tmp_path)).progress.patterns == tuple(patterns)


def test_it_runs_in_the_root_or_in_a_folder_of_it(tmp_path):
    (tmp_path / "code").mkdir()

    assert plan(trainer(root=tmp_path), make_slot(tmp_path)).cwd == tmp_path
    assert plan(trainer(root=tmp_path, cwd="code"), make_slot(tmp_path)).cwd == tmp_path / "code"
    with pytest.raises(TrainerError, match=rf"cannot run in {tmp_path}/none: no such folder"):
        trainer(root=tmp_path, cwd="none").cases()


def test_without_the_option_there_are_no_sessions(tmp_path):
    source = trainer()
    (case,) = source.cases()

    assert source.session_key(case, {"num_envs": 8}) is None
    assert source.warm_plan(case, {"num_envs": 8}, make_slot(tmp_path)) is None
    assert plan(source, make_slot(tmp_path), num_envs=8).session_key != plan(source, make_slot(tmp_path)).session_key


def test_a_session_is_its_own_command_with_the_config_in_the_request(tmp_path):
    source = trainer(
        session="{python} serve --envs {num_envs} --prefetch {prefetch_factor} --port {port}",
        python="python3",
        progress=[r"epoch (?P<iteration>\d+)"],
        env={"OUT": "{out_dir}"},
    )
    config: Config = {"num_envs": 8, "num_workers": 2}
    cold, slot = plan(source, make_slot(tmp_path), **config), make_slot(tmp_path)

    warm = source.warm_plan(source.cases()[0], {**config, "pruner_patience": 3}, slot)

    assert warm is not None
    assert warm.argv == ("python3", "serve", "--envs", "8", "--port", str(slot.port))
    assert warm.request == {"config": config, "iterations": slot.limits.most_iterations}
    assert warm.progress.patterns == ()
    assert (warm.env, warm.cwd, warm.session_key) == (cold.env, cold.cwd, cold.session_key)
    assert warm.digest != cold.digest


def test_configs_share_a_session_when_they_agree_in_what_it_names():
    source = trainer(session="serve {num_envs}", env={"WORKERS": "{num_workers}"}, cases=["walk", "run"])
    walk, run = source.cases()
    config: Config = {"num_envs": 8, "num_workers": 2, "prefetch_factor": 4}
    key = source.session_key(walk, config)

    assert key == "command/walk/num_envs=8/num_workers=2"
    assert source.session_key(walk, {**config, "prefetch_factor": 2}) == key
    assert source.session_key(walk, {**config, "num_envs": 16}) != key
    assert source.session_key(walk, {**config, "num_workers": 1}) != key
    assert source.session_key(run, config) != key


def test_another_command_is_another_fingerprint():
    prints = [trainer(), trainer(command="train"), trainer(env={"A": "1"})]

    assert len({tuple(source.fingerprint().items()) for source in prints}) == 3
    assert trainer(cases=["more"]).fingerprint() == trainer().fingerprint()


def test_samples_that_are_counted_in_another_way_are_another_fingerprint():
    prints = [trainer(samples_per_iteration=text).fingerprint() for text in ("", "{num_envs}", "{num_envs} * 2")]
    assert len({tuple(one.items()) for one in prints}) == 3
    assert prints[0] == trainer().fingerprint()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"comand": "x"}, r"trainer\.options\.comand: unknown key; did you mean command"),
        ({"command": ""}, r"trainer\.options\.command: is empty"),
        ({"command": "say 'it"}, r"trainer\.options\.command: No closing quotation"),
        ({"command": "train {num_envs"}, r"trainer\.options\.command\.1: expected '}'"),
        ({"command": "train {0}"}, r"'\{0\}' holds a placeholder that is not \{name\} or \{flag:name\}"),
        ({"command": "train {flag:ranks}"}, r"command\.1: \{flag:ranks\}: a flag is a parameter of the space"),
        ({"command": ["train", 3]}, r"trainer\.options\.command\.1: .*should be text; put it in quotes \(found 3\)"),
        ({"env": {"A": "{"}}, r"trainer\.options\.env: "),
        ({"session": "serve {num_envs"}, r"trainer\.options\.session\.1: expected '}'"),
        ({"session": "serve {lr} {num_envs}"}, r"trainer\.options: session: lr: in neither command, env nor files"),
        ({"learning": ["lr"]}, r"trainer\.options: learning: lr: in neither command, env nor files; known: .*num_envs"),
        ({"cases": ["a/b"]}, r"trainer\.options\.cases\.0: .*\(found 'a/b'\)"),
        ({"cases": []}, r"trainer\.options\.cases: "),
        ({"progress": ["(?P<iteration>"]}, r"trainer\.options\.progress: .*is no regular expression"),
        ({"progress": [r"(?P<step>\d+)"]}, r"needs named groups out of iteration, samples, rank"),
        ({"progress": [r"step (\d+)"]}, r"needs named groups out of .*, as in \(\?P<iteration>…\)"),
        (
            {"samples_per_iteration": "{lr} * 2"},
            r"samples_per_iteration: lr: in neither command, env nor files; known: .*num_envs",
        ),
        (
            {"samples_per_iteration": "{ranks} ** 2"},
            r"samples_per_iteration: is no arithmetic.*\(found '\{ranks\} \*\* 2'\)",
        ),
        ({"samples_per_iteration": True}, r"samples_per_iteration: should be text; put it in quotes \(found True\)"),
        (
            {"samples_per_iteration": "2", "progress": [r"(?P<iteration>\d+) (?P<samples>\d+)"]},
            r"samples_per_iteration: `progress` counts samples already",
        ),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(TrainerError, match=message):
        trainer(**options)


@pytest.mark.parametrize(
    ("options", "learning"), [({}, {"batch_size"}), ({"learning": ["lr"]}, {"lr"}), ({"learning": []}, set())]
)
def test_what_changes_learning_is_the_usual_or_what_the_options_say(options, learning):
    assert trainer(command="train {num_envs} {batch_size} {lr}", **options).learning == learning


def test_all_errors_come_at_once_and_the_command_is_required():
    with pytest.raises(TrainerError, match=r"2 errors in its options\n.*command: is required\n.*cmd: unknown key"):
        CommandTrainer(TrainerSpec(name="command", options={"cmd": "train"}))


def test_the_documentation_names_every_option_and_placeholder():
    documented = (Path(__file__).parents[2] / "docs/command.md").read_text()
    names = [*(f"`{name}`" for name in CommandOptions.model_fields), *(f"`{{{name}}}`" for name in LAUNCH_FACTS)]
    assert [name for name in names if name not in documented] == []


@pytest.mark.parametrize(
    ("written", "samples"),
    [
        ("{num_envs} * 24 * {ranks}", 384.0),
        ("{num_envs} / 16 * {devices}", 1.0),
        (4096, 4096.0),
        ("{num_workers}", None),
    ],
)
def test_samples_of_an_iteration_are_computed_from_the_config_and_the_ranks(tmp_path, written, samples):
    source, slot = trainer(samples_per_iteration=written, session="serve"), make_slot(tmp_path)
    warm = source.warm_plan(source.cases()[0], {"num_envs": 8}, slot)

    assert plan(source, slot, num_envs=8).progress.samples_per_iteration == samples
    assert warm is not None
    assert warm.progress.samples_per_iteration == samples


@pytest.mark.parametrize(
    ("written", "message"),
    [("8 / {num_workers}", "cannot be computed: .*division"), ("0 * {ranks}", "must be above 0")],
)
def test_a_config_whose_samples_cannot_be_computed_is_refused(tmp_path, written, message):
    with pytest.raises(ConfigRefusedError, match=message):
        plan(trainer(samples_per_iteration=written), make_slot(tmp_path), num_workers=0)


def test_flags_and_dotted_names_are_parameters(tmp_path):
    source = trainer(
        command="train {flag:headless} env.num_envs={env.num_envs} --amp {amp}", session="s {flag:headless}"
    )
    config: Config = {"headless": True, "env.num_envs": 64, "amp": False}
    warm = source.warm_plan(source.cases()[0], config, make_slot(tmp_path))

    assert source.accepts == {"headless", "env.num_envs", "amp"}
    argv = source.plan(source.cases()[0], config, make_slot(tmp_path)).argv
    assert argv == ("train", "--headless", "env.num_envs=64", "--amp", "false")
    assert source.session_key(source.cases()[0], config) == "command/command/headless=true"
    assert warm is not None
    assert (warm.argv, warm.request and warm.request["config"]) == (("s", "--headless"), config)
    source.check_value("headless", False)
    source.check_value("amp", "bf16")
    with pytest.raises(TrainerError, match=r"headless 1: \{flag:headless\} takes true or false"):
        source.check_value("headless", 1)


def test_samples_are_not_counted_with_words():
    source = trainer(command="train {num_envs} {agent_variant}", samples_per_iteration="{num_envs}")
    source.check_value("num_envs", 8)
    source.check_value("agent_variant", "hiutil")
    with pytest.raises(
        TrainerError, match="num_envs 'many' is not a number, but samples_per_iteration is computed from"
    ):
        source.check_value("num_envs", "many")


def test_a_key_reaches_the_process_and_nothing_else(tmp_path):
    environment = {"KEY": "${OWN_KEY}", "NAME": "{num_envs}-${OWN_NAME:-walker}"}
    source = trainer(command="train --key ${OWN_KEY} {num_envs}", env=environment)
    made = plan(source, make_slot(tmp_path), num_envs=8)
    assert made.command({"OWN_KEY": "s3 cret"}) == ("train", "--key", "s3 cret", "8")
    assert made.hidden({"OWN_KEY": "s3cret", "OWN_NAME": ""}) == {"OWN_KEY": "s3cret"}
    assert made.argv == ("train", "--key", "${OWN_KEY}", "8")
    assert made.environment({"OWN_KEY": "s3cret"})["KEY"] == "s3cret"
    assert made.environment({"OWN_KEY": "s3cret"})["NAME"] == "8-walker"
    assert made.env["KEY"] == "${OWN_KEY}"
    assert "s3cret" not in str(made) + made.digest + str(source.fingerprint())
    assert source.accepts == {"num_envs"}


@given(st.integers(1, 6), st.integers(0, 6), st.integers(0, 6))
def test_a_total_batch_stays_by_a_computed_flag(ranks: int, batch: int, accumulated: int) -> None:
    total = (1 << batch + accumulated) * ranks
    options = {
        "command": "train --batch {batch} --accumulate={accumulate}",
        "computed": {"accumulate": f"{total} / ({{batch}} * {{ranks}})"},
        "samples_per_iteration": "{batch} * {accumulate} * {ranks}",
        "learning": "keep",
    }
    trainer = CommandTrainer(TrainerSpec(name="command", options=options))
    assert (trainer.accepts, trainer.learning) == ({"batch"}, set())
    slot = Slot(devices=(Device(name="cpu:0", model="a CPU"),) * ranks, out_dir=Path("/out"), limits=ProbeSpec())
    plan = trainer.plan(trainer.cases()[0], {"batch": 1 << batch}, slot)
    assert plan.argv[1:] == ("--batch", str(1 << batch), f"--accumulate={1 << accumulated}")
    assert plan.progress.samples_per_iteration == total
    with pytest.raises(ConfigRefusedError, match="no whole number"):
        trainer.plan(trainer.cases()[0], {"batch": 2 * total + 1}, slot)


@pytest.mark.parametrize(
    ("computed", "words"),
    [
        ({"elsewhere": "1"}, "elsewhere: in neither command, env nor files"),
        ({"a": "{b} * 2", "b": "3"}, "b is computed itself"),
        ({"a": "{b} +"}, "is no arithmetic"),
    ],
)
def test_a_computed_flag_that_cannot_be_used_is_refused(computed: dict[str, str], words: str) -> None:
    with pytest.raises(TrainerError, match=words):
        CommandTrainer(TrainerSpec(name="command", options={"command": "train {a} {b}", "computed": computed}))
