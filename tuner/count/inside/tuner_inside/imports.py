"""Calls a function once a module has been imported, without importing it."""

import sys
from importlib.util import find_spec

_waiting = {}


def when_imported(name, function):
    """Call `function` with the module `name`: now if it is there, else right after its import.

    Args:
        name: the module's full name, such as `torch.utils.data.dataloader`.
        function: takes the module. It must not raise.
    """
    module = sys.modules.get(name)
    if module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False):
        function(module)
        return
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    _waiting.setdefault(name, []).append(function)


class _Finder:
    """Finds nothing itself: it lets the other finders find a module that is waited for, and wraps its loader."""

    def __init__(self):
        self._finding = set()

    def find_spec(self, name, path=None, target=None):
        if name not in _waiting or name in self._finding:
            return None
        self._finding.add(name)
        try:
            spec = find_spec(name)
        except (ImportError, ValueError, AttributeError):
            return None
        finally:
            self._finding.discard(name)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = _Loader(spec.loader, name)
        return spec


class _Loader:
    """A loader that calls the waiting functions once it has run the module's code; all else is the wrapped one's."""

    def __init__(self, loader, name):
        self._loader = loader
        self._name = name

    def __getattr__(self, attribute):
        return getattr(self._loader, attribute)

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        if getattr(module, "__loader__", None) is self:
            module.__loader__ = self._loader
        if module.__spec__ is not None and module.__spec__.loader is self:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        for function in _waiting.pop(self._name, ()):
            function(module)
