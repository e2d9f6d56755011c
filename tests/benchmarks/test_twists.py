"""Invented tables with a twist."""

import math

import pytest

from benchmarks.search import surfaces, twists
from benchmarks.search.searching import Ground
from tuner.study.space import LADDER, VARIANT

SEED = 2


def plain() -> Ground:
    return Ground(surfaces.table(surfaces.CHARACTERS[SEED % len(surfaces.CHARACTERS)], SEED))


def twisted(twist: str, seed: int = SEED) -> Ground:
    return Ground(twists.table(twist, seed))


@pytest.mark.parametrize("twist", twists.TWISTS)
def test_a_twist_leaves_a_best_config(twist: str) -> None:
    assert math.isfinite(twisted(twist).best.value)


def test_all_above_a_cliff_has_lost_the_same_share() -> None:
    ground, before = twisted("cliff"), plain()
    ran = [config for config in ground.configs if math.isfinite(ground.row(config).value)]
    left = {config[LADDER]: round(ground.row(config).value / before.row(config).value, 6) for config in ran}
    shares = [left[rung] for rung in sorted(left)]
    assert shares == sorted(shares, reverse=True)
    assert len(set(shares)) <= 2


def test_a_starved_variant_runs_out_of_memory_sooner() -> None:
    ground, before = twisted("starved"), plain()
    more = [one for one in ground.configs if ground.row(one).result.failure and not before.row(one).result.failure]
    assert len({config[VARIANT] for config in more}) == 1


def test_where_the_allocator_retried_a_config_is_not_eligible() -> None:
    ground = twisted("retrying")
    retried = [config for config in ground.configs if ground.row(config).result.alloc_retries]
    assert retried
    assert not any(math.isfinite(ground.row(config).value) for config in retried)


def test_holes_are_no_part_of_what_is_searched() -> None:
    assert 0.5 * len(plain().configs) < len(twisted("holes").configs) < 0.8 * len(plain().configs)


def test_few_rungs_come_in_any_order() -> None:
    assert len(twisted("few").space.values(LADDER)) == 3


def test_more_parameters_make_more_configs() -> None:
    assert len(twisted("wide").configs) == 9 * len(plain().configs)
    assert len(twisted("backend").configs) == 4 * len(plain().configs)
