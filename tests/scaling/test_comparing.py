"""A comparison of machines: what is compared, what it costs, and what is recommended."""

import csv
import io
from itertools import pairwise
from pathlib import Path

import pytest
from tests_scaling import point, results

from tuner.errors import TunerError
from tuner.tools.scaling.comparing import Prices, comparison_tsv, lines, number, read_prices, recommendation
from tuner.tools.scaling.results import Results
from tuner.tools.scaling.scaling_table import Quantity

BOTH = (0, 1)
PAIR = results(
    point("single", 1000.0, error=10.0),
    point("joined", 1900.0, gpus=BOTH, route="nvlink", error=10.0),
    point("joined", 1200.0, gpus=BOTH, route="host", error=10.0),
)
LONE = results(point("single", 900.0, error=10.0), cards=1)
CPUS = results(point("single", 10.0, error=1.0), point("joined", 8.0, gpus=BOTH, route="gloo", error=1.0), on_gpu=False)
PRICES = Prices(currency="EUR", per_hour={"NVIDIA H200": 3.6, "lone": 1.8})


def machines(**files: Results) -> dict[str, Results]:
    return files


def test_the_price_of_a_machine_comes_before_that_of_its_model() -> None:
    found = {(one.machine, one.row.gpus): one.per_hour for one in lines(machines(pair=PAIR, lone=LONE), PRICES)}
    assert found == {("pair", 1): 3.6, ("pair", 2): 7.2, ("lone", 1): 1.8}


def test_samples_for_the_money() -> None:
    (one,) = lines(machines(lone=LONE), PRICES)
    assert one.per_price == Quantity(900.0 * 2000, 10.0 * 2000)
    assert one.per_million == pytest.approx(1 / 1.8)


def test_it_says_whether_more_devices_are_worth_it_and_where_to_go() -> None:
    said = list(recommendation(lines(machines(pair=PAIR, lone=LONE), PRICES), "EUR"))
    assert [one.rpartition("; ")[2] for one in said] == [
        "lone with 1 x NVIDIA H200 makes the most for the money, 1,800,000 samples per EUR",
        "worth it",
        "hardly worth it",
        "lone: measured on one NVIDIA H200 alone, so a second one is not known to be worth it",
    ]
    assert "pair with 2 x NVIDIA H200 over NVLink is the fastest, with 1,900 ± 10 samples/s" in said[0]


@pytest.mark.parametrize(("rate", "said"), [(1600.0, "where time counts more than money"), (900.0, "not worth it")])
def test_efficiency_decides_the_advice(rate: float, said: str) -> None:
    pair = results(point("single", 1000.0), point("joined", rate, gpus=BOTH, route="host"))
    assert next(recommendation(lines(machines(pair=pair), None), "")).endswith(said)


def test_no_advice_follows_from_vague_figures() -> None:
    pair = results(point("single", 1000.0, error=1.0), point("joined", 1900.0, gpus=BOTH, route="host", error=300.0))
    assert next(recommendation(lines(machines(pair=pair), None), "")).endswith(
        "too large to say whether they are worth it"
    )


def test_machines_within_the_errors_are_not_ranked_for_certain() -> None:
    other = results(point("single", 905.0, error=10.0), cards=1)
    (said,) = [one for one in recommendation(lines(machines(lone=LONE, other=other), None), "") if "fastest" in one]
    assert "(lone with 1 x NVIDIA H200 may be as fast)" in said


def test_cpu_figures_are_never_ranked_against_gpus() -> None:
    said = list(recommendation(lines(machines(pair=PAIR, cpus=CPUS), None), ""))
    assert said[-1].startswith("These are CPU figures")
    assert not [one for one in said if "fastest" in one]


def test_the_table_has_every_number() -> None:
    rows = list(csv.DictReader(io.StringIO(comparison_tsv(lines(machines(pair=PAIR), PRICES), "EUR")), delimiter="\t"))
    assert [row["route"] for row in rows] == ["", "nvlink", "host"]
    assert float(rows[1]["speed_up"]) == pytest.approx(1.9)
    lost_ms = float(rows[1]["communication_and_synchronisation_ms"])
    assert lost_ms == pytest.approx(128_000 / 1900 - 64_000 / 1000, rel=1e-4)
    assert float(rows[2]["EUR_per_million_samples"]) == pytest.approx(7.2 / 3600 / 1200 * 1e6, rel=1e-4)
    assert "EUR_per_hour" not in comparison_tsv(lines(machines(pair=PAIR), None), None)


ALIASES = "a: &a [x, x]\n" + "".join(f"{b}: &{b} [{f'*{a}, ' * 9}]\n" for a, b in pairwise("abcdefghij"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("per_hour:\n  A100: 2\n", "has no price of 'NVIDIA H200' \\(of pair\\); add a line `NVIDIA H200: PRICE`"),
        ("per_hour:\n  NVIDIA H200: -2\n", "per_hour"),
        ("per_hours:\n  NVIDIA H200: 2\n", "per_hours: unknown key"),
        ("per_hour: {}\n", "per_hour: is empty"),
        ("[1", "file of prices .* cannot be read: line 1: .*\n.*looks like this"),
        ("", "contains no mapping; a file of prices starts with `currency:`"),
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
        read_prices(path, [("pair", "NVIDIA H200")])


def test_missing_prices_are_named(tmp_path: Path) -> None:
    with pytest.raises(TunerError, match=r"nowhere\.yaml cannot be read"):
        read_prices(tmp_path / "nowhere.yaml", [])


@pytest.mark.parametrize(
    ("value", "error", "said"),
    [
        (1.9312, 0.021, "1.93 ± 0.02"),
        (1.9312, 0.0194, "1.931 ± 0.019"),
        (41_607_423.0, 1_241_113.0, "41,600,000 ± 1,200,000"),
        (96.52, 3.0, "97 ± 3"),
        (0.5, None, "0.5"),
        (12_345.6, None, "12,346"),
    ],
)
def test_the_error_decides_the_digits(value: float, error: float | None, said: str) -> None:
    assert number(Quantity(value, error)) == said
