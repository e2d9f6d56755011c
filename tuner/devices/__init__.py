"""What is measured: GPUs through NVML and GPM, CPU shares without one."""
