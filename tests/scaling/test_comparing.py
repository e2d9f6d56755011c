"""A comparison of machines: what is compared, what it costs, and what is recommended."""

import pytest
from tests_scaling import point, results

from tuner.probe import Quantity
from tuner.tools.scaling.comparing import all_rows, number, recommendation, scaling_sentences
from tuner.tools.scaling.results import Results, table

BOTH = (0, 1)
PAIR = results(
    point("single", 1000.0, error=10.0),
    point("joined", 1900.0, gpus=BOTH, route="nvlink", error=10.0),
    point("joined", 1200.0, gpus=BOTH, route="host", error=10.0),
)
LONE = results(point("single", 900.0, error=10.0), cards=1)
CPUS = results(point("single", 10.0, error=1.0), point("joined", 8.0, gpus=BOTH, route="gloo", error=1.0), on_gpu=False)


def said_of(**files: Results) -> list[str]:
    return list(recommendation(all_rows(files)))


@pytest.mark.parametrize(("measured", "route"), [(PAIR, "NVLink"), (PAIR, "the host's memory"), (CPUS, "gloo")])
def test_one_machine_and_several_name_the_route_in_the_same_words(measured: Results, route: str) -> None:
    assert any(f" over {route} make " in line for line in scaling_sentences(measured, table(measured)))
    assert any(f" over {route}: " in line for line in said_of(here=measured))


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
