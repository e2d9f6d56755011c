"""Python imports this file at its start, because its folder comes first on PYTHONPATH. It starts the counting.

A `sitecustomize` that the trainer's environment has of its own runs as well, as it would without this file.
"""

import os
import sys


def _start():
    """Predict the memory of the training, or count inside it, as the environment asks."""
    if os.environ.get("TUNER_PREDICT"):
        from tuner_inside import fake

        fake.install(os.environ["TUNER_PREDICT"])
        return
    if os.environ.get("TUNER_COUNT"):
        try:
            from tuner_inside import start

            start()
        except Exception:  # the training goes on without counts
            pass


def _run_own():
    """Run the `sitecustomize` that Python would have found without this folder. What it raises is raised here, too."""
    from importlib.machinery import PathFinder

    here = os.path.dirname(os.path.abspath(__file__))
    path = [folder for folder in sys.path if os.path.abspath(folder or os.curdir) != here]
    spec = PathFinder.find_spec("sitecustomize", path)
    if spec is not None and spec.loader is not None:
        # into this module, so that `import sitecustomize` finds its names
        spec.loader.exec_module(sys.modules[__name__])


_start()
_run_own()
