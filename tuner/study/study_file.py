"""Loads a study by its name: finds the file, reads it within bounds, and reports all its errors at once."""

import errno
import os
import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import lru_cache, reduce
from pathlib import Path
from typing import Any, BinaryIO, Literal, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode

from tuner.errors import StudyError
from tuner.study.keys import literal_keys, reference_to
from tuner.study.launches import with_launches
from tuner.study.shell import expanded
from tuner.study.spec import PATTERN_MESSAGES, Override, Prices, StudySpec

MOST_BYTES = 256 * 1024
"""The largest file, in bytes."""
MOST_VALUES = 20_000
"""The most keys and values of a file, each alias counted as all that it stands for."""
_HINTS = {
    "alias": "put text that begins with * in quotes",
    r"'\t'": "indent with spaces",
    "duplicate key": "leave one of them out",
    "cannot start any token": "put the text in quotes",
    "unknown escape character": "use single quotes, which keep a backslash as it is",
}
"""Hints for common mistakes: a part of the YAML parser's message → what the user can do."""


def open_at_once(path: str, flags: int) -> int:
    """Open a file with these flags of `os.open` and return its descriptor; a pipe without a writer opens at once."""
    return os.open(path, flags | os.O_NONBLOCK)


def open_anew(path: Path) -> BinaryIO:
    """Remove a file or link of this name, and return a new file to write, which only its owner can read.

    No link is followed, not even if the folder is one. A device such as /dev/null is not removed, but written.
    Raises OSError.
    """
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        flags = os.O_CREAT | os.O_EXCL  # fails where somebody has made a link in the meantime
        with suppress(FileNotFoundError):
            mode = os.lstat(path.name, dir_fd=folder).st_mode
            if stat.S_ISREG(mode) or stat.S_ISLNK(mode):
                os.unlink(path.name, dir_fd=folder)
            else:  # a device, such as /dev/null
                flags = os.O_NOFOLLOW | os.O_NONBLOCK
        return os.fdopen(os.open(path.name, os.O_WRONLY | flags, 0o600, dir_fd=folder), "wb")
    finally:
        os.close(folder)


def open_regular(path: Path, *, follow: bool = True) -> BinaryIO:
    """Return a file to read. Raises OSError, also for a path that is no file, such as a pipe without a writer.

    Without `follow`, OSError is raised for a link, too.
    """
    more = 0 if follow else os.O_NOFOLLOW
    file = open(path, "rb", opener=lambda name, flags: open_at_once(name, flags | more))  # noqa: SIM115 - returned
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return file


