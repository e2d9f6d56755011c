"""Keeps the files of the person as they were: a probe writes into a view of the training's folders that ends with it.

Where the machine allows no such view, the files are copied before the probe and put back after it.
"""

import fcntl
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import chain, islice, pairwise
from pathlib import Path
from threading import Event, Thread

from tuner.probe import private_view
from tuner.probe.units import BYTES_PER_MIB

_SAVES = re.compile(r"(?i)out|sav(?:e|ing)|ckpt|checkpoint|log|result|run|work|exp|model")
"""Parts of a flag's name whose value may be a folder into which a training writes."""
_CACHE = re.compile(r"(?i)\.?(?:[\w.-]*cache[\w.-]*|data|datasets?|triton|nv)")
"""Names of folders whose new files stay after a probe: downloaded data, and what compilers keep."""
_SKIPPED = {".git", ".venv", "venv", "node_modules", "site-packages", "__pycache__"}
"""Folders of which no file is copied."""
_PREFIX = "tuner-kept-"
"""How the names of stores begin, once their process holds them."""
_UPPER = "upper"
"""The folder that gets what is written in a view."""
_WORK = "work"
"""The folder that an overlay needs beside it."""


def temporary_folders() -> tuple[Path, ...]:
    """Return the folders of this machine for temporary files."""
    named = dict.fromkeys((os.environ.get("TMPDIR", "/var/tmp"), "/var/tmp", tempfile.gettempdir()))  # noqa: S108
    return tuple(Path(name).resolve() for name in named if Path(name).is_dir())


@dataclass(frozen=True, kw_only=True, slots=True)
class Keeping:
    """What there is to keep files with: usually what this machine has."""

    temporary: tuple[Path, ...] = field(default_factory=temporary_folders)
    """The folders that may hold copies, and what is written in views."""
    has_views: bool = True
    """Whether a view may be tried."""
    user: int = field(default_factory=os.geteuid)
    group: int = field(default_factory=os.getegid)
    most_copied_bytes: int = 8192 * BYTES_PER_MIB
    """The most that is copied where no view can be had; larger files stay unprotected."""
    ended_within_s: float = 30.0
    """After so many seconds without the tuner its trainer has ended: a file that is newer is the person's."""

    def outside(self, folders: Sequence[Path]) -> list[Path]:
        """Return the folders for temporary files that do not lie in any of some folders. Raises OSError without one."""
        outside = [path for path in self.temporary if not any(path.is_relative_to(folder) for folder in folders)]
        if not outside:
            raise OSError("no folder for temporary files lies outside of the training's")
        return outside

    def owns(self, path: Path) -> bool:
        """Return whether a path has our user and group: the kernel copies no others in a user namespace (EOVERFLOW)."""
        status = path.lstat()
        return (status.st_uid, status.st_gid) == (self.user, self.group)


def warning(folders: Sequence[Path], out_dir: Path, keeping: Keeping | None = None) -> str | None:
    """Return what a person should know before the first probe; None where a view keeps all files as they are."""
    keeping, folders = keeping or Keeping(), _outside(folders, out_dir)
    if not folders:
        return None
    try:
        if _place(tuple(folders), keeping) is not None:
            return None
    except OSError as error:
        return f"a probe may overwrite files in {folders[0]}, because {error}; set TMPDIR to a folder outside of it"
    large = _too_large(dict(_files(folders, out_dir.resolve())), keeping.most_copied_bytes)
    named = f"; {', '.join(map(str, large[:3]))} may be overwritten: move or copy what you need" if large else ""
    return (
        f"no private view of {folders[0]} can be had here, so its files are copied before each probe and put back; "
        f"new files of a probe stay{named}"
    )


def _outside(folders: Sequence[Path], out_dir: Path) -> list[Path]:
    """Return the folders that are not inside the probe's own."""
    return [folder for folder in folders if not folder.is_relative_to(out_dir.resolve())]


