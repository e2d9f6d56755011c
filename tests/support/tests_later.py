"""Modules that are loaded when a test first uses them: every process of the tests reads all files of tests."""

from importlib import import_module
from typing import Any


class Later:
    """Stands for a module that takes seconds to load, such as those that import torch."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._name), name)
