"""The tables on which a search must keep its word, and the reading of its word."""

import math
import random

import pytest

from benchmarks.search import kernel_tables, ladders
from benchmarks.search.families import FAMILIES, seeds_of
from benchmarks.search.promises import Word, one_search, stated
from benchmarks.search.scripts import ScriptGround, script
from benchmarks.search.searching import Ground

SCRIPT = 34  # the smallest of the first tables


def test_what_a_search_states_at_its_end_is_read() -> None:
    for reason, numbers in [
        ("0.043% may be left: 36.8 s of a 24-hour training; to find it takes 44.5 s", (0.043, None)),
        ("0.5 % may be left, at most 2.5 %: 4 min of a 24-hour training", (0.5, 2.5)),
        ("more probes would gain almost nothing", (0.0, None)),
        ("not sure: 60 of 17,956 configs, predictions off by 20 %", (None, None)),
        (None, (None, None)),
    ]:
        assert stated(reason) == numbers


def test_the_halves_share_no_drawn_table() -> None:
    for name in ("scripts", "ladders", "kernels"):
        halves = [{table for table, _ in FAMILIES[name].tables(half, 20)} for half in ("dev", "report")]
        assert halves[0]
        assert not halves[0] & halves[1]


@pytest.mark.parametrize("seed", seeds_of("dev", 2))
def test_the_values_of_a_script_s_user_run_and_are_not_better_than_the_best(seed: int) -> None:
    ground = ScriptGround(script(seed))
    assert 0.0 < ground.row(ground.own).value <= ground.best.value


def test_readings_of_a_script_scatter_around_its_value() -> None:
    ground = ScriptGround(script(SCRIPT))
    draw = random.Random(0)
    readings = [ground.reading(ground.best, draw) or math.nan for _ in range(2_000)]
    assert sum(readings) / len(readings) == pytest.approx(ground.best.value, rel=0.01)
    assert len(set(readings)) > 1


def test_a_ladder_has_a_best_config_that_is_reached_by_climbing() -> None:
    for seed in seeds_of("dev", 2):
        ground = Ground(ladders.table(seed))
        assert math.isfinite(ground.best.value)
        assert ground.best.result.config["num_envs"] != min(one["num_envs"] for one in ground.configs)


def test_the_kernels_of_a_gpu_are_a_table_to_search() -> None:
    ground = Ground(kernel_tables.table("convolution_milo_A4000"))
    failed = [one for one in ground.configs if ground.row(one).result.failure]
    assert (len(ground.configs), len(failed)) == (4_362, 161)
    assert ground.best.value == pytest.approx(kernel_tables.FASTEST)


def test_a_search_is_scored_by_what_it_recommends_and_by_what_failed() -> None:
    word = one_search("scripts", f"script_{SCRIPT}", "coordinate descent", 0, 20)
    assert isinstance(word, Word)
    assert word.probes == 20
    assert word.found == (word.lost <= 1.0)
    assert word.one_cause <= word.failed
    assert not word.sure
