"""The reference trainer's plans: what is launched for a case and a config. Planning does not load torch."""

import sys
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.errors import TrainerError
from tuner.probe.probe_plan import Device, ProbePlan, Slot
from tuner.study.cases import Case, select
from tuner.study.space import Config, Value
from tuner.study.spec import ProbeSpec, TrainerSpec
from tuner.trainers.base import Trainer
from tuner.trainers.reference.launch_settings import run_config
from tuner.trainers.reference.reference_trainer import ReferenceTrainer

CPUS = (Device(name="cpu:0", model="cpu"), Device(name="cpu:1", model="cpu"))
GPUS = (Device(name="cuda:0", model="gpu"), Device(name="cuda:1", model="gpu"))


def trainer(**options: object) -> ReferenceTrainer:
    return ReferenceTrainer(TrainerSpec(name="reference", options=options))


def slot(devices: tuple[Device, ...] = CPUS) -> Slot:
    return Slot(
        devices=devices,
        out_dir=Path("/runs/probe"),
        port=29501,
        limits=ProbeSpec(iterations=6),
        variables={"NCCL_P2P_DISABLE": "1"},
    )


def test_the_python_of_a_study_may_lie_below_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    planned = ReferenceTrainer(TrainerSpec(name="reference", python="~/env/bin/python"))
    assert planned.plan(Case(name="amp_pi_plus"), {"num_envs": 64}, slot()).argv[0] == "/home/me/env/bin/python"


def test_a_machine_without_torch_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(TrainerError, match=r"torch.*\[reference\]"):
        trainer().plan(Case(name="amp_pi_plus"), {"num_envs": 64}, slot())
    elsewhere = ReferenceTrainer(TrainerSpec(name="reference", python="/opt/env/bin/python"))
    assert elsewhere.plan(Case(name="amp_pi_plus"), {"num_envs": 64}, slot()).argv[0] == "/opt/env/bin/python"


def plan(config: dict[str, Value], devices: tuple[Device, ...] = CPUS, **options: int) -> ProbePlan:
    return trainer(**options).plan(Case(name="amp_pi_plus"), {"num_envs": 64, **config}, slot(devices))


def warm_plan(config: dict[str, Value], devices: tuple[Device, ...] = CPUS, **options: int) -> ProbePlan:
    return trainer(**options).warm_plan(Case(name="amp_pi_plus"), {"num_envs": 64, **config}, slot(devices))


def argument(plan: ProbePlan, name: str) -> str | None:
    return next((value for option, value in pairwise(plan.argv) if option == name), None)


def test_the_cases_are_those_of_pi_plus() -> None:
    reference: Trainer = trainer()
    cases = select(reference.cases(), ["*pi_plus*"])
    assert [(case.name, case.method) for case in cases] == [
        ("add_pi_plus", "add"),
        ("amp_pi_plus", "amp"),
        ("deepmimic_pi_plus_ppo", "deepmimic"),
    ]
    assert cases[1].options == {
        "agent_config": "reference/amp.agent",
        "env_config": "reference/pi_plus.env",
        "engine_config": "reference/pd.engine",
    }


def test_a_whole_command_on_two_cpu_ranks() -> None:
    planned = plan({"agent_variant": "hiutil", "num_workers": 2, "prefetch_factor": 4})
    assert planned.argv == (
        *(sys.executable, "-m", "tuner.trainers.reference", "--case", "amp_pi_plus", "--devices", "cpu", "cpu"),
        *("--master-port", "29501", "--num-envs", "64"),
        *("--agent-variant", "hiutil", "--num-workers", "2", "--prefetch-factor", "4"),
        *("--iterations", "6002", "--out-dir", "/runs/probe/train"),
    )
    assert planned.cwd == Path("/runs/probe")
    assert planned.env == {"NCCL_P2P_DISABLE": "1", "TUNER_PROGRESS": "/runs/probe/progress.jsonl"}
    assert planned.expected == (Path("/runs/probe/train/model.pt"), Path("/runs/probe/train/log.txt"))
    assert (planned.base_agent, planned.agent_config) == ("reference/amp.default", "reference/amp.hiutil")


def test_gpus_are_named_by_index() -> None:
    planned = plan({}, devices=GPUS)
    assert planned.argv[planned.argv.index("--devices") + 1 :][:2] == ("cuda:0", "cuda:1")


