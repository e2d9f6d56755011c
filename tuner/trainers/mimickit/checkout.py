"""Reads a checkout of MimicKit: its cases, and the text of its files."""

from dataclasses import dataclass
from pathlib import Path

from tuner.errors import TrainerError
from tuner.study.cases import Case
from tuner.trainers.mimickit import args

SET_ROOT = "set MIMICKIT_ROOT, or trainer.root in the study file, to the root of a MimicKit checkout"

FILES = ("agent_config", "env_config", "engine_config")
"""The keys of an argument file that name other files."""


@dataclass(frozen=True, slots=True)
class Checkout:
    """A folder with MimicKit's `mimickit/run.py` and `args/`."""

    root: Path

    @classmethod
    def at(cls, root: str) -> "Checkout":
        """Find the checkout at `root`. Raises TrainerError saying what is missing there and what to set."""
        if not root:
            raise TrainerError(f"mimickit needs a root and the study gives none; {SET_ROOT}")
        path = Path(root).expanduser().resolve()
        for part in ("args", "mimickit/run.py"):
            if not (path / part).exists():
                raise TrainerError(f"{path} is no MimicKit checkout: it has no {part}; {SET_ROOT}")
        return cls(path)

    def cases(self) -> list[Case]:
        """List the case of every `args/*.txt`, by file name. Raises TrainerError naming a file that cannot be read."""
        return [self._case(path.relative_to(self.root)) for path in sorted((self.root / "args").glob("*.txt"))]

    def read(self, path: str | Path) -> str:
        """Return the text of a file, relative to the root. Raises TrainerError when it is not there or not UTF-8."""
        try:
            return (self.root / path).read_text(encoding="utf-8")
        except OSError as error:
            raise TrainerError(f"{self.root / path} cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise TrainerError(
                f"{self.root / path} is not UTF-8 (byte {error.start}); save it as UTF-8 or take it out of the checkout"
            ) from error

    def _case(self, path: Path) -> Case:
        first = {key: values[0] for key, values in args.parse(self.read(path)).items() if values}
        mode = first.get("mode", "train")
        return Case(
            name=path.stem.removesuffix("_args"),
            mode=mode,
            trainable=mode == "train" and "agent_config" in first,
            options={"arg_file": path.as_posix()} | {key: first.get(key, "") for key in FILES},
            files=FILES,
        )
