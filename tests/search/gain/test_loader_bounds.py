"""What the waits for data tell of the speed of other configs, and which probes they save."""

import math
from functools import cache

import numpy as np
import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as some

from tuner.records.schema import ERROR, WAITED
from tuner.search.choosing import History, free
from tuner.search.gain.chooser import Gain
from tuner.search.gain.expected_gain import Goal
from tuner.search.gain.parts import Parts, bounds
from tuner.search.gain.pool import Pool
from tuner.search.samplers import ask_for
from tuner.search.trials import suggest
from tuner.study.space import Config, Parameter, Space

SPACE = Space(
    (
        Parameter(name="batch_size", values=(8, 16, 32, 64)),
        Parameter(name="fused", values=(0, 1)),
        Parameter(name="num_workers", values=(0, 2, 4, 8)),
        Parameter(name="prefetch_factor", values=(2, 4)),
    )
)
POOL = Pool(SPACE)
OWN: Config = {"batch_size": 16, "fused": 0, "num_workers": 2, "prefetch_factor": 2}


def rest_s(config: Config) -> float:
    """Return the seconds of a sample without its wait."""
    return (1.0 + 16.0 / float(config["batch_size"])) * (0.8 if config["fused"] else 1.0) / 1e3


def load_s(config: Config, least: float) -> float:
    return 16.0 * least / (0.5 + float(config["num_workers"])) / 1e3


def step_s(config: Config, least: float, power: float) -> float:
    return (rest_s(config) ** power + load_s(config, least) ** power) ** (1.0 / power)


def probed(config: Config, least: float = 1.0, power: float = 4.0, off: float = 1.0) -> Parts:
    seconds, place = step_s(config, least, power), POOL.find(config)
    assert place is not None
    return Parts(place, -math.log(seconds), 0.003, min(1.0, off * (1.0 - rest_s(config) / seconds)))


@given(
    places=some.lists(some.integers(0, len(POOL.configs) - 1), min_size=1, max_size=12, unique=True),
    least=some.sampled_from((0.01, 0.3, 1.0, 10.0)),
    power=some.sampled_from((1.0, 2.0, 4.0, 8.0)),
)
def test_no_config_is_faster_than_its_bound_however_load_and_rest_overlap(
    places: list[int], least: float, power: float
) -> None:
    most = bounds(POOL, [probed(POOL.configs[place], least, power) for place in places])
    truth = [-math.log(step_s(config, least, power)) for config in POOL.configs]
    assert (np.array(truth) <= most + 1e-9).all()


def test_settings_of_the_loader_gain_nothing_where_nothing_waits() -> None:
    own, *others = (
        probed({**OWN, "num_workers": workers, "prefetch_factor": batches}, least=0.0)
        for workers, batches in ((2, 2), (4, 4))
    )
    most = bounds(POOL, [own, *others])
    for place, config in enumerate(POOL.configs):
        differs = {name for name in config if config[name] != OWN[name]}
        if differs <= {"num_workers", "prefetch_factor"}:
            assert most[place] == pytest.approx(own.speed, abs=0.01)
        else:
            assert most[place] == math.inf


def test_other_settings_gain_nothing_where_the_loader_is_the_limit() -> None:
    known = [probed({**OWN, "batch_size": size, "fused": fused}, 10.0) for size in (16, 32) for fused in (0, 1)]
    most = bounds(POOL, known)
    for place, config in enumerate(POOL.configs):
        if config["num_workers"] == 2 and config["prefetch_factor"] == 2:
            assert most[place] == pytest.approx(-math.log(load_s(config, 10.0)), abs=0.02)
        else:
            assert most[place] > -math.log(load_s(OWN, 10.0)) + 0.5