def test_a_run_computes_as_its_config_says() -> None:
    config: Config = {"update_epochs": 3, "num_workers": 2}
    planned = plan({**config, "batch_size": 8}, devices=GPUS)
    start = planned.argv.index("--batch-size")
    assert planned.argv[start : planned.argv.index("--iterations")] == ("--batch-size", "8", "--num-workers", "2")
    assert warm_plan(config, devices=GPUS).request == {"config": {"num_envs": 64, **config}, "iterations": 6002}


def test_environments_hold_memory_where_the_study_says_so() -> None:
    assert argument(plan({}, env_mib=8), "--env-mib") == argument(warm_plan({}, env_mib=8), "--env-mib") == "8"
    assert argument(plan({}), "--env-mib") is None


def test_the_study_may_name_the_python() -> None:
    spec = TrainerSpec(name="reference", python="/env/bin/python")
    planned = ReferenceTrainer(spec).plan(Case(name="add_pi_plus"), {}, slot())
    assert planned.argv[0] == "/env/bin/python"


def test_a_session_is_one_command_with_what_differs_in_the_request() -> None:
    config = {"num_envs": 64, "agent_variant": "hiutil", "num_workers": 2}
    cold, warm = plan(config), warm_plan({**config, "pruner_patience": 3})
    assert warm.argv == (
        *(sys.executable, "-m", "tuner.trainers.reference.serve", "--case", "amp_pi_plus", "--devices", "cpu", "cpu"),
        *("--master-port", "29501", "--num-envs", "64"),
    )
    assert warm.request == {"config": config, "iterations": 6002}
    assert (cold.request, warm.expected) == (None, ())
    assert (warm.env, warm.agent_config, warm.session_key) == (cold.env, cold.agent_config, cold.session_key)
    assert warm.digest != cold.digest


def test_sessions_are_shared_between_agents_but_not_between_rungs_and_cases() -> None:
    reference, case = trainer(), Case(name="amp_pi_plus")
    key = reference.session_key(case, {"num_envs": 64, "agent_variant": "default"})
    assert reference.session_key(case, {"num_envs": 64, "agent_variant": "hiutil", "num_workers": 2}) == key
    assert reference.session_key(case, {"num_envs": 128, "agent_variant": "default"}) != key
    assert reference.session_key(Case(name="add_pi_plus"), {"num_envs": 64, "agent_variant": "default"}) != key


def test_default_leaves_the_agent_as_it_is() -> None:
    asked = run_config({})
    assert (asked.hidden_layers, asked.epochs, asked.samples_of_minibatch(64)) == (2, 5, 256)


@given(epochs=st.integers(1, 200), batch_size=st.integers(1, 64))
def test_hiutil_bounds_what_the_config_says(epochs: int, batch_size: int) -> None:
    config = {"agent_variant": "hiutil", "update_epochs": epochs, "batch_size": batch_size}
    asked = run_config(config)
    assert asked.hidden_layers == 3
    assert asked.epochs == max(20, epochs)
    assert asked.samples_of_minibatch(64) == 64 * min(2, batch_size)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"agent_variant": "huge"}, "agent_variant 'huge': .* 'default' or 'hiutil'"),
        ({"update_epochs": 0}, "update_epochs 0: .* greater than or equal to 1"),
        ({"batch_size": 1.5}, "batch_size 1.5: .* integer"),
        ({"num_envs": "many"}, "whole number above 0 for num_envs, found 'many'"),
        ({"num_workers": -1}, "num_workers -1: .* greater than or equal to 0"),
        ({"prefetch_factor": 4}, "prefetch_factor 4 needs num_workers of at least 1"),
    ],
)
def test_a_value_it_cannot_use_is_named(config: dict[str, Value], message: str) -> None:
    for decide in (plan, warm_plan):
        with pytest.raises(TrainerError, match=message):
            decide(config)


def test_a_case_it_does_not_know_is_named() -> None:
    with pytest.raises(TrainerError, match="'amp_humanoid' is unknown"):
        trainer().plan(Case(name="amp_humanoid"), {}, slot())


def test_unknown_options_are_named() -> None:
    with pytest.raises(
        TrainerError, match=r"options\.width: unknown key; known: env_mib\n.*options\.depth: unknown key"
    ):
        trainer(width=3, depth=2)


def test_an_option_of_the_wrong_kind_is_named() -> None:
    with pytest.raises(TrainerError, match=r"options\.env_mib: .* \(found 'wide'\)"):
        trainer(env_mib="wide")


def test_the_fingerprint_holds_the_options() -> None:
    assert trainer(env_mib=128).fingerprint() == {"name": "reference", "env_mib": "128"}
    assert trainer().fingerprint() == {"name": "reference"}
