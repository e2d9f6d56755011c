import json
import os
import platform
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from subprocess import PIPE

import psutil
import pytest

from tuner.store.leases import STALE_S, Lease, this_host

WRITE_LEASE = """
import json
from tuner.store.leases import Lease

print(json.dumps(Lease.mine().write()), flush=True)
input()
"""


def test_a_lease_of_this_process_is_held() -> None:
    lease = Lease.mine()
    assert (lease.host, lease.pid) == (this_host(), os.getpid())
    assert lease.held()


def test_a_lease_survives_writing_and_reading() -> None:
    lease = Lease.mine()
    assert Lease.read(lease.write()) == lease


@pytest.mark.parametrize(
    "attribute",
    [
        *(None, "me", {}, {"host": "here"}),
        {"host": "here", "pid": "one", "beat": 0.0},
        *({"host": "here", "pid": pid, "beat": 0.0} for pid in (-1, 0, 1 << 40)),
    ],
)
def test_an_attribute_that_is_no_lease_is_read_as_none(attribute: object) -> None:
    assert Lease.read(attribute) is None


def test_a_lease_goes_by_boot_and_start_ticks_which_no_step_of_the_clock_changes() -> None:
    lease = Lease.mine()
    assert lease.boot == Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    assert lease.ticks is not None
    assert not replace(lease, ticks=lease.ticks + 1).held()
    assert not replace(lease, boot="another boot").held()
    assert not lease.same(replace(lease, ticks=lease.ticks + 1))


def test_the_lease_of_a_process_that_has_ended_is_dropped() -> None:
    with subprocess.Popen([sys.executable, "-c", WRITE_LEASE], stdin=PIPE, stdout=PIPE) as child:
        assert child.stdout
        lease = Lease.read(json.loads(child.stdout.readline()))
        assert lease
        assert (lease.pid, lease.held()) == (child.pid, True)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert psutil.Process(child.pid).status() == psutil.STATUS_ZOMBIE
        assert not lease.held()
    assert not lease.held()


@pytest.mark.parametrize(("silent_s", "held"), [(0.0, True), (STALE_S / 2, True), (STALE_S + 60, False)])
def test_another_host_s_lease_is_valid_while_it_shows_signs_of_life(silent_s: float, held: bool) -> None:
    assert Lease(host="elsewhere", pid=1, beat=time.time() - silent_s).held() is held


@pytest.mark.parametrize(("silent_s", "held"), [(0.0, True), (STALE_S + 60, False)])
def test_a_container_of_the_same_name_is_another_host(silent_s: float, held: bool) -> None:
    lease = Lease(host=f"{platform.node()} pid:[1]", pid=os.getpid(), beat=time.time() - silent_s)
    assert lease.held() is held


@pytest.mark.parametrize(("silent_s", "held"), [(0.0, True), (STALE_S + 60, False)])
def test_a_lease_of_an_older_version_is_valid_while_it_shows_signs_of_life(silent_s: float, held: bool) -> None:
    facts = {"host": platform.node(), "pid": os.getpid(), "started": 0.0, "beat": time.time() - silent_s}
    older = Lease.read(facts)
    assert older
    assert older.held() is held
