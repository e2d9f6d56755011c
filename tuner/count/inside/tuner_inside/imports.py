"""Calls a function once a module has been imported, without importing it."""

import sys
from importlib.machinery import SourceFileLoader
from importlib.util import find_spec

_waiting = {}
"""The name of a module → the functions that wait for it."""


def when_imported(name, function):
    """Call `function` with the module of the full name `name`: now if it is there, else right after its import.

    The function must not raise.
    """
    module = sys.modules.get(name)
    is_half_imported = getattr(getattr(module, "__spec__", None), "_initializing", False)
    if module is not None and not is_half_imported:
        function(module)
        return
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    _waiting.setdefault(name, []).append(function)


class _Finder:
    """Finds nothing itself: it lets the other finders find a module that is waited for, and adds to its loader."""

    def __init__(self):
        self._finding = set()
        """The modules that the other finders look for now."""

    def find_spec(self, name, path=None, target=None):
        """Return how to import a module that is waited for; None leaves any other module to the next finder."""
        if name not in _waiting or name in self._finding:  # the second: called by `find_spec` below
            return None
        self._finding.add(name)
        try:
            spec = find_spec(name)
        except (ImportError, ValueError, AttributeError):  # the next finder raises it, too
            return None
        finally:
            self._finding.discard(name)
        if isinstance(getattr(spec, "loader", None), SourceFileLoader):  # this loader is the module's alone
            _call_after_import(spec.loader, name)
        return spec


def _call_after_import(loader, name):
    """Let a loader call the waiting functions once it has run the module's code."""

    def exec_module(module):
        """Run the module's code as without this wrapper, and call the waiting functions."""
        del loader.exec_module  # the method of the class comes back
        loader.exec_module(module)
        for function in _waiting.pop(name, ()):
            function(module)

    loader.exec_module = exec_module
