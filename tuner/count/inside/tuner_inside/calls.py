"""Watches the calls of modules. Nothing of it lies in a module, which may be copied, saved and scripted.

A forward hook would be pickled with the module, and compiled with it. So the call of the module's class is wrapped.
"""

import functools
import sys
import weakref

from tuner_inside.notes import note

_watched = {}
"""The id of a module → what watches it."""
NO_TASK = -1
"""What torch says in place of the number of a backward pass, where none runs in this thread."""
_wrapped = set()
"""The classes whose call is wrapped. They stay so: a call that nobody watches costs a look into a dictionary."""


class ModuleWatcher:
    """Watches the calls of modules: looks at them, or only takes a note of those that are as usual."""

    usual_mode = None
    """Whether the module is in training mode where a call needs only a note; None where all are looked at."""
    key = None
    """The name of the first tensor where a module takes no other inputs than named ones."""
    is_second = False
    """Whether the samples are the second dimension of the inputs, as in `[sequence, batch]`."""

    def watch(self, module):
        """Watch a module until it is forgotten. Other modules of its class are not watched."""
        if id(module) not in _watched:  # another module may get its number
            weakref.finalize(module, _watched.pop, id(module), None).atexit = False
        _watched[id(module)] = (*_watched.get(id(module), ()), self)
        _wrap(type(module))

    def forget(self, module):
        """Watch a module no longer."""
        _watched[id(module)] = tuple(watcher for watcher in _watched.get(id(module), ()) if watcher is not self)

    def look(self, module, args, kwargs):
        """Look at what is given to a module. It must not raise."""

    def take(self, rows, tensor, version):
        """Take a noted call into account: its samples, its first tensor as a weak reference, and its version."""


def in_backward():
    """Return whether this thread computes gradients: what a module is given then is nothing new."""
    return _graph_task(sys.modules["torch"])() != NO_TASK


def _graph_task(torch):
    return getattr(torch._C, "_current_graph_task_id", lambda: NO_TASK)


def begin_anew():
    """Forget all modules, as in a forked process."""
    _watched.clear()


def _wrap(kind):
    if kind in _wrapped:
        return
    torch, ref, own = sys.modules["torch"], weakref.ref, vars(kind).get("__call__")
    is_compiling = getattr(getattr(torch, "compiler", None), "is_compiling", bool)
    Tensor, is_grad_enabled, graph_task = torch.Tensor, torch.is_grad_enabled, _graph_task(torch)

    def call(self, *args, **kwargs):
        if not is_compiling() and type(self) is kind:
            for watcher in _watched.get(id(self), ()):
                try:
                    tensor = args[0] if args else kwargs[watcher.key]
                    is_usual = self.training is watcher.usual_mode and type(tensor) is Tensor and tensor.dim() > 1
                    if is_usual and is_grad_enabled() and graph_task() == NO_TASK:
                        note((watcher.take, tensor.shape[watcher.is_second], ref(tensor), tensor._version))
                        continue
                except Exception:  # without an argument, or with a tensor of inference
                    pass
                watcher.look(self, args, kwargs)
        if own is not None:
            return own(self, *args, **kwargs)
        return super(kind, self).__call__(*args, **kwargs)

    kind.__call__ = functools.wraps(kind.__call__)(call)
    _wrapped.add(kind)
