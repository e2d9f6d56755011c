from pathlib import Path

import pytest

from tuner.errors import StoreError
from tuner.export.reader import read_tables


def test_tables_are_known_by_their_names(tmp_path: Path) -> None:
    (tmp_path / "trials.tsv").write_text("case\tnum_envs\nadd\t32\n", encoding="utf-8")
    (tmp_path / "study.db").touch()
    tables = read_tables(tmp_path)
    assert list(tables) == ["trials"]
    assert tables["trials"].to_dict("records") == [{"case": "add", "num_envs": 32}]


@pytest.mark.parametrize("folder", ["", "missing"])
def test_a_folder_without_tables_says_how_to_get_them(tmp_path: Path, folder: str) -> None:
    with pytest.raises(StoreError, match="holds no tables; `tuner export` writes them"):
        read_tables(tmp_path / folder)
