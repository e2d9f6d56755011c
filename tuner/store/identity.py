"""What must not change while a study goes on."""

from collections.abc import Iterator
from typing import Any

from tuner.errors import StoreError
from tuner.kept.identity import without_idle_pruner


def check_identity(known: dict[str, Any], now: dict[str, Any], *, study: str, shown_url: str) -> None:
    """Raise StoreError naming what differs from the settings that the study was started with."""
    if changed := list(_changes(without_idle_pruner(known), now)):
        raise StoreError(
            f"study {study} in {shown_url} was started with other settings:\n"
            + "\n".join(changed)
            + "\nrestore them to resume it, or give another --runs folder (and --storage, where you name one) "
            "or the study file another `name:` to start anew"
        )


def _changes(known: object, now: object, where: str = "") -> Iterator[str]:
    if isinstance(known, dict) and isinstance(now, dict):
        for name in sorted(known.keys() | now.keys()):
            yield from _changes(known.get(name), now.get(name), f"{where}.{name}".lstrip("."))
    elif known != now:
        yield f"  {where}: was {known!r}, is {now!r}"
