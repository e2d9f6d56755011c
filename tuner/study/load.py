"""Loads a study by its name: finds the file, expands `${VAR}`, checks it, and reports all errors at once."""

import os
import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from tuner.errors import StudyError
from tuner.study.complaints import complaints
from tuner.study.spec import Override, StudySpec

DeviceKind = Literal["cpu", "gpu"]
_VARIABLE = re.compile(r"\$\{(?P<name>[A-Za-z_]\w*)(?P<default>:-[^}]*)?\}")
_YAML_HINTS = {
    "alias": "put text that begins with * in quotes",
    r"'\t'": "indent with spaces",
    "cannot start any token": "put the text in quotes",
    "unknown escape character": "use single quotes, which keep a backslash as it is",
}
"""Hints for common mistakes: a part of the YAML parser's message → what the user can do."""
_PACKAGE = Path(__file__).resolve().parents[1]
_FOLDERS = (Path("studies"), _PACKAGE / "_studies", _PACKAGE.parent / "studies")


def load(study: str, environ: Mapping[str, str] = os.environ, *, fall_back: bool = True) -> StudySpec:
    """Load the study called `study`, which is a path to a YAML file or the name of a file in `studies/`.

    In every string, `${VAR}` and `${VAR:-default}` are replaced from `environ`. If `trainer.root` is empty after that
    and the file names a `fallback`, the fallback study is returned. Its `name` differs from the requested one.
    With `fall_back` False the file's own study is returned; this suits callers that start no trainer.

    Raises StudyError with all errors of the file, each with the path of its key.
    """
    spec = _load(find(study), environ)
    if not (fall_back and spec.fallback) or spec.trainer.root:
        return spec
    try:
        stand_in = find(spec.fallback)
    except StudyError as error:
        raise StudyError(f"{study}: trainer.root is empty, and its fallback cannot be used: {error}") from error
    return _load(stand_in, environ)


def stands_in(spec: StudySpec, study: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether `spec`, which was loaded for `study`, is that study's fallback. Raises the errors of `load`."""
    return study != spec.name and load(study, environ, fall_back=False).name != spec.name


def _load(path: Path, environ: Mapping[str, str]) -> StudySpec:
    errors: list[str] = []
    try:
        raw = _expand(_read(path), environ, "", errors)
    except RecursionError as error:
        raise StudyError(f"study file {path} is nested too deeply, or one of its aliases contains itself") from error
    if not isinstance(raw, dict):
        raise StudyError(f"{path} contains no mapping; a study file starts with `name:`")
    raw.setdefault("name", path.stem)
    spec = _validate(raw, errors)
    if spec is None or errors:
        raise StudyError(f"{path}: {len(errors)} error(s)\n{_listed(errors)}")
    return spec


def find(study: str) -> Path:
    """Return the file of the study called `study`. Raises StudyError with the names of the existing studies."""
    if study.endswith((".yaml", ".yml")):
        if not Path(study).is_file():
            raise StudyError(f"study file {study} does not exist")
        return Path(study)
    for folder in _FOLDERS:
        if (folder / f"{study}.yaml").is_file():
            return folder / f"{study}.yaml"
    known = sorted({path.stem for folder in _FOLDERS for path in folder.glob("*.yaml")})
    raise StudyError(
        f"no study is called {study!r}; known: {', '.join(known) or 'none'}, or give a path to a .yaml file"
    )


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


def _read(path: Path) -> Any:
    try:
        return YAML(typ="safe").load(path.read_text(encoding="utf-8"))
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        wrong = f"{error.context} {error.problem}"
        hint = next((f"; {hint}" for part, hint in _YAML_HINTS.items() if part in wrong), "")
        raise StudyError(f"study file {path} cannot be read: line {line}: {error.problem}{hint}") from error
    except OSError as error:
        raise StudyError(f"study file {path} cannot be read: {error.strerror}; name another file, or fix it") from error
    except (YAMLError, ValueError) as error:  # ValueError: not UTF-8, or a date such as 2026-13-45
        raise StudyError(f"study file {path} cannot be read: {error}") from error


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
    return "\n".join(f"  {error}" for error in errors)


def _expand(value: Any, environ: Mapping[str, str], where: str, errors: list[str]) -> Any:
    match value:
        case dict():
            return {key: _expand(part, environ, f"{where}.{key}".lstrip("."), errors) for key, part in value.items()}
        case list():
            return [_expand(part, environ, f"{where}.{index}", errors) for index, part in enumerate(value)]
        case str() if "\0" in value:
            errors.append(f"{where}: contains a NUL character, which no path, command or variable may contain")
            return value
        case str():
            return _VARIABLE.sub(lambda found: _lookup(found, environ, where, errors), value)
        case _:
            return value


def _lookup(found: re.Match[str], environ: Mapping[str, str], where: str, errors: list[str]) -> str:
    name, default = found["name"], found["default"]
    if environ.get(name):
        return environ[name]
    if default is None:
        errors.append(f"{where}: environment variable {name} is not set; set it or write ${{{name}:-default}}")
        return ""
    return default.removeprefix(":-")
