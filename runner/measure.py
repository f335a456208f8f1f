"""Time the launches of a plan on a GPU: ``python runner/measure.py PLAN OUT.json.gz``.

Runs as a plain file on a machine with a GPU and CuPy, with only NumPy besides; see :mod:`gpusim.runner.replay` for the
plan, and :mod:`gpusim.runner.sampling` for how times are taken.  The launches of one ``family`` and ``size`` take
turns.  Results are not checked: that is what ``gpusim validate`` does.
"""

from __future__ import annotations

import argparse
import datetime
import gzip
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from nvml import Nvml  # type: ignore[import-not-found]  # run as a plain file, beside these
from replay import make_buffer  # type: ignore[import-not-found]
from sampling import Criterion, CupyWatch, Timed, take_turns  # type: ignore[import-not-found]


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
    items: list[Timed] = []
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
        item = Timed(launch["id"], _runner(launch, kernel, tuple(args)))
        item.run()
        cupy.cuda.Device().synchronize()
        items.append(item)
    return items


def _runner(launch: dict[str, Any], kernel: Any, args: tuple[Any, ...]) -> Callable[[], None]:
    def run() -> None:
        kernel(tuple(launch["grid"]), tuple(launch["block"]), args, shared_mem=launch.get("shared", 0))

    return run


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
    nvml = Nvml.open(str(cupy.cuda.Device(0).pci_bus_id))
    watch = CupyWatch(cupy, properties["l2CacheSize"], nvml.clock if nvml is not None else lambda: None)
    criterion = Criterion.of(options.seconds)
    header = {
        "device": properties["name"].decode(),
        "driver": nvml.driver() if nvml is not None else "unknown",
        "cuda": cupy.cuda.runtime.runtimeGetVersion(),
        "cupy": cupy.__version__,
        "l2_bytes": properties["l2CacheSize"],
        "date": datetime.date.today().isoformat(),
        "command": "python runner/measure.py PLAN OUT.json.gz",
        "seconds": options.seconds,
        "copy_bytes_per_second": watch.copy_bandwidth(),
    }
    results: list[dict[str, Any]] = []
    cache: dict[str, Any] = {}
    left_out = []
    for (family, size), launches in groups_of(plan["launches"]).items():
        if time.perf_counter() - begun > options.limit:
            left_out.append(f"{family}/{size}")
            continue
        try:
            with watch:
                items = load(cupy, plan, options.plan.parent, launches, cache)
                take_turns(items, watch, criterion)
        except (cupy.cuda.runtime.CUDARuntimeError, cupy.cuda.driver.CUDADriverError, MemoryError) as error:
            left_out.append(f"{family}/{size}: {error}")
            continue
        results += [item.summary() for item in items]
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
