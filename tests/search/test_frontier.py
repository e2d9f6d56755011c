from hypothesis import example, given
from hypothesis import strategies as st

from tuner.probe.result import Failure, FailureKind
from tuner.search.frontier import DEVICE_MEMORY, Frontier, Need, OutOfMemory, out_of_memory
from tuner.study.space import Config

VARIANTS = ("hiutil", "default")
rungs = st.integers(1, 4096)
violations = st.floats(0.01, 100)
configs = st.fixed_dictionaries(
    {"num_envs": rungs, "agent_variant": st.sampled_from(VARIANTS)},
    optional={"batch_size": st.integers(1, 8), "num_workers": st.integers(0, 4), "update_epochs": st.integers(20, 40)},
)
failures = st.builds(OutOfMemory, configs, violations, st.just(DEVICE_MEMORY))


def number(config: Config, name: str) -> int:
    return int(config.get(name, 0))


@given(configs)
def test_nothing_lies_beyond_an_unknown_frontier(config: Config) -> None:
    assert Frontier().exceeded_failure(config) is None


@given(failures)
def test_a_failure_lies_beyond_itself(known: OutOfMemory) -> None:
    assert Frontier([known]).exceeded_failure(known.config) == known


@example([OutOfMemory({"num_envs": 10}, 5.0), OutOfMemory({"num_envs": 1000}, 6.0)], {"num_envs": 999}, 1, 0)
@given(st.lists(failures), configs, st.integers(0, 4096), st.integers(0, 8))
def test_more_of_what_needs_memory_stays_beyond_and_is_worse(
    known: list[OutOfMemory], config: Config, more_envs: int, more_batch: int
) -> None:
    larger = {**config, "num_envs": number(config, "num_envs") + more_envs}
    if "batch_size" in config:
        larger["batch_size"] = number(config, "batch_size") + more_batch
    before, after = Frontier(known).exceeded_failure(config), Frontier(known).exceeded_failure(larger)
    if before is not None:
        assert after is not None
        assert after.violation >= before.violation


@given(failures, configs)
def test_a_config_beyond_the_frontier_needs_at_least_as_much_of_everything(known: OutOfMemory, config: Config) -> None:
    beyond = Frontier([known]).exceeded_failure(config)
    dominates = (
        config["agent_variant"] == known.config["agent_variant"]
        and ("batch_size" in config) == ("batch_size" in known.config)
        and all(number(config, name) >= number(known.config, name) for name in ("num_envs", "batch_size"))
    )
    assert (beyond is not None) == dominates
    if beyond is not None:
        ratio = number(config, "num_envs") / number(known.config, "num_envs")
        assert beyond == OutOfMemory(known.config, known.violation * ratio)


@given(st.lists(failures), configs)
def test_another_variant_shows_nothing(known: list[OutOfMemory], config: Config) -> None:
    others = [one for one in known if one.config["agent_variant"] != config["agent_variant"]]
    assert Frontier(others).exceeded_failure(config) is None


@given(failures, st.integers(0, 4), st.integers(20, 40))
def test_what_needs_no_memory_does_not_count(known: OutOfMemory, workers: int, epochs: int) -> None:
    config = {**known.config, "num_workers": workers, "update_epochs": epochs}
    assert Frontier([known]).exceeded_failure(config) == known


def test_what_a_parameter_of_the_user_s_own_takes_is_not_known() -> None:
    frontier = Frontier([OutOfMemory({"num_envs": 1024, "width": 4096}, 1.0)])
    assert frontier.exceeded_failure({"num_envs": 2048, "width": 4096}) is not None
    assert frontier.exceeded_failure({"num_envs": 2048, "width": 64}) is None
    assert frontier.exceeded_failure({"num_envs": 2048}) is None


def test_values_that_are_no_numbers_are_comparable_to_themselves_only() -> None:
    frontier = Frontier([OutOfMemory({"num_envs": "many"}, 1.0)])
    assert frontier.exceeded_failure({"num_envs": "many"}) is not None
    assert frontier.exceeded_failure({"num_envs": "more"}) is None
    assert frontier.exceeded_failure({"num_envs": 4096}) is None


def test_a_failure_is_as_large_as_its_message_says() -> None:
    for overshoot_mib, violation in [(2048.0, 2.0), (512.0, 0.5), (None, 1.0), (0.0, 1.0)]:
        failure = Failure(kind=FailureKind.GPU_OOM, rule="test", detail="", overshoot_mib=overshoot_mib)
        assert out_of_memory({"num_envs": 8}, failure) == OutOfMemory({"num_envs": 8}, violation)


def test_a_larger_rung_of_any_ladder_needs_more() -> None:
    known = OutOfMemory({"n": 64, "width": 8}, 2.0)
    beyond = Frontier([known], ladder="n").exceeded_failure({"n": 128, "width": 8})
    assert beyond is not None
    assert beyond.violation == 4.0
    assert Frontier([known], ladder="n").exceeded_failure({"n": 32, "width": 8}) is None
    assert Frontier([known]).exceeded_failure({"n": 128, "width": 8}) is None


def test_host_memory_grows_with_every_number_and_with_no_choice() -> None:
    need = Need(ignored=frozenset({"update_epochs"}), sizes_only=True)
    frontier = Frontier([OutOfMemory({"batch_size": 32, "workers": 4, "update_epochs": 20, "tf32": True}, 1.0, need)])
    assert frontier.exceeded_failure({"batch_size": 64, "workers": 4, "update_epochs": 10, "tf32": False}) is not None
    assert frontier.exceeded_failure({"batch_size": 64, "workers": 2, "update_epochs": 20, "tf32": True}) is None
    assert frontier.exceeded_failure({"batch_size": 16, "workers": 8, "update_epochs": 20, "tf32": True}) is None
