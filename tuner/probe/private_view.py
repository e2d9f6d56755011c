"""Starts a command in a private view of some folders: it sees their files, and what it writes there lands elsewhere.

The guard starts this file as a script, `python -I -S private_view.py VIEW COMMAND…`, and the command takes its place,
so that it keeps its process id. `VIEW` is JSON:

- `layers`: folder → the folders `upper`, which gets what is written, and `work`, which the kernel needs.
- `shown`: the folders that stay as they are, although they lie below others, such as the folder of the probe.

The view is an overlay (`Documentation/filesystems/overlayfs.rst` of Linux) in a mount namespace of its own, so it ends
with the command. A user who is not root gets a user namespace as well, in which all ids stay as they are.
"""

import ctypes
import json
import os
import re
import sys


def main() -> None:
    """Enter the view and become the command. If the view cannot be had, end with exit code 1 and say why."""
    view, command = json.loads(sys.argv[1]), sys.argv[2:]
    try:
        enter(view["layers"], view["shown"])
    except OSError as error:
        sys.exit(f"[tuner] no private view of {error.filename or 'the folder'}: {error.strerror}")
    os.execvp(command[0], command)  # noqa: S606 - the command takes the place of this process, as in a shell's `exec`


def enter(layers: dict[str, list[str]], shown: list[str]) -> None:
    """Mount a view for this process and those that it starts. Raises OSError.

    Args:
        layers: Folder → the folder that gets what is written there, and a folder that the kernel needs.
        shown: The folders that stay as they are, although they may lie below others.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    working_folder, uid, gid = os.getcwd(), os.geteuid(), os.getegid()  # noqa: PTH109 - pathlib takes long to import
    new_mounts, new_users = 0x0002_0000, 0x1000_0000  # CLONE_NEWNS, CLONE_NEWUSER (linux/sched.h)
    bind, recursive, slave = 0x1000, 0x4000, 0x8_0000  # MS_BIND, MS_REC, MS_SLAVE (linux/mount.h)

    def mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
        """Mount `source` at the folder `target`; see mount(2). Raises OSError."""
        words = (source.encode(), target.encode(), kind and kind.encode(), flags, options.encode())
        if libc.mount(*words):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), target)

    # namespaces of this process alone; a user other than root may mount only with a user namespace
    if libc.unshare(new_mounts | (new_users if uid else 0)):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    if uid:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            with open(f"/proc/self/{name}", "w") as file:  # noqa: PTH123
                file.write(text)
    mount("none", "/", None, recursive | slave)  # no mount below shows outside of this view

    # the layers cover the folders, and the shown ones are put back on top of them
    handles = {path: os.open(path, os.O_PATH) for path in shown}
    for folder, (upper, work) in layers.items():
        escaped = [re.sub(r"([\\,:])", r"\\\1", path) for path in (folder, upper, work)]
        mount("tuner", folder, "overlay", 0, "lowerdir={},upperdir={},workdir={},userxattr".format(*escaped))
    for path, handle in handles.items():  # the handle leads to the folder as it was
        mount(f"/proc/self/fd/{handle}", path, None, bind | recursive)
        os.close(handle)
    os.chdir(working_folder)  # anew: the folder that was entered before is the covered one


if __name__ == "__main__":
    main()