class View:
    """A private view of some folders for one command. What the command writes there goes when the view is closed.

    New files in the folders of caches stay: see `_CACHE`.
    """

    def __init__(self, folders: Sequence[Path], out_dir: Path, keeping: Keeping) -> None:
        """`out_dir` stays as it is, and so do file systems that are mounted below the folders.

        Raises OSError where the machine allows no such view.
        """
        if (place := _place(tuple(folders), keeping)) is None:
            raise OSError("no private view can be had")
        shown = [path for path in (out_dir.resolve(), *_mounts()) if path not in folders]
        self._folders = folders
        self._shown = [path for path in shown if any(path.is_relative_to(folder) for folder in folders)]
        self._store = Store(place, folders)

    @property
    def prefix(self) -> tuple[str, ...]:
        """The words that start a command in the view."""
        return _starter(_layers(self._store.path, self._folders), self._shown)

    def close(self) -> None:
        """Remove what the command has written, apart from new files in caches. Harmless to repeat."""
        for number, folder in enumerate(self._folders):
            with suppress(OSError):
                _keep_caches(self._store.path / f"{number}" / _UPPER, folder)
        self._store.close()

    leave = close


class Copies:
    """Copies of the files of some folders. Those that have changed are put back when the command has ended."""

    prefix: tuple[str, ...] = ()

    def __init__(self, folders: Sequence[Path], out_dir: Path, keeping: Keeping) -> None:
        """Raises OSError where the copies cannot be made."""
        files = dict(_files(folders, out_dir.resolve()))
        left_out = set(_too_large(files, keeping.most_copied_bytes))
        self._store, self._is_over = Store(keeping.outside(folders)[0]), Event()
        self._ended_within_s = keeping.ended_within_s
        index: dict[str, list[int]] = {}
        try:
            for number, (path, status) in enumerate(files.items()):
                if path not in left_out:
                    with suppress(FileNotFoundError):  # another program may have taken it away
                        _copy(path, self._store.path / f"{number}")
                        index[str(path)] = [number, *_state(status)]
            (self._store.path / "index").write_text(json.dumps(index))  # last: without it the copies are not complete
            self._show_life()
        except OSError:
            self._store.close()
            raise
        Thread(target=self._live, daemon=True).start()

    def _live(self) -> None:
        while not self._is_over.wait(2.0):  # seconds
            with suppress(OSError):
                self._show_life()

    def _show_life(self) -> None:
        """Date the index to when the trainer has surely ended, should the tuner end now."""
        end_s = time.time() + self._ended_within_s
        os.utime(self._store.path / "index", (end_s, end_s))

    def close(self) -> None:
        """Put back what has changed, and remove the copies. Harmless to repeat."""
        self._is_over.set()
        with suppress(OSError):
            put_back(self._store.path)
        self._store.close()

    def leave(self) -> None:
        """Leave the copies to the next tuner, which puts them back."""
        self._is_over.set()
        self._store.leave()


Protection = View | Copies
"""Keeps some folders as they are while a command runs: `prefix` goes before its words, `close` comes after it."""


def protected(folders: Sequence[Path], out_dir: Path, keeping: Keeping | None = None) -> Protection | None:
    """Return what keeps folders as they are; None where there is nothing to keep, or no way.

    `out_dir` is the folder of the probe, which it may write into.
    """
    keeping, folders = keeping or Keeping(), _outside(folders, out_dir)
    for way in (View, Copies) if folders else ():
        with suppress(OSError):
            return way(folders, out_dir, keeping)
    return None


def _too_large(files: Mapping[Path, os.stat_result], most_bytes: int) -> list[Path]:
    """Return the files that are not copied, the largest first."""
    total, large = 0, []
    for path in sorted(files, key=lambda path: files[path].st_size):
        total += files[path].st_size
        if total > most_bytes:
            large.append(path)
    return large[::-1]


