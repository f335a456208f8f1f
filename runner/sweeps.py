"""The measurements behind a device profile: sweeps over kernels of ``kernels/calibrate``.

Runs where there is a GPU and CuPy, with only NumPy besides.  A row is a dict of what was varied and what was measured;
what constants follow from the rows is decided elsewhere (:mod:`gpusim.runner.constants`), without a GPU.  Cycles are SM
clock cycles between reads of the clock in the kernel, ``ms`` are milliseconds between CUDA events around launches.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np

Row = dict[str, Any]
MIXTURES = (
    "FFMA_IADD", "FFMA_IMAD", "FFMA_LOP3", "IADD_LOP3", "FFMA_EX2", "FFMA_LDS", "SHFL_LDS", "FFMA_SHFL", "IMAD_LOP3",
    "FFMA_I2F", "FADD_FMUL",
)  # fmt: skip
OPERATIONS = (
    "FADD", "FMUL", "FFMA", "IADD", "IMAD", "IMAD_WIDE", "IMAD_HI", "LOP3", "SHF", "ISETP_SEL", "FSETP_SEL", "IMNMX",
    "FMNMX", "PRMT", "POPC", "FLO", "EX2", "LG2", "RCP", "RSQ", "SIN", "I2F", "F2I", "F2F_UP", "F2F_DOWN",
    "DADD", "DMUL", "DFMA", "HADD2", "HFMA2", "SHFL", "VOTE", "REDUX", "LDS", "DP4A", "MATCH", *MIXTURES,
)  # fmt: skip
CHAINS = (
    "SHARED_ADD", "SHARED_CAS", "SHARED_EXCH", "GLOBAL_ADD", "GLOBAL_CAS", "GLOBAL_EXCH", "SHARED_STORE_LOAD",
    "GLOBAL_STORE_LOAD", "FENCE_BLOCK", "FENCE_DEVICE", "FENCE_SYSTEM", "STORE_FENCE_DEVICE", "LOCAL_STORE_LOAD",
)  # fmt: skip
SHARED_ATOMICS = (
    "ADD", "INCREMENT", "ADD_RETURN", "CAS_RETURN", "EXCH_RETURN", "MAX_RETURN", "ADD_FLOAT", "ADD_LONG",
)  # fmt: skip
GLOBAL_ATOMICS = ("RED_INT", "RED_FLOAT", "RED_LONG", "ATOM_INT", "ATOM_FLOAT", "RED_DOUBLE")
KERNELS: dict[str, tuple[str, ...]] = {
    "issue": (
        *(f"issue<{name}, {chains}>" for name in OPERATIONS for chains in (1, 8)),
        "branch_loop",
        "branch_diverge",
        "barrier_loop",
    ),
    "latency": (
        "make_ring",
        "line_latency",
        *(f"chase<{kind}>" for kind in ("CA64", "CG64", "CA32", "CA128", "NC64")),
        *(f"shared_chase<{width}>" for width in (4, 8, 16)),
        *(f"access_chain<{kind}>" for kind in CHAINS),
        "constant_chase",
    ),
    "shared": (
        *(f"shared_{way}<{width}>" for way in ("load", "store") for width in (4, 8, 16)),
        *(f"shared_atomic<{kind}>" for kind in SHARED_ATOMICS),
        *(f"pattern_load<{kind}, {width}>" for kind in ("CA", "CG", "NC") for width in (4, 8, 16)),
        *(f"pattern_store<{width}>" for width in (4, 8, 16)),
        "local_access",
        "constant_load",
    ),
    "stream": (
        *(f"stream_{way}<{w}, {f}>" for way in ("read", "write", "copy") for w in (1, 2, 4) for f in (1, 2, 4, 8)),
        "stream_read<1, 4, 1>",
        "stream_read<4, 4, 1>",
        *(f"stream_{way}<{words}, 4, 2>" for way in ("read", "write", "copy") for words in (1, 4)),
        *(f"stream_random<{store}, {flight}>" for store in (0, 1) for flight in (1, 4, 8)),
        *(f"stream_atomic<{kind}>" for kind in GLOBAL_ATOMICS),
    ),
    "launch": ("empty", "empty_arguments", "empty_registers<32>", "empty_registers<128>", "slots"),
}
"""The kernels of each source of ``kernels/calibrate``, as C++ name expressions."""

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
LINE = 128
FLUSH = 256 * MIB  # several times an L2 cache
NONE = np.uint64(0)  # no pointer


class Gpu:
    """The device, its kernels, and ways to time them."""

    def __init__(self, cupy: Any, module: Callable[[str], Any], lowered: dict[str, str]) -> None:
        """``module`` gives the CuPy module of a source of KERNELS, ``lowered`` a kernel's name in it."""
        self.cupy, self.module, self.lowered = cupy, module, lowered
        self.source = {name: source for source, names in KERNELS.items() for name in names}
        self.functions: dict[str, Any] = {}
        self.arch = int(cupy.cuda.Device().compute_capability)
        self.sms = self._limit("MultiProcessorCount")
        self.threads_per_sm = self._limit("MaxThreadsPerMultiProcessor")
        self.registers_per_sm = self._limit("MaxRegistersPerMultiprocessor", "regsPerMultiprocessor")
        self.shared_per_sm = self._limit("MaxSharedMemoryPerMultiprocessor", "sharedMemPerMultiprocessor")
        self.shared_per_block = self._limit("MaxSharedMemoryPerBlockOptin", "sharedMemPerBlockOptin")
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.stream.use()
        self.stamps = cupy.zeros(5 * 64 * 2 * self.sms, np.int64)
        self.out = cupy.zeros(1 << 20, np.uint32)
        self.free: int = cupy.cuda.runtime.memGetInfo()[0]

    def _limit(self, *names: str) -> int:
        """An attribute or property of the device under any of its names."""
        device = self.cupy.cuda.Device()
        known = {**self.cupy.cuda.runtime.getDeviceProperties(device.id), **device.attributes}
        by_name = {key.lower(): value for key, value in known.items()}
        return int(next(by_name[name.lower()] for name in names if name.lower() in by_name))

    def find(self, name: str) -> Any:
        """The CuPy function of a kernel named as in KERNELS."""
        if name not in self.functions:
            self.functions[name] = self.module(self.source[name]).get_function(self.lowered.get(name, name))
        return self.functions[name]

    def run(self, name: str, grid: int, block: int, *args: Any, shared: int = 0) -> None:
        """Launch a kernel; ints are passed as 32-bit."""
        kernel = self.find(name)
        if shared > 48 * KIB:
            kernel.max_dynamic_shared_size_bytes = shared
        kernel((grid,), (block,), tuple(np.int32(a) if type(a) is int else a for a in args), shared_mem=shared)

    def fits(self, name: str, block: int, blocks: int) -> bool:
        """Whether ``blocks`` blocks find registers and threads on one SM."""
        warps = -(-block // 32)
        registers = -(-self.find(name).num_regs * 32 // 256) * 256 * warps * blocks
        return registers <= self.registers_per_sm and block * blocks <= self.threads_per_sm

    def room(self, blocks: int) -> int:
        """Bytes of shared memory with which so many blocks find room on an SM, and no more; 1 KiB of each block's is
        the system's."""
        return min(self.shared_per_block, self.shared_per_sm // blocks - KIB) // 128 * 128

    def cycles(
        self, name: str, grid: int, block: int, *args: Any, times: int = 3, before: Callable[[], None] | None = None
    ) -> Row:
        """Launch a kernel that takes (out, stamps, ...) and give the cycles from the first warp's start to the last
        one's end on an SM: the median of all SMs, the least of ``times`` launches after a first."""
        best: Row = {}
        warps = grid * -(-block // 32)
        for number in range(times + 1):
            if before:
                before()
            self.run(name, grid, block, self.out, self.stamps, *args)
            self.stream.synchronize()
            if number == 0:
                continue
            stamps = self.stamps[: 5 * warps].get().reshape(warps, 5)
            spans = []
            for sm in np.unique(stamps[:, 4]):
                mine = stamps[stamps[:, 4] == sm]
                spans.append(int(mine[:, 1].max() - mine[:, 0].min()))
            middle = statistics.median(spans)
            if not best or middle < best["cycles"]:
                ns = float((stamps[:, 3] - stamps[:, 2]).max())
                best = {"cycles": middle, "most": max(spans), "ns": ns, "sms": len(spans)}
        return best

    def hold(self, microseconds: float) -> None:
        """Keep the GPU busy for a while, so that what is launched meanwhile does not wait for the host."""
        self.run("slots", 1, 32, self.stamps, self.out, int(2000 * microseconds), 0, 1)

    def graph(self, job: Callable[[], None], count: int) -> Callable[[], None]:
        """What launches a CUDA graph of ``count`` times a job."""
        job()
        self.stream.synchronize()
        self.stream.begin_capture()
        for _ in range(count):
            job()
        graph = self.stream.end_capture()
        return lambda: graph.launch(self.stream)

    def ms(self, *jobs: Callable[[], None], times: int = 5, before: Callable[[], None] | None = None) -> Row:
        """Milliseconds of the jobs together: least and median of ``times``, each after ``before``."""
        samples = []
        for number in range(times + 1):
            start, end = self.cupy.cuda.Event(), self.cupy.cuda.Event()
            if before:
                before()
            self.hold(40 + 8 * len(jobs))
            start.record(self.stream)
            for job in jobs:
                job()
            end.record(self.stream)
            end.synchronize()
            if number:
                samples.append(float(self.cupy.cuda.get_elapsed_time(start, end)))
        return {"ms": min(samples), "median_ms": statistics.median(samples)}

    def table(self, source: str, values: np.ndarray[Any, Any]) -> None:
        """Fill the constant array ``table`` of a source's module."""
        array = self.cupy.ndarray(values.shape, values.dtype, self.module(source).get_global("table"))
        array.set(values)
        self.stream.synchronize()


class Stream:
    """A launch of one of the stream kernels that moves about ``footprint`` bytes a round."""

    def __init__(
        self, gpu: Gpu, way: str, words: int, flight: int, warps: int, footprint: int, data: Any, other: Any = None,
        group: int = 0, apart: int = 1, rounds: int = 1, sms: int = 0, cached: bool = False,
    ) -> None:  # fmt: skip
        """``warps``: of each SM; ``group``, ``apart``: groups of 2^group accesses are so many of their widths from each
        other; ``sms``: how many blocks, one an SM, of 32 warps at most (default: all SMs); ``cached``: through L1."""
        self.gpu = gpu
        grouped = apart != 1 << group
        self.name = f"stream_{way}<{words}, {flight}{', 1' if cached else ', 2' if grouped else ''}>"
        self.block = min(1024, 32 * warps) if sms else min(256, 32 * warps)
        self.grid = sms or gpu.sms * max(1, 32 * warps // self.block)
        self.shared = gpu.shared_per_block * 3 // 4 if sms else 0
        threads = self.grid * self.block * flight
        each = 4 * words * apart >> group  # bytes of the footprint for an access
        self.count = footprint // each // threads * threads
        self.bytes = self.count * 4 * words * rounds * (2 if way == "copy" else 1)
        target = (data if other is None else other) if way == "copy" else gpu.out
        self.args = (data, target, np.int64(self.count), group, apart, rounds)
        self.possible = self.count > 0 and gpu.fits(self.name, self.block, 1 if sms else self.grid // gpu.sms)
        self.row: Row = {"way": way, "words": words, "flight": flight, "warps": warps, "rounds": rounds,
                         "footprint": self.count * each, "bytes": self.bytes, "cached": cached}  # fmt: skip

    def __call__(self) -> None:
        """Launch it."""
        self.gpu.run(self.name, self.grid, self.block, *self.args, shared=self.shared)


def timed(gpu: Gpu, stream: Stream, times: int = 3, before: Callable[[], None] | None = None, **more: Any) -> Row:
    """The row of a stream, with its milliseconds and GB/s."""
    found = gpu.ms(stream, times=times, before=before)
    return {**stream.row, **more, **found, "gb_s": stream.bytes / found["ms"] / 1e6}


def issue(gpu: Gpu) -> Iterator[Row]:
    """Warp instructions an SM and cycle, and the latency of a chain."""
    for name in OPERATIONS:
        if name == "REDUX" and gpu.arch < 80:
            continue
        kinds = 2 if name in MIXTURES else 1
        operands = (np.uint32(0x3F8CCCCD), np.uint32(0x3F79999A), np.uint32(3))
        found = gpu.cycles(f"issue<{name}, 1>", 1, 32, *operands, 32)
        yield {"op": name, "chains": 1, "warps": 1, "loops": 32, "steps": 32 * 128, **found}
        kernel = f"issue<{name}, 8>"
        for warps in (1, 2, 4, 8, 16):  # a scheduler
            block, blocks = (128 * warps, 1) if warps <= 8 else (1024, warps // 8)
            if not gpu.fits(kernel, block, blocks):
                continue
            loops = 64
            found = gpu.cycles(kernel, gpu.sms * blocks, block, *operands, loops, times=2)
            instructions = loops * 16 * 8 * kinds
            yield {
                "op": name, "chains": 8, "warps": warps, "loops": loops, "steps": instructions,
                "rate": instructions * 4 * warps / found["cycles"], **found,
            }  # fmt: skip


def clocks(gpu: Gpu) -> Iterator[Row]:
    """The SM clock in MHz while all SMs work for about 20 ms."""
    operands = (np.uint32(0x3F8CCCCD), np.uint32(0x3F79999A), np.uint32(3))
    for name in ("FFMA", "IMAD", "DFMA", "LDS", "EX2"):
        found = gpu.cycles(f"issue<{name}, 8>", gpu.sms, 1024, *operands, 10000, times=2)
        yield {"op": name, "mhz": found["most"] / found["ns"] * 1e3, **found}


def branches(gpu: Gpu) -> Iterator[Row]:
    """Loops of nothing but a counter, loops around a divergent branch, and block barriers one after the other."""
    for warps in (1, 4, 8, 16, 32):  # a block, on one SM
        yield {"kind": "loop", "warps": warps, "loops": 1000, **gpu.cycles("branch_loop", 1, 32 * warps, 1000)}
        for below in (0, 1, 16, 32):
            found = gpu.cycles("branch_diverge", 1, 32 * warps, below, 500)
            yield {"kind": "diverge", "warps": warps, "below": below, "loops": 500, **found}
    for warps in range(1, 33):
        yield {"kind": "barrier", "warps": warps, "blocks": 1, "barriers": 800,
               **gpu.cycles("barrier_loop", 1, 32 * warps, 100)}  # fmt: skip
    for warps, blocks in ((1, 16), (1, 32), (2, 16), (4, 8), (4, 16), (8, 4), (8, 8), (16, 2), (16, 4), (32, 2)):
        yield {"kind": "barrier", "warps": warps, "blocks": blocks, "barriers": 800,
               **gpu.cycles("barrier_loop", gpu.sms * blocks, 32 * warps, 100)}  # fmt: skip


def _ring(gpu: Gpu, buffer: Any, footprint: int, stride: int) -> int:
    """Make a ring in random order; how many places it has."""
    count = footprint // stride
    order = gpu.cupy.asarray(np.random.default_rng(7).permutation(count).astype(np.uint32))
    gpu.run("make_ring", max(1, min(1024, count // 256)), 256, buffer, order, np.uint32(count), np.uint64(stride))
    gpu.stream.synchronize()
    return count


def chases(gpu: Gpu) -> Iterator[Row]:
    """Pointer chases of one warp by footprint: L1, L2, DRAM and what address translation adds."""
    buffer = gpu.cupy.zeros(min(4 * GIB, gpu.free // 2), np.uint8)
    for footprint in (2 * KIB, 16 * KIB, 64 * KIB, 128 * KIB):
        count = _ring(gpu, buffer, footprint, LINE)
        for kind in ("CA64", "CA32", "CA128", "NC64", "CG64"):
            found = gpu.cycles(f"chase<{kind}>", 1, 32, buffer, NONE, np.uint32(0), count, 2048)
            yield {"kind": kind, "footprint": footprint, "stride": LINE, "steps": 2048, **found}
    flush = Stream(gpu, "read", 4, 4, 32, FLUSH, gpu.cupy.zeros(FLUSH, np.uint8))
    mebibytes = (1, 2, 4, 8, 12, 16, 20, 24, 28, 32, 40, 48, 64, 128, 256, 512, 1024, 2048, 4096)
    for footprint in (192 * KIB, 256 * KIB, 512 * KIB, *(n * MIB for n in mebibytes)):
        if footprint > buffer.nbytes:
            continue
        stride = max(LINE, footprint >> 19)
        count = _ring(gpu, buffer, footprint, stride)
        small = footprint <= 256 * KIB
        fill = Stream(gpu, "read", 4, 1, 8, footprint, buffer)  # the whole of it is in L2 then, or as much as fits
        for kind, state in product(("CA64", "CG64") if small else ("CG64",), ("filled", "flushed")):
            before = flush if state == "flushed" else fill if fill.possible else None
            skip = count if small else 256
            if footprint > FLUSH and state == "filled":
                continue
            found = gpu.cycles(f"chase<{kind}>", 1, 32, buffer, NONE, np.uint32(0), skip, 4096, times=2, before=before)
            yield {"kind": kind, "footprint": footprint, "stride": stride, "steps": 4096, "state": state, **found}
    # few lines far apart: hits in L2, misses in the translation caches
    for stride, count in product((64 * KIB, 2 * MIB, 16 * MIB), (16, 64, 256, 1024)):
        if stride * count <= buffer.nbytes:
            _ring(gpu, buffer, stride * count, stride + 0)
            found = gpu.cycles("chase<CG64>", 1, 32, buffer, NONE, np.uint32(0), 2 * count, 4096, times=2)
            yield {"kind": "CG64", "footprint": stride * count, "stride": stride, "steps": 4096, "pages": True, **found}


def partitions(gpu: Gpu) -> Iterator[Row]:
    """L2 latency from each SM to each of some lines: near and far partitions."""
    lines, times = 256, 6
    buffer = gpu.cupy.zeros(LINE * lines, np.uint8)
    cycles = gpu.cupy.zeros(gpu.sms * lines, np.int32)
    for _ in range(2):
        gpu.run("line_latency", gpu.sms, 32, cycles, gpu.stamps, buffer, lines, times)
    gpu.stream.synchronize()
    stamps = gpu.stamps[: 5 * gpu.sms].get().reshape(gpu.sms, 5)
    found = cycles.get().reshape(gpu.sms, lines)
    for sm in range(gpu.sms):
        yield {"sm": int(stamps[sm, 4]), "cycles": found[sm].tolist()}


def chains(gpu: Gpu) -> Iterator[Row]:
    """Latency in shared memory, of atomics, of a store and the load after it, of fences, of indexed constants."""
    for width in (4, 8, 16):
        yield {"kind": "LDS", "width": width, "steps": 2048, **gpu.cycles(f"shared_chase<{width}>", 1, 32, 2048)}
    cells = gpu.cupy.zeros(1 << 16, np.uint64)
    for kind, threads in product(CHAINS, (1, 32)):
        steps = 512
        found = gpu.cycles(f"access_chain<{kind}>", 1, threads, cells, np.uint32(0), steps)
        yield {"kind": kind, "threads": threads, "steps": steps, **found}
    for words in (256, 512, 4096):  # 1, 2, 16 KiB
        values = np.arange(4096, dtype=np.uint32)
        gpu.table("latency", ((values + 32) % words * 4).astype(np.uint32))
        for distinct in (1, 2, 4, 8, 16, 32):
            found = gpu.cycles("constant_chase", 1, 32, distinct, 1024)
            yield {"kind": "LDC", "words": words, "distinct": distinct, "steps": 1024, **found}


def shared(gpu: Gpu) -> Iterator[Row]:
    """Shared loads, stores and atomics by stride between lanes (conflicts), by warps of one block an SM."""
    for way, width in product(("load", "store"), (4, 8, 16)):
        for degree, warps in product((0, 1, 2, 4, 8, 16, 32), (1, 4, 8, 16, 32)):
            found = gpu.cycles(f"shared_{way}<{width}>", gpu.sms, 32 * warps, degree * width, 0, 64, times=2)
            count = 64 * 8 * warps
            yield {"way": way, "width": width, "degree": degree, "warps": warps, "count": count,
                   "each": found["cycles"] / count, **found}  # fmt: skip
    for kind in SHARED_ATOMICS:
        for stride, warps in product((0, 4, 8, 16, 32, 64, 128), (1, 4, 8, 16, 32)):
            if kind == "ADD_LONG" and stride == 4:
                continue
            value = np.uint32(0x3F800000 if kind == "ADD_FLOAT" else 1)
            found = gpu.cycles(f"shared_atomic<{kind}>", gpu.sms, 32 * warps, stride, value, 16, times=2)
            count = 16 * 8 * warps
            yield {"way": kind, "stride": stride, "warps": warps, "count": count,
                   "each": found["cycles"] / count, **found}  # fmt: skip


def patterns(gpu: Gpu) -> Iterator[Row]:
    """Global loads that hit in L1, that hit in L2, and stores: by width, lines and sectors a request."""
    apart = 64 * KIB
    buffer = gpu.cupy.zeros(apart * gpu.sms, np.uint8)
    for kind, width, lines in product(("CA", "NC", "CG", "store"), (4, 8, 16), (1, 2, 4, 8, 16, 32)):
        for sectors in range(1, min(4, 32 // lines) + 1):
            if kind == "NC" and sectors not in (1, 4):
                continue
            for grid, warps in product((1, gpu.sms), (1, 8, 16, 32) if kind in ("CA", "NC") else (8, 32)):
                if kind in ("CA", "NC") and grid == 1:
                    continue  # an L1 is an SM's own
                name = f"pattern_store<{width}>" if kind == "store" else f"pattern_load<{kind}, {width}>"
                loops = 64 if kind in ("CA", "NC") else 24
                found = gpu.cycles(name, grid, 32 * warps, buffer, lines, sectors, np.int64(apart), 0, loops, times=2)
                count = loops * 8 * warps
                yield {"kind": kind, "width": width, "lines": lines, "sectors": sectors, "grid": grid, "warps": warps,
                       "count": count, "each": found["cycles"] / count, **found}  # fmt: skip


def constants(gpu: Gpu) -> Iterator[Row]:
    """Indexed loads from constant memory by distinct words a warp; local memory."""
    gpu.table("shared", np.arange(4096, dtype=np.uint32))
    for apart, distinct, warps in product((1, 16), (1, 2, 4, 8, 16, 32), (1, 4, 16, 32)):
        found = gpu.cycles("constant_load", gpu.sms, 32 * warps, distinct, apart, 0, 64, times=2)
        count = 64 * 8 * warps
        yield {"kind": "LDC", "apart": apart, "distinct": distinct, "warps": warps, "count": count,
               "each": found["cycles"] / count, **found}  # fmt: skip
    for warps in (1, 4, 8, 16, 32):
        found = gpu.cycles("local_access", gpu.sms, 32 * warps, np.uint32(0), 64, times=2)
        yield {"kind": "LDL", "warps": warps, "count": 512 * warps, "each": found["cycles"] / (512 * warps), **found}
