"""What each parameter changes, by configs that differ in this parameter alone."""

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.records.trial import ProbeRecord, TrialRecord
from tuner.report.facts import Effect
from tuner.report.facts import effects as effects_of
from tuner.search.standing import Standing
from tuner.study.space import Config

Point = tuple[Standing, bool]
"""A measured config, and whether it is the best."""


def point(
    config: Config, value: float, *, error: float | None = 1.0, speed: float = 100.0, best: bool = False
) -> Point:
    trial = TrialRecord(config=config, probe=ProbeRecord(status="ok"))
    return Standing(trials=(trial,), values=(value,), error=error, samples_per_s=speed), best


def effects(points: Sequence[Point]) -> list[Effect]:
    return effects_of([one for one, _ in points], next((one for one, is_best in points if is_best), None))


def test_only_configs_that_differ_in_one_parameter_are_compared() -> None:
    found = effects(
        [
            point({"num_envs": 64, "batch": 2}, 90.0, speed=50.0, best=True),
            point({"num_envs": 64, "batch": 1}, 80.0, speed=100.0),
            point({"num_envs": 32, "batch": 1}, 10.0),
        ]
    )
    by_name = {(one.parameter, one.value): one for one in found}
    batch, envs = by_name["batch", 1], by_name["num_envs", 32]
    assert (batch.change, batch.pairs, batch.speed) == (10.0, 1, pytest.approx(0.5))
    assert batch.error == pytest.approx(math.sqrt(2.0))
    assert batch.is_sure
    assert (envs.change, envs.pairs) == (70.0, 1)  # of batch 1, for there is no config with 32 and batch 2


def test_an_effect_that_differs_from_config_to_config_has_a_wide_error() -> None:
    alike = [point({"a": a, "b": b}, 50.0 + 10.0 * a, best=(a, b) == (1, 0)) for a in (0, 1) for b in range(4)]
    mixed = [point({"a": a, "b": b}, 50.0 + 10.0 * a * b, best=(a, b) == (1, 0)) for a in (0, 1) for b in range(4)]
    steady, varying = (next(one for one in effects(some) if one.parameter == "a") for some in (alike, mixed))
    assert steady.change == 10.0
    assert steady.pairs == varying.pairs == 4
    assert varying.error is not None
    assert steady.error is not None
    assert varying.error > 5.0 * steady.error


def test_a_parameter_that_counts_only_beside_a_variant_differs_with_the_variant() -> None:
    default = point({"num_envs": 64, "agent_variant": "default"}, 60.0)
    others = [
        point({"num_envs": 64, "agent_variant": "hiutil", "update_epochs": epochs}, 80.0 + epochs, best=epochs == 3)
        for epochs in (1, 3)
    ]
    found = {one.parameter: one for one in effects([default, *others])}
    assert (found["agent_variant"].pairs, found["agent_variant"].change) == (2, 22.0)
    assert (found["update_epochs"].pairs, found["update_epochs"].change) == (1, 2.0)


configs = st.dictionaries(st.sampled_from("abc"), st.sampled_from([1, 2, "x", True]), max_size=3)


@given(st.lists(configs, max_size=12, unique_by=lambda config: frozenset(config.items())))
def test_any_configs_have_effects_with_a_doubt_or_none(chosen: list[Config]) -> None:
    points = [point(config, float(place), best=place == 0) for place, config in enumerate(chosen)]
    for one in effects(points):
        assert one.pairs >= 1
        assert one.value != one.best
        assert one.error is None or one.error >= 0.0


def test_without_a_best_nothing_is_compared() -> None:
    assert effects([point({"a": 1}, 1.0), point({"a": 2}, 2.0)]) == []
