"""Checkouts in MimicKit's form: one that runs in a few lines, and one that has the pi_plus cases."""

import os
import shutil
from pathlib import Path
from textwrap import dedent

from tests_docs import ROOT

_TOYS = {"amp_pi_plus": "amp_toy", "add_pi_plus": "amp_toy", "deepmimic_pi_plus_ppo": "deepmimic_toy_ppo"}
"""The cases of the study `pi_plus` → the cases under `tests/data/mimickit` that stand in for them."""

_FILES = {
    "events.py": """
        def tell(*words):
            with open("events", "a") as file:
                file.write(" ".join(map(str, words)) + "\\n")
    """,
    "torch.py": """
        from events import tell
        class cuda:
            def empty_cache(): tell("emptied")
            def reset_accumulated_memory_stats(device): tell("reset", device)
            def synchronize(device): tell("synchronized", device)
            def memory_stats(device): return {"num_alloc_retries": 3}
    """,
    "run.py": """
        import gc
        from events import tell
        from util.arg_parser import ArgParser
        def load_args(argv): return ArgParser(argv[1:])
        def set_rand_seed(args): pass
        def build_env(args, num_envs, device, visualize):
            tell("built", device, num_envs)
            if gc.isenabled(): tell("searched for garbage while it was built")
            return num_envs
    """,
    "util/arg_parser.py": """
        class ArgParser:
            def __init__(self, words): self.words = words
            def parse_int(self, key, default=0): return int(self.parse_strings(key)[0])
            def parse_strings(self, key, default=()):
                values = self.words[self.words.index("--" + key) + 1:]
                ends = [place for place, word in enumerate(values) if word.startswith("--")]
                return values[:ends[0]] if ends else values
    """,
    "util/mp_util.py": """
        rank, alone = 0, True
        def init(rank, num_procs, device, master_port):
            globals().update(rank=rank, alone=num_procs == 1)
            if num_procs == 2:
                globals().update(up=open("up", "w" if rank else "r"), down=open("down", "r" if rank else "w"))
        def reduce_sum(x): return reduce(sum, x)
        def reduce_max(x): return reduce(max, x)
        def reduce(op, x):
            if alone: return x
            if rank:
                print(x, file=up, flush=True)
                return int(down.readline())
            result = op((x, int(up.readline())))
            print(result, file=down, flush=True)
            return result
    """,
    "learning/agent_builder.py": """
        import learning.base_agent as base_agent
        def build_agent(agent_file, env, device):
            with open(agent_file) as file:
                return base_agent.BaseAgent(file.read(), env, device)
    """,
    "learning/experience_buffer.py": """
        class ExperienceBuffer:
            samples = 0
            def get_total_samples(self): return self.samples
    """,
    "learning/mp_optimizer.py": """
        import util.mp_util as mp_util
        class MPOptimizer:
            def step(self, loss): self._aggregate_mp_grads()
            def _aggregate_mp_grads(self): mp_util.reduce_sum(1)
    """,
    "util/logger.py": """
        import atexit
        import util.mp_util as mp_util
        class Logger:
            output_file = None
            def configure_output_file(self):
                if mp_util.rank == 0:
                    self.output_file = open("log.txt", "w")
                    atexit.register(self.output_file.close)
    """,
    "learning/base_agent.py": """
        import gc
        import os
        from events import tell
        from learning.experience_buffer import ExperienceBuffer
        from learning.mp_optimizer import MPOptimizer
        from util.logger import Logger
        import util.mp_util as mp_util
        class BaseAgent:
            def __init__(self, config, env, device):
                self._config, self._env, self._iter = config, env, 0
                self._exp_buffer, self._optimizer = ExperienceBuffer(), MPOptimizer()
                self._actor_epochs, self._critic_epochs = 6, 4
                self.circle = self
            def __del__(self): tell("freed", self._config)
            def train_model(self, max_samples, out_dir, save_int_models, logger_type):
                tell("trains", self._config, out_dir, save_int_models, logger_type)
                if not gc.isenabled(): tell("leaves its garbage")
                if not gc.get_freeze_count(): tell("searches what was built for garbage")
                self._logger = Logger()
                self._logger.configure_output_file()
                self._sample_count = 0
                while self._sample_count < max_samples:
                    if self._config == "greedy" and mp_util.rank == 1: raise MemoryError("no room for greedy")
                    self._train_iter()
                    self._sample_count = self._update_sample_count()
                    test_info = self.test_model(32)
                    tell("tested", test_info["mean_return"], test_info["mean_ep_len"], test_info["num_eps"])
                    self._output_train_model(self._iter, "model.pt", "")
                    self._iter += 1
            def _train_iter(self):
                self._exp_buffer.samples += self._env
                self._update_model()
            def _update_model(self):
                if self._config.startswith("counted"): tell("trains", self._actor_epochs, self._critic_epochs, "epochs")
                for _ in range(self._actor_epochs + self._critic_epochs): self._optimizer.step(0)
                if self._config == "counted wrongly": self._optimizer.step(0)
                if self._config == "stopped in the second iteration" and self._iter == 1:
                    if mp_util.rank == 0:
                        with open(os.environ["TUNER_REQUESTS"], "w") as tuner:
                            tuner.write('{"type": "stop", "at_once": true}\\n')
                    while True: self._optimizer.step(0)
            def test_model(self, num_episodes): tell("a rollout")
            def _output_train_model(self, iter, out_model_file, int_out_dir): tell("a model file")
            def _update_sample_count(self): return mp_util.reduce_sum(self._exp_buffer.get_total_samples())
    """,
}


def pi_plus_checkout(root: Path) -> Path:
    """Make a checkout with the cases of the study `pi_plus`, which nothing can run, and return its root."""
    shutil.copytree(ROOT / "tests/data/mimickit", root)
    shutil.copy(root / "data/engines/toy_engine.yaml", root / "data/engines/newton_engine.yaml")
    for case, toy in _TOYS.items():
        shutil.copy(root / f"args/{toy}_args.txt", root / f"args/{case}_args.txt")
    return root


def write_checkout(root: Path) -> None:
    """Write a checkout in which MimicKit, and the torch that it imports, are a few lines each.

    It has named pipes by which two ranks meet. It tells what it does, one line each, in the file `events` at its root.
    """
    for name, text in _FILES.items():
        path = root / "mimickit" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))
    for name in ("up", "down"):
        os.mkfifo(root / name)
