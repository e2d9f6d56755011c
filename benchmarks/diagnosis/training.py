"""A small training as people write it: `python training.py LR WIDTH` prints `ready`, then the loss of each epoch."""

import sys

import torch

lr, width = float(sys.argv[1]), int(sys.argv[2])
torch.manual_seed(0)
torch.set_num_threads(1)
inputs = torch.randn(20_000, 16)
targets = torch.sin(inputs.sum(dim=1, keepdim=True))
net = torch.nn.Sequential(torch.nn.Linear(16, width), torch.nn.ReLU(), torch.nn.Linear(width, 1))
optimizer = torch.optim.Adam(net.parameters(), lr)
loss = torch.tensor(0.0)
print("ready", flush=True)
for _ in range(10):
    for batch in range(0, len(inputs), 64):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(net(inputs[batch : batch + 64]), targets[batch : batch + 64])
        loss.backward()
        optimizer.step()
    print(loss.item(), flush=True)