def test_a_single_value_of_a_parameter_tells_nothing_of_its_others() -> None:
    """A larger batch may load faster, and so may a setting that no name shows; more workers may take cores."""
    most = bounds(POOL, [probed({**OWN, "fused": fused}, 10.0) for fused in (0, 1)])
    assert {config["batch_size"] for place, config in enumerate(POOL.configs) if most[place] < math.inf} == {16}
    most = bounds(POOL, [probed({**OWN, "prefetch_factor": batches}, least=0.0) for batches in (2, 4)])
    assert {config["num_workers"] for place, config in enumerate(POOL.configs) if most[place] < math.inf} == {2}


def test_a_config_that_is_faster_than_its_bound_raises_all_bounds() -> None:
    slow = [probed({**OWN, "batch_size": size}, 10.0) for size in (16, 32)]
    place = POOL.find({**OWN, "batch_size": 64})
    assert place is not None
    fast = Parts(place, slow[0].speed + 1.0, 0.003, None)
    assert (bounds(POOL, [*slow, fast]) >= bounds(POOL, slow) + 0.9).all()


def test_uncounted_waits_bound_nothing() -> None:
    assert (bounds(POOL, [probed(OWN)._replace(waited=None)]) == math.inf).all()


@cache
def searched(least: float, off: float | None, goal: Goal | None = None) -> list[Config]:
    """Return the configs that a search asks for; it ends with a config within 1 % of the best.

    `off`: the factor on the wait as it is counted; None where it is not counted.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    gain = Gain(SPACE, goal=goal)
    study, asked = optuna.create_study(direction="maximize"), list[Config]()
    while not gain.ended(History(study, SPACE), free):
        choice = gain.choose(History(study, SPACE), free)
        assert choice is not None
        trial = ask_for(study, SPACE, choice.config)
        asked.append(suggest(trial, SPACE))
        speed = 1.0 / step_s(asked[-1], least, 4.0)
        trial.set_user_attr(ERROR, 0.003 * speed)
        if off is not None:
            trial.set_user_attr(WAITED, probed(asked[-1], least, off=off).waited)
        study.tell(trial, speed)
    best = gain.best(History(study, SPACE))
    assert best is not None
    assert step_s(best, least, 4.0) <= min(step_s(config, least, 4.0) for config in POOL.configs) / 0.99
    return asked


@pytest.mark.parametrize("off", [1.0, 0.8])
def test_parts_save_probes_even_where_they_are_off_by_a_fifth(off: float) -> None:
    assert len(searched(0.01, off=off)) < len(searched(0.01, off=None))


@pytest.mark.parametrize("off", [1.0, 1.2])
def test_where_the_loader_is_the_limit_parts_hide_nothing(off: float) -> None:
    assert len(searched(10.0, off=off)) <= len(searched(10.0, off=None))


def test_parts_bound_no_objective_but_a_speed() -> None:
    assert searched(10.0, off=1.0, goal=Goal(is_speed=False)) == searched(10.0, off=None)


@pytest.mark.parametrize("place", [0, 2])
def test_a_cache_whose_name_tells_nothing_is_found(place: int) -> None:
    """It makes batches load three times as fast, where the loader is the limit."""
    parameters = [Parameter(name="amp", values=(0, 1)), Parameter(name="batch_size", values=(16, 32))]
    space = Space((*parameters[:place], Parameter(name="cache", values=("none", "ram")), *parameters[place:]))
    gain, study = Gain(space), optuna.create_study(direction="maximize")
    while not gain.ended(History(study, space), free):
        choice = gain.choose(History(study, space), free)
        assert choice is not None
        trial = ask_for(study, space, choice.config)
        config = suggest(trial, space)
        rest, load = (0.6 if config["amp"] else 1.0), (0.5 if config["cache"] == "ram" else 1.5)
        seconds = (rest**8 + load**8) ** (1 / 8)
        trial.set_user_attr(ERROR, 0.003 / seconds)
        trial.set_user_attr(WAITED, 1.0 - rest / seconds)
        study.tell(trial, 1.0 / seconds)
    best = gain.best(History(study, space))
    assert best is not None
    assert (best["amp"], best["cache"]) == (1, "ram")
