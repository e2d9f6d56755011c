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
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, Literal, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode

from tuner.errors import StudyError
from tuner.study.keys import literal_keys
from tuner.study.launches import with_launches
from tuner.study.parameter import IN_WORDS
from tuner.study.spec import Override, Prices, StudySpec
from tuner.study.variables import expanded

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
    """Open a file and return its descriptor, without waiting where it is a pipe that nobody writes."""
    return os.open(path, flags | os.O_NONBLOCK)


def open_anew(path: Path) -> BinaryIO:
    """Return a new file to write, which only its owner can read; a file or a link of this name is removed before.

    No link is followed, not even where the folder has become one. A device is written as it is, and never removed.
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
    """Return a file to read. Raises OSError, also for a path that is no file, such as a pipe that nobody writes.

    Without `follow`, a link is refused, too.
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
        raw = deepcopy(_values(content.decode()))  # the cached values stay as they are
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
def _values(text: str) -> Any:
    """Return the values of a YAML text. They are kept, because a command reads a study more than once."""
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
    """Return the number of values at and below a node, each alias counted as all that it stands for.

    `known` holds the numbers of nodes that were counted before, so that many aliases take no time. Raises
    RecursionError below a `depth` of 30, and so for an alias that contains itself.
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


_IN_WORDS = {
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
"""The words for each kind of error. All other kinds keep pydantic's own message."""


def complaints(error: ValidationError, model: type[BaseModel], *above: str) -> list[str]:
    """Return one message per error, in the file's order: its path, what is wrong, and which value was found.

    The paths begin with the keys `above`. A list that only seems too short, because pydantic does not count its wrong
    members, is left out.
    """
    parts = error.errors()
    with_error_inside = {part["loc"][:depth] for part in parts for depth in range(len(part["loc"]))}
    own = [part for part in parts if part["type"] != "too_short" or part["loc"] not in with_error_inside]
    return [_complaint(part, model, above) for part in own]


def _complaint(part: ErrorDetails, model: type[BaseModel], above: Sequence[str]) -> str:
    """Return one error of pydantic as a line: the path of the key, what is wrong, and the value that was found."""
    where = ".".join(map(str, (*above, *part["loc"]))) or "study"
    if part["type"] == "extra_forbidden":
        known = _allowed_keys(model, part["loc"][:-1])
        alike = get_close_matches(str(part["loc"][-1]), known, n=1)
        return f"{where}: unknown key; " + (f"did you mean {alike[0]}?" if alike else f"known: {', '.join(known)}")
    pattern = part.get("ctx", {}).get("pattern", "")
    if part["type"] == "string_type" and isinstance(part["input"], list | tuple):
        wrong = f"should be text, not a list; write {_cut(repr(','.join(map(str, part['input']))))}"
    elif part["type"] in _IN_WORDS:
        wrong = _IN_WORDS[part["type"]]
    elif pattern in IN_WORDS:
        wrong = IN_WORDS[pattern]
    else:
        wrong = part["msg"].removeprefix("Value error, ")
    value = "" if isinstance(part["input"], dict) else f" (found {_cut(repr(part['input']))})"
    return f"{where}: {wrong}{value}"


def _cut(text: str) -> str:
    """Return a text, cut off after 200 characters."""
    return text if len(text) <= 200 else f"{text[:200]}…"


def _allowed_keys(model: type[BaseModel], place: Iterable[int | str]) -> list[str]:
    """Return the keys that a study file may have at a place, for the message about an unknown key.

    The place is a path of keys and positions in `model`: `("overrides", 0)` leads to the members of `overrides`.
    """
    kind: Any = model
    for step in place:
        fields = getattr(kind, "model_fields", {})
        kind = fields[step].annotation if step in fields else _member_type(kind)
    if not hasattr(kind, "model_fields"):  # such as a model or None
        kind = _member_type(kind)
    return list(getattr(kind, "model_fields", {}))


