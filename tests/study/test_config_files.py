"""Configuration files of a script: the values in them, and changed copies."""

import json
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from tuner.errors import TrainerError
from tuner.study import changed_text, copy_name, named_files, values_in, with_copies

YAML_TEXT = "train:\n  batch_size: 32  # per card\n  name: 'a'\nworkers: 2\nlist: [1, 2]\n"
TOML_TEXT = '# a model\n[train]\nbatch_size = 32 # per card\nname = "a"\n\n[data]\nworkers = 2\n'


@pytest.fixture
def file(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Return a file with this ending."""
    path = tmp_path / f"train{request.param}"
    content = {"train": {"batch_size": 32, "name": "a"}, "workers": 2}
    path.write_text({".yaml": YAML_TEXT, ".toml": TOML_TEXT, ".json": json.dumps(content)}[request.param])
    return path


@pytest.mark.parametrize("file", [".yaml", ".toml", ".json"], indirect=True)
def test_a_copy_has_the_new_value_and_all_else(file: Path) -> None:
    before = values_in(file)
    assert before["train.batch_size"] == 32
    text = file.read_text()
    copy = file.with_name(copy_name(file).name)
    copy.write_text(changed_text(file, {"train.batch_size": 64}))
    assert values_in(copy) == {**before, "train.batch_size": 64}
    assert file.read_text() == text


def test_each_member_of_a_front_has_a_copy_of_its_own() -> None:
    file = Path("conf/train.yaml")
    names = {
        copy_name(file),
        *(copy_name(file, Path(f"runs/train/best/{case}")) for case in ("walk/0001", "walk/0002")),
    }
    assert len(names) == 3
    for case in ("walk", "44", "2048"):
        assert copy_name(file, Path(f"runs/train/best/{case}")) == copy_name(file)


@pytest.mark.parametrize("file", [".yaml", ".toml"], indirect=True)
def test_comments_stay(file: Path) -> None:
    assert "# per card" in changed_text(file, {"train.batch_size": 64})


@pytest.mark.parametrize("file", [".yaml", ".toml", ".json"], indirect=True)
def test_a_value_that_the_file_lacks_is_an_error_that_names_it(file: Path) -> None:
    with pytest.raises(TrainerError, match=r"train\.depth"):
        changed_text(file, {"train.depth": 3})


def test_a_number_sign_between_quotes_begins_no_comment(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('name = "a #1" # mine\n')
    assert changed_text(tmp_path / "a.toml", {"name": "b"}) == 'name = "b" # mine\n'


def test_a_setting_of_an_array_of_tables_is_none_of_the_table_before(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("[train]\nsteps = 1\n[[layers]]\nsize = 2\n")
    with pytest.raises(TrainerError, match=r"train\.size"):
        changed_text(tmp_path / "a.toml", {"train.size": 3})


def test_a_file_that_is_none_of_the_three_has_no_values(tmp_path: Path) -> None:
    broken = tmp_path / "train.yaml"
    broken.write_text("a: [")
    assert values_in(broken) == {}
    assert values_in(tmp_path / "missing.toml") == {}
    with pytest.raises(TrainerError, match="yaml"):
        changed_text(broken, {"a": 1})


def test_the_words_that_name_a_file_name_its_copy() -> None:
    words = ("train.py", "--config", "a.yaml", "--other=b/a.yaml", "--same=a.yaml")
    assert with_copies(words, {"a.yaml": "c.yaml"}) == (
        "train.py",
        "--config",
        "c.yaml",
        "--other=b/a.yaml",
        "--same=c.yaml",
    )


@given(st.integers(-(10**9), 10**9) | st.booleans() | st.floats(allow_nan=False, allow_infinity=False))
def test_toml_and_yaml_read_the_value_back(tmp_path_factory: pytest.TempPathFactory, value: float | bool) -> None:
    folder = tmp_path_factory.mktemp("files")
    (folder / "a.toml").write_text(TOML_TEXT)
    (folder / "a.yaml").write_text(YAML_TEXT)
    assert tomllib.loads(changed_text(folder / "a.toml", {"data.workers": value}))["data"]["workers"] == value
    assert YAML().load(changed_text(folder / "a.yaml", {"workers": value}))["workers"] == value


def test_a_file_is_named_as_a_word_and_behind_an_equals_sign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("lr=0.1").mkdir()
    Path("lr=0.1/f.yaml").touch()
    words = ["python", "train.py", "a.yaml", "--config=b.yaml", "config=c.yaml", "+config=d.toml", "runs/lr=0.1/e.yaml"]
    named = named_files([*words, "lr=0.1/f.yaml", f"config={'g' * 300}.yaml"])
    assert named == ["a.yaml", "b.yaml", "c.yaml", "d.toml", "runs/lr=0.1/e.yaml", "lr=0.1/f.yaml", f"{'g' * 300}.yaml"]
