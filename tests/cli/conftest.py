from collections.abc import Iterator
from pathlib import Path

import pytest
from tests_cli import Tuner
from tests_forks import Forks, forks

from tuner.cli.main import main


@pytest.fixture
def tuner(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Tuner:
    """Return a function that runs the command line in a fresh folder and returns exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MIMICKIT_ROOT", raising=False)
    monkeypatch.setenv("COLUMNS", "1000")

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["tuner", *map(str, arguments)])
        with pytest.raises(SystemExit) as exit_:
            main()
        out, err = capsys.readouterr()
        code = exit_.value.code
        return (code if isinstance(code, int) else 0), out, err

    return run


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    """Processes of their own, each a fork of one that has loaded the command line.

    That one ends with the file: other files check that nothing of theirs still runs.
    """
    with forks(tmp_path_factory.mktemp("forks")) as ready:
        yield ready
