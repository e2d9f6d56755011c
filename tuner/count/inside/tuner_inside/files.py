"""Tells which configuration files the script reads, and whether it may read its command line without a parser.

Both are seen in Python's audit events, which come with everything that the process opens and runs; all others return at
once. Whether code reads the command line is taken from the names that it uses: `sys.argv` stays the list that it is.
"""

import os
import sys
import time
from _thread import get_ident

from tuner_inside.tell import guarded, tell

ENDINGS = (".yaml", ".yml", ".json", ".toml", ".py", ".ini", ".cfg", ".gin")
"""How the names of configuration files end."""
MAX_FILES = 200
"""Files a process."""
MAX_BYTES = 1 << 20
"""A larger file holds data."""
LOOKING_S = 600.0
"""Seconds from the process's start. Settings are read by then."""
LIBRARIES = ("site-packages", "dist-packages", "__pycache__", "node_modules")
"""Folders of these names hold no settings."""
CACHES = (".", "models--", "datasets--", "torchinductor", "torch_extensions")
"""Folders whose names begin so are hidden, or caches."""
STANDARD = os.path.join(os.path.dirname(os.path.abspath(os.__file__)), "")
"""The folder of the standard library."""
OUTSIDE = ("/etc/", "/proc/", "/sys/", "/usr/", os.path.join(sys.prefix, ""), os.path.join(sys.base_prefix, ""))
"""Folders of the system and of Python, where a script's settings lie only if it was started there."""
PROGRAMS = (os.path.dirname(sys.executable), os.path.join(sys.prefix, "bin"), os.path.expanduser("~/.local/bin"))
PROGRAMS = tuple(os.path.join(folder, "") for folder in PROGRAMS)
"""Folders of the small programs that start a library's command."""
CODE = type(guarded.__code__)
"""The type of compiled code."""

_guard = guarded("files")
_state = {"thread": 0, "until_s": 0.0, "argv": False, "folder": ""}
_opened = set()
_told = set()
_lines = {}


def is_spawned():
    """Return whether `multiprocessing` has started this process: it runs the script once more, and tells nothing."""
    start = getattr(sys, "orig_argv", None) or getattr(sys, "argv", ())
    return any(word == "--multiprocessing-fork" or word.startswith("from multiprocessing.") for word in start)


def install():
    """Watch what the process opens and runs. A process that `multiprocessing` starts or forks tells nothing."""
    if not is_spawned():
        _state.update(thread=get_ident(), until_s=time.monotonic() + LOOKING_S, folder=os.getcwd())
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_stop)
        sys.addaudithook(_watch)


def argv_is_read():
    """Tell, once, that the script may read its command line by itself."""
    if not _state["argv"]:
        _state["argv"] = True
        tell("argv", read=True)


def _stop():
    _state.update(until_s=0.0, argv=True)


def _watch(event, args):
    if event == "open":
        path = args[0] if args else None
        if type(path) is str and path.endswith(ENDINGS):
            _opens(path, *args[1:3])
    elif event == "exec":
        code = args[0] if args else None
        name = getattr(code, "co_filename", "-packages")
        script = (getattr(sys, "argv", None) or ("",))[0]  # by -m, a library's module is the script
        if "-packages" not in name or name == script:
            _runs(code)


# Configuration files -------------------------------------------------------------------------------------------------


@_guard
def _opens(path, mode=None, flags=0):
    is_read = not set(mode) & set("wax+") if isinstance(mode, str) else not flags & (os.O_WRONLY | os.O_RDWR)
    if path in _opened or not is_read or not _is_looking():
        return
    if path.endswith(".py") and _is_import():
        return  # the module's code, which runs next, tells it
    _opened.add(path)
    _tell_file(path)


def _is_import():
    """Return whether Python itself, or its import system, opens the file."""
    frame = sys._getframe(1)
    while frame is not None and str(frame.f_globals.get("__name__")).startswith("tuner_inside"):
        frame = frame.f_back
    return frame is None or frame.f_code.co_filename.startswith("<frozen") or frame.f_globals["__name__"] == "runpy"


def _is_looking():
    return get_ident() == _state["thread"] and len(_told) < MAX_FILES and time.monotonic() < _state["until_s"]


def _tell_file(path):
    path = os.path.abspath(path)
    word = _words().get(os.path.realpath(path))
    if path in _told or (word is None and (path.endswith(".py") or not _is_setting(path))) or not os.path.isfile(path):
        return
    _told.add(path)
    tell("file", path=path, named_by=word)


def _words():
    """Return the words of the command line that name files: the file's real path → the word."""
    line = tuple(sys.argv[1:])
    if line not in _lines:
        found = dict(*_lines.values())  # the words that an earlier command line had
        for word in reversed(line):
            for part in (word, word.split("=", 1)[-1]):
                if part.endswith(ENDINGS):
                    for folder in (_state["folder"], os.getcwd()):
                        found[os.path.realpath(os.path.join(folder, part))] = word
        _lines.clear()
        _lines[line] = found
    return _lines[line]


def _is_setting(path):
    """Return whether a file may hold the script's settings: by its folder and its size."""
    script = os.path.dirname(os.path.abspath(sys.argv[0])) if sys.argv else ""
    homes = [os.path.join(folder, "") for folder in (_state["folder"], script)]
    home = next((home for home in homes if len(home) > 1 and path.startswith(home)), "")
    if path.startswith(STANDARD) or (not home and path.startswith(OUTSIDE)):
        return False
    folders = path[len(home) :].split(os.sep)[:-1]
    if any(folder in LIBRARIES or folder.startswith(CACHES) for folder in folders):
        return False
    return os.path.getsize(path) <= MAX_BYTES if os.path.isfile(path) else False


# Code that reads the command line ------------------------------------------------------------------------------------


@_guard
def _runs(code):
    name = code.co_filename
    if name.startswith("<"):  # a text that is executed
        is_main = not name.startswith("<frozen")
        is_looked_at = is_main and not _state["argv"]
    else:
        is_main = os.path.abspath(name) == os.path.abspath(sys.argv[0])
        is_looked_at = not name.startswith(STANDARD) and not os.path.abspath(name).startswith(PROGRAMS)
        if is_looked_at and not is_main and _is_looking() and name.endswith(".py"):
            _tell_file(name)
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
