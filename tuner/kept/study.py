"""What the study of a case keeps beside its trials."""

from collections.abc import Mapping
from typing import Any

from tuner.kept.case import KeptCase, decode
from tuner.kept.identity import masked
from tuner.kept.names import BATCH, CASE, ENDED, IDENTITY, MENDED, RUNGS
from tuner.kept.race import KeptRun, place
from tuner.kept.race import decode as decode_run
from tuner.study.batch import BatchFit


class KeptStudy:
    """The facts about one case's study, read from its attributes; a fact of another form than expected is unknown."""

    __slots__ = ("_attributes",)

    def __init__(self, attributes: Mapping[str, Any]) -> None:
        self._attributes = attributes

    @property
    def case(self) -> KeptCase | None:
        """The record of the case."""
        return decode(self._attributes.get(CASE))

    @property
    def identity(self) -> dict[str, Any] | None:
        """The settings that must not change; None before the study has any, empty where they are unreadable."""
        known = self._attributes.get(IDENTITY)
        return masked(known) if isinstance(known, dict) else None if known is None else {}

    @property
    def rungs(self) -> tuple[int, ...] | None:
        """The rungs of an `auto` ladder; None until they are fixed."""
        known = self._attributes.get(RUNGS)
        is_readable = isinstance(known, list | tuple) and all(isinstance(rung, int) and rung > 0 for rung in known)
        return tuple(known) if known and is_readable else None

    @property
    def batch(self) -> BatchFit | None:
        """The batch size that is `auto`; None until it has been worked out."""
        known = self._attributes.get(BATCH)
        try:
            return BatchFit.read(known) if isinstance(known, dict) else None
        except (TypeError, ValueError):
            return None

    @property
    def mended(self) -> int:
        """The number of trials from before the set-up was mended; 0 where it never was."""
        known = self._attributes.get(MENDED)
        return known if isinstance(known, int) else 0

    @property
    def ended(self) -> str | None:
        """Why nothing was left that is worth a probe; None while the case goes on."""
        known = self._attributes.get(ENDED)
        return known if isinstance(known, str) and known else None

    @property
    def race(self) -> tuple[KeptRun, ...]:
        """The runs of the case's race, in their order."""
        numbered = sorted((number, name) for name in self._attributes if (number := place(name)) is not None)
        runs = (decode_run(self._attributes[name]) for _, name in numbered)
        return tuple(run for run in runs if run)
