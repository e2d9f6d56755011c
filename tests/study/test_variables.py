"""References to environment variables: looked up, and recognised in stored texts."""

import pytest

from tuner.study.shell import escaped, expanded, joined, looked_up, parts, refers


def test_a_reference_has_its_value_its_default_or_stays() -> None:
    missing: list[str] = []
    assert expanded("${A}-${B:-b}-${C}", {"A": "a", "B": ""}, missing.append) == "a-b-${C}"
    assert missing == ["C"]


def test_two_dollars_before_a_name_in_braces_stand_for_one() -> None:
    for text, found in [
        ("$${A}", "${A}"),
        ("$$${A}", "$a"),
        ("$$$${A:-x}", "$${A:-x}"),
        ("$$ $A $${{A}} ${} $", "$$ $A $${{A}} ${} $"),
        ("$${A:-${A}", "${A:-a"),
        ("$${A:-$HOME} $${A:-", "${A:-$HOME} ${A:-"),
        ("${NONE:-$${A}}", "$${A}"),
    ]:
        assert expanded(text, {"A": "a"}) == found
        assert "".join(part.source for part in parts(text)) == text


def test_a_literal_stays_one_beside_a_reference() -> None:
    for literal in ["${A}", "$${A", "$", "a$$", "${A:-", "$${A:-b} ${C}", "{A}"]:
        assert not refers(escaped(literal))
        pieces = [(literal[:1], False), (literal[1:], False), ("${A}", True), (literal, False), ("${A}", True)]
        assert expanded(joined(pieces), {"A": "a"}) == f"{literal}a{literal}a"


@pytest.mark.timeout(100)  # some milliseconds are enough; a time that grows with the square needs hours
@pytest.mark.parametrize("end", ["", "}"])
def test_the_time_is_proportional_to_the_length(end: str) -> None:
    nested = "${a:-" * 200_000
    assert expanded(nested + end, {}) == (nested.removeprefix("${a:-") if end else nested)
    assert expanded("$" * 2_000_000, {}) == "$" * 2_000_000


def test_what_texts_refer_to_is_looked_up() -> None:
    environ = {"A": "a", "B": "", "D": "d", "E": "e"}
    assert looked_up(["${A} ${B} ${A:-x}", "${C:-y}", "$${E}"], environ) == {"A": "a"}
