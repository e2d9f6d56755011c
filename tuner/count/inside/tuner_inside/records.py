"""Writes the records of the counting for the tuner: a JSON line for each, in a file of this process alone.

Also wraps functions, so that an error in the counting never reaches the training.
"""

import functools
import json
import os
import sys
import time
from _thread import RLock

FOLDER = "TUNER_COUNT"
"""The environment variable that names the folder of the files."""
FIRST = "TUNER_COUNT_FIRST"
"""The environment variable that is set in the first run of a command, where more is asked than in later ones."""

_file = {"pid": 0, "path": "", "pause_recorded_s": 0.0}
"""The process that writes the file, the path of the file, and the time of the last record about a pause."""
off = set()
"""The parts of the counting that an error has switched off."""
_lock = [RLock()]
"""Its only entry is the lock that a thread holds while it counts: a script may count in several threads at once."""


os.register_at_fork(after_in_child=lambda: _lock.__setitem__(0, RLock()))  # a thread of the parent may hold it


def write_record(kind, **fields):
    """Append a record of a kind to this process's file, if possible. What JSON cannot hold is written as text."""
    folder = os.environ.get(FOLDER)
    if not folder:
        return
    try:
        if _file["pid"] != os.getpid():  # the first record of the process, which may be a fork
            name = "%d-%x.jsonl" % (os.getpid(), time.monotonic_ns())
            _file.update(pid=os.getpid(), path=os.path.join(folder, name))
            argv = [str(word) for word in getattr(sys, "argv", ())[:1]]  # later words may hold a key
            _append({"type": "process", "t_s": time.monotonic(), "argv": argv, **_origin()})
        _append(dict(fields, type=kind, t_s=time.monotonic()))
    except Exception:  # whatever forbids it, such as a full disk or an audit hook of the script: the training goes on
        pass


def _origin():
    """Return the id of this process, those of the processes that started it, and when it began; empty if unknown."""
    try:
        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        lives_s = time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")  # proc(5)
        parent = getattr(sys.modules.get("multiprocessing.process"), "parent_process", lambda: None)()
        parents = [os.getppid(), *([parent.pid] if parent else [])]  # a server of multiprocessing may fork for a parent
        return {"pid": os.getpid(), "parents": parents, "began_s": time.monotonic() - lives_s}
    except Exception:  # such as a system without these
        return {}


def mark_started():
    """Make the empty file `started`: it says that a process of the trainer counts, even before its first record."""
    try:
        os.close(os.open(os.path.join(os.environ[FOLDER], "started"), os.O_WRONLY | os.O_CREAT, 0o600))
    except Exception:  # as in `write_record`
        pass


def record_pause():
    """Record, at most once a second, that the process evaluates or saves: it does not train, and does not hang."""
    now_s = time.monotonic()
    if now_s - _file["pause_recorded_s"] >= 1.0:
        _file["pause_recorded_s"] = now_s
        write_record("pause")


def _append(record):
    """Append a record to the file as a line of JSON. Raises OSError."""
    line = json.dumps(record, default=str).encode("utf-8", "replace") + b"\n"
    # only its owner may read it: a command line may hold a key
    descriptor = os.open(_file["path"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, line)  # in one call, so that threads do not mix their lines
    finally:
        os.close(descriptor)


def errors_switch_off(part):
    """Return a decorator for a function of the counting that the training calls: no error in it reaches the training.

    An error switches the named `part` of the counting off, and a record says why. The function then returns None, and
    so does every later call of a function of this part.
    """

    def decorate(function):
        """Return the function in a wrapper that catches its errors."""

        @functools.wraps(function)
        def call(*args, **kwargs):
            """Call the function, unless an error has switched the part off."""
            if part in off:
                return None
            try:
                with _lock[0]:
                    return function(*args, **kwargs)
            except Exception as error:
                if part not in off:
                    off.add(part)
                    write_record("off", part=part, why="%s: %s" % (type(error).__name__, error))

        return call

    return decorate


def around(part, owner, name, before, after=None):
    """Replace the function `name` of a class or module, if there is one, by one that calls `before` and `after`, too.

    `before` gets the arguments of the call. If it does not return None, `after` gets what it has returned, and the
    function's result. An error in them switches the part `part` of the counting off.
    """
    function = getattr(owner, name, None)
    if function is None:
        return
    before, after = errors_switch_off(part)(before), errors_switch_off(part)(after)

    @functools.wraps(function)
    def call(*args, **kwargs):
        from_before = before(*args, **kwargs)
        result = function(*args, **kwargs)
        if from_before is not None:
            after(from_before, result)
        return result

    setattr(owner, name, staticmethod(call) if isinstance(vars(owner)[name], staticmethod) else call)
