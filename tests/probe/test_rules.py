"""Single lines that show a kind of failure, as real programs write them."""

from tuner.probe.result import RULES, FailureKind


def named(line: str) -> FailureKind | None:
    return next((kind for kind, _, pattern in RULES if pattern.search(line)), None)


def test_a_line_is_named_by_the_first_rule_that_it_matches() -> None:
    for line, kind in [
        ("torch.AcceleratorError: CUDA error: out of memory", FailureKind.GPU_OOM),
        ("[Error] [carb.gym.plugin] Gym cuda error: out of memory: simulate.cu: 1103", FailureKind.GPU_OOM),
        ("host:7:7 [0] enqueue.cc:1395 NCCL WARN Cuda failure 'out of memory'", FailureKind.GPU_OOM),
        ("host:7:7 [1] init.cc:416 NCCL WARN Cuda failure 2 'out of memory'", FailureKind.GPU_OOM),
        ("Warp CUDA error 2: out of memory (in function wp_alloc_device_async)", FailureKind.GPU_OOM),
        (
            "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
            FailureKind.GPU_OOM,
        ),
        ("XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8 bytes.", FailureKind.GPU_OOM),
        (
            "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Failed to allocate request for 2.00GiB",
            FailureKind.GPU_OOM,
        ),
        (
            "2026-11-02 10:00:01.5: W external/xla/gemm_fusion_autotuner.cc:38] RESOURCE_EXHAUSTED: Out of memory",
            None,
        ),
        ("ResourceExhaustedError: OOM when allocating tensor", FailureKind.GPU_OOM),
        (
            "ResourceExhaustedError: OOM when allocating tensor with shape[8,9] and type float on "
            "/job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc [Op:Conv2D]",
            FailureKind.GPU_OOM,
        ),
        (
            "ResourceExhaustedError: OOM when allocating tensor with shape[8,9] and type float on "
            "/job:localhost/replica:0/task:0/device:CPU:0 by allocator cpu [Op:Mul]",
            FailureKind.HOST_OOM,
        ),
        ("PxgCudaDeviceMemoryAllocator fail to allocate memory 339738624 bytes!! Result = 2", FailureKind.GPU_OOM),
        ("PxgPinnedHostMemoryAllocator fail to allocate memory 339738624 bytes!! Result = 2", FailureKind.HOST_OOM),
        ("RuntimeError: cuda runtime error (2) : out of memory at /pytorch/aten/src/THC/x.cu:58", FailureKind.GPU_OOM),
        ("torch.OutOfMemoryError: Allocation on device", FailureKind.GPU_OOM),
        (
            "slurmstepd: error: Detected 1 oom_kill event in StepId=42.batch. Some of the step tasks",
            FailureKind.HOST_OOM,
        ),
        ("slurmstepd: error: Detected 2 oom-kill event(s) in step 42.0 cgroup.", FailureKind.HOST_OOM),
        ("[ 1.0] Memory cgroup out of memory: Killed process 42 (python3) total-vm:1kB", FailureKind.HOST_OOM),
        (
            "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",
            FailureKind.HOST_OOM,
        ),
        ("terminate called after throwing an instance of 'std::bad_alloc'", FailureKind.HOST_OOM),
        ("RuntimeError: unable to write to file </torch_42_1>: No space left on device (28)", FailureKind.HOST_OOM),
        ("numpy._core._exceptions._ArrayMemoryError: Unable to allocate 8.00 TiB", FailureKind.HOST_OOM),
        ("RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed. ", FailureKind.HOST_OOM),
        (
            "torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal SIGKILL",
            FailureKind.CRASH,
        ),
        ("  traceback : Signal 9 (SIGKILL) received by PID 42", FailureKind.CRASH),
        ("[tuner] process 42 was killed by SIGSEGV", FailureKind.CRASH),
        ("RuntimeError: [third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer", FailureKind.NCCL),
        ("train.py: error: unrecognized arguments: --num-env 8", FailureKind.INVALID_COMMAND),
        ("train.py: error: the following arguments are required: --task", FailureKind.INVALID_CONFIG),
        (
            "[rank0]: torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/"
            "ProcessGroupNCCL.cpp:3780, invalid usage (run with NCCL_DEBUG=WARN for details), NCCL version 2.28.9",
            FailureKind.INVALID_CONFIG,
        ),
        ("Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 5000", FailureKind.INVALID_COMMAND),
        ("Error: No such option: --num-env Did you mean --num-envs?", FailureKind.INVALID_COMMAND),
        ("Could not override 'env.num'.", FailureKind.INVALID_COMMAND),
        ("train.py: error: argument --num-envs: invalid int value: '8.5'", FailureKind.INVALID_CONFIG),
        ("[rank0]:[W1121 01:20:44 ProcessGroupNCCL.cpp:1250] Warning: destroy_process_group() was not called", None),
        ("Signal 15 (SIGTERM) received by PID 42", None),
        ("Building 600/1024 envs", None),
    ]:
        assert named(line) is kind
