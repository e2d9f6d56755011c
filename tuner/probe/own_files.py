"""Protects the files of the person from a probe, which runs the person's own training.

- In a view, only the probe's command sees what it writes: the kernel puts that into a layer, a folder elsewhere. The
  layer is removed with the view, and the folders of the training stay as they are. `private_view` makes views.
- If the machine allows no view, the files are copied before the probe, and those that changed are restored after it.

A store is the temporary folder that holds layers or copies.
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

from tuner.probe.private_view import __file__
from tuner.probe.quantities import BYTES_PER_MIB

_SAVES = re.compile(r"(?i)out|sav(?:e|ing)|ckpt|checkpoint|log|result|run|work|exp|model")
"""Parts of a flag's name whose value may be a folder into which a training writes."""
_CACHE_NAME = re.compile(r"(?i)\.?(?:[\w.-]*cache[\w.-]*|data|datasets?|triton|nv)")
"""Names of folders whose new files stay after a probe: downloaded data, and what compilers keep."""
_SKIPPED = {".git", ".venv", "venv", "node_modules", "site-packages", "__pycache__"}
"""Folders of which no file is copied."""
_PREFIX = "tuner-kept-"
"""The beginning of the names of stores, once their process holds them."""


def temporary_folders() -> tuple[Path, ...]:
    """Return the folders of this machine for temporary files."""
    candidates = dict.fromkeys((os.environ.get("TMPDIR", "/var/tmp"), "/var/tmp", tempfile.gettempdir()))  # noqa: S108
    return tuple(Path(name).resolve() for name in candidates if Path(name).is_dir())


@dataclass(frozen=True, kw_only=True, slots=True)
class ProtectionMeans:
    """How the person's files are protected from a probe; by default by the means of this machine."""

    temporary: tuple[Path, ...] = field(default_factory=temporary_folders)
    """The folders that may hold copies, and the files that are written in views."""
    has_views: bool = True
    """Whether a view may be tried."""
    user: int = field(default_factory=os.geteuid)
    group: int = field(default_factory=os.getegid)
    most_copied_bytes: int = 8192 * BYTES_PER_MIB
    """The most that is copied where no view can be had; the largest files stay unprotected."""
    ended_within_s: float = 30.0
    """The seconds without the tuner after which its trainer has ended: a file that is newer is the person's."""

    def outside(self, folders: Sequence[Path]) -> list[Path]:
        """Return the temporary folders that may hold stores: those in none of the training's `folders`.

        Raises OSError if there are none.
        """
        outside = [path for path in self.temporary if not any(path.is_relative_to(folder) for folder in folders)]
        if not outside:
            raise OSError("no folder for temporary files lies outside of the training's")
        return outside


def warning(folders: Sequence[Path], out_dir: Path, means: ProtectionMeans | None = None) -> str | None:
    """Return a sentence that warns the person of the files that a probe may change; None if a view keeps all of them.

    Args:
        folders: The folders into which the command may write: see `folders_of`.
        out_dir: The folder of the probe.
        means: How files are protected; None for the means of this machine.
    """
    means = means or ProtectionMeans()
    if not folders:
        return None
    try:
        if _parent_of_view(tuple(folders), means) is not None:
            return None
    except OSError as error:  # there is no place for copies either
        return f"a probe may overwrite files in {folders[0]}, because {error}; set TMPDIR to a folder outside of it"
    large = _too_large(dict(_files(folders, out_dir.resolve())), means.most_copied_bytes)
    unprotected = f"; {', '.join(map(str, large[:3]))} may be overwritten: move or copy what you need" if large else ""
    return (
        f"no private view of {folders[0]} can be had here, so its files are copied before each probe and put back; "
        f"new files of a probe stay{unprotected}"
    )


def warning_of_saves(saves_to: Sequence[str], folders: Sequence[Path], out_dir: Path) -> str | None:
    """Return a sentence that warns the person of folders into which a probe has saved, and which nothing protects.

    None if there are none. A folder that is gone was a temporary one; one of another user is passed over.

    Args:
        saves_to: The folders into which the probe has saved.
        folders: The protected folders: see `folders_of`.
        out_dir: The folder of the probe.
    """
    protected_folders = (*folders, out_dir.resolve())
    existing = [Path(folder).resolve() for folder in saves_to if os.path.isdir(folder)]  # noqa: PTH112 - never raises
    outside = [path for path in existing if not any(path.is_relative_to(folder) for folder in protected_folders)]
    if not outside:
        return None
    return (
        f"the training saves into {', '.join(map(str, outside))}, where probes overwrite its files: stop here if you "
        "need them; a folder that a flag of the command names, as in `--save-dir DIR`, is protected"
    )


