import gc
import os
import sys
from pathlib import Path

import pytest
from hypothesis import settings

# The time of an example depends on the other load of the machine. Each run draws 25 other examples; 100 are usual.
settings.register_profile("no clock", deadline=None, max_examples=25)
settings.load_profile("no clock")

# Where it is set, as in many images, each process of a run compiles anew all that it imports: a third of the time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


def pytest_configure(config: pytest.Config) -> None:
    """Load the fixtures where tests run. The process that hands them out to others need not import for a second."""
    if not config.getoption("numprocesses", default=None):
        config.pluginmanager.import_plugin("tests_fixtures")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Let each process of a whole run read the files of tests from another place on.

    In a fresh clone each process then compiles other files, and finds the rest compiled by the others.
    """
    gc.disable()  # what is imported and collected lives until the end; `pytest_collection_finish` enables it again
    gc.set_threshold(100_000, 20, 20)  # most objects of tests live until the end, too
    config, name = session.config, os.environ.get("PYTEST_XDIST_WORKER", "gw0")
    if config.args == config.getini("testpaths"):
        here = Path(__file__).parent
        parts = sorted(str(path) for path in here.iterdir() if path.is_dir() or path.match("test_*.py"))
        begin = len(parts) * int(name.removeprefix("gw")) // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
        config.args = parts[begin:] + parts[:begin]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the files with long tests first, and all others in the order of their names."""
    items.sort(key=lambda item: (item.get_closest_marker("early") is None, item.path))


def pytest_collection_finish() -> None:
    """Keep modules and tests out of the garbage collector's searches, because they live until the end.

    The searches took a tenth of the time.
    """
    gc.freeze()
    gc.enable()
