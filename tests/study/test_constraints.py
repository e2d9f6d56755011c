import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.study.spec import Constraint, read_constraint

POSITIVE = st.floats(0.01, 1e6)
CONSTRAINTS = st.builds(
    Constraint, metric=st.just("power_mean_w"), sense=st.sampled_from(["<=", ">="]), number=POSITIVE, of_default=...
)


def test_a_bound_is_a_number_or_a_multiple_of_default() -> None:
    for text, sense, number, of_default in [
        (">= 10", ">=", 10.0, False),
        ("<=20000", "<=", 20000.0, False),
        (" >= 0.8 * default ", ">=", 0.8, True),
        ("<= 1.25*default", "<=", 1.25, True),
    ]:
        found = read_constraint("power_mean_w", text)
        assert (found.metric, found.sense, found.number, found.of_default) == (
            "power_mean_w",
            sense,
            number,
            of_default,
        )


@pytest.mark.parametrize(
    "text",
    [
        *("", "10", "> 10", "== 10", ">= ten", ">= -1", ">= .5", ">= 1e3", ">= 10 %", ">= 10 >= 20"),
        *(">= default", ">= default * 0.8", ">= 0.8 default", ">= 0.8 * hiutil", ">= 0.8 * default + 1", 10, None),
    ],
)
def test_anything_else_is_refused_with_the_forms_there_are(text: object) -> None:
    with pytest.raises(ValueError, match=r'write "<= 20000", ">= 10" or ">= 0\.8 \* default"'):
        read_constraint("power_mean_w", text)


@given(st.decimals(0, 10**9, places=3), st.sampled_from(["<=", ">="]), st.sampled_from(["", " * default"]))
def test_it_is_always_written_alike(number: object, sense: str, factor: str) -> None:
    written = str(read_constraint("power_mean_w", f"{sense}{number}{factor.replace(' ', '')}"))
    assert written.startswith(f"{sense} ")
    assert written.endswith(factor)
    assert str(read_constraint("power_mean_w", written)) == written


@given(CONSTRAINTS, POSITIVE, POSITIVE)
def test_what_is_missed_is_positive_exactly_where_the_bound_is_broken(
    constraint: Constraint, number: float, default: float
) -> None:
    bound = constraint.number * default if constraint.of_default else constraint.number
    kept = number <= bound if constraint.sense == "<=" else number >= bound
    assert (constraint.violation(number, default) <= 0) == kept


def test_a_miss_has_a_size_and_a_reason() -> None:
    for text, number, default, missed, complaint in [
        ("<= 200", 250.0, None, 0.25, "power_mean_w is 250, <= 200 is required"),
        (">= 0.8 * default", 60.0, 100.0, 0.25, "power_mean_w is 60, >= 0.8 * default = 80 is required"),
        (">= 0.8 * default", 60.0, None, 1.0, "power_mean_w of default at this rung is not known, "),
        ("<= 200", None, None, 1.0, "power_mean_w was not measured, <= 200 is required"),
        ("<= 0", 3.0, None, 3.0, "power_mean_w is 3, <= 0 is required"),
    ]:
        constraint = read_constraint("power_mean_w", text)
        assert constraint.violation(number, default) == pytest.approx(missed)
        assert constraint.complaint(number, default).startswith(complaint)
