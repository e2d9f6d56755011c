"""Memory and speed where degrees of parallelism share the work, and a micro-batch multiplies it."""

import random

import numpy as np

from tuner.search.gain.pool import Levels
from tuner.search.gain.readings import in_logarithms, mean_readings
from tuner.search.gain.surrogate import Surrogate
from tuner.search.gain.trend import Trend
from tuner.search.observed import Measured, MeasuredValue
from tuner.search.resource_model import Growth, inherited, shares_sizes
from tuner.study.space import Config, Parameter, Space

DEGREES = Space(
    (
        Parameter(name="tensor", values=(1, 2, 4)),
        Parameter(name="pipeline", values=(1, 2, 4)),
        Parameter(name="micro_batch", values=(1, 2, 4, 8)),
        Parameter(name="sharded", values=(False, True)),
    )
)
CONFIGS = list(DEGREES.configs())
LEVELS = Levels(DEGREES)
ALL = LEVELS.codes(CONFIGS)


def ranks(config: Config) -> tuple[float, float]:
    """Return the ranks that share the weights, and the data parallel ranks of 16 cards."""
    shared = float(config["tensor"]) * float(config["pipeline"])
    return shared, 16.0 / shared


def memory(config: Config) -> float:
    """Return the share of memory that weights, optimizer states and activations take."""
    shared, data = ranks(config)
    states = 1.2 / shared / (data if config["sharded"] else 1.0)
    return 0.05 + 0.4 / shared + states + 0.03 * float(config["micro_batch"]) / float(config["tensor"])


def speed(config: Config) -> float:
    """Return the speed of steps that compute, fill a pipeline, send activations and update the weights."""
    shared, data = ranks(config)
    tensor, pipeline, micro_batch = (float(config[name]) for name in ("tensor", "pipeline", "micro_batch"))
    computes, fills = 1.0 + 0.3 * tensor / micro_batch, (pipeline - 1.0) * micro_batch * data / 64.0
    return 1.0 / (computes + fills + 0.2 * (tensor - 1.0) / tensor + (0.3 if config["sharded"] else 0.1) / shared)


def test_memory_of_parts_that_different_degrees_share_is_learnt_from_a_few_configs() -> None:
    known = random.Random(0).sample([config for config in CONFIGS if memory(config) < 1.0], 16)
    wanted = np.log([memory(config) for config in CONFIGS])
    errors = [
        np.abs(
            Growth(DEGREES, known, list(map(memory, known)), error=0.03, choices=0.25, shared=shared)
            .logarithms_at(ALL)
            .mean
            - wanted
        ).mean()
        for shared in (False, True)
    ]
    assert errors[1] < min(0.06, 0.6 * errors[0])


def test_what_is_like_a_config_that_ran_out_is_less_uncertain() -> None:
    ran: list[Config] = [dict(CONFIGS[0], tensor=tensor, pipeline=2, sharded=True) for tensor in (1, 2)]
    over: Config = dict(CONFIGS[0], micro_batch=8, sharded=True)
    before, after = (
        Growth(DEGREES, ran, list(map(memory, ran)), error=0.03, choices=0.25, shared=True, over=known).logarithms(
            [{**over, "sharded": False}]
        )
        for known in ((), (over,))
    )
    assert after.mean[0] > 0.3
    assert after.deviation[0] < 0.65 * before.deviation[0]


def test_speeds_of_degrees_are_foretold_better_with_the_trend() -> None:
    wanted = np.log([speed(config) for config in CONFIGS])
    errors = np.zeros(2)
    for seed in range(4):
        known = random.Random(seed).sample(CONFIGS, 10)
        measured = [in_logarithms(Measured(one, [MeasuredValue(speed(one), 0.01 * speed(one))])) for one in known]
        readings = mean_readings(measured, "", LEVELS, logs=True)
        for place, source in enumerate((None, Trend(DEGREES, measured))):
            errors[place] += np.abs(Surrogate(LEVELS, readings, source).predict(ALL).mean - wanted).mean()
    assert errors[1] < 0.75 * errors[0]


def test_a_ladder_or_a_single_size_shares_nothing() -> None:
    assert shares_sizes(DEGREES)
    switch, batch = DEGREES.parameters[3], Parameter(name="batch_size", values=(4, 8, 16, 32))
    assert not shares_sizes(Space((DEGREES.parameters[0], switch)))
    assert not shares_sizes(Space((*DEGREES.parameters, batch)))


def test_memory_begins_with_that_of_a_similar_case() -> None:
    known = random.Random(0).sample(CONFIGS, 24)
    heavier = [1.5 * memory(config) for config in known]
    alike = inherited(
        DEGREES, [(known, heavier), (known[:1], [memory(known[0])])], error=0.03, choices=0.25, shared=True
    )
    assert alike is not None
    errors = alike.logarithms_at(ALL).mean - np.log([memory(config) for config in CONFIGS])
    assert np.abs(errors).mean() < 0.2
