"""Watches the calls of modules. Nothing of it lies in a module, which may be copied, saved and scripted.

A forward hook would be pickled with the module, and compiled with it. So the call of the module's class is wrapped.
"""

import functools
import sys
import weakref

from tuner_inside.notes import note

_watchers = {}
"""The id of a module → its watchers."""
NO_TASK = -1
"""What torch returns in place of the number of a backward pass, if none runs in this thread."""
_wrapped_classes = set()
"""The classes whose call is wrapped. They stay so: a call that nobody watches costs a look into a dictionary."""


class CallWatcher:
    """Watches the calls of modules: looks at them, or only takes a note of those that are as usual."""

    usual_mode = None
    """The training mode of a module in the calls that need only a note; None where all calls are looked at."""
    key = None
    """The name of the argument that holds the first tensor, where a module takes only named arguments."""
    batch_is_second = False
    """Whether the samples are the second dimension of the inputs, as in `[sequence, batch]`."""

    def watch(self, module):
        """Watch a module until it is forgotten. Other modules of its class are not watched."""
        if id(module) not in _watchers:  # a later module may get the same id
            weakref.finalize(module, _watchers.pop, id(module), None).atexit = False
        _watchers[id(module)] = (*_watchers.get(id(module), ()), self)
        _wrap_class_call(type(module))

    def forget(self, module):
        """Watch a module no longer."""
        _watchers[id(module)] = tuple(watcher for watcher in _watchers.get(id(module), ()) if watcher is not self)

    def look(self, module, args, kwargs):
        """Look at what is given to a module. It must not raise."""

    def take(self, rows, tensor, version):
        """Take a noted call into account: its samples, a weak reference to its first tensor, and the tensor's version.

        torch counts a tensor's version up when it is changed.
        """


def in_backward():
    """Return whether this thread runs a backward pass: a module called then computes once more what it did before."""
    return _graph_task_id(sys.modules["torch"])() != NO_TASK


def _graph_task_id(torch):
    """Return torch's function for the number of this thread's backward pass. An older torch has none."""
    return getattr(torch._C, "_current_graph_task_id", lambda: NO_TASK)


def begin_anew():
    """Forget all modules, as in a forked process."""
    _watchers.clear()


def _wrap_class_call(kind):
    """Wrap the `__call__` of a module's class once, so that each call of a watched module tells its watchers first.

    Of a usual call only the shape is noted, which is cheap. Every other call is looked at in full.
    """
    if kind in _wrapped_classes:
        return
    torch, ref, own_call = sys.modules["torch"], weakref.ref, vars(kind).get("__call__")
    # an older torch does not say whether it compiles; bool() is False
    is_compiling = getattr(getattr(torch, "compiler", None), "is_compiling", bool)
    Tensor, is_grad_enabled, graph_task_id = torch.Tensor, torch.is_grad_enabled, _graph_task_id(torch)

    def call(self, *args, **kwargs):
        """Tell the module's watchers, and call the module as without this wrapper."""
        if not is_compiling() and type(self) is kind:  # a derived class has a wrapper of its own
            for watcher in _watchers.get(id(self), ()):
                try:  # this runs each step: all names are local, and no value is computed twice
                    tensor = args[0] if args else kwargs[watcher.key]
                    is_usual = self.training is watcher.usual_mode and type(tensor) is Tensor and tensor.dim() > 1
                    if is_usual and is_grad_enabled() and graph_task_id() == NO_TASK:
                        note((watcher.take, tensor.shape[watcher.batch_is_second], ref(tensor), tensor._version))
                        continue
                except Exception:  # no argument, or an inference tensor, which has no version
                    pass
                watcher.look(self, args, kwargs)
        if own_call is not None:
            return own_call(self, *args, **kwargs)
        return super(kind, self).__call__(*args, **kwargs)  # looked up now: a base class may be wrapped later

    kind.__call__ = functools.wraps(kind.__call__)(call)
    _wrapped_classes.add(kind)
