"""What MimicKit imports, by the simulator that a study sets."""

from tuner.trainers.dependencies import Dependencies, Limit

_ALWAYS = ("torch", "numpy", "yaml", "gymnasium", "diffusers", "tensorboardX", "wandb", "moviepy")
_SIMULATORS = {
    "newton": ("warp", "newton", "mujoco", "mujoco_warp", "trimesh", "scipy", "pyglet"),
    "isaac_gym": ("isaacgym",),  # refuses to be imported after torch
}
_LIMITS = (
    Limit(module="warp", below="1.13", beside=("newton", "1.0.0")),  # newton 1.0.0 sets wp.config.verbose
    Limit(module="pyglet", below="3"),
)


def dependencies(python: str, engine_config: str) -> Dependencies:
    """Give the modules for an engine file such as `data/engines/newton_engine.yaml`; its name tells the simulator."""
    simulator = next((modules for name, modules in _SIMULATORS.items() if name in engine_config), ())
    return Dependencies(python=python, modules=(*simulator, *_ALWAYS), limits=_LIMITS)
