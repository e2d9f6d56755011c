"""Reads a YAML file as plain values, within bounds on its size, its depth and the number of its values.

An alias stands for a whole part of the file, so a small file may describe more values than any memory holds. The bounds
are checked on the parsed file before any alias is replaced by what it stands for.
"""

import errno
import os
import stat
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode

from tuner.errors import StudyError

MOST_BYTES = 256 * 1024
MOST_VALUES = 20_000
"""The most keys and values of a file, each alias counted as all that it stands for."""
MOST_DEPTH = 30
_HINTS = {
    "alias": "put text that begins with * in quotes",
    r"'\t'": "indent with spaces",
    "duplicate key": "leave one of them out",
    "cannot start any token": "put the text in quotes",
    "unknown escape character": "use single quotes, which keep a backslash as it is",
}
"""Hints for common mistakes: a part of the YAML parser's message → what the user can do."""


def regular_content(path: Path, most_bytes: int) -> bytes:
    """Return the first bytes of a file. Raises OSError, also for what is no file, such as a pipe that nobody fills."""
    with open(path, "rb", opener=_at_once) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        return file.read(most_bytes)


def _at_once(path: str, flags: int) -> int:
    """Open a file without waiting: a pipe would wait for someone who writes."""
    return os.open(path, flags | os.O_NONBLOCK)


def read_mapping(path: Path, *, what: str = "study file", starts: str = "name:") -> dict[str, Any]:
    """Return the keys and values of a YAML file. Raises StudyError for a file that cannot be read, or is too large.

    `what` the file is and how it `starts` are words of the messages.
    """
    try:
        return _mapping(path, what, starts)
    except RecursionError as error:
        raise StudyError(f"{what} {path} is nested too deeply, or one of its aliases contains itself") from error
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        wrong = f"{error.context} {error.problem}"
        hint = next((f"; {hint}" for part, hint in _HINTS.items() if part in wrong), "")
        raise _refused(path, what, f"line {line}: {error.problem}{hint}") from error
    except OSError as error:
        raise _refused(path, what, f"{error.strerror}; name another file, or fix it") from error
    except UnicodeDecodeError as error:
        raise _refused(path, what, f"byte {error.start} is not UTF-8; save the file as UTF-8") from error
    except (YAMLError, ValueError, TypeError, OverflowError) as error:  # such as the date 2026-13-45
        raise _refused(path, what, str(error)) from error


def _mapping(path: Path, what: str, starts: str) -> dict[str, Any]:
    content = regular_content(path, MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise _refused(path, what, f"it is larger than {MOST_BYTES // 1024} KiB; leave cases or values out")
    raw = deepcopy(_values(content.decode()))
    if not isinstance(raw, dict):
        raise StudyError(f"{path} contains no mapping; a {what} starts with `{starts}`")
    return raw


@lru_cache(maxsize=4)
def _values(text: str) -> Any:
    """Return the values of a YAML text, read once: a command asks for its study and for the study's fallback twice."""
    yaml = YAML(typ="safe")
    root = yaml.compose(text)
    if root is None:
        return None
    if _count(root, {}, 0) > MOST_VALUES:
        raise ValueError(
            f"it holds more than {MOST_VALUES:,} values, those of aliases included; leave cases or values out"
        )
    return yaml.constructor.construct_document(root)


def _count(node: Node, known: dict[int, int], depth: int) -> int:
    """Return the number of values below a node; each node is counted once, however many aliases name it."""
    if depth > MOST_DEPTH:
        raise RecursionError
    if isinstance(node, ScalarNode):
        return 1
    if id(node) not in known:
        pairs = node.value if isinstance(node, MappingNode) else ((part,) for part in node.value)
        known[id(node)] = 1 + sum(_count(part, known, depth + 1) for pair in pairs for part in pair)
    return known[id(node)]


def _refused(path: Path, what: str, why: str) -> StudyError:
    return StudyError(f"{what} {path} cannot be read: {why}")
