"""How a trainer scales: over one and several GPUs, over NVLink or host memory."""
