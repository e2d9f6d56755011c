"""The command `tuner`; `python -m tuner` is the same."""

from tuner.cli import loading


def main() -> None:
    """Import and run the command line."""
    with loading():
        from tuner.cli.main import main as run  # noqa: PLC0415 - Ctrl-C ends this import without a traceback
    run()


if __name__ == "__main__":
    main()