def read_mapping(path: Path) -> dict[str, Any]:
    """Return the keys and values of a study file. Raises StudyError where it cannot be read, or is too large."""
    try:
        with open_regular(path) as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise ValueError(f"it is larger than {MOST_BYTES // 1024} KiB; leave cases or values out")
        raw = deepcopy(_yaml_values(content.decode()))  # the cached values stay as they are
    except (OSError, YAMLError, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise StudyError(f"study file {path} cannot be read: {_why_unreadable(error)}") from error
    if not isinstance(raw, dict):
        raise StudyError(f"{path} contains no mapping; a study file starts with `name:`")
    return raw


def _why_unreadable(error: Exception) -> str:
    """Return in words why a YAML file cannot be read."""
    match error:
        case RecursionError():
            return "it is nested too deeply, or one of its aliases contains itself"
        case MarkedYAMLError():
            line = error.problem_mark.line + 1 if error.problem_mark else 1
            wrong = f"{error.context} {error.problem}"
            hint = next((f"; {hint}" for part, hint in _HINTS.items() if part in wrong), "")
            return f"line {line}: {error.problem}{hint}"
        case OSError():
            return f"{error.strerror}; name another file, or fix it"
        case UnicodeDecodeError():
            return f"byte {error.start} is not UTF-8; save the file as UTF-8"
        case _:  # such as the date 2026-13-45
            return str(error)


@lru_cache(maxsize=4)
def _yaml_values(text: str) -> Any:
    """Return the content of a YAML text. It is cached, because a command reads a study more than once.

    Raises ValueError for more than `MOST_VALUES` values, each alias counted as all that it stands for.
    """
    yaml = YAML(typ="safe")
    root = yaml.compose(text)
    if root is None:
        return None
    if _count_values(root, {}, 0) > MOST_VALUES:
        raise ValueError(
            f"it holds more than {MOST_VALUES:,} values, those of aliases included; leave cases or values out"
        )
    return yaml.constructor.construct_document(root)


def _count_values(node: Node, known: dict[int, int], depth: int) -> int:
    """Return the number of values at and below a node of YAML, each alias counted as all that it stands for.

    `known` maps the id of each counted node to its number, so that a node with many aliases is counted once. Raises
    RecursionError where nodes are nested more than 30 deep, so also for an alias that contains itself.
    """
    if depth > 30:
        raise RecursionError
    if isinstance(node, ScalarNode):
        return 1
    if id(node) not in known:
        parts = node.value
        if isinstance(node, MappingNode):  # it holds pairs of a key and a value
            parts = [part for pair in node.value for part in pair]
        known[id(node)] = 1 + sum(_count_values(part, known, depth + 1) for part in parts)
    return known[id(node)]


_MESSAGES = {
    "missing": "is required",
    "string_type": "should be text; put it in quotes",
    "tuple_type": "should be a list, such as [a, b]",
    "dict_type": "should be a mapping of keys to values",
    "model_type": "should be a mapping of keys to values",
    "too_short": "is empty",
    "int_parsing": "should be a whole number",
    "int_from_float": "should be a whole number",
    "float_parsing": "should be a number",
    "too_long": "has too many values",
}
"""Kind of error of pydantic → our message. All other kinds keep pydantic's own message."""


def complaints(error: ValidationError, model: type[BaseModel], *above: str) -> list[str]:
    """Return a line for each error that pydantic found in a part of a study: its path, what is wrong, the wrong value.

    The lines are in the file's order. `model` is the checked part, and `above` are the keys that lead to it. A list
    that only seems too short, because pydantic does not count its wrong members, is left out.
    """
    details = error.errors()
    with_error_inside = {detail["loc"][:depth] for detail in details for depth in range(len(detail["loc"]))}
    true_errors = [error for error in details if error["type"] != "too_short" or error["loc"] not in with_error_inside]
    return [_line_of(true_error, model, above) for true_error in true_errors]


def _line_of(detail: ErrorDetails, model: type[BaseModel], above: Sequence[str]) -> str:
    """Return the line for one error of pydantic: the path of the key, what is wrong, and the value that was found."""
    where = ".".join(map(str, (*above, *detail["loc"]))) or "study"
    if detail["type"] == "extra_forbidden":
        known = _allowed_keys(model, detail["loc"][:-1])
        close = get_close_matches(str(detail["loc"][-1]), known, n=1, cutoff=0.75)  # (chosen)
        return f"{where}: unknown key; " + (f"did you mean {close[0]}?" if close else f"known: {', '.join(known)}")
    pattern = detail.get("ctx", {}).get("pattern", "")
    if detail["type"] == "string_type" and isinstance(detail["input"], list | tuple):
        wrong = f"should be text, not a list; write {_shortened(repr(','.join(map(str, detail['input']))))}"
    elif detail["type"] in _MESSAGES:
        wrong = _MESSAGES[detail["type"]]
    elif pattern in PATTERN_MESSAGES:
        wrong = PATTERN_MESSAGES[pattern]
    else:
        wrong = detail["msg"].removeprefix("Value error, ")
    value = "" if isinstance(detail["input"], dict) else f" (found {_shortened(repr(detail['input']))})"
    return f"{where}: {wrong}{value}"


def _shortened(text: str) -> str:
    """Return the first 200 characters of a text."""
    return text if len(text) <= 200 else f"{text[:200]}…"


def _allowed_keys(model: type[BaseModel], place: Iterable[int | str]) -> list[str]:
    """Return the keys that are allowed at a place of a study file, for the message about an unknown key.

    The place is a path of keys and positions in `model`: `("overrides", 0)` is the first member of `overrides`. It has
    a step for the member of a union, but none for that of `X | None`: such a type can only be the last of a path.
    """
    kind: Any = model
    for step in place:
        fields = getattr(kind, "model_fields", {})
        kind = fields[step].annotation if step in fields else _member_type(kind)
    if not hasattr(kind, "model_fields"):  # such as a model or None
        kind = _member_type(kind)
    return list(getattr(kind, "model_fields", {}))


def _member_type(kind: Any) -> Any:
    """Return the type of the members of a list, a mapping's values or a union; None for any other type.

    Of the types in a union, the first pydantic model is returned, or else the last type.
    """
    members = [member for member in get_args(kind) if member is not Ellipsis]
    models = [member for member in members if hasattr(member, "model_fields")]
    if models:
        return models[0]
    return members[-1] if members else None


DeviceKind = Literal["cpu", "gpu"]
_KEPT_REFERENCES = (*(f"trainer.options.{part}." for part in ("command", "session", "env")), "environment.variables.")
"""Beginnings of the paths of texts that keep their references `${VAR}` until the trainer is started.

So the values of these variables, which may be secret keys, are stored nowhere.
"""
_PACKAGE = Path(__file__).resolve().parents[1]
_FOLDERS = (Path("studies"), _PACKAGE / "_studies", _PACKAGE.parent / "studies")
"""Where a study is found by its name: the user's studies, those of an installed package, and those of a checkout."""


def load(
    study: str, environ: Mapping[str, str] | None = None, *, fall_back: bool = True, to_show: bool = False
) -> StudySpec:
    """Return the study of a file, after checking it.

    In every text of the file, `${VAR}` and `${VAR:-default}` are replaced by the variable's value, and `$${VAR}` by a
    literal `${VAR}`. Only the trainer's command and its environment variables keep them until the trainer is started.

    Args:
        study: the path of a YAML file, or the name of a file in `studies/`.
        environ: the environment variables; None for those of this process.
        fall_back: whether another study is returned where `trainer.root` is empty: that which the file names as its
            `fallback`. Callers that start no trainer pass False.
        to_show: whether variables for the trainer may be missing. Callers that only show results pass True.

    Raises:
        StudyError: with all errors of the file, each with the path of its key.
    """
    environ = os.environ if environ is None else environ
    spec = _load_file(find(study), environ, to_show)
    if not (fall_back and spec.fallback) or spec.trainer.root:
        return spec
    try:
        fallback = find(spec.fallback)
    except StudyError as error:
        raise StudyError(f"{study}: trainer.root is empty, and its fallback cannot be used: {error}") from error
    return _load_file(fallback, environ, to_show)


def is_fallback_of(spec: StudySpec, study: str) -> bool:
    """Return whether `spec`, which `load` returned for `study`, is the fallback that `study` names.

    Raises the errors of `load`.
    """
    return study != spec.name and load(study, fall_back=False, to_show=True).name != spec.name


def _load_file(path: Path, environ: Mapping[str, str], to_show: bool) -> StudySpec:
    """Return the study of a file. Raises StudyError with all errors.

    `environ`: the environment variables. `to_show`: whether variables for the trainer may be missing.
    """
    errors: list[str] = []
    raw = _expand(read_mapping(path), environ, "", errors, to_show=to_show)
    raw.setdefault("name", path.stem)
    try:
        raw = with_launches(raw)
    except ValueError as error:
        raise StudyError(f"{path}: {error}") from error
    spec = _validate(raw, errors)
    if spec is None or errors:
        raise StudyError(f"{path}: {len(errors)} error(s)\n{_error_list(errors)}")
    return spec


def find(study: str) -> Path:
    """Return the file of a study, given its path or its name. Raises StudyError where there is none."""
    if study.endswith((".yaml", ".yml")):
        if not Path(study).is_file():
            raise StudyError(f"study file {study} does not exist; known studies: {', '.join(names()) or 'none'}")
        return Path(study)
    file = _known_file(study)
    if file is None:
        raise StudyError(
            f"no study is called {study!r}; known: {', '.join(names()) or 'none'}, or give a path to a .yaml file"
        )
    return file


def study_exists(study: str) -> bool:
    """Return whether a study of this name exists: the user's, or one of the package."""
    return _known_file(study) is not None


def _known_file(study: str) -> Path | None:
    """Return the first file of this name in the folders of studies, of which the user's comes first; None without."""
    files = (folder / f"{study}.yaml" for folder in _FOLDERS)
    return next(filter(Path.is_file, files), None)


def names() -> list[str]:
    """Return the sorted names of all studies, of the user and of the package."""
    return sorted({path.stem for folder in _FOLDERS for path in folder.glob("*.yaml")})


def narrowed(spec: StudySpec, case: str, device: DeviceKind) -> StudySpec:
    """Return the study for one case on one kind of device: with all matching overrides, in the file's order.

    Raises StudyError where the overrides are valid one by one, but not together.
    """
    matching = [
        override
        for override in spec.overrides
        if override.match.device in (None, device) and any(fnmatchcase(case, glob) for glob in override.match.cases)
    ]
    if not matching:
        return spec
    raw = reduce(_with_override, matching, spec.model_dump(exclude_unset=True))
    try:
        return StudySpec.model_validate(raw)
    except ValidationError as error:
        raise StudyError(
            f"study {spec.name}: the overrides for {case} contradict each other:\n"
            f"{_error_list(complaints(error, StudySpec))}"
        ) from error


def unmatched(spec: StudySpec, cases: Iterable[str]) -> list[str]:
    """Return the globs of overrides that match none of the `cases`: they are misspelt, or made for another trainer."""
    names = list(cases)
    globs = dict.fromkeys(glob for override in spec.overrides for glob in override.match.cases)
    return [glob for glob in globs if not any(fnmatchcase(name, glob) for name in names)]


def _with_override(raw: dict[str, Any], override: Override) -> dict[str, Any]:
    """Return the content of a study, with the keys of one override in place of its own."""
    return {
        **raw,
        "space": {**raw["space"], **override.space},
        "probe": {**raw.get("probe", {}), **override.probe},
        "search": {**raw.get("search", {}), **override.search},
    }


def _validate(raw: dict[str, Any], errors: list[str]) -> StudySpec | None:
    """Return the study with the content `raw`, after checking it alone and with each of its overrides.

    Every error is appended to `errors`. Returns None where the study has errors without its overrides.
    """
    try:
        spec = StudySpec.model_validate(raw)
    except ValidationError as error:
        errors.extend(complaints(error, StudySpec))
        return None
    for position, override in enumerate(spec.overrides):
        try:
            StudySpec.model_validate(_with_override(raw, override))
        except ValidationError as error:
            errors.extend(complaints(error, StudySpec, "overrides", str(position)))
    return spec


def _error_list(errors: Iterable[str]) -> str:
    """Return one text with a line for each of the first 20 errors, and the number of the others."""
    lines = list(errors)
    more = [f"… and {len(lines) - 20} more"] if len(lines) > 20 else []
    return "\n".join(f"  {error}" for error in (*lines[:20], *more))


def _expand(value: Any, environ: Mapping[str, str], key_path: str, errors: list[str], *, to_show: bool) -> Any:
    """Return a value of the file with variables in place of its references, also in the values inside it.

    `key_path` is the path of the value's key, such as `trainer.root`. Every error is appended to `errors`. `environ`:
    the environment variables. `to_show`: whether variables for the trainer may be missing.
    """

    def note_missing(name: str) -> None:
        """Append an error for a variable that is not set, unless only the trainer needs it and none is started."""
        if not (to_show and key_path.startswith(("trainer.", "environment."))):
            errors.append(f"{key_path}: environment variable {name} is not set; set it or write ${{{name}:-default}}")

    def expanded_part(part: Any, key: object) -> Any:
        """Return a value inside this value."""
        return _expand(part, environ, f"{key_path}.{key}".lstrip("."), errors, to_show=to_show)

    match value:
        case dict():
            return {key: expanded_part(part, _checked_text(str(key), key_path, errors)) for key, part in value.items()}
        case list():
            return [expanded_part(part, place) for place, part in enumerate(value)]
        case str():
            text = _checked_text(value, key_path, errors)
            with_values = expanded(text, environ, note_missing)  # called for each text, to note missing variables
            return text if f"{key_path}.".startswith(_KEPT_REFERENCES) else with_values
        case _:
            return value


def _checked_text(text: str, key_path: str, errors: list[str]) -> str:
    """Return a text of the file; append an error and return an empty text if no program can take the text."""
    if re.search("[\0\ud800-\udfff]", text):
        errors.append(f"{key_path or 'study'}: contains a NUL character or half of a pair, which nothing may contain")
        return ""
    return text


def key_warnings(spec: StudySpec) -> list[str]:
    """Return a warning for each secret key that the study file spells out, in the trainer's command or variables."""
    env = spec.trainer.options.get("env")
    texts = {str(name): str(text) for name, text in env.items()} if isinstance(env, dict) else {}
    names = literal_keys(spec.trainer.command, {**spec.environment.variables, **texts})
    return [
        f"study file: the value of {name} looks like a key; write a reference such as {reference_to(name)} and "
        "export that variable, so that the study file and the trainer's own output need not hold it"
        for name in names
    ]


def price_of_all(prices: Prices, models: Sequence[str], source: object) -> float:
    """Return the price of an hour of devices of these models together, in the currency of `prices`.

    Raises StudyError for a model without a price; its message names the `source` of the prices.
    """
    if missing := [model for model in dict.fromkeys(models) if model not in prices.per_hour]:
        in_words = ", ".join(map(repr, missing))
        raise StudyError(f"{source} has no price of {in_words}; add a line `{missing[0]}: PRICE` below `per_hour:`")
    return sum(prices.per_hour[model] for model in models)


def changed_study(
    spec: StudySpec, settings: Sequence[str], max_seconds: float | None, cases: Sequence[str] = ()
) -> StudySpec:
    """Return a copy of a study with other values of some parameters, another limit of a probe, and a name of its own.

    The values hold for all cases and devices, so the copy has no overrides of them. The name is made from the changes,
    so that a second call with the same options continues the same study.

    Args:
        spec: the study.
        settings: texts such as `num_envs=44,40,39`; a ladder gets these rungs, and any other parameter these choices.
        max_seconds: the longest probe after its start, in seconds; None for the study's own limit.
        cases: globs of the cases of the copy; empty for the study's own. They do not change the name.

    Raises:
        StudyError: for a parameter that the study does not search, and for values that it cannot have.
    """
    raw = spec.model_dump(mode="json", exclude_unset=True)
    changes: list[str] = []  # in words, for the name
    for text in settings:
        name, equals, values = text.partition("=")
        if name not in spec.space:
            raise StudyError(f"--set {text}: {spec.name} does not search {name}; it searches {', '.join(spec.space)}")
        raw["space"][name] = _changed_parameter(spec, name, values if equals else "", text)
        _remove_from_overrides(raw, "space", name)
        changes += [value.strip() for value in values.split(",")]
    if max_seconds is not None:
        raw.setdefault("probe", {})["max_seconds"] = max_seconds
        _remove_from_overrides(raw, "probe", "max_seconds")
        changes.append(f"{max_seconds:g}s")
    if cases:
        raw["cases"] = [*cases]
    for key in ("fallback", "launch"):  # their effect is in the loaded study already
        raw.pop(key, None)
    name_in_words = "-".join([spec.name, *changes])
    raw["name"] = re.sub(r"[^A-Za-z0-9_.-]", "_", name_in_words)[:100]  # the most that study files allow
    try:
        return StudySpec.model_validate(raw)
    except ValidationError as error:
        raise StudyError(f"--set: {'; '.join(complaints(error, StudySpec))}") from error


def _changed_parameter(spec: StudySpec, name: str, values: str, text: str) -> dict[str, Any]:
    """Return a parameter of a study as a file writes it, with other values and the same conditions.

    `values` is a text such as `44,40,39`, and `text` the whole option, for an error. Raises StudyError where `values`
    cannot be read, or is empty.
    """
    before = spec.space[name]
    try:
        new_values = YAML(typ="safe").load(f"[{values}]")
    except YAMLError:
        new_values = None
    if not new_values:
        raise StudyError(f"--set {text}: write NAME=VALUE,VALUE, such as num_envs=44,40,39")
    kind = "ladder" if before.ladder is not None else "choices"
    conditions = before.model_dump(mode="json", include={"when"}, exclude_unset=True)
    return {kind: new_values, **conditions}


def _remove_from_overrides(raw: Mapping[str, Any], section: str, key: str) -> None:
    """Remove a key from a section of all overrides."""
    for override in raw.get("overrides", ()):
        override.get(section, {}).pop(key, None)
