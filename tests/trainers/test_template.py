import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tuner.study.shell import expanded
from tuner.trainers.template import fill, flags, placeholders


def test_placeholders_are_named_once():
    assert placeholders(["{a}", "--b={b},{a}", "{{c}}", "d"]) == {"a", "b"}


@pytest.mark.parametrize(
    "text",
    ["{", "a}", "{}", "{0}", "{a.}", "{a.0}", "{a[0]}", "{a!r}", "{a:3}", "{-a}", "{flag:{a}}", "{b:a}"],
)
def test_anything_but_a_plain_name_between_braces_is_refused(text):
    with pytest.raises(ValueError, match=r"brace|[{}]"):
        placeholders([text])


def test_names_may_hold_dots_and_dashes() -> None:
    words = ["env.num={env.num}", "{flag:torch-compile}", "{flag:env.fast}"]
    assert placeholders(words) == {"env.num", "torch-compile", "env.fast"}
    assert flags(words) == {"torch-compile", "env.fast"}
    values = {"env.num": 8, "torch-compile": True, "env.fast": True}
    assert fill(words, values) == ("env.num=8", "--torch-compile", "--env.fast")


def test_a_flag_is_there_or_not() -> None:
    for words, fast, filled in [
        (("run", "{flag:fast}", "x"), True, ("run", "--fast", "x")),
        (("run", "{flag:fast}", "x"), False, ("run", "x")),
        (("run", "--headless", "{flag:fast}"), False, ("run", "--headless")),
        (("run", "--headless", "{flag:fast}", "{b}"), None, ("run", "--headless")),
        (("-c", "run {flag:fast} --x"), False, ("-c", "run  --x")),
        (("-c", "run {flag:fast} --x"), None, ("-c", "run  --x")),
        (("--fast", "{fast}"), True, ("--fast", "true")),
        (("--fast={fast}",), False, ("--fast=false",)),
        (("--fast", "{fast}"), None, ()),
        (("", "{{flag:fast}}"), True, ("", "{flag:fast}")),
    ]:
        assert fill(words, {} if fast is None else {"fast": fast}) == filled


def test_only_what_the_template_refers_to_is_looked_up_at_the_launch() -> None:
    for word, filled in [
        ("${KEY}/{a}", "k/${KEY}"),
        ("${{KEY}}/${KEY}", "${KEY}/k"),
        ("$${KEY}{a}", "${KEY}${KEY}"),
        ("$$${KEY}", "$k"),
        ("${{{a_name}}}", "${KEY}"),
        ("${{KEY:-${KEY}", "${KEY:-k"),
        ("${NONE:-{b}}}", "{b}"),
    ]:
        (text,) = fill((word,), {"a": "${KEY}", "a_name": "KEY"}, to_launch=True)
        assert expanded(text, {"KEY": "k"}) == filled


@given(st.text(), st.text())
@example("${", "KEY}")
def test_literals_of_a_launch_stay_as_they_are(text: str, value: str) -> None:
    doubled = text.replace("{", "{{").replace("}", "}}")
    (filled,) = fill((f"{doubled}/{{a}}{doubled}",), {"a": value}, to_launch=True)
    assert expanded(filled, {}) == f"{text}/{value}{text}"


@given(st.lists(st.text()))
def test_words_with_doubled_braces_come_back_as_they_were(words):
    doubled = [word.replace("{", "{{").replace("}", "}}") for word in words]

    assert fill(doubled, {}) == tuple(words)


def test_a_word_without_its_value_goes_with_the_flag_right_before_it() -> None:
    for words, filled in [
        (["run", "--a", "{a}", "-b", "{b}", "last"], ("run", "--a", "1", "last")),
        (["run", "--b={b}", "--a={a}"], ("run", "--a=1")),
        (["run", "-1", "{b}", "--c=2", "{b}", "x", "{b}"], ("run", "-1", "--c=2", "x")),
        (["--d", "{b}", "{b}"], ()),
        (["{a}{b}"], ()),
    ]:
        assert fill(words, {"a": 1}) == filled


def test_a_flag_goes_only_with_its_own_value() -> None:
    for words, filled in [
        (("--headless", "--mini={b}"), ("--headless",)),
        (("--headless", "--max={b}", "--seed", "1"), ("--headless", "--seed", "1")),
        (("--headless", "env.num={b}"), ("--headless",)),
        (("--headless", "+env.num={b}"), ("--headless",)),
        (("--headless", "-n{b}"), ("--headless",)),
        (("--env.num", "{b}", "last"), ("last",)),
        (("--name", "run_{b}"), ()),
        (("--out", "runs/envs={b}"), ()),
    ]:
        assert fill(words, {"a": 1}) == filled