class View:
    """A private view of some folders for one command. What the command writes there is removed with the view.

    Only new files in the folders of caches are moved into the real folders, so that downloads are not lost.
    """

    def __init__(self, folders: Sequence[Path], out_dir: Path, means: ProtectionMeans) -> None:
        """Make a private view of some folders. Raises OSError if the machine allows none.

        Args:
            folders: The folders.
            out_dir: The folder of the probe. It stays outside of the view, even if it lies in one of the folders. So do
                file systems that are mounted below the folders.
            means: The temporary folders that may hold what the command writes, whether a view may be tried at all,
                and the user and group that must own the files.
        """
        import psutil  # noqa: PLC0415 - only processes that run probes need it

        if (parent := _parent_of_view(tuple(folders), means)) is None:
            raise OSError("no private view can be had")
        self._folders = folders
        mounted = {Path(partition.mountpoint) for partition in psutil.disk_partitions(all=True)}
        apart = {out_dir.resolve(), *mounted} - {*folders}
        shown = [path for path in apart if any(path.is_relative_to(folder) for folder in folders)]
        shown.sort(key=lambda path: len(path.parts))  # the innermost last
        self._store = Store(parent)
        self.prefix = _view_starter(self._store.path, folders, shown)
        """The words that go before a command's own words, so that the command starts in the view."""

    def close(self) -> None:
        """Remove all files that the command has written, except new files in caches. Harmless to repeat."""
        for number, folder in enumerate(self._folders):
            with suppress(OSError):
                _move_new_caches(self._store.path / f"{number}" / "upper", folder)
        self._store.close()

    leave = close  # as of `Copies`; nothing is left to the next tuner, because the files themselves were never changed


class Copies:
    """Copies of the files of some folders. Files that have changed are restored when the command has ended."""

    prefix: tuple[str, ...] = ()
    """A command whose files are copied starts as usual."""

    def __init__(self, folders: Sequence[Path], out_dir: Path, means: ProtectionMeans) -> None:
        """Copy the person's files, to restore them after the probe. Raises OSError if they cannot be copied."""
        files = dict(_files(folders, out_dir.resolve()))
        left_out = set(_too_large(files, means.most_copied_bytes))
        self._store, self._is_over = Store(means.outside(folders)[0]), Event()
        self._ended_within_s = means.ended_within_s
        index: dict[str, list[int]] = {}  # path → the number of its copy, and its state
        try:
            for number, (path, status) in enumerate(files.items()):
                if path not in left_out:
                    with suppress(FileNotFoundError):  # another program may have taken it away
                        shutil.copy2(path, self._store.path / f"{number}")
                        index[str(path)] = [number, *_state(status)]
            (self._store.path / "index").write_text(json.dumps(index))  # last: without it the copies are not complete
            self._date_index()
        except OSError:
            self._store.close()
            raise
        Thread(target=self._update_date, daemon=True).start()

    def _update_date(self) -> None:
        """Update the index's time of change every two seconds, until the copies are closed or this tuner ends."""
        while not self._is_over.wait(2.0):  # seconds
            with suppress(OSError):
                self._date_index()

    def _date_index(self) -> None:
        """Set the index's time of change to when the trainer would have ended if this tuner were killed now.

        So after a kill, `restore` can distinguish the trainer's files from those that the person wrote later.
        """
        end_s = time.time() + self._ended_within_s
        os.utime(self._store.path / "index", (end_s, end_s))

    def close(self) -> None:
        """Restore the files that have changed, and remove the copies. Harmless to repeat."""
        self._is_over.set()
        with suppress(OSError):
            restore(self._store.path)
        self._store.close()

    def leave(self) -> None:
        """Leave the copies to the next tuner, which restores the files."""
        self._is_over.set()
        self._store.leave()


Protection = View | Copies
"""Protects some folders while a command runs: `prefix` goes before its words, and `close` follows its end."""


def protected(folders: Sequence[Path], out_dir: Path, means: ProtectionMeans | None = None) -> Protection | None:
    """Begin to protect folders by a view, or else by copies, and return the protection.

    Returns None without folders, and where neither is possible. `out_dir` is the folder of the probe itself, into which
    it may write.
    """
    for way in (View, Copies) if folders else ():
        with suppress(OSError):
            return way(folders, out_dir, means or ProtectionMeans())
    return None


def _too_large(files: Mapping[Path, os.stat_result], most_bytes: int) -> list[Path]:
    """Return the files that are not copied, because all smaller files and they have more than `most_bytes` together.

    The largest comes first. `files`: path → status.
    """
    total, large = 0, []
    for path in sorted(files, key=lambda path: files[path].st_size):
        total += files[path].st_size
        if total > most_bytes:
            large.append(path)
    return large[::-1]


