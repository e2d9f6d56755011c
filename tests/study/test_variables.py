"""References to environment variables: looked up, recognised in stored texts, quoted for a shell."""

import subprocess

import pytest

from tuner.study.variables import expanded, is_expansion, shell_word


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
