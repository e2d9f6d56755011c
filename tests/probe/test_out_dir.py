from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from tuner.errors import OutputError
from tuner.probe.output import folder_of, reserved_out_dir


def test_a_folder_that_is_there_is_left_alone(tmp_path: Path) -> None:
    for name in ("0007", "0007-2", "0007-3"):
        with reserved_out_dir(tmp_path / "probes/walk/0007") as folder:
            assert folder == tmp_path / "probes/walk" / name
            assert list(folder.iterdir()) == []
            (folder / "console.log").write_text(name)
    assert (tmp_path / "probes/walk/0007/console.log").read_text() == "0007"


def test_a_folder_that_stays_empty_goes_again(tmp_path: Path) -> None:
    for _ in range(2):
        with reserved_out_dir(tmp_path / "0007") as folder:
            assert folder == tmp_path / "0007"
    assert list(tmp_path.iterdir()) == []


def test_those_who_want_the_same_at_once_each_get_their_own(tmp_path: Path) -> None:
    with ExitStack() as stack, ThreadPoolExecutor() as pool:
        folders = pool.map(lambda _: stack.enter_context(reserved_out_dir(tmp_path / "a/b")), range(20))
        assert len(set(folders)) == 20


def test_a_folder_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "walk").touch()
    with pytest.raises(
        OutputError, match=f"^{tmp_path}/walk cannot be made: File exists; check what stands in its way"
    ):
        reserved_out_dir(tmp_path / "walk/0007").__enter__()


def test_a_link_to_a_folder_that_is_gone_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "probes").symlink_to("/gone/with/its/disk")
    with pytest.raises(OutputError, match=f"^{tmp_path}/probes cannot be made: File exists"):
        reserved_out_dir(tmp_path / "probes/walk/0007").__enter__()


@pytest.mark.parametrize(
    "named", ["../victim", "../../victim", "/etc", "probes/../../victim", "link", "", None, "a\0b"]
)
def test_a_folder_outside_the_studys_is_not_followed(tmp_path: Path, named: str | None) -> None:
    study = tmp_path / "runs/demo"
    study.mkdir(parents=True)
    (study / "link").symlink_to(tmp_path)
    assert folder_of(study, named) is None


@pytest.mark.parametrize("named", ["probes/walk/0007", "./try", "a/../b"])
def test_a_folder_inside_the_studys_is_found(tmp_path: Path, named: str) -> None:
    assert folder_of(tmp_path, named) == (tmp_path / named).resolve()
    assert folder_of(tmp_path, str(tmp_path / named)) == (tmp_path / named).resolve()
