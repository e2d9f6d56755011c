"""Modules that are loaded when a test first uses them: every process of the tests reads all files of tests."""

from importlib import import_module
from typing import Any


class Later:
    """Stands for a module that takes long to load, such as torch."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # pytest asks everything in a file whether it is a fixture
            raise AttributeError(name)
        return getattr(import_module(self._name), name)
