"""The devices that a probe measures: GPUs through NVML and GPM, or CPU shares on a machine without a GPU."""
