"""Copies between host and device, and copies beside kernels, measured on a GPU through CuPy.

``run`` measures one of ``NAMES``; ``python -m gpusim.runner.transfers OUT.json`` all of them, into one file, which is
how ``recorded/h200_transfers.json`` was made; ``recorded`` reads such a file, and needs no GPU.  Times are in
microseconds, from CUDA events; rates in GB/s, 10^9 bytes a second.  Results are compared with the NumPy reference
before anything is timed.  The GPU's clocks and settings are left alone.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

import gpusim
from gpusim import kernels
from gpusim.errors import GpusimError, NoGpuError, UsageError

FAMILY = "transfers"
NAMES = ("transfer_pageable", "transfer_pinned", "stream_overlap")
FOLDER = Path(__file__).parent / "recorded"
CHUNKS = 8  # pieces of the overlapped work
STREAMS = (1, 2, 4)
LEAST_SAMPLES, MOST_SAMPLES = 10, 200
SECONDS = 0.2  # that a measurement takes at least, unless it has MOST_SAMPLES before
TO_DEVICE, TO_HOST = 1, 2  # cudaMemcpyKind
KINDS = ("copy in", "kernel", "copy out")
COMMAND = "python -m gpusim.runner.transfers OUT.json"


# -- what was measured ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Operation:
    """One thing in a stream, by events around it: ``start`` and ``end`` in microseconds after the first of all.

    ``ready``: when the stream had come to it; from then to ``start`` it waited for the engine of its kind.
    """

    stream: int
    chunk: int
    kind: str
    ready: float
    start: float
    end: float


def timeline(measured: Sequence[tuple[int, int, str, float, float]]) -> list[Operation]:
    """Operations from (stream, chunk, kind, event before, event after), in order of their start.

    The event before an operation tells when its stream had come to it.  One engine carries out all copies in, one all
    copies out, and a kernel of this size fills the multiprocessors: so an operation starts when it is ready and the one
    before it of its kind has ended.  Times are made to begin with the first that is ready.
    """
    begun = min((each[3] for each in measured), default=0.0)
    measured = [(*each[:3], each[3] - begun, each[4] - begun) for each in measured]
    found = []
    free: dict[str, float] = {}
    for stream, chunk, kind, before, after in sorted(measured, key=lambda each: each[4]):
        start = min(max(before, free.get(kind, 0.0)), after)
        free[kind] = after
        found.append(Operation(stream, chunk, kind, before, start, after))
    return sorted(found, key=lambda each: (each.start, each.stream))


def summary(seconds: Sequence[float], size: int | None = None) -> dict[str, Any]:
    """Microseconds of samples: median, quartiles, least, their number; and for ``size`` bytes the median's rate."""
    low, middle, high = np.percentile(np.array(seconds) * 1e6, (25, 50, 75))
    found: dict[str, Any] = {
        "median": round(float(middle), 3),
        "quartiles": [round(float(low), 3), round(float(high), 3)],
        "least": round(min(seconds) * 1e6, 3),
        "samples": len(seconds),
    }
    if size is not None:
        found["gb_per_s"] = round(size / float(middle) / 1e3, 3)
    return found


def names() -> list[str]:
    """Devices with recorded results."""
    return sorted(path.name.removesuffix("_transfers.json") for path in FOLDER.glob("*_transfers.json"))


def recorded(device: str, name: str) -> dict[str, Any]:
    """The recorded result of one of ``NAMES``, as ``run`` returns it.  Raises UsageError if there is none."""
    path = FOLDER / f"{device}_transfers.json"
    if not path.is_file():
        have = ", ".join(names()) or "nothing"
        raise UsageError(f"there are no recorded transfers of {device!r}: there are those of {have}")
    content = json.loads(path.read_text())
    found = next((each for each in content["results"] if each["name"] == name), None)
    if found is None:
        raise UsageError(f"{name} is not one of the recorded transfers: {', '.join(NAMES)}")
    return {"header": content["header"], **found}


# -- measuring -----------------------------------------------------------------------------------------------------


