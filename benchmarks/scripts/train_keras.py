"""Keras: the convnet of its first example, with `model.fit`, on images made here.

KERAS_BACKEND=jax python train_keras.py --batch-size 64 --epochs 4
"""

import argparse
import os

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np
import truth_file
from keras import layers


class Truth(keras.callbacks.Callback):
    """Counts the samples of each batch; the last batch of an epoch may be smaller."""

    def __init__(self, samples, batch):
        super().__init__()
        self.samples, self.batch = samples, batch

    def on_train_batch_end(self, batch, logs=None):
        truth_file.step(min(self.batch, self.samples - batch * self.batch))

    def on_test_begin(self, logs=None):
        truth_file.begin("evaluation")

    def on_test_end(self, logs=None):
        truth_file.end("evaluation")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    draw = np.random.default_rng(0)
    x_train = draw.random((9000, 28, 28, 1), dtype=np.float32)
    y_train = keras.utils.to_categorical(draw.integers(0, 10, len(x_train)), 10)
    print("x_train shape:", x_train.shape)
    print(x_train.shape[0], "train samples")
    model = keras.Sequential(
        [
            keras.Input(shape=(28, 28, 1)),
            layers.Conv2D(32, kernel_size=(3, 3), activation="relu"),
            layers.MaxPooling2D(pool_size=(2, 2)),
            layers.Conv2D(64, kernel_size=(3, 3), activation="relu"),
            layers.MaxPooling2D(pool_size=(2, 2)),
            layers.Flatten(),
            layers.Dropout(0.5),
            layers.Dense(10, activation="softmax"),
        ]
    )
    model.summary()
    model.compile(loss="categorical_crossentropy", optimizer="adam", metrics=["accuracy"])
    model.fit(
        x_train,
        y_train,
        batch_size=args.batch_size,
        epochs=args.epochs,
        validation_split=0.1,
        callbacks=[Truth(int(len(x_train) * 0.9), args.batch_size)],
    )


if __name__ == "__main__":
    main()