def put_back(store: Path) -> None:
    """Put back the files that have changed since their copies were made. Raises OSError.

    A file that is newer than the end of the trainer stays, and its copy is put beside it.
    """
    end_s = (store / "index").stat().st_mtime
    for name, (number, *state) in json.loads((store / "index").read_text()).items():
        path = Path(name)
        if not path.exists() or _state(path.stat()) != state:
            path.parent.mkdir(parents=True, exist_ok=True)
            partial = path.with_name(f".{path.name}.tuner")
            shutil.copy2(store / f"{number}", partial)
            is_newer = path.exists() and path.stat().st_mtime > end_s
            partial.replace(path.with_name(f"{path.name}.kept") if is_newer else path)


def _files(folders: Sequence[Path], out_dir: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield the files of folders, apart from those of the tuner, of environments, and of cached data."""
    for top in folders:
        own = top / out_dir.relative_to(top).parts[0] if top in out_dir.parents else None
        for folder, inner, names in os.walk(top):
            skipped = {name for name in inner if _CACHE.fullmatch(name) or Path(folder, name) == own} | _SKIPPED
            inner[:] = [name for name in inner if name not in skipped]
            for path in (Path(folder, name) for name in names):
                try:
                    status = path.lstat()
                except (FileNotFoundError, NotADirectoryError):  # another program may take it away
                    continue
                if stat.S_ISREG(status.st_mode):
                    yield path, status


def _state(status: os.stat_result) -> list[int]:
    return [status.st_size, status.st_mtime_ns]


def _copy(path: Path, copy: Path) -> None:
    """Copy a file, at no cost where the file system can share its blocks (ioctl_ficlone(2))."""
    with path.open("rb") as source, copy.open("wb") as target:
        try:
            fcntl.ioctl(target.fileno(), 0x40049409, source.fileno())
        except OSError:
            shutil.copyfileobj(source, target, 1 << 20)
    shutil.copystat(path, copy)


def folders_of(command: Sequence[str], cwd: Path) -> list[Path]:
    """Return the folders into which a command may write: its own, those that its flags name, and those linked there.

    Empty where the command has no folder, because then it cannot start.
    """
    if not cwd.is_dir():
        return []
    named = [path for path in (cwd.resolve(), *_named(command, cwd)) if not _is_shared(path)]
    folders = dict.fromkeys((*named, *(link for folder in named for link in _links(folder))))
    writable = [path for path in folders if not _is_shared(path) and os.access(path, os.W_OK)]
    outermost = [path for path in writable if not any(path != top and path.is_relative_to(top) for top in writable)]
    return outermost[:16]


def _is_shared(folder: Path) -> bool:
    """Return whether a folder is nobody's alone, as `/tmp` is. What lies in it is not protected."""
    is_virtual = any(folder.is_relative_to(top) for top in ("/dev", "/proc", "/sys", "/run"))
    return is_virtual or str(folder) in {"/", "/etc", "/usr", "/var"} or bool(folder.stat().st_mode & stat.S_ISVTX)


def _named(command: Sequence[str], cwd: Path) -> Iterator[Path]:
    """Yield the folders that exist of the paths that saving flags name, as `--out DIR` or `--out=DIR`."""
    for before, word in pairwise(("", *command)):
        flag, value = word.split("=", 1) if "=" in word else (before, word)
        is_saving_flag = flag.startswith("-") and _SAVES.search(flag)
        if is_saving_flag and value and not value.startswith("-"):
            path = cwd / value
            folder = next((path for path in (path, path.parent) if path.is_dir()), None)
            if folder is not None:
                yield folder.resolve()


def _links(folder: Path) -> Iterator[Path]:
    """Yield the folders outside to which links in a folder, and in its folders, lead."""
    for path in _entries(folder):
        with suppress(OSError):
            if path.is_symlink() and not {path.name, path.parent.name} & _SKIPPED and path.exists():
                target = path.resolve()
                yield target if target.is_dir() else target.parent


def _entries(folder: Path) -> Iterator[Path]:
    """Yield what lies in a folder and in its folders, up to 10,000 paths: a folder of data has no end."""
    return islice(chain(folder.glob("*"), folder.glob("*/*")), 10_000)


def _mounts() -> list[Path]:
    """Return where file systems are mounted (proc(5), /proc/PID/mountinfo), the innermost last."""
    lines = Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines()
    places = {re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), line.split()[4]) for line in lines}
    return sorted(map(Path, places), key=lambda path: len(path.parts))


