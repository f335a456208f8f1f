"""Time the launches of a plan on a GPU: ``python runner/measure.py PLAN OUT.json.gz``.

Runs on a machine with a GPU and CuPy, with only NumPy besides; see :mod:`gpusim.runner.replay` for the plan.  Each
launch is timed by CUDA events in two ways: *cold*, alone, after a write that is larger than the L2 cache; and *hot*, in
a CUDA graph of launches back to back, so that the cost of launching does not drown a short one.  The launches of one
``family`` and ``size`` take turns, so that a drift of the clock meets all of them alike.  Samples are taken until there
are at least 10 over at least ``--seconds``, and no more than three times as long.  All samples' quartiles, minimum and
number are kept, with the clock before and after; samples during which the GPU says that it is throttled are dropped and
counted.  Its clocks and settings are left alone.
"""

from __future__ import annotations

import argparse
import datetime
import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from replay import make_buffer  # type: ignore[import-not-found]  # run as a plain file, beside it

FLUSH_BYTES = 256 << 20  # written before a cold sample; an H200's L2 holds 60 MiB (CUDA device attribute)
LEAST_SAMPLES = 10
HOT_SECONDS = 2e-3  # a graph holds about as much work, and 100 launches at most
QUERY = "clocks.sm,clocks_event_reasons.active"
IDLE = 0x1  # bits of the reasons that are no throttling: idle, application clocks
HARMLESS = IDLE | 0x2


