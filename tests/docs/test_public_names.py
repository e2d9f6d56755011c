"""`tuner` has the names that docs/python.md lists, and loads each name only when it is used."""

import pydoc
import subprocess
import sys
from importlib import resources

import pytest
from tests_docs import of

import tuner

FRESH = """
import sys, tuner
before = {"optuna", "torch", "pyarrow", "numpy"} & sys.modules.keys()
tuner.Space
print(before, "tuner.study.space" in sys.modules, "optuna" in sys.modules)
"""


def test_each_public_name_is_there_and_on_the_page() -> None:
    for name in tuner.__all__:
        assert getattr(tuner, name) is not None
        assert name in dir(tuner)
        assert name in {piece.text for piece in of("python.md", "inline")}


def test_help_shows_no_variable_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCESS_CODE", "s3cret")
    public = (getattr(tuner, name) for name in tuner.__all__)
    assert all("s3cret" not in pydoc.render_doc(thing) for thing in public if callable(thing))


def test_a_name_that_is_not_public_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="module 'tuner' has no attribute 'Spaces'"):
        _ = tuner.Spaces


def test_nothing_is_loaded_before_it_is_used() -> None:
    run = subprocess.run([sys.executable, "-c", FRESH], capture_output=True, text=True, check=True)
    assert run.stdout == "set() True False\n"


def test_the_package_is_marked_as_typed() -> None:
    assert resources.files("tuner").joinpath("py.typed").is_file()
