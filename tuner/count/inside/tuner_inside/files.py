"""Tells which of the named configuration files the script reads, and whether it may read its command line by itself.

Both are seen in Python's audit events, which come with everything that the process opens and runs; all others return at
once. Whether code reads the command line is taken from the names that it uses: `sys.argv` stays the list that it is.
"""

import os
import sys
from _thread import get_ident

from tuner_inside.tell import guarded, tell

ENDINGS = (".yaml", ".yml", ".json", ".toml")
"""How the names of configuration files end."""
STANDARD = os.path.join(os.path.dirname(os.path.abspath(os.__file__)), "")
"""The folder of the standard library."""
PROGRAMS = (os.path.dirname(sys.executable), os.path.join(sys.prefix, "bin"), os.path.expanduser("~/.local/bin"))
PROGRAMS = tuple(os.path.join(folder, "") for folder in PROGRAMS)
"""Folders of the small programs that start a library's command."""
CODE = type(guarded.__code__)
"""The type of compiled code."""

_guard = guarded("files")
_state = {"thread": 0, "argv": False, "folder": ""}
_told = set()


def is_spawned():
    """Return whether `multiprocessing` has started this process: it runs the script once more, and tells nothing."""
    start = getattr(sys, "orig_argv", None) or getattr(sys, "argv", ())
    return any(word == "--multiprocessing-fork" or word.startswith("from multiprocessing.") for word in start)


def install():
    """Watch what the process opens and runs. A process that `multiprocessing` starts or forks tells nothing."""
    if not is_spawned():
        _state.update(thread=get_ident(), folder=os.getcwd())
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_stop)
        sys.addaudithook(_watch)


def argv_is_read():
    """Tell, once, that the script may read its command line by itself."""
    if not _state["argv"]:
        _state["argv"] = True
        tell("argv", read=True)


def _stop():
    _state.update(thread=0, argv=True)


def _watch(event, args):
    if event == "open":
        path = args[0] if args else None
        if type(path) is str and path.endswith(ENDINGS):
            _opens(path, *args[1:3])
    elif event == "exec" and args and type(args[0]) is CODE:
        _runs(args[0])


@_guard
def _opens(path, mode=None, flags=0):
    """Tell of a file that a word of the command line names, when the script opens it to read."""
    is_read = not set(mode) & set("wax+") if isinstance(mode, str) else not flags & (os.O_WRONLY | os.O_RDWR)
    if path in _told or not is_read or get_ident() != _state["thread"]:
        return
    for word in sys.argv[1:]:
        for part in (word, word.split("=", 1)[-1]):
            if part.endswith(ENDINGS) and any(_is_same(path, folder, part) for folder in (_state["folder"], "")):
                _told.add(path)
                tell("file", path=os.path.abspath(path), named_by=word)
                return


def _is_same(path, folder, name):
    is_named = os.path.basename(name) == os.path.basename(path)  # most files have another name, and are left at once
    return is_named and os.path.realpath(os.path.join(folder, name)) == os.path.realpath(path) and os.path.isfile(path)


@_guard
def _runs(code):
    name, script = code.co_filename, (getattr(sys, "argv", None) or ("",))[0]
    if "-packages" in name and name != script:  # by -m, a library's module is the script
        return
    if name.startswith("<"):  # a text that is executed
        is_main = not name.startswith("<frozen")
        is_looked_at = is_main and not _state["argv"]
    else:
        is_main = os.path.abspath(name) == os.path.abspath(script)
        is_looked_at = not name.startswith(STANDARD) and not os.path.abspath(name).startswith(PROGRAMS)
    # what an imported module does where its name is __main__ does not run
    if is_looked_at and _mentions_argv(code, is_skipped=not is_main and "__main__" in code.co_consts):
        argv_is_read()


def _mentions_argv(code, is_skipped=False):
    if not is_skipped and "argv" in code.co_names:
        return True
    for part in code.co_consts:  # a plain loop, because it runs for each module
        if type(part) is CODE and _mentions_argv(part):
            return True
    return False
