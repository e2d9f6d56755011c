import operator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.study.expression import Expression, Rule

VALUES = {"batch_size": 64, "ranks": 2, "rollout": 24.0, "variant": "hiutil", "amp": True}
OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv}

Computed = tuple[str, float]


def combined(one: Computed, sign: str, other: Computed) -> Computed:
    return f"({one[0]} {sign} {other[0]})", OPERATIONS[sign](one[1], other[1])


terms: st.SearchStrategy[Computed] = st.recursive(
    st.sampled_from(
        [("3", 3), ("0.5", 0.5), ("1e3", 1e3), ("{batch_size}", 64), ("{ranks}", 2), ("-{rollout}", -24.0)]
    ),
    lambda smaller: (
        st.builds(combined, smaller, st.sampled_from(["+", "-", "*"]), smaller)
        | st.builds(combined, smaller, st.sampled_from(["/", "//"]), smaller.filter(lambda one: one[1] != 0))
    ),
    max_leaves=6,
)


@given(terms.filter(lambda one: len(one[0]) <= 200))
def test_an_expression_has_the_value_of_its_arithmetic(term: Computed) -> None:
    assert Expression(term[0]).value(VALUES) == term[1]


def test_a_rule_holds_for_some_configs() -> None:
    for rule, holds in [
        ("{batch_size} % {ranks} == 0", True),
        ("{batch_size} * {ranks} < 128", False),
        ("{amp} or {ranks} > 2", True),
        ("not {amp} and {ranks} == 2", False),
        ("{variant} == 'hiutil'", True),
        ("{variant} != 'hiutil' or {amp} == false", False),
        ("1 <= {ranks} <= 2", True),
        ("{num_workers} > 9", True),  # it does not count here
        ("{batch_size} / ({ranks} - 2) > 0", False),  # it cannot be computed
    ]:
        assert Rule(rule).holds(VALUES) is holds


@pytest.mark.parametrize("text", ["1", "{ranks} + 1", "{ranks} in 'a'", "{ranks} < 'a'", "ranks == 2", "{a} = 1", ""])
def test_anything_but_a_rule_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no rule"):
        Rule(text)


def test_multiplication_goes_before_addition() -> None:
    expression = Expression(" {batch_size} * {ranks} + 2 * {rollout} ")
    assert (expression.value(VALUES), expression.names) == (176.0, {"batch_size", "ranks", "rollout"})


@pytest.mark.parametrize(
    "text",
    [
        *("", "batch_size", "{batch_size} {ranks}", "2{ranks}", "{ranks", "{ranks:2}", "2 ** 3", "(1", "1,2"),
        *("__import__('os')", "{ranks}.real", "max(1, 2)", "1 if 2 else 3", "e", "lambda: 1", "'a'", "1j", "1 // / 2"),
    ],
)
def test_anything_but_arithmetic_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no arithmetic"):
        Expression(text)


def test_an_expression_has_a_limited_length() -> None:
    Expression("(" * 99 + "1" + ")" * 99)
    with pytest.raises(ValueError, match="has 201 characters, 200 at most"):
        Expression("(" * 100 + "1" + ")" * 100)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{batch_size} / ({ranks} - 2)", "division by zero"),
        ("2 * {variant}", "variant is 'hiutil', not a number"),
        ("2 * {amp}", "amp is True, not a number"),
        ("1e308 * 10", "the result is inf"),
    ],
)
def test_what_has_no_value_says_why(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Expression(text).value(VALUES)


def test_a_placeholder_without_a_value_leaves_the_value_open() -> None:
    assert Expression("{batch_size} * {num_workers}").value(VALUES) is None
