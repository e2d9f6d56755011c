"""Shell quoting: what is literal reaches a program byte for byte, and only references are looked up."""

import os
import subprocess
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tuner.study.shell import escaped, expanded, literal_line, literal_word, quoted, shell_join, shell_split, shell_word

TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
UNDECODABLE = os.fsdecode(b"\xff")
SHOW = ("sh", "-c", r"""printf '%s\0' "$@" """, "show")


def given_to_a_program(line: str, environ: Mapping[str, str], shell: str = "bash") -> list[str]:
    """Run a line in a shell; return the words that a program gets which prints them."""
    said = subprocess.run(
        [shell, "-c", line], env={"PATH": os.environ["PATH"], **environ}, capture_output=True, check=True
    )
    return os.fsdecode(said.stdout).split("\0")[:-1]


@given(st.lists(TEXTS, min_size=1))
@example(["", "a  b", "it's", "!x", "=y", "~", "$HOME", "`date`", "\t\n\r", "\x1b[31m", "\u202e", "é", "\\x41\n"])
@example([UNDECODABLE, "\n'\\n!", "$'x'", "*", "{a,b}", "#", "&", "\xa0"])
def test_literal_words_come_back_from_a_shell(words: Sequence[str]) -> None:
    line = literal_line(words)
    assert line.isprintable()
    assert given_to_a_program(f"{literal_line(SHOW)} {line}", {}) == words


def test_a_literal_is_bare_or_in_single_quotes_where_its_characters_show() -> None:
    assert literal_line(["a-b=1", "a b", "$x", "a\tb"]) == r"a-b=1 'a b' '$x' $'a\tb'"


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_a_shell_looks_up_what_the_launch_looks_up(shell: str) -> None:
    texts = [
        *("plain text", "it's", "a-${KEY}-b", '"${KEY}" $HOME `date` \\', "${NONE:-none}", "$${KEY}", "$$${KEY}", "${"),
        *("${NONE:-$(echo x)}", "${NONE:-`echo x`}", '${NONE:-a"b}', "${NONE:-$HOME}", "${NONE:-${KEY}}"),
        *("${NONE:-\\}", "${NONE:-it's  {x!}", "${NONE:-\na\n\n}", "${NONE:-}", "${KEY:-$(x)}${NONE:-*}", ""),
    ]
    environ = {"KEY": "s3  cret *", "HOME": "/home/x"}
    line = " ".join([literal_line(SHOW), *map(shell_word, texts)])
    assert given_to_a_program(line, environ, shell) == [expanded(text, environ) for text in texts]


@given(TEXTS, TEXTS, TEXTS)
@example("${KEY:-$(x)}", "${KEY}", "$")
def test_only_what_is_a_reference_is_looked_up(before: str, default: str, after: str) -> None:
    environ = {"KEY": "s3 cret", "X": "x"}
    texts = [
        f"{escaped(before)} ${{NONE:-{default.replace('}', ')')}}}{escaped(after)}",
        escaped(before),
        escaped(after),
    ]
    line = " ".join([literal_line(SHOW), *map(shell_word, texts)])
    assert given_to_a_program(line, environ) == [expanded(text, environ) for text in texts]
    assert expanded(escaped(before), environ) == before


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("train ${A} 'x ${B}'", ("train", "${A}", "x ${B}")),
        ("train --lr=${LR:-1 e-3}/2 ${A}${B}", ("train", "--lr=${LR:-1 e-3}/2", "${A}${B}")),
        ("train '$HOME' ${} $${A:-x y}", ("train", "$HOME", "${}", "$${A:-x y}")),
    ],
)
def test_a_reference_is_one_word_or_a_part_of_one(text: str, words: tuple[str, ...]) -> None:
    assert shell_split(text) == words
    assert shell_split(" ".join(map(quoted, words))) == words


def test_a_shell_starts_the_words_that_the_launch_starts() -> None:
    words, environ = (*SHOW, "${KEY}", "a ${KEY}", "it's", ""), {"KEY": "s3 cret"}
    assert given_to_a_program(shell_join(words), environ) == ["s3 cret", "a s3 cret", "it's", ""]


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_a_shell_sets_the_variables_that_the_launch_sets(shell: str) -> None:
    environ = {"A": "old", "KEY": "k"}
    variables = {"A": "a ${KEY}", "B": "${A}", "C": "$${KEY} $(x)"}
    words = ("sh", "-c", r"""printf '%s\0' "$A" "$B" "$C" "$1" """, "show", "${A}")
    found = given_to_a_program(shell_join(words, variables), environ, shell)
    assert found == [*(expanded(variables[name], environ) for name in "ABC"), "old"]


def test_bash_gives_a_program_a_variable_that_bash_itself_may_not_assign() -> None:
    line = shell_join(("sh", "-c", r"""printf '%s\0' "$A" "$UID" """), {"A": "1", "UID": "5"})
    assert given_to_a_program(line, {}) == ["1", "5"]


def test_a_word_needs_no_more_than_its_quotes() -> None:
    assert literal_word("") == "''"
    assert shell_join(["train", "--lr=${LR}"], {"A": "b c"}) == "A='b c' train --lr=\"${LR}\""
