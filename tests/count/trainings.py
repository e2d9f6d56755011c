"""Small trainings whose samples are hard to count.

A training yields the samples of each step of its main optimizer.
"""

import operator
from collections.abc import Iterator
from itertools import chain
from threading import Event, Thread
from typing import Any

import torch
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset, SubsetRandomSampler, TensorDataset

STEPS = 30
X, Y = torch.randn(640, 8), torch.randint(4, (640,))


def network(inputs: int = 8, outputs: int = 4, width: int = 16) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, outputs))


def step(optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def draw(rows: int = 32) -> torch.Tensor:
    return X[torch.randint(640, (rows,))]


class Language(nn.Module):
    """A network of words, whose recurrent layer says which dimension is that of the samples."""

    def __init__(self, *, batch_first: bool) -> None:
        super().__init__()
        self.words, self.memory = nn.Embedding(50, 8), nn.LSTM(8, 8, batch_first=batch_first)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.memory(self.words(words))[0]


class Detector(nn.Module):
    """Takes a list of dictionaries, each with a picture of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.eye = nn.Conv2d(3, 4, 3)

    def forward(self, items: list[dict[str, torch.Tensor]]) -> torch.Tensor:
        return torch.stack([self.eye(item["image"][None]).mean() for item in items])


class Pictures(Dataset[dict[str, torch.Tensor]]):
    """Dictionaries with a picture."""

    def __len__(self) -> int:
        return 8 * STEPS

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"image": torch.randn(3, 16, 16)}


class Sequences(Dataset[torch.Tensor]):
    """Words of any length."""

    def __len__(self) -> int:
        return 8 * STEPS

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.randint(50, (20 + index % 7,))


def two_views() -> Iterator[int]:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for _ in range(STEPS):
        step(optimizer, (model(draw()) - model(draw())).pow(2).mean())
        yield 32


def two_views_of_a_loader() -> Iterator[int]:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for given, _ in DataLoader(TensorDataset(X, Y), 32):
        step(optimizer, (model(given) - model(-given)).pow(2).mean())
        yield 32


def closure_is_called_again() -> Iterator[int]:
    model = network()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)
    for _ in range(STEPS):
        given = draw()

        def closure(given: torch.Tensor = given) -> torch.Tensor:
            optimizer.zero_grad()
            loss = model(given).pow(2).mean()
            loss.backward()
            return loss

        optimizer.step(closure)
        yield 32


def _adversarial(batches: Iterator[torch.Tensor]) -> Iterator[int]:
    maker, judge = network(8, 8, 64), network(8, 1)
    makes, judges = (torch.optim.Adam(one.parameters()) for one in (maker, judge))
    for real in batches:
        made = maker(torch.randn(32, 8))
        step(judges, judge(made.detach()).mean() - judge(real).mean())
        step(makes, -judge(maker(torch.randn(32, 8))).mean())
        yield 32


def two_networks() -> Iterator[int]:
    return _adversarial(draw() for _ in range(STEPS))


def two_networks_and_a_loader() -> Iterator[int]:
    return _adversarial(given for given, _ in DataLoader(TensorDataset(X, Y), 32))


def a_critic_that_steps_more_often() -> Iterator[int]:
    maker, critic = network(8, 8, 64), network(8, 1)
    makes, criticises = (torch.optim.Adam(one.parameters()) for one in (maker, critic))
    makes_in_turn = 3
    loader = DataLoader(TensorDataset(X, Y), 16)
    for number, (real, _) in enumerate(chain(loader, loader), start=1):
        with torch.no_grad():
            made = maker(torch.randn(16, 8))
        step(criticises, critic(made).mean() - critic(real).mean())
        if number <= makes_in_turn:
            yield 16  # the only optimizer so far
        if number % makes_in_turn == 0:
            step(makes, -critic(maker(torch.randn(16, 8))).mean())
            yield 16 * makes_in_turn if number > makes_in_turn else 0


def two_networks_in_turn_by_epoch() -> Iterator[int]:
    large, small = network(width=64), network()
    optimizers = {one: torch.optim.Adam(one.parameters()) for one in (large, small)}
    samples, sets = 0, [TensorDataset(X[:128], Y[:128]) for _ in range(9)]
    for model, data in zip((*(large, small) * 4, large), sets, strict=True):
        for given, wanted in DataLoader(data, 32):
            if model is small and data is sets[3]:
                with torch.no_grad():
                    wanted = large(given).argmax(1)  # noqa: PLW2901
            step(optimizers[model], cross_entropy(model(given), wanted))
            samples += 32
            if model is large:
                yield samples
                samples = 0


def probes_of_what_a_network_has_learnt() -> Iterator[int]:
    model, kept = network(), nn.Linear(4, 4)
    optimizer, keeps = (torch.optim.SGD(one.parameters(), 0.01) for one in (model, kept))
    for _ in range(4):
        for given, wanted in DataLoader(TensorDataset(X[:128], Y[:128]), 32):
            step(optimizer, cross_entropy(model(given), wanted))
            yield 32
        new, test = nn.Linear(4, 4), DataLoader(TensorDataset(X[128:], Y[128:]), 64)
        for given, wanted in test:
            with torch.no_grad():
                features = model(given)
            step(keeps, cross_entropy(kept(features), wanted))
        with torch.no_grad():
            features = model(X)
        renewed = torch.optim.SGD(new.parameters(), 0.01)
        for given, wanted in DataLoader(TensorDataset(features, Y), 64):
            step(renewed, cross_entropy(new(given), wanted))


def one_network_with_two_optimizers() -> Iterator[int]:
    model = network()
    first = torch.optim.SGD([one for one in model.parameters() if one.dim() > 1], 0.1)
    second = torch.optim.Adam([one for one in model.parameters() if one.dim() == 1])
    for _ in range(STEPS):
        second.zero_grad()
        step(first, model(draw()).pow(2).mean())
        second.step()
        yield 32


def evaluation_with_gradients() -> Iterator[int]:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for number in range(STEPS):
        model.train()
        step(optimizer, model(draw()).pow(2).mean())
        yield 32
        if number % 4 == 3:
            model.eval()
            model(draw(320)).mean().item()


def loss_of_a_test_in_training_mode() -> Iterator[int]:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for number in range(STEPS):
        step(optimizer, model(draw()).pow(2).mean())
        yield 32
        if number % 6 == 5:
            model(draw(320)).mean().item()


def parts_of_one_data_set() -> Iterator[int]:
    data, model = TensorDataset(X, Y), network()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    parts = [DataLoader(data, 32, sampler=SubsetRandomSampler(range(*part))) for part in ((0, 128), (128, 640))]
    for _ in range(3):
        for given, wanted in parts[0]:
            step(optimizer, cross_entropy(model(given), wanted))
            yield 32
        for given, _ in parts[1]:
            with torch.no_grad():
                model(given)


def loaders_of_their_own_for_each_epoch() -> Iterator[int]:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for _ in range(3):
        for given, wanted in DataLoader(TensorDataset(X[:128], Y[:128]), 32):
            step(optimizer, cross_entropy(model(given), wanted))
            yield 32
        with torch.no_grad():
            for given, _ in DataLoader(TensorDataset(X[128:], Y[128:]), 32):
                model(given)


def evaluation_while_a_batch_waits() -> Iterator[int]:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for number, (given, wanted) in enumerate(DataLoader(TensorDataset(X, Y), 32)):
        if number % 4 == 0:
            for (other,) in DataLoader(TensorDataset(X), 320):
                with torch.no_grad():
                    model(other)
        step(optimizer, cross_entropy(model(given), wanted))
        yield 32


def another_network_evaluates() -> Iterator[int]:
    model, mean = network(), network()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    train, test = DataLoader(TensorDataset(X[:128], Y[:128]), 32), DataLoader(TensorDataset(X[128:], Y[128:]), 32)
    for _ in range(3):
        for given, wanted in train:
            step(optimizer, cross_entropy(model(given), wanted))
            yield 32
        for given, _ in test:
            mean(given)


def labelled_and_unlabelled() -> Iterator[int]:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for (given, _), (more,) in zip(DataLoader(TensorDataset(X, Y), 8), DataLoader(TensorDataset(X), 24), strict=False):
        step(optimizer, model(torch.cat([given, more])).pow(2).mean())
        yield 32 if len(more) == 24 else 8 + len(more)


def sequence_before_batch() -> Iterator[int]:
    model = Language(batch_first=False)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(STEPS):
        step(optimizer, model(torch.randint(50, (35, 20))).pow(2).mean())
        yield 20


class Table(nn.Module):
    """Takes nothing: its values are compared with the data."""

    def __init__(self) -> None:
        super().__init__()
        self.values = nn.Parameter(torch.zeros(8))

    def forward(self) -> torch.Tensor:
        return self.values * 2.0


def module_without_inputs() -> Iterator[int]:
    model = Table()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for given, _ in DataLoader(TensorDataset(X, Y), 32):
        step(optimizer, (model() - given).pow(2).mean())
        yield 32


def packed_sequences() -> Iterator[int]:
    model = nn.LSTM(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(STEPS):
        packed = nn.utils.rnn.pack_sequence([torch.randn(length, 8) for length in (9, 7, 5, 4)])
        step(optimizer, model(packed)[0].data.pow(2).mean())
        yield 4


def sequences_without_padding() -> Iterator[int]:
    model = Language(batch_first=True)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for joined in DataLoader(Sequences(), 8, collate_fn=lambda each: torch.cat(each)[None]):
        step(optimizer, model(joined).pow(2).mean())
        yield 8


def points_of_all_samples_in_one() -> Iterator[int]:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    data = TensorDataset(torch.randn(8 * STEPS, 64, 8))
    for points in DataLoader(data, 8, collate_fn=lambda each: torch.cat([points for (points,) in each])):
        step(optimizer, model(points).pow(2).mean())
        yield 8


def series_of_two_lengths() -> Iterator[int]:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for past, future in DataLoader(TensorDataset(torch.randn(8 * STEPS, 12, 8), torch.randn(8 * STEPS, 6, 4)), 8):
        step(optimizer, (model(past).mean(1) - future.mean(1)).pow(2).mean())
        yield 8


def series_of_two_lengths_in_batches_of_their_own() -> Iterator[int]:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    batches = [(torch.randn(8, 12, 8), torch.randn(8, 6, 4)) for _ in range(STEPS)]
    for past, future in DataLoader(batches, batch_size=None):  # pyright: ignore[reportArgumentType]
        step(optimizer, (model(past).mean(1) - future.mean(1)).pow(2).mean())
        yield 8


def batches_in_parts() -> Iterator[int]:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for parts in DataLoader(X, 32, collate_fn=lambda each: torch.stack(each).split(8)):  # pyright: ignore[reportArgumentType]
        optimizer.zero_grad()
        for part in parts:
            model(part).pow(2).mean().backward()
        optimizer.step()
        yield 32


def samples_that_the_script_stacks() -> Iterator[int]:
    model, stack = network(), []
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for given, _ in DataLoader(TensorDataset(X, Y), batch_size=None):
        stack.append(given)
        if len(stack) == 16:
            step(optimizer, model(torch.stack(stack)).pow(2).mean())
            stack = []
            yield 16


def nodes_of_graphs() -> Iterator[int]:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for number in range(STEPS):
        step(optimizer, model(torch.randn(90 + number % 7, 8)).pow(2).mean())
        yield 16


def gradients_of_each_sample() -> Iterator[int]:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def loss(parameters: dict[str, torch.Tensor], given: torch.Tensor) -> torch.Tensor:
        return functional_call(model, parameters, (given[None],)).pow(2).mean()

    for _ in range(STEPS):
        parameters = {name: one.detach() for name, one in model.named_parameters()}
        gradients = vmap(grad(loss), in_dims=(None, 0))(parameters, draw())
        for name, one in model.named_parameters():
            one.grad = gradients[name].mean(0)
        optimizer.step()
        yield 32


def dictionaries_of_pictures() -> Iterator[int]:
    model = Detector()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for items in DataLoader(Pictures(), 8, collate_fn=list):
        step(optimizer, model(items).mean())
        yield 8


def loader_of_single_pictures() -> Iterator[int]:
    model, items = Detector(), []
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for item in DataLoader(Pictures(), collate_fn=operator.itemgetter(0)):
        items.append(item)
        if len(items) == 8:
            step(optimizer, model(items).mean())
            items = []
            yield 8


def single_samples() -> Iterator[int]:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for number in range(STEPS):
        step(optimizer, model(X[number]).pow(2).mean())
        yield 1


def pictures_and_words() -> Iterator[int]:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.eye, self.words = nn.Linear(12, 8), nn.Embedding(50, 8)

        def forward(self, pixel_values: torch.Tensor, input_ids: torch.Tensor) -> torch.Tensor:
            return self.eye(pixel_values).mean() + self.words(input_ids).mean()

    model = Both()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(STEPS):
        step(optimizer, model(pixel_values=torch.randn(64, 12), input_ids=torch.randint(50, (4, 10))))
        yield 4


def inputs_made_for_inference() -> Iterator[int]:
    class Copying(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = network()

        def forward(self, given: torch.Tensor) -> torch.Tensor:
            return self.inner(given.clone())  # torch keeps no inference tensor for a gradient

    model = Copying()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(STEPS):
        with torch.inference_mode():
            given = draw()
        step(optimizer, model(given).pow(2).mean())
        yield 32


def batches_used_twice() -> Iterator[int]:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(STEPS // 2):
        given = draw()
        for _ in range(2):
            step(optimizer, model(given).pow(2).mean())
            yield 16


def batches_of_a_loader_used_twice() -> Iterator[int]:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for given, _ in DataLoader(TensorDataset(X[:192], Y[:192]), 32):
        for _ in range(2):
            step(optimizer, model(given).pow(2).mean())
            yield 16


def rollouts_of_its_own() -> Iterator[int]:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(3):
        states = []
        for _ in range(8):
            states.append(draw(4))
            with torch.no_grad():
                model(states[-1])
        for _ in range(4):
            step(optimizer, model(torch.cat(states)[torch.randperm(32)]).pow(2).mean())
            yield 8


def words_that_the_model_writes() -> Iterator[int]:
    model = Language(batch_first=True)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(STEPS // 4):
        words = torch.randint(50, (8, 5))
        model.eval()
        with torch.no_grad():
            for _ in range(3):
                words = torch.cat([words, model(words)[:, -1:].argmax(-1)], 1)
        model.train()
        for _ in range(4):
            step(optimizer, model(words[torch.randperm(8)]).pow(2).mean())
            yield 2


def computed_again_for_the_gradients() -> Iterator[int]:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(STEPS):
        step(optimizer, checkpoint(model, draw(), use_reentrant=False).pow(2).mean())
        yield 32


class Waiting(torch.autograd.Function):
    """Computes its gradient once it may, and says when it begins."""

    begun, may_end = Event(), Event()

    @staticmethod
    def forward(ctx: Any, given: torch.Tensor) -> torch.Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return given.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        Waiting.begun.set()
        Waiting.may_end.wait()
        return gradient


def another_thread_computes_gradients() -> Iterator[int]:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    loss = Waiting.apply(torch.ones(1, requires_grad=True)).sum()
    thread = Thread(target=loss.backward)
    thread.start()
    Waiting.begun.wait()
    for _ in range(STEPS):
        step(optimizer, model(draw()).pow(2).mean())
        yield 32
    Waiting.may_end.set()
    thread.join()


def another_optimizer_goes_on() -> Iterator[int]:
    kept: list[Any] = []
    for _ in range(2):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        kept.append(optimizer)
        for _ in range(STEPS // 2):
            step(optimizer, model(draw()).pow(2).mean())
            yield 32


def steps_inside_the_backward_pass() -> Iterator[int]:
    model = network()
    optimizers = {one: torch.optim.SGD([one], 0.1) for one in model.parameters()}
    for one in model.parameters():
        one.register_post_accumulate_grad_hook(lambda given: optimizers[given].step())
    for _ in range(STEPS):
        model(draw()).pow(2).mean().backward()
        yield 32
