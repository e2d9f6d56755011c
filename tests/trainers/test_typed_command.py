"""A typed command, before it runs: what is known from its words and from its script."""

from pathlib import Path

import pytest

from tuner.study.command_words import split_variables
from tuner.tools.checkup.command_check import imported_modules
from tuner.trainers.typed_command import syntax_tree


def test_variables_before_the_program_are_no_words() -> None:
    for command, env, program in [
        ("A=1 B=x=y python C=2", {"A": "1", "B": "x=y"}, "python C=2"),
        ("env A=1 B=2 python C=2", {"A": "1", "B": "2"}, "python C=2"),
        ("A=1 env A=3 B=2 python", {"A": "3", "B": "2"}, "python"),
        ("A=1 nohup env B=2 python", {"A": "1"}, "nohup env B=2 python"),
        ("env -i A=1 python", {}, "env -i A=1 python"),
        ("env python", {}, "env python"),
        ("A=1", {"A": "1"}, ""),
    ]:
        variables, words = split_variables(command.split())
        assert (variables, list(words)) == (env, program.split())


def test_a_source_that_cannot_be_parsed_is_no_error() -> None:
    for source in ["x = (", "x = " + "1+" * 99_999 + "1", "x = " + "-" * 99_999 + "1", "\0", "'\ud800'"]:
        assert syntax_tree(source) is None


@pytest.mark.parametrize(
    ("source", "modules"),
    [
        (b"import torch.nn, json\nfrom walkers import legs\nfrom . import here\nimport beside\n", ("torch", "walkers")),
        (b"\xef\xbb\xbfimport torch\n", ("torch",)),
        (b"# coding: latin-1\n# \xe9\nimport torch\n", ("torch",)),
        (b"import torch\nx = " + b"1+" * 99_999 + b"1\n", ()),
    ],
)
def test_the_foreign_modules_that_a_script_imports(tmp_path: Path, source: bytes, modules: tuple[str, ...]) -> None:
    (tmp_path / "beside.py").touch()
    script = tmp_path / "train.py"
    script.write_bytes(source)
    assert imported_modules(str(script)) == modules
    assert imported_modules(str(tmp_path / "nowhere.py")) == ()
