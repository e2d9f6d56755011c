"""The search benchmark on tables that lack some configs."""

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


METHODS = (
    methods.ladder,
    methods.grid,
    methods.random_search,
    methods.shuffled,
    methods.coordinate_descent,
    methods.hill_climbing,
    methods.tpe_fail,
    methods.tpe_pruned,
    ours.tpe,
    ours.gain,
)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: f"{method.__module__}.{method.__name__}")
def test_what_a_table_lacks_is_no_probe(ground: Ground, method: Method) -> None:
    probing = Probing(ground, SEED, most=20)
    score = search(method, probing)
    assert 0 < score.probes <= 20
    assert all(step.config in ground.configs for step in probing.steps)


def test_the_grid_is_what_the_table_holds(ground: Ground) -> None:
    probing = Probing(ground, SEED)
    search(methods.grid, probing)
    assert [step.config for step in probing.steps] == ground.configs
    assert len(ground.configs) < len(list(surfaces.table("edge", SEED).configs))


def test_a_climb_that_meets_holes_still_comes_by_every_config_once(ground: Ground) -> None:
    probing = Probing(ground, SEED)
    search(methods.hill_climbing, probing)
    assert len(probing.steps) == len({step.digest for step in probing.steps}) == len(ground.configs)
