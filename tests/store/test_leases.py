import json
import os
import platform
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from subprocess import PIPE

import psutil
import pytest

from tuner.store.leases import BEAT_S, STALE_S, WATCHED_S, Lease, Liveness, lives_at, this_host

WRITE_LEASE = """
import json
from tuner.store.leases import Lease

print(json.dumps(Lease.mine().write()), flush=True)
input()
"""


def nobody(_: Lease) -> bool:
    """Say that no process of another host lives."""
    return False


def test_a_lease_of_this_process_is_held() -> None:
    lease = Lease.mine()
    assert (lease.host, lease.pid) == (this_host(), os.getpid())
    assert lease.is_alive(nobody)


def test_a_lease_survives_writing_and_reading() -> None:
    lease = Lease.mine()
    assert Lease.read(lease.write()) == lease


def test_an_attribute_that_is_no_lease_is_read_as_none() -> None:
    for attribute in [
        *(None, "me", {}, {"host": "here"}),
        {"host": "here", "pid": "one", "beat": 0.0},
        *({"host": "here", "pid": pid, "beat": 0.0} for pid in (-1, 0, 1 << 40)),
    ]:
        assert Lease.read(attribute) is None


def test_a_lease_goes_by_boot_and_start_ticks_which_no_step_of_the_clock_changes() -> None:
    lease = Lease.mine()
    assert lease.boot == Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    assert lease.ticks is not None
    assert not replace(lease, ticks=lease.ticks + 1).is_alive(nobody)
    assert not replace(lease, boot="another boot").is_alive(nobody)
    assert not lease.is_of_same_process(replace(lease, ticks=lease.ticks + 1))


def test_the_lease_of_a_process_that_has_ended_is_dropped() -> None:
    with subprocess.Popen([sys.executable, "-c", WRITE_LEASE], stdin=PIPE, stdout=PIPE) as child:
        assert child.stdout
        lease = Lease.read(json.loads(child.stdout.readline()))
        assert lease
        assert (lease.pid, lease.is_alive(nobody)) == (child.pid, True)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert psutil.Process(child.pid).status() == psutil.STATUS_ZOMBIE
        assert not lease.is_alive(nobody)
    assert not lease.is_alive(nobody)


NOW_S = 1.8e9
"""The database's clock in these tests."""


class Watcher:
    """Watches leases with clocks that the test sets."""

    def __init__(self) -> None:
        self.now_s, self.own_s = NOW_S, 0.0
        self.lives = Liveness(lambda: self.now_s, lambda: self.own_s)

    def sees(self, lease: Lease, after_s: float = 0.0) -> bool:
        self.now_s += after_s
        self.own_s += after_s
        return lease.is_alive(self.lives)


@pytest.mark.parametrize(("silent_s", "held"), [(0.0, True), (STALE_S / 2, True), (STALE_S + 60, False)])
@pytest.mark.parametrize("host", ["elsewhere", f"{platform.node()} pid:[1]"])
def test_another_host_s_lease_is_valid_while_it_shows_signs_of_life(host: str, silent_s: float, held: bool) -> None:
    """A container of this host's name is another host."""
    lease = Lease(host=host, pid=os.getpid(), beat=NOW_S - silent_s)
    assert lease.is_alive(lives_at(NOW_S)) is held
    watcher = Watcher()
    assert watcher.sees(lease)
    assert watcher.sees(lease, WATCHED_S) is (silent_s + WATCHED_S < STALE_S)


def test_a_living_worker_keeps_its_trial_whatever_its_clock_says() -> None:
    for wrong_s in [-3600.0, -STALE_S, STALE_S, 3600.0]:
        watcher = Watcher()
        for _ in range(40):
            assert watcher.sees(Lease(host="elsewhere", pid=1, beat=watcher.now_s + wrong_s), BEAT_S)


def test_a_dead_worker_holds_its_trial_no_longer_than_the_limit_whatever_its_clock_said() -> None:
    for wrong_s in [-3600.0, 0.0, STALE_S, 3600.0]:
        watcher, lease = Watcher(), Lease(host="elsewhere", pid=1, beat=NOW_S + wrong_s)
        assert watcher.sees(lease)
        assert not watcher.sees(lease, STALE_S)