def _member_type(kind: Any) -> Any:
    """Return the type of the members of a list, a mapping or a union.

    Of several types, a model with fixed keys is preferred. Otherwise it is the last: that of a mapping's values.
    """
    members = [member for member in get_args(kind) if member is not Ellipsis]
    models = [member for member in members if hasattr(member, "model_fields")]
    if models:
        return models[0]
    return members[-1] if members else None


DeviceKind = Literal["cpu", "gpu"]
_AT_LAUNCH = (*(f"trainer.options.{part}." for part in ("command", "session", "env")), "environment.variables.")
"""Where references stay: their values, such as keys, are looked up when the trainer is started, and kept nowhere."""
_FOLDERS = (
    Path("studies"),
    *(Path(__file__).resolve().parents[place] / name for place, name in ((1, "_studies"), (2, "studies"))),
)
"""Where studies of a name lie: those of the person, and those of the package."""


def load(
    study: str, environ: Mapping[str, str] | None = None, *, fall_back: bool = True, to_show: bool = False
) -> StudySpec:
    """Return the study called `study`.

    In every text of its file, `${VAR}` and `${VAR:-default}` are replaced by the variable's value, and `$${VAR}` by a
    literal `${VAR}`. Only the trainer's command and its environment variables keep them until the trainer is started.

    Args:
        study: the path of a YAML file, or the name of a file in `studies/`.
        environ: the variables; None for those of this process.
        fall_back: whether the study that the file names as its `fallback` is returned where `trainer.root` is empty. It
            has another name. False suits callers that start no trainer.
        to_show: whether the trainer's variables may be missing, as they may for callers that show what was found.

    Raises:
        StudyError: with all errors of the file, each with the path of its key.
    """
    environ = os.environ if environ is None else environ
    spec = _load_file(find(study), environ, to_show)
    if not (fall_back and spec.fallback) or spec.trainer.root:
        return spec
    try:
        stand_in = find(spec.fallback)
    except StudyError as error:
        raise StudyError(f"{study}: trainer.root is empty, and its fallback cannot be used: {error}") from error
    return _load_file(stand_in, environ, to_show)


def stands_in(spec: StudySpec, study: str) -> bool:
    """Return whether `spec`, as `load` returned it for `study`, is its fallback. Raises the errors of `load`."""
    return study != spec.name and load(study, fall_back=False, to_show=True).name != spec.name


def _load_file(path: Path, environ: Mapping[str, str], to_show: bool) -> StudySpec:
    """Return the study of a file. Raises StudyError with all errors."""
    errors: list[str] = []
    raw = _expand(read_mapping(path), environ, "", errors, to_show=to_show)
    raw.setdefault("name", path.stem)
    try:
        raw = with_launches(raw)
    except ValueError as error:
        raise StudyError(f"{path}: {error}") from error
    spec = _validate(raw, errors)
    if spec is None or errors:
        raise StudyError(f"{path}: {len(errors)} error(s)\n{_lines(errors)}")
    return spec


def find(study: str) -> Path:
    """Return the file of the study called `study`. Raises StudyError with the names of the existing studies."""
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


def is_known(study: str) -> bool:
    """Return whether `studies/` has a file of this name."""
    return _known_file(study) is not None


def _known_file(study: str) -> Path | None:
    """Return the file of a study's name in `studies/`: the person's before that of the package; None without any."""
    files = (folder / f"{study}.yaml" for folder in _FOLDERS)
    return next(filter(Path.is_file, files), None)


def names() -> list[str]:
    """Return the names of the studies in `studies/`, those of the package included, sorted."""
    return sorted({path.stem for folder in _FOLDERS for path in folder.glob("*.yaml")})


def narrowed(spec: StudySpec, case: str, device: DeviceKind) -> StudySpec:
    """Return the study for one case on one kind of device: all matching overrides are applied, in the file's order.

    Raises StudyError when overrides that are valid one by one contradict each other.
    """
    raw = spec.model_dump(exclude_unset=True)
    for override in spec.overrides:
        match = override.match
        if match.device in (None, device) and any(fnmatchcase(case, glob) for glob in match.cases):
            raw = _with_override(raw, override)
    try:
        return StudySpec.model_validate(raw)
    except ValidationError as error:
        raise StudyError(
            f"study {spec.name}: the overrides for {case} contradict each other:\n"
            f"{_lines(complaints(error, StudySpec))}"
        ) from error


