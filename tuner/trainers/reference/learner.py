"""Training a network on one iteration's samples: epochs of shuffled minibatches."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from tuner.trainers.reference.numerics import Numerics

LEARNING_RATE = 5e-4

Samples = dict[str, Tensor]
"""Columns of equal length, one sample per row."""


class Loss(nn.Module):
    """A network together with what it minimises: `forward(samples)` returns the loss of a minibatch, a scalar."""

    columns: tuple[str, ...]
    """The columns of the samples that it reads."""
    compiles = True
    """Whether torch.compile can compile it."""


class Learner:
    """Minimises one loss; `wrap` joins it with its copies on other ranks before the first step."""

    def __init__(
        self,
        loss: Loss,
        *,
        epochs: int,
        minibatch: int,
        wrap: Callable[[Loss], nn.Module],
        formats: Numerics | None = None,
        compiled: bool = False,
    ) -> None:
        """`formats`: the number formats of the layers; None for fp32. `compiled`: compile the loss where it can be."""
        self._columns = loss.columns
        self._formats = formats or Numerics(next(loss.parameters()).device)
        self._scaler = self._formats.scaler()
        if compiled and loss.compiles:
            loss.compile(dynamic=False)
        self._loss = wrap(loss)
        self._optimiser = torch.optim.Adam(loss.parameters(), lr=LEARNING_RATE, fused=True)
        self._epochs = epochs
        self._minibatch = minibatch

    def update(self, samples: Samples) -> Tensor:
        """Train on the samples for all epochs, in minibatches drawn anew in each epoch; return the last loss."""
        columns = {name: samples[name] for name in self._columns}
        any_column = columns[self._columns[0]]
        loss = torch.zeros(())
        for _ in range(self._epochs):
            for rows in torch.randperm(len(any_column), device=any_column.device).split(self._minibatch):
                batch = {name: column.index_select(0, rows) for name, column in columns.items()}
                with self._formats.layers():
                    loss = self._loss(batch)
                self._optimiser.zero_grad()
                self._scaler.scale(loss).backward()
                self._scaler.step(self._optimiser)
                self._scaler.update()
        return loss.detach()
