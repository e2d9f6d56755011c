from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from tuner.errors import TrainerError
from tuner.trainers.mimickit import adapted_agent, check_value, ladder_end, steps_per_iter

AGENTS = Path(__file__).parents[1] / "data" / "mimickit" / "data" / "agents"
SEPARATE = (AGENTS / "separate_agent.yaml").read_text()
JOINT = (AGENTS / "joint_agent.yaml").read_text()
COUNTS = st.integers(min_value=1, max_value=60)


def adapt(text, **config):
    return adapted_agent(text, config, "agent.yaml")


def read(text):
    return YAML(typ="safe").load(text)


@pytest.mark.parametrize("text", [SEPARATE, JOINT])
def test_default_leaves_the_file_as_shipped(text):
    assert adapt(text, agent_variant="default") == adapt(text) == text


def test_hiutil_changes_each_network_of_the_newer_schema():
    agent = read(adapt(SEPARATE, agent_variant="hiutil"))

    assert {key: agent[key] for key in agent if "epochs" in key or "batch" in key} == {
        "actor_epochs": 20,
        "actor_batch_size": 2,
        "critic_epochs": 25,
        "critic_batch_size": 1,
        "critic_eval_batch_size": 4096,
    }
    assert agent["model"] == {"actor_net": "fc_3layers_1024units", "critic_net": "fc_3layers_1024units"}


def test_hiutil_changes_the_older_schema_and_leaves_batch_sizes_that_count_samples():
    agent = read(adapt(JOINT, agent_variant="hiutil"))

    assert (agent["update_epochs"], agent["batch_size"], agent["disc_batch_size"]) == (20, 2, 2048)
    assert agent["model"] == {"actor_net": "fc_3layers_1024units", "disc_net": "fc_2layers_512units"}


def test_everything_else_keeps_its_spelling_order_and_comments():
    before, after = (text.splitlines() for text in (SEPARATE, adapt(SEPARATE, agent_variant="hiutil")))

    changed = {old: new for old, new in zip(before, after, strict=True) if old != new}
    assert changed == {
        '  actor_net: "fc_2layers_1024units"': '  actor_net: "fc_3layers_1024units"',
        "actor_epochs: 5 # passes over the samples": "actor_epochs: 20 # passes over the samples",
        "actor_batch_size: 4": "actor_batch_size: 2",
    }


@given(epochs=COUNTS, batch_size=COUNTS, text=st.sampled_from([SEPARATE, JOINT]))
def test_the_config_replaces_shipped_values_within_the_bounds_of_the_variant(epochs, batch_size, text):
    shipped = read(text)
    plain = read(adapt(text, update_epochs=epochs, batch_size=batch_size))
    high = read(adapt(text, agent_variant="hiutil", update_epochs=epochs, batch_size=batch_size))

    for key in (key for key in shipped if key.endswith("_epochs")):
        assert plain[key] == epochs
        assert high[key] == max(epochs, 20)
    for key in ("batch_size", "actor_batch_size", "critic_batch_size"):
        assert plain.get(key) == (batch_size if key in shipped else None)
        assert high.get(key) == (min(batch_size, 2) if key in shipped else None)
    assert plain["model"] == shipped["model"]


def test_hiutil_refuses_a_file_that_it_could_not_change_naming_what_it_looked_for():
    done = adapt(SEPARATE, agent_variant="hiutil")

    with pytest.raises(TrainerError, match=r"agent\.yaml: .*nothing.*_epochs.*batch_size.*fc_2layers_1024units"):
        adapt(done, agent_variant="hiutil", update_epochs=40)
    assert read(adapt(done, update_epochs=40))["actor_epochs"] == 40


@pytest.mark.parametrize(("parameter", "key"), [("update_epochs", r"\*_epochs"), ("batch_size", r"\*_batch_size")])
def test_a_parameter_without_a_key_is_refused_naming_what_was_looked_for(parameter, key):
    with pytest.raises(TrainerError, match=rf"agent\.yaml.*no key for {parameter}.*{key}"):
        adapt("agent_name: PPO\ncritic_eval_batch_size: 64\n", **{parameter: 3})


@pytest.mark.parametrize(
    ("text", "config", "message"),
    [
        ("a: [1", {}, "agent file agent.yaml is not YAML"),
        ("- PPO\n", {}, "agent file agent.yaml holds no mapping"),
        ("", {}, "holds no mapping"),
        ("actor_epochs: many\n", {}, "actor_epochs is 'many'; it must be a number above 0"),
        (JOINT, {"update_epochs": 0}, "update_epochs of the study is 0"),
        (JOINT, {"agent_variant": "hi"}, "agent_variant 'hi' is unknown to mimickit; known: default, hiutil"),
    ],
)
def test_what_cannot_be_used_is_refused_with_file_and_value(text, config, message):
    with pytest.raises(TrainerError, match=message):
        adapt(text, **config)


def test_steps_per_iter_is_read_or_taken_as_usual():
    assert steps_per_iter(SEPARATE, "agent.yaml") == 16
    assert steps_per_iter(JOINT, "agent.yaml") == 32
    with pytest.raises(TrainerError, match=r"agent\.yaml: steps_per_iter is 'x'"):
        steps_per_iter("steps_per_iter: x", "agent.yaml")


@given(samples=st.integers(1, 10**6), steps=st.integers(1, 100))
def test_a_ladder_ends_where_the_samples_of_an_iteration_no_longer_fit(samples, steps):
    end = ladder_end(f"disc_buffer_size: {samples}\nsteps_per_iter: {steps}\n", "agent.yaml")

    assert end
    assert end.num_envs * steps <= samples < (end.num_envs + 1) * steps
    for word in ("agent.yaml", f"disc_buffer_size {samples}", f" {steps} at once", "raise disc_buffer_size", "learnt"):
        assert word in end.reason


def test_without_a_replay_buffer_no_end_is_known():
    assert ladder_end(SEPARATE, "agent.yaml") is None
    assert ladder_end(JOINT, "agent.yaml")


@pytest.mark.parametrize("size", ["many", 0, "true"])
def test_a_replay_buffer_without_a_size_is_refused(size):
    with pytest.raises(TrainerError, match=r"agent\.yaml: disc_buffer_size is "):
        ladder_end(f"disc_buffer_size: {size}\n", "agent.yaml")


@pytest.mark.parametrize(("parameter", "value"), [("agent_variant", "fast"), ("update_epochs", 0), ("batch_size", "2")])
def test_a_value_that_no_agent_file_takes_is_refused(parameter: str, value: int | str) -> None:
    with pytest.raises(TrainerError, match=f"{parameter}.* {value!r}"):
        check_value(parameter, value)


@pytest.mark.parametrize(("parameter", "value"), [("agent_variant", "hiutil"), ("batch_size", 0.5), ("num_envs", 8)])
def test_other_values_are_for_the_agent_file_to_take(parameter: str, value: float | str) -> None:
    check_value(parameter, value)
