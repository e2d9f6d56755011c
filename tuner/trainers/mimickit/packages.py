"""Lists what MimicKit imports with the simulator that a study sets."""

from tuner.trainers.dependencies import Dependencies, Limit

_ALWAYS = ("torch", "numpy", "yaml", "gymnasium", "diffusers", "tensorboardX", "wandb", "moviepy")
_SIMULATORS = {
    "newton": ("warp", "newton", "mujoco", "mujoco_warp", "trimesh", "scipy", "pyglet"),
    "isaac_gym": ("isaacgym",),  # must be imported before torch
}
_LIMITS = (
    Limit(module="warp", below="1.13", beside=("newton", "1.0.0")),  # newton 1.0.0 sets wp.config.verbose
    Limit(module="pyglet", below="3"),
)


def dependencies(python: str, engine_config: str) -> Dependencies:
    """Return the modules for an engine file, whose name names the simulator: `data/engines/newton_engine.yaml`."""
    simulator = next((modules for name, modules in _SIMULATORS.items() if name in engine_config), ())
    return Dependencies(python=python, modules=(*simulator, *_ALWAYS), limits=_LIMITS)
