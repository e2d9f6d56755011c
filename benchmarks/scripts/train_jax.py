"""JAX: a loop of one's own, as in the tutorials of Flax; the first step compiles, and a test follows each 200 steps.

python train_jax.py --batch-size 32 --train-steps 8000
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
import truth_file


def init(key, sizes):
    keys = jax.random.split(key, len(sizes) - 1)
    pairs = zip(keys, sizes[:-1], sizes[1:], strict=True)
    return [(jax.random.normal(one, (a, b)) / a**0.5, jnp.zeros(b)) for one, a, b in pairs]


def forward(params, x):
    for w, b in params[:-1]:
        x = jax.nn.relu(x @ w + b)
    w, b = params[-1]
    return x @ w + b


def loss_fn(params, x, y):
    logits = forward(params, x)
    loss = -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1).mean()
    return loss, (logits.argmax(1) == y).mean()


@jax.jit
def train_step(params, x, y):
    (loss, accuracy), grads = jax.value_and_grad(loss_fn, has_aux=True)(params, x, y)
    return jax.tree.map(lambda p, g: p - 0.01 * g, params, grads), loss, accuracy


eval_step = jax.jit(loss_fn)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--train-steps", type=int, default=8000)
    parser.add_argument("--eval-every", type=int, default=200)
    parser.add_argument("--hidden", type=int, default=512)
    args = parser.parse_args()
    draw = np.random.default_rng(0)
    x, y = draw.random((8000, 784), dtype=np.float32), draw.integers(0, 10, 8000)
    x_test, y_test = draw.random((2000, 784), dtype=np.float32), draw.integers(0, 10, 2000)
    params = init(jax.random.key(0), [784, args.hidden, args.hidden, args.hidden, 10])
    train_loss, train_accuracy = [], []
    for step in range(args.train_steps):
        chosen = draw.integers(0, len(x), args.batch_size)
        params, loss, accuracy = train_step(params, x[chosen], y[chosen])
        train_loss.append(float(loss))
        train_accuracy.append(float(accuracy))
        truth_file.step(args.batch_size)
        if step > 0 and (step % args.eval_every == 0 or step == args.train_steps - 1):
            print(f"[train] step: {step}, loss: {np.mean(train_loss)}, accuracy: {np.mean(train_accuracy) * 100}")
            train_loss, train_accuracy = [], []
            with truth_file.phase("evaluation"):
                tests = [eval_step(params, x_test[i : i + 100], y_test[i : i + 100]) for i in range(0, 2000, 100)]
                test_loss, test_accuracy = (float(jnp.mean(jnp.array(one))) for one in zip(*tests, strict=True))
            print(f"[test] step: {step}, loss: {test_loss}, accuracy: {test_accuracy * 100}", flush=True)


if __name__ == "__main__":
    main()
