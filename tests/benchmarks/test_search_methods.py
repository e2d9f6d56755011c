"""The methods of the search benchmark on a table that lacks some configs, and the invented tables that have a twist."""

import math

import pytest

from benchmarks.search import methods, ours, surfaces
from benchmarks.search.searching import Ground, Method, Probing, search
from tuner.export.recorded_table import Table

SEED = 3


@pytest.fixture(scope="module")
def ground() -> Ground:
    """Return an invented table that lacks every fifth config."""
    table = surfaces.table("edge", SEED)
    kept = [config for place, config in enumerate(table.configs) if place % 5]
    return Ground(Table(table.header, [row for config in kept if (row := table.find(config))]))


METHODS = (methods.shuffled, methods.coordinate_descent, methods.tpe, ours.tpe, ours.gain)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: f"{method.__module__}.{method.__name__}")
def test_what_a_table_lacks_is_no_probe(ground: Ground, method: Method) -> None:
    probing = Probing(ground, SEED, most=20)
    search(method, probing)
    assert 0 < len(probing.steps) <= 20
    assert all(step.config in ground.configs for step in probing.steps)


@pytest.mark.parametrize("method", [methods.shuffled, methods.coordinate_descent])
def test_a_search_without_a_model_comes_by_every_config_once(ground: Ground, method: Method) -> None:
    probing = Probing(ground, SEED)
    search(method, probing)
    assert len(probing.steps) == len({step.digest for step in probing.steps}) == len(ground.configs)


@pytest.mark.parametrize("twist", surfaces.TWISTS)
def test_a_twist_leaves_a_best_config_and_changes_the_table(twist: str) -> None:
    plain, twisted = surfaces.table(surfaces.CHARACTERS[2], 2), surfaces.twisted(twist, 2)
    assert math.isfinite(Ground(twisted).best.value)
    assert twisted.configs == plain.configs
    assert [twisted.find(one) for one in twisted.configs] != [plain.find(one) for one in plain.configs]
