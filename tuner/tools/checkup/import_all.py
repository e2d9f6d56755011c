"""Shows which modules a Python can import: a script that runs in the trainer's own Python, 3.8 or later.

For each module on its command line, the script writes one line of JSON: `{"module": …, "version": …}`, where the
version may be null, or `{"module": …, "error": …}`. Besides these modules it imports only the standard library.
"""

import importlib
import json
import os
import sys


def main() -> None:
    """Import the command line's modules one after another, and write each result as soon as it is known."""
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a module prints while it is imported goes to stderr
    for name in sys.argv[1:]:
        try:
            module = importlib.import_module(name)
            answer = {"module": name, "version": version(name, module)}
        except Exception as error:  # noqa: BLE001 - a module may raise anything while it is imported
            answer = {"module": name, "error": f"{type(error).__name__}: {error}".split("\n")[0]}
        output.write(json.dumps(answer) + "\n")
        output.flush()


def version(name: str, module: object) -> "str | None":
    """Return the version that the module names, or else the version of its package; None if unknown."""
    if named := getattr(module, "__version__", None):
        return str(named)
    try:
        from importlib.metadata import packages_distributions, version  # noqa: PLC0415 - Python 3.10 and later

        return version(packages_distributions()[name][0])
    except (ImportError, KeyError):
        return None


if __name__ == "__main__":
    main()
