from pathlib import Path

import pytest
from tests_cli import Tuner

from tuner.cli.main import main
from tuner.devices.cpu import TEAM


@pytest.fixture
def tuner(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Tuner:
    """Return a function that runs the command line in a fresh folder and returns exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MIMICKIT_ROOT", raising=False)
    monkeypatch.setenv("COLUMNS", "1000")
    # All processes are the tuner's own team: the tests that run beside a probe come and go, and speeds that were
    # measured beside busy programs are not compared with others.
    monkeypatch.setenv(TEAM, "1")

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["tuner", *map(str, arguments)])
        with pytest.raises(SystemExit) as exit_:
            main()
        out, err = capsys.readouterr()
        code = exit_.value.code
        return (code if isinstance(code, int) else 0), out, err

    return run
