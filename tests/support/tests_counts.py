"""A training as it is counted inside."""

from tuner.count import Signature, TrainingCounts

COUNTED_TRAINING = TrainingCounts(
    signature=Signature(
        samples_per_step=32.0,
        sample="[8] float32",
        parameters=100,
        shapes="a",
        is_split=False,
        optimizer="SGD",
        learning_rate=0.1,
        weight_decays=(0.0,),
        precision="float32",
    ),
    witness="loader and module",
)