def _layers(store: Path, folders: Sequence[Path]) -> dict[str, list[str]]:
    """Return the folders of an overlay for each folder: what is written, and what the kernel needs beside it."""
    return {
        str(folder): [str(store / f"{number}" / name) for name in (_UPPER, _WORK)]
        for number, folder in enumerate(folders)
    }


def _starter(layers: Mapping[str, Sequence[str]], shown: Sequence[Path]) -> tuple[str, ...]:
    view = json.dumps({"layers": layers, "shown": list(map(str, shown))})
    return (sys.executable, "-I", "-S", private_view.__file__, view)


@cache
def _place(folders: tuple[Path, ...], keeping: Keeping) -> Path | None:
    """Return the folder for what is written in views of some folders; None where no view can be had.

    Raises OSError where no folder can be it.
    """
    parents = keeping.outside(folders)
    if not keeping.has_views:
        return None
    if keeping.user and not all(keeping.owns(path) for folder in folders for path in (folder, *_entries(folder))):
        return None
    for parent in parents:
        store = Store(parent, folders)
        try:
            starter = _starter(_layers(store.path, folders), ())
            tried = subprocess.run([*starter, "true"], capture_output=True, check=False)
        finally:
            store.close()
        if tried.returncode == 0:
            return parent
    return None


class Store:
    """A folder for temporary files, which its process holds. Without a holder it is what a killed tuner has left."""

    def __init__(self, parent: Path, folders: Sequence[Path] = ()) -> None:
        """Make a store below `parent` with the layers of some folders. Raises OSError."""
        made = Path(tempfile.mkdtemp(prefix="tuner-new-", dir=parent))
        self._handle: int | None = os.open(made, os.O_RDONLY)
        fcntl.flock(self._handle, fcntl.LOCK_EX)  # the kernel lets it go with the process, whatever ends that
        self.path = made.rename(made.with_name(f"{_PREFIX}{os.getpid()}{made.name.removeprefix('tuner-new')}"))
        for path in (path for paths in _layers(self.path, folders).values() for path in paths):
            Path(path).mkdir(parents=True)

    def close(self) -> None:
        """Remove the store, as far as that is possible. Harmless to repeat."""
        if self._handle is not None:
            _remove(self.path)
            self.leave()

    def leave(self) -> None:
        """Hold the store no longer."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def _keep_caches(upper: Path, folder: Path) -> None:
    """Move the new files of caches to where they belong."""
    for path in upper.rglob("*"):
        place = path.relative_to(upper)
        is_file = stat.S_ISREG(path.lstat().st_mode) or path.is_symlink()
        if is_file and any(map(_CACHE.fullmatch, place.parts[:-1])) and not os.path.lexists(folder / place):
            (folder / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.move(path, folder / place)


def _remove(store: Path) -> None:
    """Remove a store, as far as that is possible."""
    for layer in store.glob("*"):
        with suppress(OSError):
            (layer / _WORK / "work").chmod(0o700)  # the kernel makes it unreadable
    shutil.rmtree(store, ignore_errors=True)


def clean_up(temporary: Sequence[Path] | None = None) -> None:
    """Put back and remove what killed tuners of this user have left in the folders for temporary files."""
    parents = temporary_folders() if temporary is None else temporary
    for store in (path for parent in parents for path in parent.glob(f"{_PREFIX}*")):
        with suppress(OSError), ExitStack() as stack:
            handle = os.open(store, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            stack.callback(os.close, handle)
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(handle).st_uid == os.geteuid():
                if (store / "index").exists():
                    put_back(store)
                _remove(store)
