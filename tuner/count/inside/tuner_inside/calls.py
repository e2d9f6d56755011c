"""Watches the calls of modules. It stores nothing in a module, because modules are copied, saved and scripted.

A forward hook would be pickled with the module, and compiled with it. So the call of the module's class is wrapped. A
note is work that is put off: `notes.py` calls the noted functions a few times a second.
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
    """Watches the calls of modules.

    The first calls are looked at one by one, which takes long. Once they are all alike, calls are usual: of a usual
    call, only a note is made.
    """

    __slots__ = ("is_reusing", "key", "usual", "usual_mode")  # each step reads them: slots lie side by side

    def __init__(self):
        self.usual_mode = None
        """What `module.training` is in a usual call; None while no call is usual."""
        self.key = None
        """The name of the argument that holds the first tensor, where a module takes only named arguments."""
        self.is_reusing = False
        """Whether a tensor was ever given twice in a row. Only then is its version read, which shows new data in it."""
        self.usual = self.take_usual
        """What the note of a usual call will call. It is kept here because each look-up would bind the method anew."""

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

    def take_usual(self, shape, tensor, version):
        """Count a usual call: one like a call that `look` has seen, so that a note of its shape tells enough.

        A watcher that sets `usual_mode` defines this. Otherwise it does nothing, because no calls are usual then.

        Args:
            shape: that of its first tensor.
            tensor: a weak reference to the tensor.
            version: the tensor's version, which torch counts up when it is changed; None if `is_reusing` is False.
        """


def in_backward():
    """Return whether this thread runs a backward pass: a module called then computes once more what it did before."""
    # an older torch does not number them
    return getattr(sys.modules["torch"]._C, "_current_graph_task_id", lambda: NO_TASK)() != NO_TASK


def begin_anew():
    """Forget all modules, as in a forked process."""
    _watchers.clear()


def _wrap_class_call(kind):
    """Wrap the `__call__` of a module's class once, so that each call of a watched module tells its watchers first.

    Of a usual call only the shape is noted, which is cheap. Every other call is looked at in full.
    """
    if kind in _wrapped_classes:
        return
    torch, ref, plain_call, own_call = sys.modules["torch"], weakref.ref, kind.__call__, vars(kind).get("__call__")
    base = next((parent for parent in kind.__mro__[1:] if "__call__" in vars(parent)), None)  # None of `Module` itself
    # an older torch does not say whether it compiles; bool() is False
    is_compiling = getattr(getattr(torch, "compiler", None), "is_compiling", bool)
    Tensor, is_grad_enabled = torch.Tensor, torch.is_grad_enabled
    watchers_of = _watchers.get

    def call(self, *args, **kwargs):
        """Tell the module's watchers, and call the module as without this wrapper."""
        if type(self) is not kind:  # a derived class, which has a wrapper of its own if one of its modules is watched
            return super(kind, self).__call__(*args, **kwargs) if own_call is None else own_call(self, *args, **kwargs)
        for watcher in watchers_of(id(self), ()):
            try:  # this runs each step: all names are local, and what can wait is left to `take_usual`
                tensor = args[0] if args else kwargs[watcher.key]
                shape = tensor.shape
                is_usual = self.training is watcher.usual_mode and type(tensor) is Tensor and len(shape) > 1
                if is_usual and is_grad_enabled():
                    version = tensor._version if watcher.is_reusing else None
                    note((watcher.usual, shape, ref(tensor), version))
                    continue
            except Exception:  # no argument, or an inference tensor, which has no version
                pass
            if not is_compiling():
                watcher.look(self, args, kwargs)
        if own_call is None:  # `super()` would take microseconds; looked up now, because others may wrap it, too
            return base.__call__(self, *args, **kwargs)
        return own_call(self, *args, **kwargs)

    kind.__call__ = functools.wraps(plain_call)(call)
    # torch's compiler traces this function in place of the wrapper
    call._torchdynamo_inline = getattr(plain_call, "_torchdynamo_inline", plain_call)
    _wrapped_classes.add(kind)
