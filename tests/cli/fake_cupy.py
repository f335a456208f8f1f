"""As much of CuPy as gpusim.runner.device uses, without a GPU: launches are executed by the simulator.

Times are made up (a nanosecond for each thread of a launch), so that nothing can be learned from them; what can be
tested is what is done with them, and what is said when things go wrong.
"""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np

import gpusim


class CudaError(RuntimeError):
    """Like CUDARuntimeError: has CUDA's number."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class OutOfMemoryError(MemoryError):
    """As CuPy's."""


class Array:
    """An array of the device."""

    def __init__(self, machine: FakeCupy, shape: Any, dtype: Any) -> None:
        self.machine, self.host = machine, np.zeros(shape, dtype)
        self.nbytes = self.host.nbytes
        self.data = self

    def set(self, array: np.ndarray) -> None:
        self.host[...] = array

    def memset_async(self, value: int, size: int, stream: Any) -> None:
        self.machine.passes(1e-9 * size / 1000)

    def copy_from_device_async(self, source: Array, size: int, stream: Any) -> None:
        self.machine.passes(1e-9 * size / 1000)


class Event:
    at = 0.0

    def __init__(self, machine: FakeCupy) -> None:
        self.machine = machine

    def record(self, stream: Any) -> None:
        self.at = self.machine.now

    def synchronize(self) -> None:
        pass


class Stream:
    def __init__(self, machine: FakeCupy) -> None:
        self.machine = machine

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *about: Any) -> None:
        pass

    def synchronize(self) -> None:
        if self.machine.failure is not None:
            raise self.machine.failure

    def begin_capture(self) -> None:
        self.machine.captured = 0.0

    def end_capture(self) -> Any:
        seconds, self.machine.captured = self.machine.captured, None
        return SimpleNamespace(launch=lambda stream: self.machine.passes(seconds))


class FakeCupy:
    """The module: put it into ``sys.modules["cupy"]``."""

    __version__ = "0.fake"

    def __init__(self, arch: int = 90, driver: int = 13000, runtime: int = 13020, count: int = 1) -> None:
        self.now, self.captured, self.launched = 0.0, None, []
        self.failure: CudaError | None = None  # of the next synchronisation
        self.free, self.current = 8 << 30, []
        properties = {
            "name": b"Fake GPU", "major": arch // 10, "minor": arch % 10, "multiProcessorCount": 2,
            "totalGlobalMem": 16 << 30, "l2CacheSize": 1 << 20,
        }  # fmt: skip
        self.runtime = SimpleNamespace(
            driverGetVersion=lambda: driver,
            runtimeGetVersion=lambda: runtime,
            getDeviceCount=lambda: count,
            getDeviceProperties=lambda number: properties,
            memGetInfo=lambda: (self.free, 16 << 30),
        )
        self.cuda = SimpleNamespace(
            runtime=self.runtime,
            Device=self._device,
            MemoryPool=lambda: SimpleNamespace(malloc=None, free_bytes=lambda: 0, free_all_blocks=lambda: None),
            using_allocator=lambda malloc: self._nothing(),
            Stream=lambda non_blocking: Stream(self),
            Event=lambda: Event(self),
            get_elapsed_time=lambda start, end: 1e3 * (end.at - start.at),
        )

    def passes(self, seconds: float) -> None:
        """Time goes on, on the device or in what is being captured."""
        if self.captured is not None:
            self.captured += seconds
        else:
            self.now += seconds

    @contextmanager
    def _nothing(self) -> Any:
        yield

    def _device(self, number: int) -> Any:
        @contextmanager
        def current() -> Any:
            self.current.append(number)
            try:
                yield
            finally:
                self.current.pop()

        context = current()
        context.pci_bus_id = "0000:00:00.0"  # type: ignore[attr-defined]
        return context

    def empty(self, shape: Any, dtype: Any) -> Array:
        if int(np.prod(shape)) * np.dtype(dtype).itemsize > self.free:
            raise OutOfMemoryError("out of memory allocating")
        if np.prod(shape) > 1 << 27:  # what is only written or copied needs no memory here
            array = Array(self, 0, dtype)
            array.nbytes = int(np.prod(shape))
            return array
        return Array(self, shape, dtype)

    def asnumpy(self, array: Array) -> np.ndarray:
        return array.host.copy()

    def RawModule(self, path: str) -> Any:
        module = gpusim.load(path)

        def function(name: str) -> Any:
            def launch(grid: Any, block: Any, args: Any, shared_mem: int = 0) -> None:
                if self.captured is None and (name, id(args)) not in self.launched:
                    self.launched.append((name, id(args)))  # later runs only take time
                    hosts = [a.host if isinstance(a, Array) else a for a in args]
                    module[name].launch(grid, block, hosts, shared_mem)
                self.passes(1e-9 * int(np.prod(grid)) * int(np.prod(block)))

            return launch

        return SimpleNamespace(get_function=function)
