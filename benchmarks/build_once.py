"""Builds MimicKit's environments once, on one device; prints the seconds of processor time that it took, as JSON.

A script of its own, which `building.py` runs with MimicKit's Python in a checkout. It takes the session's driver,
whether the garbage collector is `searching` or `spared`, and the arguments of `mimickit/run.py`.
"""

import gc
import json
import sys
import time
from contextlib import nullcontext
from importlib import import_module
from importlib.machinery import SourceFileLoader
from types import ModuleType


def main() -> None:
    driver, collector = ModuleType("driver"), sys.argv.pop(2)
    SourceFileLoader(driver.__name__, sys.argv.pop(1)).exec_module(driver)
    sys.path[0] = "mimickit"
    run = import_module("run")
    args = run.load_args(argv=sys.argv)
    (device,) = args.parse_strings(key="devices")
    port, num_envs = (args.parse_int(key=key) for key in ("master_port", "num_envs"))
    import_module("util.mp_util").init(rank=0, num_procs=1, device=device, master_port=port)
    run.set_rand_seed(args=args)
    began_s = time.process_time()
    with driver.kept_for_good() if collector == "spared" else nullcontext():
        env = run.build_env(args=args, num_envs=num_envs, device=device, visualize=False)
    built_s = time.process_time()
    gc.collect()
    searched_s = time.process_time()
    del env  # not before: what is searched is there
    print(json.dumps({"build_s": built_s - began_s, "search_s": searched_s - built_s}))


if __name__ == "__main__":
    main()
