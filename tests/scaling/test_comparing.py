"""A comparison of machines: what is compared, what it costs, and what is recommended."""

from itertools import pairwise
from pathlib import Path

import pytest
from tests_scaling import point, results

from tuner.errors import TunerError
from tuner.probe import Quantity
from tuner.study import Prices, price_of_all, read_prices
from tuner.tools.scaling.comparing import all_rows, number, recommendation, scaling_sentences
from tuner.tools.scaling.results import Results
from tuner.tools.scaling.scaling_table import table

BOTH = (0, 1)
PAIR = results(
    point("single", 1000.0, error=10.0),
    point("joined", 1900.0, gpus=BOTH, route="nvlink", error=10.0),
    point("joined", 1200.0, gpus=BOTH, route="host", error=10.0),
)
LONE = results(point("single", 900.0, error=10.0), cards=1)
CPUS = results(point("single", 10.0, error=1.0), point("joined", 8.0, gpus=BOTH, route="gloo", error=1.0), on_gpu=False)


PRICES = Prices(currency="EUR", per_hour={"NVIDIA H200": 3.6, "lone": 1.8})


def said_of(**files: Results) -> list[str]:
    return list(recommendation(all_rows(files)))


def test_the_price_of_a_machine_comes_before_that_of_its_model() -> None:
    rows = all_rows({"pair": PAIR, "lone": LONE}, PRICES)
    costs = {(row.machine, row.row.gpus, row.row.route): row.samples_per_price for row in rows}
    assert costs[("pair", 1, None)] == pytest.approx(1_000_000.0)
    assert costs[("pair", 2, "nvlink")] == pytest.approx(950_000.0)
    assert "lone with 1 x NVIDIA H200 makes the most for the money, 1,800,000" in next(
        iter(recommendation(rows, "EUR"))
    )


@pytest.mark.parametrize(("measured", "route"), [(PAIR, "NVLink"), (PAIR, "the host's memory"), (CPUS, "gloo")])
def test_one_machine_and_several_name_the_route_in_the_same_words(measured: Results, route: str) -> None:
    assert any(f" over {route} make " in line for line in scaling_sentences(measured, table(measured)))
    assert any(f" over {route}: " in line for line in said_of(here=measured))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("per_hour:\n  A100: 2\n", "has no price of 'NVIDIA H200' \\(of pair\\); add a line `NVIDIA H200: PRICE`"),
        ("per_hour:\n  NVIDIA H200: -2\n", "per_hour"),
        ("per_hours:\n  NVIDIA H200: 2\n", "per_hours: unknown key"),
        ("[1", "file of prices .* cannot be read: line 1: .*\n.*looks like this"),
        (
            "a: &a [x, x]\n" + "".join(f"{b}: &{b} [{f'*{a}, ' * 9}]\n" for a, b in pairwise("abcdefghij")),
            "more than 20,000",
        ),
    ],
)
def test_prices_that_cannot_be_used_are_refused(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "prices.yaml"
    path.write_text(text)
    with pytest.raises(TunerError, match=said):
        price_of_all(read_prices(path), [("pair", "NVIDIA H200")], path)


def test_it_says_whether_more_devices_are_worth_it_and_where_to_go() -> None:
    first, *said = said_of(pair=PAIR, lone=LONE)
    assert [one.rpartition("; ")[2] for one in said] == [
        "worth it",
        "hardly worth it",
        "lone: measured on one NVIDIA H200 alone, so a second one is not known to be worth it",
    ]
    assert "pair with 2 x NVIDIA H200 over NVLink is the fastest, with 1,900 ± 10 samples/s" in first


@pytest.mark.parametrize(("rate", "said"), [(1600.0, "where time counts more than money"), (900.0, "not worth it")])
def test_efficiency_decides_the_advice(rate: float, said: str) -> None:
    pair = results(point("single", 1000.0), point("joined", rate, gpus=BOTH, route="host"))
    assert said_of(pair=pair)[0].endswith(said)


def test_no_advice_follows_from_vague_figures() -> None:
    pair = results(point("single", 1000.0, error=1.0), point("joined", 1900.0, gpus=BOTH, route="host", error=300.0))
    assert said_of(pair=pair)[0].endswith("too large to say whether they are worth it")


def test_machines_within_the_errors_are_not_ranked_for_certain() -> None:
    other = results(point("single", 905.0, error=10.0), cards=1)
    (said,) = [one for one in said_of(lone=LONE, other=other) if "fastest" in one]
    assert "(lone with 1 x NVIDIA H200 may be as fast)" in said


def test_cpu_figures_are_never_ranked_against_gpus() -> None:
    said = said_of(pair=PAIR, cpus=CPUS)
    assert said[-1].startswith("These are CPU figures")
    assert not [one for one in said if "fastest" in one]


def test_the_error_decides_the_digits() -> None:
    for value, error, said in [
        (1.9312, 0.021, "1.93 ± 0.02"),
        (1.9312, 0.0194, "1.931 ± 0.019"),
        (41_607_423.0, 1_241_113.0, "41,600,000 ± 1,200,000"),
        (96.52, 3.0, "97 ± 3"),
        (0.5, None, "0.5"),
        (12_345.6, None, "12,346"),
    ]:
        assert number(Quantity(value, error)) == said
