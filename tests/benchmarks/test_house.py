import ast
from pathlib import Path

import pytest

from benchmarks.house import function_lines, imports, parsed, patched_private, string_keys
from benchmarks.prose import lengths, of_docstrings, of_page

ROOT = Path(__file__).parents[2]


def test_imports_are_found_at_the_top_and_inside_functions() -> None:
    tree = ast.parse("import a.b\nfrom c import d, e\ndef f():\n    import g\n")
    assert imports(tree) == {"a.b", "c", "g"}


def test_a_function_is_as_long_as_its_body_without_the_docstring() -> None:
    tree = ast.parse('def f():\n    """Say it."""\n    x = 1\n\n    return x\ndef g(): ...\n')
    assert sorted(function_lines(tree)) == [1, 3]


@pytest.mark.parametrize(
    "source", ["record['status']", "record.get('status', '')", "record['a']['status']", "STATUS = 'status'"]
)
def test_a_stored_name_that_is_spelled_again_is_found(source: str) -> None:
    assert list(string_keys(ast.parse(source), {"status"}, set())) == [(1, "status")]


@pytest.mark.parametrize("source", ["record['other']", "record[status]", "say('status')", "STATUS = other"])
def test_other_strings_and_names_are_no_stored_names(source: str) -> None:
    assert list(string_keys(ast.parse(source), {"status"}, set())) == []


@pytest.mark.parametrize(
    "source",
    [
        "monkeypatch.setattr(module, '_name', 1)",
        "monkeypatch.setattr('module._name', 1)",
        "patch.object(module, '_name')",
        "patch('module._name')",
        "module._name = 1",
    ],
)
def test_a_private_name_that_a_test_patches_is_found(source: str) -> None:
    assert [line for line, _ in patched_private(ast.parse(source))] == [1]


@pytest.mark.parametrize("source", ["monkeypatch.setattr(module, 'NAME', 1)", "self._name = 1", "module.name = 1"])
def test_public_names_and_own_attributes_are_not_patched_private_names(source: str) -> None:
    assert list(patched_private(ast.parse(source))) == []


def test_sentences_of_a_page_leave_out_code_tables_and_headings(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A heading of the page\n\nOne sentence has five words. Another one\nhas `some code` and a [link](to/it).\n\n"
        "| a | table | has | cells |\n\n```\nsome code of the page\n```\n- an item is a sentence\n- another one\n"
    )
    found = [(one.line, one.words) for one in of_page(page)]
    assert found == [(3, 5), (3, 7), (11, 5)]


def test_sentences_of_a_file_are_those_of_all_its_docstrings(tmp_path: Path) -> None:
    file = tmp_path / "file.py"
    file.write_text(
        '"""The first is of the file."""\nX = "not a docstring at all"\n"""The second is of X."""\n'
        'class A:\n    """The third is of the class."""\n    def f(self):\n        """The fourth is of f."""\n'
    )
    assert sorted(one.line for one in of_docstrings(file)) == [1, 3, 5, 7]
    measured = lengths(of_docstrings(file))
    assert measured is not None
    assert (measured.sentences, measured.longest, measured.above_rule_pct) == (4, 6, 0.0)


def test_no_test_of_this_house_patches_a_private_name() -> None:
    assert [place for tree in parsed(ROOT / "tests").values() for place in patched_private(tree)] == []
