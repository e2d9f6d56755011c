"""Searches that know more than a real one: what they measure, what it costs, and what they find."""

from functools import partial

import pytest

from benchmarks.search.reach import Seer, costs, descent, ended, parts, told_best, told_changes
from benchmarks.search.scripts import ScriptGround, script
from benchmarks.search.searching import Probing

SMALL = 34
"""The script of this seed has few configs."""


def test_one_pass_in_the_greatest_order_is_not_worse_than_in_the_spaces_order() -> None:
    first, second = Seer(SMALL), Seer(SMALL)
    in_order, greatest = descent(first, passes=1), descent(second, passes=1, greatest=True)
    assert first.truth(in_order) <= second.truth(greatest)


def test_no_search_that_knows_which_configs_run_launches_one_that_fails() -> None:
    for seed in (SMALL, 62):
        for way in (partial(descent, passes=1), told_changes, partial(told_best, others=True)):
            assert Seer(seed).reached(way).failed == 0


def test_who_is_told_the_best_finds_it_with_two_configs() -> None:
    reached = Seer(SMALL, readings=2).reached(told_best)
    assert (reached.found, reached.probes) == (True, 4)


def test_a_config_is_probed_once_and_read_as_it_is_without_noise() -> None:
    seer = Seer(SMALL)
    own = dict(seer.ground.own)
    assert seer.read(own) == seer.read(own) == seer.truth(own)
    assert seer.reached(lambda _: own).probes == 1
    assert Seer(SMALL, readings=1).read(own) != seer.truth(own)


def test_the_next_values_are_fewer_than_all_others() -> None:
    seer = Seer(SMALL)
    own, names = dict(seer.ground.own), seer.ground.space.names
    near, every = seer.changed(own, names, near=True), seer.changed(own, names)
    assert 0 < len(near) < len(every)
    sizes = seer.ground.space.values("batch_size")
    places = [sizes.index(one["batch_size"]) for one in near]
    assert max(abs(place - sizes.index(own["batch_size"])) for place in places) == 1


def test_a_search_that_is_ended_early_counts_only_what_it_spent() -> None:
    ground = ScriptGround(script(SMALL))
    probing = Probing(ground, SMALL)
    probing.probe(ground.own)
    probing.probe(ground.best.result.config)
    assert ended(probing).whole == pytest.approx(ended(probing, 1e9).whole)
    assert ended(probing).found
    before = ended(probing, ended(probing).whole - 0.5)
    assert (before.probes, before.found) == (1, ground.found(ground.own))


def test_the_parts_are_all_that_was_spent() -> None:
    ground = ScriptGround(script(62))
    probing = Probing(ground, 62)
    crashes = next(config for config in ground.configs if ground.row(config).result.failure)
    for config in (ground.own, ground.best.result.config, ground.own, crashes):
        probing.probe(config)
    spent = list(parts(probing))
    assert sum(sum(seconds.values()) for _, seconds in spent) == pytest.approx(sum(one.gpu_s for one in probing.steps))
    assert [purpose for purpose, _ in spent][2:] == ["measured before", "failed"]
    assert costs([probing]).row_count == 6
