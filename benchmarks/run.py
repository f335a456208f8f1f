"""How fast kernels are counted and executed: ``python benchmarks/run.py``.

Three tables, all from one run: full-size problems counted; problems executed, beside NumPy doing the same job; and
the rate of threads beside Numba's CUDA simulator (only with Numba: ``pip install -e '.[bench]'``).  The best of
several runs counts; compiling and disassembling are left out, as are the inputs.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import gpusim
from gpusim import native
from gpusim.kernels import find

EXECUTED = "smsp__sass_thread_inst_executed.sum"
COUNTED = {
    "transpose_naive": 8192, "transpose_pad": 8192, "transpose_bank": 8192, "transpose_tile4_swizzle": 8191,
    "reduce_sequential": 1 << 26, "matmul_naive": 4096, "matmul_smem": 4096, "matmul_thread_tile": 4096,
    "matmul_vec4": 4096, "matmul_double_buffer": 4096, "matmul_double_buffer_naive": 4096, "matmul_warp_tile": 4096,
    "softmax_smem_1024": 65536, "softmax_block_1024": 65536, "hist_shared_random": 1 << 26,
}  # fmt: skip
LAUNCHED = {
    "transpose_copy": 4096, "transpose_naive": 4096, "transpose_pad": 4096, "transpose_tile4_swizzle": 4096,
    "reduce_interleaved": 1 << 22, "reduce_sequential": 1 << 24, "reduce_shuffle": 1 << 24, "reduce_global": 1 << 24,
    "softmax_smem": 32768, "softmax_naive": 65536, "hist_shared_random": 1 << 24, "hist_global_random": 1 << 22,
    "diverge_1": 1 << 22,
    "matmul_naive": 256, "matmul_naive_swapped": 256, "matmul_smem": 256, "matmul_thread_tile": 256, "matmul_vec4": 256,
    "matmul_double_buffer": 256, "matmul_warp_tile": 256,
}  # fmt: skip
IRREGULAR = Path(__file__).with_name("irregular.cu")
IRREGULAR_THREADS, IRREGULAR_TURNS = 1 << 18, 256
# sizes beside Numba's simulator, whose time is that of its threads' begin where they do little
SIMULATED = {"hist_shared_random": (1 << 20, 1 << 24)}


def best_of(repeats: int, job: Callable[[], Any]) -> tuple[float, Any]:
    """(seconds of the fastest run, the last run's result)."""
    times, result = [], None
    for _ in range(repeats):
        start = time.perf_counter()
        result = job()
        times.append(time.perf_counter() - start)
    return min(times), result


def first_launch(name: str, size: int) -> tuple[gpusim.Kernel, Any, list[Any], dict[str, np.ndarray]]:
    """(kernel, launch, arguments, buffers) of a case's first launch."""
    case = find(name)
    module = gpusim.compile(case.source, options=case.options, names=case.names)
    problem = case.build(size)
    launch = problem.launches[0]
    args = [problem.buffers[arg] if isinstance(arg, str) else arg for arg in launch.args]
    return module[launch.kernel], launch, args, problem.buffers


def threads_of(launch: Any) -> int:
    return int(np.prod(launch.grid)) * int(np.prod(launch.block))


def numpy_job(name: str, args: list[Any]) -> Callable[[], Any] | None:
    """The same result by NumPy, where one call gives it."""
    arrays = [a for a in args if isinstance(a, np.ndarray)]
    if name.startswith("transpose"):
        source, target = arrays[0], np.empty_like(arrays[0])
        return lambda: np.copyto(target, source if name == "transpose_copy" else source.T)
    if name.startswith("reduce"):
        return arrays[0].sum
    if name.startswith("hist"):
        data = next(a for a in arrays if a.dtype.itemsize == 1)
        return lambda: np.bincount(data.reshape(-1), minlength=256)
    if name.startswith("matmul"):
        return lambda: arrays[0] @ arrays[1]
    return None


def count_one(name: str, size: int, repeats: int) -> None:
    """One row of the table of counts; run in a process of its own, so that the peak of memory is this kernel's."""
    kernel, launch, args, buffers = first_launch(name, size)
    _ = kernel.counts_depend_on_memory  # decodes and slices
    seconds, result = best_of(repeats, lambda: kernel.count(launch.grid, launch.block, args, launch.shared_bytes))
    rate = result.metrics[EXECUTED] / seconds
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    held = sum(buffer.nbytes for buffer in buffers.values()) / 2**20
    print(
        f"{name:28}{size:>10}{threads_of(launch) / 1e6:>11,.1f}{seconds:>10.3f}{rate / 1e9:>16,.1f}"
        f"{result.blocks_executed:>10,}{peak:>10,.0f}{held:>10,.0f}"
    )


def show_counts(repeats: int) -> None:
    """Full-size problems, each in its own process."""
    print("Counting (kernel.count)")
    print(
        f"{'kernel':28}{'size':>10}{'M threads':>11}{'seconds':>10}{'G thread i./s':>16}{'executed':>10}"
        f"{'peak MiB':>10}{'arrays':>10}"
    )
    for name, size in COUNTED.items():
        subprocess.run([sys.executable, __file__, "--one", name, str(size), "--repeats", str(repeats)], check=True)


def show_launches(repeats: int) -> None:
    """Executed problems beside NumPy."""
    print("\nExecuting (kernel.launch)")
    print(f"{'kernel':28}{'size':>10}{'x NumPy':>10}{'M thread i./s':>16}{'seconds':>10}")
    for name, size in LAUNCHED.items():
        kernel, launch, args, _ = first_launch(name, size)
        seconds, result = best_of(
            repeats, lambda k=kernel, w=launch, a=args: k.launch(w.grid, w.block, a, w.shared_bytes)
        )
        job = numpy_job(name, args)
        ratio = f"{seconds / best_of(5 * repeats, job)[0]:,.0f}" if job is not None else "-"
        show_launch(name, size, ratio, result, seconds)
    module, n = gpusim.compile(IRREGULAR), IRREGULAR_THREADS
    rng = np.random.default_rng(1)
    starts = {
        "escape": rng.uniform(-2, 2, 2 * n).astype(np.float32),
        "collatz": rng.integers(1, 1 << 16, n).astype(np.uint32),
    }
    for name, start in starts.items():
        args = [start, np.zeros(n, np.int32), np.int32(n), np.int32(IRREGULAR_TURNS)]
        seconds, result = best_of(repeats, lambda k=module[name], a=args: k.launch(n // 256, 256, a))
        show_launch(f"irregular: {name}", n, "-", result, seconds)


def show_launch(name: str, size: int, ratio: str, result: Any, seconds: float) -> None:
    """One row of the table of launches."""
    print(f"{name:28}{size:>10}{ratio:>10}{result.metrics[EXECUTED] / seconds / 1e6:>16,.0f}{seconds:>10.3f}")


def show_numba(repeats: int) -> None:
    """Rates of threads beside Numba's CUDA simulator, at its size and at ours."""
    try:
        import numba_kernels
    except ImportError:
        print("\nNumba is not installed: pip install -e '.[bench]' for the comparison with its CUDA simulator")
        return
    print(
        "\nThreads a second, and how many times that of Numba's CUDA simulator, which gets a few blocks of the problem"
    )
    print(f"{'kernel':28}{'size':>10}{'Numba':>10}{'launch':>13}{'x':>10}{'count':>18}{'x':>14}")
    jobs = [(name, size) for name in numba_kernels.KERNELS for size in SIMULATED.get(name, (LAUNCHED[name],))]
    for name, size in jobs:
        make = numba_kernels.KERNELS[name]
        run, correct, threads = make(size)
        rate = threads / best_of(1, run)[0]
        assert correct(), f"{name} is wrong in Numba's simulator"
        kernel, launch, args, _ = first_launch(name, size)
        row = ""
        for job, widths in ((kernel.launch, (13, 10)), (kernel.count, (18, 14))):
            seconds, _ = best_of(repeats, lambda j=job, w=launch, a=args: j(w.grid, w.block, a, w.shared_bytes))
            here = threads_of(launch) / seconds
            row += f"{here:>{widths[0]},.0f}{here / rate:>{widths[1]},.0f}"
        print(f"{name:28}{size:>10}{rate:>10,.0f}{row}")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeats", type=int, default=3, help="runs of each kernel, of which the best counts")
    parser.add_argument("--one", nargs=2, metavar=("KERNEL", "SIZE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        count_one(options.one[0], int(options.one[1]), options.repeats)
        return
    sys.path.insert(0, str(Path(__file__).parent))
    os.environ["NUMBA_ENABLE_CUDASIM"] = "1"  # read when Numba is imported, be it for the compiled loops
    loops = "compiled loops" if native.load() else "NumPy alone"
    print(
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, NumPy {np.__version__}, "
        f"{loops}\n",
        flush=True,
    )
    show_counts(options.repeats)
    show_launches(options.repeats)
    show_numba(options.repeats)


if __name__ == "__main__":
    main()
