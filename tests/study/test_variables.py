"""References to environment variables: looked up, recognised in stored texts, quoted for a shell."""

import subprocess

import pytest

from tuner.study.variables import expanded, is_expansion, looked_up, quoted, shell_join, shell_split, shell_word


def test_a_reference_has_its_value_its_default_or_stays() -> None:
    missing: list[str] = []
    assert expanded("${A}-${B:-b}-${C}", {"A": "a", "B": ""}, missing.append) == "a-b-${C}"
    assert missing == ["C"]


@pytest.mark.parametrize(
    ("text", "of", "is_one"),
    [
        ("KEY=s3cret B=1", "KEY=${KEY} B=1", True),
        ("KEY=s3cret B=2", "KEY=${KEY} B=1", False),
        ("B=1", "B=1", False),
        ("KEY=", "KEY=${KEY:-none}", True),
    ],
)
def test_a_stored_text_may_be_the_expansion_of_another(text: str, of: str, is_one: bool) -> None:
    assert is_expansion(text, of) is is_one


@pytest.mark.parametrize("text", ["plain text", "it's", "a-${KEY}-b", '"${KEY}" $HOME `date` \\', "${NONE:-none}"])
def test_a_shell_looks_up_what_the_launch_looks_up(text: str) -> None:
    environ = {"KEY": "s3 cret"}
    said = subprocess.run(
        ["/bin/sh", "-c", f"printf %s {shell_word(text)}"], env=environ, capture_output=True, text=True, check=True
    )
    assert said.stdout == expanded(text, environ)


def test_what_texts_refer_to_is_looked_up() -> None:
    environ = {"A": "a", "B": "", "D": "d"}
    assert looked_up(["${A} ${B} ${A:-x}", "${C:-y}"], environ) == {"A": "a"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("train ${A} 'x ${B}'", ("train", "${A}", "x ${B}")),
        ("train --lr=${LR:-1 e-3}/2 ${A}${B}", ("train", "--lr=${LR:-1 e-3}/2", "${A}${B}")),
        ("train '$HOME' ${}", ("train", "$HOME", "${}")),
    ],
)
def test_a_reference_is_one_word_or_a_part_of_one(text: str, words: tuple[str, ...]) -> None:
    assert shell_split(text) == words
    assert shell_split(" ".join(map(quoted, words))) == words


def test_a_command_line_with_references_is_recognised_in_its_stored_expansion() -> None:
    stored = "train 's3 cret' --lr=1 'a b'"
    assert is_expansion(stored, " ".join(map(quoted, ("train", "${KEY}", "--lr=${LR}", "a b"))))
    assert not is_expansion(stored, " ".join(map(quoted, ("train", "${KEY}", "--lr=${LR}", "a c"))))


def test_a_shell_starts_the_words_that_the_launch_starts() -> None:
    words, environ = ("printf", "<%s>", "${KEY}", "a ${KEY}", "it's", ""), {"KEY": "s3 cret"}
    said = subprocess.run(["/bin/sh", "-c", shell_join(words)], env=environ, capture_output=True, text=True, check=True)
    assert said.stdout == "<s3 cret><a s3 cret><it's><>"
