"""Calls functions before a module is called. Nothing of it lies in the module, which may be copied, saved and scripted.

A forward hook would be pickled with the module, and compiled with it. So the call of the module's class is wrapped.
"""

import functools
import sys
import weakref

_watched = {}
"""The id of a module → the functions."""
_wrapped = set()
"""The classes whose call is wrapped. They stay so: a call that nobody watches costs a look into a dictionary."""


def before_call(module, function):
    """Call `function(module, args, kwargs)` before each call of a module, until it is forgotten.

    Args:
        module: the module. Other modules of its class are not watched.
        function: takes the module and what is given to it. It must not raise.
    """
    if id(module) not in _watched:  # another module may get its number
        weakref.finalize(module, _watched.pop, id(module), None).atexit = False
    _watched[id(module)] = (*_watched.get(id(module), ()), function)
    _wrap(type(module))


def forget(module, function):
    """Call a function before a module no longer."""
    if module is not None:
        _watched[id(module)] = tuple(kept for kept in _watched.get(id(module), ()) if kept != function)


def begin_anew():
    """Forget all functions, as in a forked process."""
    _watched.clear()


def _wrap(kind):
    if kind in _wrapped:
        return
    own = vars(kind).get("__call__")
    is_compiling = getattr(getattr(sys.modules["torch"], "compiler", None), "is_compiling", bool)

    def call(self, *args, **kwargs):
        if not is_compiling() and type(self) is kind:
            for function in _watched.get(id(self), ()):
                function(self, args, kwargs)
        if own is not None:
            return own(self, *args, **kwargs)
        return super(kind, self).__call__(*args, **kwargs)

    kind.__call__ = functools.wraps(kind.__call__)(call)
    _wrapped.add(kind)
