from pathlib import Path

import pytest

from tuner.errors import StudyError
from tuner.probe.metrics import OBJECTIVES
from tuner.study.study_file import load, narrowed
from tuner.trainers.registry import TRAINERS

PI_PLUS_RUNGS = (32, 36, 38, 39, 40, 44, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
CASES = ("amp_pi_plus", "amp_humanoid")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_shipped_studies_load_for_every_case_and_device() -> None:
    for study, environ, loaded, trainer in [
        ("pi_plus", {}, "reference", "reference"),
        ("pi_plus", {"MIMICKIT_ROOT": "x"}, "pi_plus", "mimickit"),
        ("reference", {}, "reference", "reference"),
        ("reference", {"MIMICKIT_ROOT": "x"}, "reference", "reference"),
        ("all_cases", {"MIMICKIT_ROOT": "x"}, "all_cases", "mimickit"),
    ]:
        spec = load(study, environ)
        assert (spec.name, spec.trainer.name) == (loaded, trainer)
        assert spec.trainer.name in TRAINERS
        assert spec.objective in OBJECTIVES
        for case in CASES:
            for device in ("cpu", "gpu"):
                narrow = narrowed(spec, case, device)
                space = narrow.build_space()
                assert {"num_envs", "agent_variant"} <= set(space.names)
                assert len(space.start_configs(narrow.search.seeds_per_variant)) <= narrow.search.trials


def test_the_demo_without_a_gpu_tries_every_way_to_load_data_within_its_trials() -> None:
    demo = narrowed(load("pi_plus", {}), "amp_pi_plus", "cpu")
    configs = list(demo.build_space().configs())
    assert [(one["num_workers"], one.get("prefetch_factor")) for one in configs] == [(0, None), (1, 2), (1, 4)]
    assert demo.search.trials == len(configs)


def test_the_demo_searches_the_whole_space_with_the_product_s_own_sampler_and_runs_out_of_memory() -> None:
    demo, whole = load("demo", {}), load("reference", {})
    assert set(demo.build_space().names) == set(whole.build_space().names)
    assert demo.sampler == "gain"
    held_mib = [rung * demo.trainer.options["env_mib"] for rung in demo.build_space().rungs]
    limit_mib = demo.environment.memory_mib or 0.0
    assert min(held_mib) < limit_mib < max(held_mib)


def test_the_lightning_study_searches_what_feeds_the_cards() -> None:
    spec = load("lightning_ddp", {})
    assert set(spec.build_space().names) == {"batch_size", "num_workers", "prefetch_factor", "persistent_workers"}
    assert next(iter(spec.build_space().configs())).keys() == {"batch_size", "num_workers"}


def test_all_cases_needs_its_checkout() -> None:
    with pytest.raises(StudyError, match=r"trainer\.root: environment variable MIMICKIT_ROOT is not set"):
        load("all_cases", {})


def test_written_ladders_are_those_of_the_protocol() -> None:
    environ = {"MIMICKIT_ROOT": "x"}
    pi_plus = load("pi_plus", environ)
    assert narrowed(pi_plus, "amp_pi_plus", "cpu").build_space().values("num_envs") == PI_PLUS_RUNGS
    assert narrowed(pi_plus, "amp_pi_plus", "gpu").build_space().auto_bounds == (32, 65536)
    all_cases = load("all_cases", environ)
    assert narrowed(all_cases, "amp_humanoid", "cpu").build_space().values("num_envs") == PI_PLUS_RUNGS
    assert narrowed(all_cases, "amp_humanoid", "gpu").build_space().auto_bounds == (32, 65536)


def test_the_protocol_s_limits() -> None:
    probe = load("pi_plus", {"MIMICKIT_ROOT": "x"}).probe
    assert (probe.iterations, probe.warmup_iterations, probe.max_seconds, probe.silence_seconds) == (8, 2, 420, 120)