def unmatched(spec: StudySpec, cases: Iterable[str]) -> list[str]:
    """Return the overrides' globs that match no case. Such a glob is misspelt, or written for another trainer."""
    names = list(cases)
    globs = dict.fromkeys(glob for override in spec.overrides for glob in override.match.cases)
    return [glob for glob in globs if not any(fnmatchcase(name, glob) for name in names)]


def _with_override(raw: dict[str, Any], override: Override) -> dict[str, Any]:
    """Return the keys and values of a study, replaced by those of an override."""
    return {
        **raw,
        "space": {**raw["space"], **override.space},
        "probe": {**raw.get("probe", {}), **override.probe},
        "search": {**raw.get("search", {}), **override.search},
    }


def _validate(raw: dict[str, Any], errors: list[str]) -> StudySpec | None:
    """Return the study with the keys and values `raw`; None where it has errors even without its overrides.

    It is also checked with each override. Every error is appended to `errors`.
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


def _lines(errors: Iterable[str]) -> str:
    """Return the first 20 errors as lines, and how many there are more."""
    lines = list(errors)
    more = [f"… and {len(lines) - 20} more"] if len(lines) > 20 else []
    return "\n".join(f"  {error}" for error in (*lines[:20], *more))


def _expand(value: Any, environ: Mapping[str, str], where: str, errors: list[str], *, to_show: bool) -> Any:
    """Return a value of the file with its variables looked up; every error is appended to `errors`.

    `where` is the path of the value's key; `to_show`: see `load`.
    """

    def note_missing(name: str) -> None:
        """Note that a variable is not set, where that is an error."""
        if not (to_show and where.startswith(("trainer.", "environment."))):
            errors.append(f"{where}: environment variable {name} is not set; set it or write ${{{name}:-default}}")

    def expanded_part(part: Any, key: object) -> Any:
        """Return a value inside this value."""
        return _expand(part, environ, f"{where}.{key}".lstrip("."), errors, to_show=to_show)

    match value:
        case dict():
            return {key: expanded_part(part, _checked_text(str(key), where, errors)) for key, part in value.items()}
        case list():
            return [expanded_part(part, place) for place, part in enumerate(value)]
        case str():
            text = _checked_text(value, where, errors)
            with_values = expanded(text, environ, note_missing)  # at the launch, too, to note missing variables
            return text if f"{where}.".startswith(_AT_LAUNCH) else with_values
        case _:
            return value


def _checked_text(text: str, where: str, errors: list[str]) -> str:
    """Return a text of the file; for a text that no program can take, append an error and return an empty text."""
    if re.search("[\0\ud800-\udfff]", text):
        errors.append(f"{where or 'study'}: contains a NUL character or half of a pair, which nothing may contain")
        return ""
    return text


def exposed(spec: StudySpec) -> list[str]:
    """Return a warning for each secret key that the study file itself holds, in the trainer's command or variables."""
    env = spec.trainer.options.get("env")
    texts = {str(name): str(text) for name, text in env.items()} if isinstance(env, dict) else {}
    names = literal_keys(spec.trainer.command, {**spec.environment.variables, **texts})
    return [
        f"study file: the value of {name} looks like a key; write a reference such as "
        f"${{{re.sub(r'[^A-Za-z0-9_]', '_', name).upper()}}} and "
        "export that variable, so that the study file and the trainer's own output need not hold it"
        for name in names
    ]


def price_of_all(prices: Prices, models: Sequence[str], where: object) -> float:
    """Return the price of devices of these models together for an hour. `where`: what has the prices.

    Raises StudyError for a model that has no price.
    """
    if missing := [model for model in dict.fromkeys(models) if model not in prices.per_hour]:
        in_words = ", ".join(map(repr, missing))
        raise StudyError(f"{where} has no price of {in_words}; add a line `{missing[0]}: PRICE` below `per_hour:`")
    return sum(prices.per_hour[model] for model in models)
