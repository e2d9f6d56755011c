"""The command `tuner`; `python -m tuner` is the same."""

import sys

from tuner.cli import ended_by_ctrl_c


def main() -> None:
    """Import and run the command line."""
    with ended_by_ctrl_c():
        try:
            from tuner.cli.main import main as run  # noqa: PLC0415 - Ctrl-C ends this import without a traceback
        except ModuleNotFoundError as error:
            if (error.name or "").startswith("tuner"):
                raise
            sys.stderr.write(f"tuner: {error}; install tuner with what it needs, and start Python without -S\n")
            sys.exit(2)
    run()


if __name__ == "__main__":
    main()
