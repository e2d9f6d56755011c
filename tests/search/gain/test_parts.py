"""Predictions by the parts of a step, and of memory by the same effects."""

import math

import numpy as np
import pytest

from tuner.search.gain.parts import Basis, Memory, StepParts
from tuner.search.gain.pool import Levels
from tuner.search.gain.surrogate import Readings, Surrogate
from tuner.study.space import Config, Parameter, Space

SPACE = Space(
    (
        Parameter(name="micro_batch", values=(1, 2, 4, 8)),
        Parameter(name="ranks", values=(1, 2, 4, 8)),
        Parameter(name="dtype", values=("fp32", "bf16")),
    )
)
CONFIGS = list(SPACE.configs())
LEVELS = Levels(SPACE)
ALL = LEVELS.codes(CONFIGS)
MEASURED = [0, 3, 9, 14, 17, 20, 26, 31]


def parts_s(config: Config) -> dict[str, float]:
    """Computing gains by the data type alone, traffic by the ranks alone."""
    size, ranks = float(config["micro_batch"]), float(config["ranks"])
    return {"compute": (1.0 + 1.0 / size) * (2.0 if config["dtype"] == "fp32" else 1.0), "traffic": 0.05 * ranks**1.5}


def speeds(places: list[int]) -> np.ndarray:
    return np.array([-math.log(sum(parts_s(CONFIGS[place]).values())) for place in places])


def shares(place: int) -> dict[str, float]:
    parts = parts_s(CONFIGS[place])
    return {name: seconds / sum(parts.values()) for name, seconds in parts.items()}


def readings() -> Readings:
    none = np.zeros((len(MEASURED), len(MEASURED)))
    return Readings(
        codes=ALL[MEASURED],
        values=speeds(MEASURED),
        errors=np.full(len(MEASURED), 0.01),
        shared=none,
        error=0.01,
        scale=1.0,
        logarithmic=True,
    )


def error(told: list[dict[str, float]] | None) -> float:
    """Return the mean error of the predictions of all configs, with these parts or without any."""
    known = readings()
    steps = StepParts(Basis(SPACE, LEVELS), known.codes, known.values, told) if told else None
    predicted = Surrogate(LEVELS, known, steps=steps).predict(ALL)
    return float(np.abs(predicted.mean - speeds(list(range(len(CONFIGS))))).mean())


def test_parts_foretell_speeds_of_configs_that_share_no_pair_with_a_measured_one() -> None:
    assert error([shares(place) for place in MEASURED]) < 0.6 * error(None)


def test_a_missing_part_is_the_rest_of_the_step() -> None:
    compute_alone = [{"compute": shares(place)["compute"]} for place in MEASURED]
    assert error(compute_alone) == pytest.approx(error([shares(place) for place in MEASURED]), rel=0.05)


def test_a_part_that_is_read_a_fifth_too_large_does_less_good_but_no_harm() -> None:
    wrong = [shares(place) | {"compute": 1.2 * shares(place)["compute"]} for place in MEASURED]
    assert error(wrong) < error(None)


def test_left_out_measurements_are_as_far_off_as_they_say() -> None:
    known = readings()
    steps = StepParts(Basis(SPACE, LEVELS), known.codes, known.values, [shares(place) for place in MEASURED])
    mean, deviation = Surrogate(LEVELS, known, steps=steps).left_out_predictions()
    assert (np.abs(mean - known.values) < 3.0 * deviation).all()


def memory(ran: list[int], ran_out: list[int]) -> np.ndarray:
    needs = np.array([0.1 * float(CONFIGS[place]["micro_batch"]) for place in ran])
    return Memory(Basis(SPACE, LEVELS), ALL[ran], needs, ALL[ran_out]).logarithms_at(ALL).mean


def test_a_config_that_ran_out_raises_what_is_expected_of_its_kind() -> None:
    ran = [place for place, config in enumerate(CONFIGS) if config["micro_batch"] == 1][:3]
    out = [place for place, config in enumerate(CONFIGS) if config["micro_batch"] == 4][:2]
    like_it = [place for place, config in enumerate(CONFIGS) if config["micro_batch"] == 8]
    assert (memory(ran, out)[out] > math.log(0.9)).all()
    assert (memory(ran, out)[like_it] > memory(ran, [])[like_it]).all()