def restore(store: Path) -> None:
    """Restore the files that have changed since their copies were made. Raises OSError.

    A file that the person has written after the end of the trainer stays, and its copy is put beside it. When the
    trainer ended, the index's time of change says: see `Copies`.
    """
    trainer_end_s = (store / "index").stat().st_mtime
    for name, (number, *state) in json.loads((store / "index").read_text()).items():
        path = Path(name)
        if not path.exists() or _state(path.stat()) != state:
            path.parent.mkdir(parents=True, exist_ok=True)
            partial = path.with_name(f".{path.name}.tuner")  # renamed once it is whole
            shutil.copy2(store / f"{number}", partial)
            is_of_person = path.exists() and path.stat().st_mtime > trainer_end_s
            partial.replace(path.with_name(f"{path.name}.kept") if is_of_person else path)


def _files(folders: Sequence[Path], out_dir: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield the files to copy with their status: those in `folders`, without the tuner's, environments and cached data.

    `out_dir` is the folder of the probe.
    """
    for top in folders:
        # such as the folder `runs` of `runs/STUDY/PROBE`, if it lies in `top`: the training may keep results there, too
        results = top / out_dir.relative_to(top).parts[0] if top in out_dir.parents else None
        for folder, subfolders, names in os.walk(top):
            skipped = {name for name in subfolders if _CACHE_NAME.fullmatch(name)} | _SKIPPED
            if results and Path(folder) == results:
                names.clear()  # the database of several studies may lie there
                skipped |= {name for name in subfolders if _is_study(results / name, out_dir)}
            # `os.walk` goes on with what is left in this list
            subfolders[:] = [name for name in subfolders if name not in skipped]
            for path in (Path(folder, name) for name in names):
                try:
                    status = path.lstat()
                except (FileNotFoundError, NotADirectoryError):  # another program may take it away
                    continue
                if stat.S_ISREG(status.st_mode):
                    yield path, status


def _is_study(folder: Path, out_dir: Path) -> bool:
    """Return whether a folder holds the study of this probe, or a study into which another tuner may write."""
    has_files_of_study = any((folder / name).exists() for name in ("study.db", "probes", "init"))
    return out_dir.is_relative_to(folder) or has_files_of_study


def _state(status: os.stat_result) -> list[int]:
    """Return two numbers that show whether a file has changed: its bytes, and the nanosecond of its last change."""
    return [status.st_size, status.st_mtime_ns]


def folders_of(command: Sequence[str], cwd: Path, out_dir: Path) -> list[Path]:
    """Return the folders into which a command may write, beside the folder of its probe, `out_dir`.

    These are its working folder, the folders that its flags name, and the folders to which links there lead. Of folders
    inside each other, only the outermost is returned; 16 at most. Empty if the working folder does not exist, because
    then the command cannot start.
    """
    if not cwd.is_dir():
        return []
    direct = [path for path in (cwd.resolve(), *_folders_of_flags(command, cwd)) if not _is_shared(path)]
    linked = [target for folder in direct for target in _link_targets(folder)]
    folders = dict.fromkeys((*direct, *linked))  # each once, in this order
    writable = [path for path in folders if not _is_shared(path) and os.access(path, os.W_OK)]
    outermost = [path for path in writable if not any(path != top and path.is_relative_to(top) for top in writable)]
    return [path for path in outermost if not path.is_relative_to(out_dir.resolve())][:16]  # chosen


def _is_shared(folder: Path) -> bool:
    """Return whether a folder belongs to several programs, as `/tmp` does. Its files are not protected."""
    is_virtual = any(folder.is_relative_to(top) for top in ("/dev", "/proc", "/sys", "/run"))
    is_of_system = str(folder) in {"/", "/etc", "/usr", "/var"}
    has_sticky_bit = bool(folder.stat().st_mode & stat.S_ISVTX)  # everybody may write there (inode(7))
    return is_virtual or is_of_system or has_sticky_bit


def _folders_of_flags(command: Sequence[str], cwd: Path) -> Iterator[Path]:
    """Yield the folders into which a command may write: those of `--out DIR`, `--out=DIR` or `train.out=DIR`.

    Only flags and settings count whose name is about saving: see `_SAVES`. For a path that does not exist yet, it is
    the folder around it.
    """
    for previous_word, word in pairwise(("", *command)):
        name, equals, setting = word.partition("=")
        flag, value = (name, setting) if equals else (previous_word, word)
        is_named = bool(equals) or flag.startswith("-")
        if is_named and _SAVES.search(flag) and value and not value.startswith("-"):
            path = cwd / value
            with suppress(OSError):  # the value is no path, such as a text longer than a name can be
                if path.is_dir() or path.parent.is_dir():
                    yield (path if path.is_dir() else path.parent).resolve()


def _link_targets(folder: Path) -> Iterator[Path]:
    """Yield the folders to which links in a folder and its subfolders lead; for a link to a file, the file's folder."""
    for path in _entries(folder):
        with suppress(OSError):
            if path.is_symlink() and not {path.name, path.parent.name} & _SKIPPED and path.exists():
                target = path.resolve()
                yield target if target.is_dir() else target.parent


def _entries(folder: Path) -> Iterator[Path]:
    """Yield the paths in a folder and in its folders, at most 10,000: a folder of data has no end."""
    with suppress(OSError):  # another program may remove a folder meanwhile
        yield from islice(chain(folder.glob("*"), folder.glob("*/*")), 10_000)


def _view_starter(store: Path, folders: Sequence[Path], shown: Sequence[Path]) -> tuple[str, ...]:
    """Make the layers of a view in a store, and return the words that go before a command that starts in the view.

    Of the two folders of a layer, `upper` gets what is written in the view, and the kernel needs `work`.
    Each of the `folders` gets a layer. Those of `shown` stay as they are, although they may lie below the `folders`.
    """
    layers: dict[str, list[str]] = {}
    for number, folder in enumerate(folders):
        layer = [store / f"{number}" / name for name in ("upper", "work")]
        for path in layer:
            path.mkdir(parents=True)
        layers[str(folder)] = list(map(str, layer))
    view = json.dumps({"layers": layers, "shown": list(map(str, shown))})
    return (sys.executable, "-I", "-S", __file__, view)


@cache
def _parent_of_view(folders: tuple[Path, ...], means: ProtectionMeans) -> Path | None:
    """Return a temporary folder in which a view of some folders works, by trying; None if no view can be had.

    Raises OSError if all temporary folders lie in the folders.
    """
    parents = means.outside(folders)
    if not means.has_views:
        return None
    if means.user:  # not root: in the user namespace that a view needs then, the kernel copies no files of others
        files = (path.lstat() for folder in folders for path in (folder, *_entries(folder)))
        if any((status.st_uid, status.st_gid) != (means.user, means.group) for status in files):
            return None
    for parent in parents:
        store = Store(parent)
        try:
            trial = subprocess.run([*_view_starter(store.path, folders, ()), "true"], capture_output=True, check=False)
        finally:
            store.close()
        if trial.returncode == 0:
            return parent
    return None


class Store:
    """A temporary folder for layers or copies, which its process locks. Without a lock, it is of a killed tuner."""

    def __init__(self, parent: Path) -> None:
        """Make a store below `parent`. Raises OSError."""
        new = Path(tempfile.mkdtemp(prefix="tuner-new-", dir=parent))
        self._handle: int | None = os.open(new, os.O_RDONLY)
        fcntl.flock(self._handle, fcntl.LOCK_EX)  # the kernel frees it when the process ends in any way
        # named as a store only now: `clean_up` of another process removes stores without a lock
        self.path = new.rename(new.with_name(f"{_PREFIX}{os.getpid()}{new.name.removeprefix('tuner-new')}"))

    def close(self) -> None:
        """Remove the store, as far as that is possible. Harmless to repeat."""
        if self._handle is not None:
            _remove(self.path)
            self.leave()

    def leave(self) -> None:
        """Free the lock, and leave the store as it is."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def _move_new_caches(upper: Path, folder: Path) -> None:
    """Move the new files of caches from `upper`, which got what was written in a view of a folder, into that folder."""
    for path in upper.rglob("*"):
        place = path.relative_to(upper)
        is_file = stat.S_ISREG(path.lstat().st_mode) or path.is_symlink()
        is_in_cache = any(map(_CACHE_NAME.fullmatch, place.parts[:-1]))
        if is_file and is_in_cache and not os.path.lexists(folder / place):
            (folder / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.move(path, folder / place)


def _remove(store: Path) -> None:
    """Remove a store, as far as that is possible."""
    for layer in store.glob("*"):
        with suppress(OSError):
            (layer / "work" / "work").chmod(0o700)  # the kernel makes it unreadable
    shutil.rmtree(store, ignore_errors=True)


def clean_up(temporary: Sequence[Path] | None = None) -> None:
    """Restore files from the stores that killed tuners of this user have left, and remove these stores."""
    parents = temporary_folders() if temporary is None else temporary
    for store in (path for parent in parents for path in parent.glob(f"{_PREFIX}*")):
        with suppress(OSError), ExitStack() as stack:
            handle = os.open(store, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            stack.callback(os.close, handle)
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises where a tuner that runs holds it
            if os.fstat(handle).st_uid == os.geteuid():
                if (store / "index").exists():
                    restore(store)
                _remove(store)