def clock() -> tuple[int, int]:
    """(SM clock in MHz, reasons for throttling as bits) now."""
    done = subprocess.run(
        ["nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,noheader,nounits", "-i", "0"],
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        mhz, reasons = done.stdout.split(",")
        return int(mhz), int(reasons, 16) & ~HARMLESS
    except ValueError:
        return 0, 0


class Timed:
    """One launch of a plan, ready to be timed."""

    def __init__(self, launch: dict[str, Any], kernel: Any, args: tuple[Any, ...]) -> None:
        self.launch, self.kernel, self.args = launch, kernel, args
        self.cold: list[float] = []
        self.hot: list[float] = []
        self.dropped = 0
        self.graph: Any = None
        self.batch = 1

    def run(self) -> None:
        """Launch once on the current stream."""
        launch = self.launch
        self.kernel(tuple(launch["grid"]), tuple(launch["block"]), self.args, shared_mem=launch.get("shared", 0))

    def prepare(self, cupy: Any, stream: Any) -> None:
        """Warm up, and capture a graph of as many launches as take about HOT_SECONDS."""
        for _ in range(3):
            self.run()
        stream.synchronize()
        seconds = self.sample(cupy, stream, self.run)
        self.batch = max(1, min(100, int(HOT_SECONDS / max(seconds, 1e-7))))
        stream.begin_capture()
        for _ in range(self.batch):
            self.run()
        self.graph = stream.end_capture()
        self.graph.launch(stream)
        stream.synchronize()

    @staticmethod
    def sample(cupy: Any, stream: Any, job: Any) -> float:
        """Seconds between events around a job."""
        start, end = cupy.cuda.Event(), cupy.cuda.Event()
        start.record(stream)
        job()
        end.record(stream)
        end.synchronize()
        return float(cupy.cuda.get_elapsed_time(start, end)) * 1e-3

    def summary(self) -> dict[str, Any]:
        """Microseconds of both ways."""
        found: dict[str, Any] = {"id": self.launch["id"], "batch": self.batch, "dropped": self.dropped}
        for name, samples in (("cold", self.cold), ("hot", self.hot)):
            values = np.array(samples) * 1e6
            if len(values):
                low, middle, high = np.percentile(values, (25, 50, 75))
                found[name] = {
                    "median": round(float(middle), 3),
                    "quartiles": [round(float(low), 3), round(float(high), 3)],
                    "least": round(float(values.min()), 3),
                    "samples": len(values),
                }
        return found


def measure(cupy: Any, items: list[Timed], seconds: float) -> None:
    """Take samples of all items in turn."""
    stream = cupy.cuda.Stream(non_blocking=True)
    flush = cupy.empty(FLUSH_BYTES, np.uint8)
    with stream:
        for item in items:
            item.prepare(cupy, stream)
        spent = {id(item): 0.0 for item in items}
        stop = time.perf_counter() + 3 * seconds * len(items) + 1
        number = 0
        while time.perf_counter() < stop:
            waiting = [i for i in items if len(i.cold) < LEAST_SAMPLES or spent[id(i)] < seconds]
            if not waiting:
                break
            throttled = clock()[1] if number % 10 == 0 else 0
            for item in waiting:
                before = time.perf_counter()
                flush.fill(number & 0xFF)
                cold = item.sample(cupy, stream, item.run)
                hot = item.sample(cupy, stream, lambda i=item: i.graph.launch(stream)) / item.batch
                spent[id(item)] += time.perf_counter() - before
                if throttled:
                    item.dropped += 1
                else:
                    item.cold.append(cold)
                    item.hot.append(hot)
            number += 1


def groups_of(launches: list[dict[str, Any]]) -> dict[tuple[str, int], list[dict[str, Any]]]:
    """Launches that take turns: those of one family at one size."""
    found: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for launch in launches:
        found.setdefault((launch["family"], launch["size"]), []).append(launch)
    return found


def load(
    cupy: Any, plan: dict[str, Any], folder: Path, launches: list[dict[str, Any]], cache: dict[str, Any]
) -> list[Timed]:
    """The launches with their buffers on the device; every launch was run once, in order, so that inputs are real."""
    items = []
    buffers: dict[tuple[str, str], Any] = {}
    for launch in launches:
        module = cupy.RawModule(path=str(folder / plan["cubins"][launch["cubin"]]))
        kernel = module.get_function(launch["kernel"])
        if launch.get("shared", 0) > 48 * 1024:
            kernel.max_dynamic_shared_size_bytes = launch["shared"]
        args: list[Any] = []
        for spec in launch["args"]:
            if "scalar" in spec:
                args.append(np.dtype(spec["scalar"]).type(spec["value"]))
                continue
            key = (launch["group"], spec["buffer"])
            if key not in buffers:
                kind = json.dumps({k: v for k, v in spec.items() if k != "buffer"}, sort_keys=True)
                if kind not in cache:
                    cache[kind] = make_buffer(spec, folder)
                buffers[key] = cupy.asarray(cache[kind])
            args.append(buffers[key])
        item = Timed(launch, kernel, tuple(args))
        item.run()
        cupy.cuda.Device().synchronize()
        items.append(item)
    return items


def bandwidth(cupy: Any) -> float:
    """Bytes a second (read and written) of a large copy between buffers on the device."""
    source, target = cupy.ones(1 << 28, np.float32), cupy.empty(1 << 28, np.float32)
    stream = cupy.cuda.get_current_stream()
    times = [Timed.sample(cupy, stream, lambda: cupy.copyto(target, source)) for _ in range(20)]
    return 2 * source.nbytes / float(np.median(times[5:]))


def main(arguments: list[str] | None = None) -> int:
    """Measure the whole plan; what is done is written after every family and size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("plan", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=0.3, help="time of sampling a launch gets at least")
    parser.add_argument("--limit", type=float, default=540, help="seconds after which no further family is begun")
    options = parser.parse_args(arguments)

    import cupy

    begun = time.perf_counter()
    plan = json.loads(options.plan.read_text())
    properties = cupy.cuda.runtime.getDeviceProperties(0)
    driver = subprocess.run(
        ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.split("\n")[0]
    header = {
        "device": properties["name"].decode(),
        "driver": driver,
        "cuda": cupy.cuda.runtime.runtimeGetVersion(),
        "cupy": cupy.__version__,
        "l2_bytes": properties["l2CacheSize"],
        "date": datetime.date.today().isoformat(),
        "command": "python runner/measure.py PLAN OUT.json.gz",
        "seconds": options.seconds,
        "copy_bytes_per_second": bandwidth(cupy),
    }
    results: list[dict[str, Any]] = []
    cache: dict[str, Any] = {}
    left_out = []
    for (family, size), launches in groups_of(plan["launches"]).items():
        if time.perf_counter() - begun > options.limit:
            left_out.append(f"{family}/{size}")
            continue
        before = clock()
        try:
            items = load(cupy, plan, options.plan.parent, launches, cache)
            measure(cupy, items, options.seconds)
        except (cupy.cuda.runtime.CUDARuntimeError, cupy.cuda.driver.CUDADriverError, MemoryError) as error:
            left_out.append(f"{family}/{size}: {error}")
            continue
        after = clock()
        for item in items:
            results.append(item.summary() | {"clock_mhz": [before[0], after[0]]})
        print(f"{family}/{size}: {len(items)} launches, {time.perf_counter() - begun:.0f} s", flush=True)
        del items
        cupy.get_default_memory_pool().free_all_blocks()
        if sum(array.nbytes for array in cache.values()) > 4 << 30:
            cache.clear()
        _write(options.out, {"header": header, "left_out": left_out, "times": results})
    _write(options.out, {"header": header, "left_out": left_out, "times": results})
    return 0


def _write(path: Path, content: dict[str, Any]) -> None:
    """Replace a file by what is known so far."""
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file, gzip.open(file, "wt") as stream:
        json.dump(content, stream)
    os.replace(file.name, path)


if __name__ == "__main__":
    sys.exit(main())
