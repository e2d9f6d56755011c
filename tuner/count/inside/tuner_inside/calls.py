"""Watches the calls of modules. It stores nothing in a module, because modules are copied, saved and scripted.

A forward hook would be pickled with the module, and compiled with it. So the call of the module's class is wrapped.
"""

import functools
import sys
import weakref

from tuner_inside.steady_steps import steady

_observers = {}
"""The id of a module → its observers: the objects whose method `look` sees each of its calls."""
_wrapped_classes = set()
"""The classes whose call is wrapped. They stay so: a call that nobody watches costs a look into a dictionary."""


def watch(module, observer):
    """Let `observer.look` see a module and its positional and named arguments at each call. It must not raise."""
    if id(module) not in _observers:  # a later module may get the same id
        weakref.finalize(module, _observers.pop, id(module), None).atexit = False
    _observers[id(module)] = (*_observers.get(id(module), ()), observer)
    _wrap_class_call(type(module))


def unwatch(module, observer):
    """Let an observer no longer see what is given to a module."""
    _observers[id(module)] = tuple(kept for kept in _observers.get(id(module), ()) if kept is not observer)


def in_backward():
    """Return whether this thread runs a backward pass: a module called then computes once more what it did before."""
    number = getattr(sys.modules["torch"]._C, "_current_graph_task_id", None)  # an older torch does not number them
    return number is not None and number() != -1  # what torch returns if none runs


def begin_anew():
    """Watch no module any more, as in a forked process."""
    _observers.clear()


def _wrap_class_call(kind):
    """Wrap the `__call__` of a module's class once, so that the observers of a module see each of its calls first.

    A usual call of a steady training only adds its samples. Every other call counts in full.
    """
    if kind in _wrapped_classes:
        return
    torch, plain_call, own_call = sys.modules["torch"], kind.__call__, vars(kind).get("__call__")
    base = next((parent for parent in kind.__mro__[1:] if "__call__" in vars(parent)), None)  # None of `Module` itself
    # an older torch does not say whether it compiles; bool() is False
    is_compiling = getattr(getattr(torch, "compiler", None), "is_compiling", bool)
    is_grad_enabled, observers_of, usual = torch.is_grad_enabled, _observers.get, steady

    def call(*args, **kwargs):  # with the module in it, the tuple is handed on as it is
        """Let the observers see the call, and call the module as without this wrapper."""
        self, is_usual = args[0], False
        try:  # this runs each step: all names are local
            if (
                id(self) == usual.module_id
                and usual.unlearned_rows is None
                and usual.mode_holder().training is usual.mode
                and is_grad_enabled()
            ):
                shape = (args[1] if usual.key is None else kwargs[usual.key]).shape
                if len(shape) == usual.dimensions:
                    usual.unlearned_rows = shape[usual.dimension]
                    is_usual = True
        except Exception:  # other arguments than usual
            pass
        if not is_usual:
            if type(self) is not kind:  # a derived class, which has a wrapper if one of its modules is watched
                return own_call(*args, **kwargs) if own_call else super(kind, self).__call__(*args[1:], **kwargs)
            for observer in observers_of(id(self), ()):
                if not is_compiling():
                    observer.look(self, args[1:], kwargs)
        # `super()` would take microseconds; looked up now, because others may wrap it, too
        next_call = base.__call__ if own_call is None else own_call
        return next_call(*args, **kwargs) if kwargs else next_call(*args)  # the second makes no empty dictionary

    kind.__call__ = functools.wraps(plain_call)(call)
    # torch's compiler traces this function in place of the wrapper
    call._torchdynamo_inline = getattr(plain_call, "_torchdynamo_inline", plain_call)
    _wrapped_classes.add(kind)
