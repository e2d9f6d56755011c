"""Loads a study by its name: finds the file, expands `${VAR}`, checks it, and reports all errors at once."""

import os
import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from tuner.errors import StudyError
from tuner.study.complaints import complaints
from tuner.study.overrides import Override
from tuner.study.reading import read_mapping
from tuner.study.retired import ignored
from tuner.study.spec import StudySpec
from tuner.study.variables import expanded

DeviceKind = Literal["cpu", "gpu"]
MOST_ERRORS = 20
"""The most errors of a file that its message lists."""
_AT_LAUNCH = (
    *("trainer.options.command.", "trainer.options.session.", "trainer.options.env."),
    "environment.variables.",
)
"""Where references stay: their values, such as keys, are looked up when the trainer is started, and kept nowhere."""
_OF_TRAINER = ("trainer.", "environment.")
"""What only those need who start the trainer."""
_UNFIT = re.compile("[\0\ud800-\udfff]")
_PACKAGE = Path(__file__).resolve().parents[1]
_FOLDERS = (Path("studies"), _PACKAGE / "_studies", _PACKAGE.parent / "studies")


def load(
    study: str, environ: Mapping[str, str] = os.environ, *, fall_back: bool = True, to_show: bool = False
) -> StudySpec:
    """Load the study called `study`, which is a path to a YAML file or the name of a file in `studies/`.

    In every string, `${VAR}` and `${VAR:-default}` are replaced from `environ`. The trainer's command line and its
    environment variables keep their references until the trainer is started. If `trainer.root` is empty after that
    and the file names a `fallback`, the fallback study is returned. Its `name` differs from the requested one.
    With `fall_back` False the file's own study is returned; this suits callers that start no trainer.
    With `to_show` True the trainer's variables may be missing; this suits callers that show what was found.

    Raises StudyError with all errors of the file, each with the path of its key.
    """
    spec = _load(find(study), environ, to_show)
    if not (fall_back and spec.fallback) or spec.trainer.root:
        return spec
    try:
        stand_in = find(spec.fallback)
    except StudyError as error:
        raise StudyError(f"{study}: trainer.root is empty, and its fallback cannot be used: {error}") from error
    return _load(stand_in, environ, to_show)


def stands_in(spec: StudySpec, study: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether `spec`, which was loaded for `study`, is that study's fallback. Raises the errors of `load`."""
    return study != spec.name and load(study, environ, fall_back=False, to_show=True).name != spec.name


def without_effect(study: str, environ: Mapping[str, str] = os.environ) -> list[str]:
    """Return the keys of older versions in the file that is loaded for `study`; none where the file is gone."""
    try:
        own = load(study, environ, fall_back=False, to_show=True)
        return ignored(read_mapping(find(own.fallback if own.fallback and not own.trainer.root else study)))
    except StudyError:
        return []


def _load(path: Path, environ: Mapping[str, str], to_show: bool) -> StudySpec:
    errors: list[str] = []
    raw = _expand(read_mapping(path), environ, "", errors, to_show=to_show)
    raw.setdefault("name", path.stem)
    spec = _validate(raw, errors)
    if spec is None or errors:
        raise StudyError(f"{path}: {len(errors)} error(s)\n{_listed(errors)}")
    return spec


def find(study: str) -> Path:
    """Return the file of the study called `study`. Raises StudyError with the names of the existing studies."""
    if study.endswith((".yaml", ".yml")):
        if not Path(study).is_file():
            raise StudyError(f"study file {study} does not exist; known studies: {', '.join(names()) or 'none'}")
        return Path(study)
    for folder in _FOLDERS:
        if (folder / f"{study}.yaml").is_file():
            return folder / f"{study}.yaml"
    raise StudyError(
        f"no study is called {study!r}; known: {', '.join(names()) or 'none'}, or give a path to a .yaml file"
    )


def names() -> list[str]:
    """Return the names of the studies in `studies/`, those of the package included, sorted."""
    return sorted({path.stem for folder in _FOLDERS for path in folder.glob("*.yaml")})


def narrowed(spec: StudySpec, case: str, device: DeviceKind) -> StudySpec:
    """Return the study for one case on one kind of device: all matching overrides are applied, in the file's order.

    Raises StudyError when overrides that are valid one by one contradict each other.
    """
    raw = spec.model_dump(exclude_unset=True)
    for override in spec.overrides:
        if _matches(override, case, device):
            raw = _overridden(raw, override)
    try:
        return StudySpec.model_validate(raw)
    except ValidationError as error:
        raise StudyError(
            f"study {spec.name}: the overrides for {case} contradict each other:\n"
            f"{_listed(complaints(error, StudySpec))}"
        ) from error


def unmatched(spec: StudySpec, cases: Iterable[str]) -> list[str]:
    """Return the overrides' globs that match no case. Such a glob is misspelt, or written for another trainer."""
    names = list(cases)
    globs = dict.fromkeys(glob for override in spec.overrides for glob in override.match.cases)
    return [glob for glob in globs if not any(fnmatchcase(name, glob) for name in names)]


def _matches(override: Override, case: str, device: DeviceKind) -> bool:
    return override.match.device in (None, device) and any(fnmatchcase(case, glob) for glob in override.match.cases)


def _overridden(raw: dict[str, Any], override: Override) -> dict[str, Any]:
    return {
        **raw,
        "space": {**raw["space"], **override.space},
        "probe": {**raw.get("probe", {}), **override.probe},
        "search": {**raw.get("search", {}), **override.search},
    }


def _validate(raw: dict[str, Any], errors: list[str]) -> StudySpec | None:
    """Check the file by itself and with each override applied. Appends every error to `errors`."""
    try:
        spec = StudySpec.model_validate(raw)
    except ValidationError as error:
        errors.extend(complaints(error, StudySpec))
        return None
    for position, override in enumerate(spec.overrides):
        try:
            StudySpec.model_validate(_overridden(raw, override))
        except ValidationError as error:
            errors.extend(complaints(error, StudySpec, "overrides", str(position)))
    return spec


def _listed(errors: Iterable[str]) -> str:
    found = list(errors)
    more = [f"… and {len(found) - MOST_ERRORS} more"] if len(found) > MOST_ERRORS else []
    return "\n".join(f"  {error}" for error in (*found[:MOST_ERRORS], *more))


def _expand(value: Any, environ: Mapping[str, str], where: str, errors: list[str], *, to_show: bool) -> Any:
    match value:
        case dict():
            places = {key: f"{where}.{_checked(str(key), where, errors)}".lstrip(".") for key in value}
            return {key: _expand(part, environ, places[key], errors, to_show=to_show) for key, part in value.items()}
        case list():
            return [
                _expand(part, environ, f"{where}.{place}", errors, to_show=to_show) for place, part in enumerate(value)
            ]
        case str():
            is_optional = to_show and where.startswith(_OF_TRAINER)
            missing = (lambda _: None) if is_optional else partial(_note_missing, errors, where)
            text = _checked(value, where, errors)
            found = expanded(text, environ, missing)
            return text if f"{where}.".startswith(_AT_LAUNCH) else found
        case _:
            return value


def _checked(text: str, where: str, errors: list[str]) -> str:
    if _UNFIT.search(text):
        errors.append(f"{where or 'study'}: contains a NUL character or half of a pair, which nothing may contain")
        return ""
    return text


def _note_missing(errors: list[str], where: str, name: str) -> None:
    errors.append(f"{where}: environment variable {name} is not set; set it or write ${{{name}:-default}}")