class Bench:
    """A device with the kernel loaded; ``close`` gives everything back."""

    def __init__(self, device: int = 0) -> None:
        try:
            import cupy
        except ImportError:
            raise NoGpuError(
                "CuPy is needed to measure transfers and is not installed: run pip install 'gpusim[gpu]'"
            ) from None
        self.cupy = cupy
        self.runtime = cupy.cuda.runtime
        try:
            number = self.runtime.getDeviceCount()
        except self.runtime.CUDARuntimeError as error:
            raise NoGpuError(
                f"transfers are measured on a GPU, and there is none that CUDA can use ({error})"
            ) from None
        if device >= number:
            raise NoGpuError(f"there is no GPU {device}: this machine has {number}")
        self._stack = ExitStack()
        self._stack.enter_context(cupy.cuda.Device(device))
        self.device = device
        capability = cupy.cuda.Device(device).compute_capability
        case = kernels.find("stream_overlap")
        module = gpusim.compile(case.source, arch=f"sm_{capability}", options=case.options, names=case.names)
        folder = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="gpusim-"))
        path = Path(folder) / "transfers.cubin"
        path.write_bytes(module.cubin.data)
        self.cubin_sha256 = module.cubin.sha256
        self.nvrtc = module.nvrtc_version
        self.kernel = cupy.RawModule(path=str(path)).get_function(module[case.names[0]].function.name)
        self.stream = cupy.cuda.Stream(non_blocking=True)

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def header(self) -> dict[str, Any]:
        """Where a result comes from."""
        properties = self.runtime.getDeviceProperties(self.device)
        return {
            "device": properties["name"].decode(),
            "driver": _driver(self.device),
            "cuda": self.runtime.runtimeGetVersion(),
            "cupy": self.cupy.__version__,
            "nvrtc": self.nvrtc,
            "cubin_sha256": self.cubin_sha256,
            "copy_engines": int(properties.get("asyncEngineCount", 0)),
            "date": datetime.date.today().isoformat(),
        }

    def host(self, words: int, pinned: bool) -> np.ndarray:
        """A host buffer, page-locked or not, with every page in place."""
        if pinned:
            memory = self.cupy.cuda.alloc_pinned_memory(4 * words)
            array = np.frombuffer(memory, np.uint32, words)
        else:
            array = np.empty(words, np.uint32)
        array.fill(0)
        return array

    def copy(self, target: Any, source: Any, stream: Any, kind: int) -> None:
        """Put a copy between a host array and a device array into a stream."""
        to, origin = (
            (target.data.ptr, source.ctypes.data) if kind == TO_DEVICE else (target.ctypes.data, source.data.ptr)
        )
        self.runtime.memcpyAsync(to, origin, source.nbytes, kind, stream.ptr)

    def launch(self, launch: kernels.Launch, source: Any, target: Any, stream: Any) -> None:
        """Put the kernel over a piece into a stream, with the scalars of a case's launch."""
        words, width = len(source), launch.block[0]
        scalars = (np.int32(words), *launch.args[3:])
        with stream:
            self.kernel((kernels.blocks_to_cover(words, width),), (width,), (source, target, *scalars))

    def sample(self, job: Callable[[Any], None]) -> float:
        """Seconds of a job that is put into the stream it is given."""
        start, end = self.cupy.cuda.Event(), self.cupy.cuda.Event()
        start.record(self.stream)
        job(self.stream)
        end.record(self.stream)
        end.synchronize()
        return float(self.cupy.cuda.get_elapsed_time(start, end)) * 1e-3

    def samples(self, jobs: Sequence[Callable[[Any], None]]) -> list[list[float]]:
        """Samples of several jobs that take turns, so that what changes meanwhile meets all alike."""
        for job in jobs:
            for _ in range(2):
                self.sample(job)
        found: list[list[float]] = [[] for _ in jobs]
        begun = time.perf_counter()
        for number in range(MOST_SAMPLES):
            if number >= LEAST_SAMPLES and time.perf_counter() - begun > SECONDS * len(jobs):
                break
            for taken, job in zip(found, jobs, strict=True):
                taken.append(self.sample(job))
        return found


