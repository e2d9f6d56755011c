"""Records which of the named configuration files a script reads, and whether it may read its command line by itself.

Both show in Python's audit events `open` and `exec`, which come with everything that the process opens and runs. Only
the first run of a command listens to them: a listener costs 0.4 µs for each parameter in a step, as torch calls `id`.
Whether code reads the command line is taken from the names that it uses: `sys.argv` stays the list that it is. The
flags of a script that reads it by itself are not all known, because no parser knows them.
"""

import os
import sys
from _thread import get_ident

from tuner_inside.records import FIRST, errors_switch_off, write_record

ENDINGS = (".yaml", ".yml", ".json", ".toml")
"""How the names of configuration files end."""
STANDARD_LIBRARY = os.path.join(os.path.dirname(os.path.abspath(os.__file__)), "")
"""The folder of the standard library."""
PROGRAM_FOLDERS = (os.path.dirname(sys.executable), os.path.join(sys.prefix, "bin"), os.path.expanduser("~/.local/bin"))
PROGRAM_FOLDERS = tuple(os.path.join(folder, "") for folder in PROGRAM_FOLDERS)
"""The folders of the small scripts that start a library's command, such as `torchrun`."""
CODE = type(errors_switch_off.__code__)
"""The type of compiled code."""

_state = {"thread": 0, "argv": False, "folder": ""}
"""The thread that runs the script, whether it may read its command line by itself, and the folder at the start."""
_recorded_paths = set()


def is_spawned():
    """Return whether `multiprocessing` has started this process: it runs the script once more, and records nothing."""
    command = getattr(sys, "orig_argv", None) or getattr(sys, "argv", ())  # Python 3.8 has no orig_argv
    return any(word == "--multiprocessing-fork" or word.startswith("from multiprocessing.") for word in command)


def install():
    """Watch what the process opens and runs, in the first run of a command.

    A process that `multiprocessing` starts or forks records nothing.
    """
    if os.environ.get(FIRST) and not is_spawned():
        _state.update(thread=get_ident(), folder=os.getcwd())
        # a forked process looks at nothing: no thread of it has the number 0, and its command line counts as read
        os.register_at_fork(after_in_child=lambda: _state.update(thread=0, argv=True))
        sys.addaudithook(_on_audit_event)


def record_argv_is_read():
    """Record, once, that the script may read its command line by itself."""
    if not _state["argv"]:
        _state["argv"] = True
        write_record("argv", read=True)


def _on_audit_event(event, args):
    """Look at files that are opened and code that runs. Python calls this for every audit event, so it is quick."""
    if event == "open":
        path = args[0] if args else None
        if type(path) is str and path.endswith(ENDINGS):
            _on_open(path, *args[1:3])
    elif event == "exec" and args and type(args[0]) is CODE:
        _on_exec(args[0])


@errors_switch_off("files")
def _on_open(path, mode=None, flags=0):
    """Record the path of a configuration file that the script opens to read, if the command line names the file.

    `mode` and `flags` are those of the audit event `open`. What other threads open, such as that of a logger, is left
    out.
    """
    if isinstance(mode, str):  # of `open`
        is_to_read = not set(mode) & set("wax+")
    else:  # of `os.open`, which has flags instead
        is_to_read = not flags & (os.O_WRONLY | os.O_RDWR)
    if path in _recorded_paths or not is_to_read or get_ident() != _state["thread"]:
        return
    folders = (_state["folder"], "")  # that of the start, or the present one: a script may change it
    for word in sys.argv[1:]:
        for name in (word, word.split("=", 1)[-1]):  # `train.yaml`, or `--config=train.yaml`
            if name.endswith(ENDINGS) and any(_is_name_of(path, folder, name) for folder in folders):
                _recorded_paths.add(path)
                write_record("file", path=os.path.abspath(path), named_by=word)
                return


def _is_name_of(path, folder, name):
    """Return whether a name, seen from a folder, is that of the file `path`."""
    if os.path.basename(name) != os.path.basename(path):  # most files: the look at the disk below is slow
        return False
    return os.path.realpath(os.path.join(folder, name)) == os.path.realpath(path) and os.path.isfile(path)


@errors_switch_off("files")
def _on_exec(code):
    """Record that the script may read its command line, if `code`, which begins to run, mentions `argv`.

    Only code of the script, of its own modules, and of texts that it executes counts: not that of Python, of installed
    libraries, and of the scripts in `PROGRAM_FOLDERS`.
    """
    file = code.co_filename
    script = sys.argv[0] if getattr(sys, "argv", None) else ""
    if "-packages" in file and file != script:  # an installed library; by -m, its module is the script
        return
    if file.startswith("<"):  # a text that is executed, or a frozen module of Python
        is_script = not file.startswith("<frozen")
        is_of_script = is_script and not _state["argv"]  # once is enough: a script may execute many texts
    else:
        is_script = os.path.abspath(file) == os.path.abspath(script)
        is_of_script = not file.startswith(STANDARD_LIBRARY) and not os.path.abspath(file).startswith(PROGRAM_FOLDERS)
    # in an imported module, what is below `if __name__ == "__main__":` does not run, so only its functions are searched
    functions_only = not is_script and "__main__" in code.co_consts
    if is_of_script and _mentions_argv(code, functions_only):
        record_argv_is_read()


def _mentions_argv(code, functions_only=False):
    """Return whether code uses the name `argv`, as in `sys.argv`: then it may read the command line by itself.

    What is defined in the code is searched, too. `functions_only`: whether nothing else is.
    """
    if not functions_only and "argv" in code.co_names:
        return True
    for part in code.co_consts:  # a plain loop, because it runs for each module
        if type(part) is CODE and _mentions_argv(part):
            return True
    return False