def _driver(device: int) -> str:
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "-i", str(device)]
    try:
        done = subprocess.run(query, capture_output=True, text=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return done.stdout.split("\n")[0].strip() or "unknown"


def run(name: str, size: int | None = None, device: int = 0) -> dict[str, Any]:
    """Measure one of ``NAMES`` at ``size`` words of 4 bytes; by default at all of the case, the overlap at its first.

    Returns plain data: ``header``, ``name``, and ``copies`` (a row a size) or, for the overlap, ``parts``, ``runs`` and
    ``timelines``.  Raises NoGpuError without a GPU; a wrong result is a GpusimError, and nothing is timed then.
    """
    if name not in NAMES:
        raise UsageError(f"{name} is not one of the transfers: {', '.join(NAMES)}")
    with Bench(device) as bench:
        try:
            return {"header": bench.header(), **_measure(bench, name, size)}
        except bench.cupy.cuda.memory.OutOfMemoryError:
            raise NoGpuError(f"the GPU has too little free memory for {name}: choose a smaller --size") from None
        except MemoryError:
            raise NoGpuError(f"the host has too little memory for {name}: choose a smaller --size") from None
        except (bench.runtime.CUDARuntimeError, bench.cupy.cuda.driver.CUDADriverError) as error:
            raise NoGpuError(f"{name} failed on the GPU: {error}") from None


def _measure(bench: Bench, name: str, size: int | None) -> dict[str, Any]:
    case = kernels.find(name)
    if name == "stream_overlap":
        return {"name": name, **_overlap(bench, case, size or case.sizes[0])}
    sizes = (size,) if size is not None else tuple(sorted(case.sizes))
    pinned = name == "transfer_pinned"
    return {"name": name, "memory": _memory(pinned), "copies": [_copies(bench, case, n, pinned) for n in sizes]}


def _memory(pinned: bool) -> str:
    return "page-locked" if pinned else "pageable"


def _checked(problem: kernels.Problem, out: np.ndarray, what: str) -> None:
    differences = problem.differences({"out": out})
    if differences:
        raise WrongResultError(f"{what} gave a wrong result, so it is not timed: {differences[0]}")


class WrongResultError(GpusimError):
    """What came back from the GPU is not what it must be."""

    exit_code = 1


def _copies(bench: Bench, case: kernels.Case, words: int, pinned: bool) -> dict[str, Any]:
    """Both directions at one size."""
    cupy, stream = bench.cupy, bench.stream
    problem = case.build(words)
    there, back = bench.host(words, pinned), bench.host(words, pinned)
    there[:] = problem.buffers["in"]
    source, target = cupy.empty(words, np.uint32), cupy.empty(words, np.uint32)
    bench.copy(source, there, stream, TO_DEVICE)
    bench.launch(problem.launches[0], source, target, stream)
    bench.copy(back, target, stream, TO_HOST)
    stream.synchronize()
    _checked(problem, back, f"{case.name} of {4 * words:,} bytes")
    to_device, to_host = bench.samples(
        [
            lambda s: bench.copy(source, there, s, TO_DEVICE),
            lambda s: bench.copy(back, target, s, TO_HOST),
        ]
    )
    size = 4 * words
    return {"bytes": size, "to_device": summary(to_device, size), "to_host": summary(to_host, size)}


class Overlapped:
    """The overlapped work: buffers on both sides, and how it is put into streams."""

    def __init__(self, bench: Bench, problem: kernels.Problem, words: int, pinned: bool, streams: int) -> None:
        self.bench, self.launch = bench, problem.launches[0]
        cupy = bench.cupy
        self.there, self.back = bench.host(words, pinned), bench.host(words, pinned)
        self.there[:] = problem.buffers["in"]
        self.source, self.target = cupy.empty(words, np.uint32), cupy.empty(words, np.uint32)
        self.streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(streams)]
        edges = [words * k // CHUNKS for k in range(CHUNKS + 1)]
        self.pieces = [slice(a, b) for a, b in pairwise(edges) if b > a]

    def operations(self, stream: Any, piece: slice) -> list[Callable[[], None]]:
        """Copy in, kernel and copy out of a piece."""
        bench = self.bench
        return [
            lambda: bench.copy(self.source[piece], self.there[piece], stream, TO_DEVICE),
            lambda: bench.launch(self.launch, self.source[piece], self.target[piece], stream),
            lambda: bench.copy(self.back[piece], self.target[piece], stream, TO_HOST),
        ]

    def put(self, first: Any, note: Callable[[Any], Any] | None = None) -> list[tuple[int, int, str, Any, Any]]:
        """All pieces, dealt to the streams in turn, after what is in ``first``, which then waits for them.

        ``note`` records an event in a stream; with it the events around each operation are returned.
        """
        begun = self.bench.cupy.cuda.Event(disable_timing=True)
        begun.record(first)
        for stream in self.streams:
            stream.wait_event(begun)
        found = []
        for chunk, piece in enumerate(self.pieces):
            number = chunk % len(self.streams)
            stream = self.streams[number]
            for kind, operation in zip(KINDS, self.operations(stream, piece), strict=True):
                before = note(stream) if note is not None else None
                operation()
                after = note(stream) if note is not None else None
                found.append((number, chunk, kind, before, after))
        for stream in self.streams:
            ended = self.bench.cupy.cuda.Event(disable_timing=True)
            ended.record(stream)
            first.wait_event(ended)
        return found

    def timeline(self) -> list[Operation]:
        """One run with events around every operation."""
        cupy, first = self.bench.cupy, self.bench.stream

        def note(stream: Any) -> Any:
            event = cupy.cuda.Event()
            event.record(stream)
            return event

        start = note(first)
        found = self.put(first, note)
        first.synchronize()
        elapsed = cupy.cuda.get_elapsed_time
        return timeline(
            [
                (number, chunk, kind, elapsed(start, before) * 1e3, elapsed(start, after) * 1e3)
                for number, chunk, kind, before, after in found
            ]
        )


def _overlap(bench: Bench, case: kernels.Case, words: int) -> dict[str, Any]:
    problem = case.build(words)
    kinds = [(True, streams) for streams in STREAMS] + [(False, STREAMS[0]), (False, STREAMS[-1])]
    works = [Overlapped(bench, problem, words, pinned, streams) for pinned, streams in kinds]
    for work, (pinned, streams) in zip(works, kinds, strict=True):
        work.target.fill(0)
        bench.cupy.cuda.Device().synchronize()
        work.put(bench.stream)
        bench.stream.synchronize()
        _checked(problem, work.back, f"{case.name} in {streams} streams with {_memory(pinned)} memory")
    whole = works[0].operations(bench.stream, slice(0, words))
    alone = bench.samples([lambda _, each=each: each() for each in whole])  # type: ignore[misc]
    taken = bench.samples([lambda s, work=work: work.put(s) for work in works])  # type: ignore[misc]
    return {
        "bytes": 4 * words,
        "chunks": len(works[0].pieces),
        "rounds": int(works[0].launch.args[3]),
        "parts": {kind: summary(samples) for kind, samples in zip(KINDS, alone, strict=True)},
        "runs": [
            {"memory": _memory(pinned), "streams": streams, "time": summary(samples)}
            for (pinned, streams), samples in zip(kinds, taken, strict=True)
        ],
        "timelines": [
            {
                "memory": _memory(pinned),
                "streams": streams,
                "operations": [
                    [o.stream, o.chunk, o.kind, round(o.ready, 1), round(o.start, 1), round(o.end, 1)]
                    for o in work.timeline()
                ],
            }
            for work, (pinned, streams) in zip(works, kinds, strict=True)
        ],
    }


def main(arguments: list[str] | None = None) -> int:
    """Measure all and write one file."""
    parser = argparse.ArgumentParser(description="Measure copies between host and device, and copies beside kernels.")
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", type=int, default=0)
    options = parser.parse_args(arguments)
    results: list[dict[str, Any]] = []
    header: dict[str, Any] = {}
    try:
        for name in NAMES:
            found = run(name, device=options.device)
            header = {**found.pop("header"), "command": COMMAND}
            results.append(found)
            print(f"{name}: done", flush=True)
    except GpusimError as error:
        print(f"gpusim: {error}", file=sys.stderr)
        return error.exit_code
    write(options.out, header, results)
    return 0


def write(path: Path, header: dict[str, Any], results: Sequence[dict[str, Any]]) -> None:
    """Write a file of results, one result a line, and rename it into place."""
    lines = ",\n".join(json.dumps(each, separators=(",", ":")) for each in results)
    temporary = path.with_name(f"{path.name}.part")
    temporary.write_text(f'{{"header": {json.dumps(header)},\n"results": [\n{lines}\n]}}\n')
    os.replace(temporary, path)


if __name__ == "__main__":
    sys.exit(main())
