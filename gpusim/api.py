"""The public interface: compile or load a module, pick a kernel, launch or count it."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpusim.arguments import place
from gpusim.counters.collect import Collector
from gpusim.errors import CompileError, InputError, UsageError
from gpusim.explain.patterns import PatternSampler
from gpusim.machine import DeviceMemory, Engine, Listener, compile_program
from gpusim.machine.compiled import Compiled
from gpusim.machine.counting import Counting, GridCounter
from gpusim.machine.engine import chunk_size
from gpusim.machine.limits import check_shape, limits_of, occupancy, triple
from gpusim.machine.memory import DEFAULT_BASE, GUARD_BYTES, Spare
from gpusim.machine.runtime import CALLABLE, Runtime
from gpusim.result import Finished, LaunchFacts, Result, build_result
from gpusim.sass import Program
from gpusim.sass.instruction import Location, decode
from gpusim.toolchain import (
    Cubin,
    FunctionInfo,
    LinkedImage,
    RawInstruction,
    compile_source,
    default_cache,
    disassemble,
    link,
    load_image,
    parse_cubin,
)

if TYPE_CHECKING:
    from gpusim.timing.predict import Prediction

Progress = Callable[[int, int], None]
POINTER_BANK = 2  # constant bank with the addresses that function pointers, which are offsets into it, stand for
SIZE_OF_STACK_AND_SLACK = 1024  # bytes of local memory a thread has besides the stack its kernel states


class Kernel:
    """One kernel of a module; made by ``module[name]``."""

    def __init__(self, module: Module, function: FunctionInfo) -> None:
        self.module, self.function = module, function

    @property
    def name(self) -> str:
        """Readable name, such as ``transpose<32>``."""
        return self.function.demangled

    def __repr__(self) -> str:
        return f"<gpusim kernel {self.name} for sm_{self.module.cubin.arch}>"

    @cached_property
    def program(self) -> Program:
        """The decoded instructions."""
        raw = self.module.listing[self.function.name]
        return Program([self._decoded(r) for r in raw], self.function.branch_targets, self._entries())

    def _entries(self) -> set[int]:
        """Where calls through pointers may go: the functions in the kernel's code and those its pointer table names."""
        table = self.module.linked.banks(self.function.name).get(POINTER_BANK, b"")
        named = {int.from_bytes(table[k : k + 8], "little") for k in range(0, len(table) - 7, 8)}
        return named | {part.address for part in self.function.subroutines}

    def _decoded(self, raw: RawInstruction) -> Any:
        line = self.function.line_at(raw.address)
        at = Location(line.file, line.line) if line else None
        return decode(raw.address, raw.predicate, raw.opcode, raw.operands, raw.text, raw.encoding, at)

    @cached_property
    def _compiled(self) -> Any:
        return compile_program(self.program)

    @cached_property
    def _counting(self) -> Counting:
        return Counting.of(self.program)

    @cached_property
    def _points_to_parameters(self) -> bool:
        """Whether the code reads the driver's pointer to the parameters, to load from them (``__grid_constant__``)."""
        place = f"c[0x0][{self._parameters_at:#x}]"
        return any(place in instruction.text for instruction in self.program.instructions)

    @property
    def _parameters_at(self) -> int:
        """Where bank 0 has a generic pointer to the parameters; read off compiled code for each architecture."""
        arch = self.module.cubin.arch
        return 0x40 if arch < 90 else 0x198 if arch < 100 else 0x348

    @property
    def counts_depend_on_memory(self) -> bool:
        """Whether counters may depend on the contents of global memory (which earlier launches may have written)."""
        part = self._counting.part
        return part is None or part.reads_global

    # -- running ----------------------------------------------------------------------------------------------------
    def launch(
        self,
        grid: Any,
        block: Any,
        args: Sequence[Any],
        shared_bytes: int = 0,
        *,
        listeners: tuple[Listener, ...] = (),
        progress: Progress | None = None,
    ) -> Result:
        """Execute the kernel and write the buffers back into the arrays of ``args``.

        ``grid``, ``block``: ints or 1 to 3-tuples.  ``args``: NumPy arrays (device buffers) and NumPy scalars in
        parameter order, by-value structs as void scalars, None for a null pointer.  ``shared_bytes``: dynamic shared
        memory.  On an error (UsageError, UnsupportedError, ExecutionError) no array has changed.
        """
        return self._run(grid, block, args, shared_bytes, True, listeners, progress)

    def count(
        self,
        grid: Any,
        block: Any,
        args: Sequence[Any],
        shared_bytes: int = 0,
        *,
        listeners: tuple[Listener, ...] = (),
        progress: Progress | None = None,
    ) -> Result:
        """Exact counters of the launch; the arrays of ``args`` are left as they are.

        Only what can reach an address, a predicate or a branch is computed, for all blocks at once where their values
        are separable (see gpusim.machine.symbolic), and ``result.path`` says which way was taken.  ``listeners`` hear
        every access, so with them all blocks are executed.
        """
        return self._run(grid, block, args, shared_bytes, False, listeners, progress)

    def predict(
        self,
        grid: Any,
        block: Any,
        args: Sequence[Any],
        shared_bytes: int = 0,
        device: str = "h200",
        cache: str = "cold",
        model: str = "auto",
    ) -> Prediction:
        """The launch's time on ``device`` (a profile's name, or a file of ``gpusim calibrate``), modelled.

        ``cache``: "cold" (L2 flushed before the launch) or "hot".  ``model``: "pipeline" (warp by warp; needs numba),
        "bounds" (throughput limits), or "auto": the first if it can be had.  The arrays of ``args`` are left as they
        are.  Raises UsageError for a device that has no profile.
        """
        from gpusim.timing.predict import predict

        return predict(self, grid, block, args, shared_bytes, device, cache, model)

    def facts(self, grid: tuple[int, int, int], block: tuple[int, int, int], shared_bytes: int) -> LaunchFacts:
        """What a launch of this kernel is, for reports."""
        function, cubin = self.function, self.module.cubin
        return LaunchFacts(
            kernel=function.demangled,
            mangled=function.name,
            arch=f"sm_{cubin.arch}",
            grid=grid,
            block=block,
            shared_static=function.shared_static,
            shared_dynamic=shared_bytes,
            registers=function.registers,
            local_bytes=function.local_bytes or function.frame_bytes,
            toolkit=cubin.toolkit,
            cubin_sha256=cubin.sha256,
            code_sha256=function.code_sha256,
            nvrtc_version=self.module.nvrtc_version,
        )

    def _check(self, grid: Any, block: Any, shared_bytes: int) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        """Validate a launch as the driver would.  Raises UsageError."""
        shape, threads = triple(grid, "grid"), triple(block, "block")
        check_shape(shape, threads)
        function, limits = self.function, limits_of(self.module.cubin.arch)
        count = threads[0] * threads[1] * threads[2]
        if function.max_threads is not None and count > function.max_threads:
            raise UsageError(
                f"the block {threads} has {count} threads, but {self.name} was compiled for at most "
                f"{function.max_threads} (__launch_bounds__)"
            )
        if function.required_block is not None and tuple(function.required_block) != threads:
            raise UsageError(f"{self.name} insists on blocks of {function.required_block}, not {threads}")
        if isinstance(shared_bytes, bool) or int(shared_bytes) != shared_bytes or shared_bytes < 0:
            raise UsageError(f"shared_bytes must be a whole number of bytes, not {shared_bytes!r}")
        total = function.shared_static + int(shared_bytes)
        if total > limits.shared_per_block:
            raise UsageError(
                f"{total} bytes of shared memory a block ({function.shared_static} static, {shared_bytes} dynamic) "
                f"are too much: sm_{self.module.cubin.arch} allows {limits.shared_per_block}"
            )
        if occupancy(self.module.cubin.arch, count, function.registers, 0).limit_registers < 1:
            raise UsageError(
                f"a block of {count} threads with {function.registers} registers each does not fit a "
                f"multiprocessor ({limits.registers} registers): use a smaller block or __launch_bounds__"
            )
        return shape, threads

    def prepare(self, grid: Any, block: Any, args: Sequence[Any], shared_bytes: int = 0) -> Prepared:
        """A launch with its device memory, checked and ready to be executed in whole or in part.  Raises UsageError."""
        shape, threads = self._check(grid, block, shared_bytes)
        function, module = self.function, self.module
        memory = DeviceMemory(module.memory_base, module.spare)
        variables = module.add_variables(memory)
        bound = place(function, args, memory)
        copied = 0
        if self._points_to_parameters:
            copied = memory.add("the kernel's parameters", bound.parameters, writable=False).start
        memory.build()
        local_bytes = self._local_bytes()
        banks = self._banks(shape, threads, bound.parameters, local_bytes)
        if copied:
            at = self._parameters_at
            if module.cubin.arch < 90:  # there it is the bank that is pointed to
                copied -= function.param_base
            banks[0] = banks[0][:at] + copied.to_bytes(8, "little") + banks[0][at + 8 :]
        return Prepared(
            self,
            shape,
            threads,
            int(shared_bytes),
            memory,
            bound,
            variables,
            banks,
            module.runtime(function),
            tuple(args),
        )

    def _run(
        self,
        grid: Any,
        block: Any,
        args: Sequence[Any],
        shared_bytes: int,
        write_back: bool,
        listeners: tuple[Listener, ...],
        progress: Progress | None,
    ) -> Result:
        ready = self.prepare(grid, block, args, shared_bytes)
        shape, threads, memory, bound = ready.grid, ready.block, ready.memory, ready.bound
        function, module, runtime = self.function, self.module, ready.runtime
        collector, sampler = Collector(self.program), PatternSampler(self.program)
        hearing: tuple[Listener, ...] = (collector, sampler, *listeners)

        def engine_of(kind: type[Engine], compiled: Compiled) -> Engine:
            return ready.engine(kind, compiled, hearing)

        _tell(listeners, "started")
        path, executed = "full execution", shape[0] * shape[1] * shape[2]
        if write_back or listeners:
            engine = engine_of(Engine, self._compiled)
            tally = engine.run(progress)
            uncertain = engine.flow.caveats
        else:
            counter = GridCounter(self._counting, shape, memory, engine_of)
            tally = counter.run(collector, sampler, progress)
            uncertain, path, executed = counter.caveats, counter.path.sentence(), counter.path.executed
        if write_back:
            bound.write_back(memory)
            module.keep_variables(memory, ready.variables)
        memory.end()
        facts = self.facts(shape, threads, int(shared_bytes))
        caveats = frozenset(uncertain | runtime.caveats)
        done = Finished(
            facts,
            self.program,
            tally,
            function.barriers,
            path=path,
            blocks_executed=executed,
            source=module.source_lines(),
            caveats=caveats,
            output=runtime.output,
        )
        _tell(listeners, "finished", done)
        return build_result(done, collector, sampler)

    def _local_bytes(self) -> int:
        stack = self.function.local_bytes or self.function.frame_bytes or 0
        return -(-(stack + SIZE_OF_STACK_AND_SLACK) // 16) * 16

    def _banks(
        self,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        parameters: bytes,
        local_bytes: int,
    ) -> dict[int, bytes]:
        """Constant banks: the module's and, in bank 0, the launch's shape, stack pointer and parameters.

        Where things lie in bank 0 was read off compiled code for each architecture.
        """
        import struct

        from gpusim.machine.lanes import MULTIPROCESSORS
        from gpusim.machine.memory import LOCAL_WINDOW, SHARED_WINDOW

        banks = dict(self.module.linked.banks(self.function.name))
        base = self.function.param_base
        zero = bytearray(max(base + len(parameters), len(banks.get(0, b"")), 0x400))
        zero[: len(banks.get(0, b""))] = banks.get(0, b"")
        recent = self.module.cubin.arch >= 100
        struct.pack_into("<3I", zero, 0x360 if recent else 0x0, *block)
        struct.pack_into("<3I", zero, 0x370 if recent else 0xC, *grid)
        struct.pack_into("<I", zero, 0x37C if recent else 0x28, local_bytes)
        # %gridid and %nsmid: defined, not exact (the driver's number of the launch; smid is a number below 132, too)
        struct.pack_into("<Q", zero, 0x140 if recent else 0x30, 1)
        struct.pack_into("<I", zero, 0x2D0 if recent else 0x10C, MULTIPROCESSORS)
        struct.pack_into("<QQ", zero, 0x2F0 if recent else 0x18, SHARED_WINDOW, LOCAL_WINDOW)
        zero[base : base + len(parameters)] = parameters
        banks[0] = bytes(zero)
        return banks


@dataclass(frozen=True)
class Prepared:
    """A launch whose arguments lie in simulated device memory.  ``shared_bytes``: dynamic ones."""

    kernel: Kernel
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    memory: DeviceMemory
    bound: Any
    variables: Any
    banks: dict[int, bytes]
    runtime: Runtime
    args: tuple[Any, ...]

    def engine(
        self,
        kind: type[Engine],
        compiled: Compiled,
        listeners: tuple[Listener, ...] = (),
        chunk_threads: int | None = None,
    ) -> Engine:
        """An engine for it; ``chunk_threads``: threads that execute together, as suits the caches if None."""
        function = self.kernel.function
        static_end = -(-(function.shared_reserved + function.shared_static) // 16) * 16
        return kind(
            compiled,
            self.grid,
            self.block,
            self.memory,
            self.banks,
            shared_bytes=-(-(static_end + self.shared_bytes) // 16) * 16,
            shared_start=function.shared_reserved,
            local_bytes=self.kernel._local_bytes(),
            listeners=listeners,
            chunk_threads=chunk_size(function.registers) if chunk_threads is None else chunk_threads,
            runtime=self.runtime,
        )


class Module(Mapping[str, Kernel]):
    """The kernels of one cubin, by name expression, ``extern "C"`` name, readable or mangled name."""

    def __init__(
        self,
        cubin: Cubin,
        *,
        lowered: Mapping[str, str] | None = None,
        sources: Mapping[str, str] | None = None,
        log: str = "",
        nvrtc_version: str | None = None,
        memory_base: int = DEFAULT_BASE,
    ) -> None:
        limits_of(cubin.arch)
        self.cubin, self.log, self.nvrtc_version = cubin, log, nvrtc_version
        self.lowered = dict(lowered or {})
        self.sources = dict(sources or {})
        self.memory_base = memory_base
        self._kernels: dict[str, Kernel] = {}
        self._variables: bytes | None = None
        self.spare = Spare()

    # -- what is inside ---------------------------------------------------------------------------------------------
    @cached_property
    def linked(self) -> LinkedImage:
        first = self.memory_base + GUARD_BYTES
        unlinked = link(self.cubin, global_base=first)
        size = len(unlinked.global_data)
        # buffers follow one another with a guard zone between, at 256-byte steps (see DeviceMemory.add)
        after = first + -(-(size + GUARD_BYTES) // 256) * 256 if size else first
        return link(self.cubin, global_base=first, constant_base=after)

    @cached_property
    def listing(self) -> dict[str, list[RawInstruction]]:
        return disassemble(self.cubin, self.linked, cache=default_cache())

    def runtime(self, function: FunctionInfo) -> Runtime:
        """The driver's functions for a launch of one of the kernels."""
        names = {address: name for name, address in self.linked.externals.items()}
        at = self.linked.addresses
        separate = {at[other]: info.demangled for other, info in self.cubin.functions.items() if other != function.name}
        return Runtime(names, at[function.name], separate)

    def unknown_functions(self) -> list[str]:
        """Functions of the device runtime that the module refers to and gpusim cannot carry out."""
        return sorted(self.linked.externals.keys() - set(CALLABLE))

    def add_variables(self, memory: DeviceMemory) -> Any:
        """Put the module's __device__ and __constant__ variables into device memory, where the code expects them."""
        data = self._variables if self._variables is not None else self.linked.global_data
        buffer = None
        if data:
            buffer = memory.add("the module's __device__ variables", data)
            if buffer.start != self.linked.global_base:
                raise AssertionError("the module's variables are not where they were linked")
        constants = self.linked.constants.get(3, b"")
        if constants:
            memory.add("the module's __constant__ variables", constants, writable=False)
        return buffer

    def keep_variables(self, memory: DeviceMemory, buffer: Any) -> None:
        """__device__ variables keep their values from launch to launch, as on a GPU."""
        if buffer is not None:
            self._variables = memory.read(buffer).tobytes()

    def __getitem__(self, name: str) -> Kernel:
        mangled = self._resolve(name)
        if mangled not in self._kernels:
            self._kernels[mangled] = Kernel(self, self.cubin.functions[mangled])
        return self._kernels[mangled]

    def __iter__(self) -> Iterator[str]:
        return iter([f.demangled for f in self.cubin.kernels.values()])

    def __len__(self) -> int:
        return len(self.cubin.kernels)

    def __contains__(self, name: object) -> bool:
        try:
            self._resolve(str(name))
        except UsageError:
            return False
        return True

    def _resolve(self, name: str) -> str:
        kernels = self.cubin.kernels
        if self.lowered.get(name) in kernels:
            return self.lowered[name]
        if name in kernels:
            return name
        plain = _squeeze(name)
        for matches in (
            [f.name for f in kernels.values() if _squeeze(f.demangled) == plain],
            [f.name for f in kernels.values() if _squeeze(f.signature) == plain],
            [f.name for f in kernels.values() if _squeeze(f.demangled).split("<")[0].split("::")[-1] == plain],
        ):
            if len(matches) == 1:
                return matches[0]
            if matches:
                inside = ", ".join(kernels[m].demangled for m in matches)
                raise UsageError(f"kernel {name!r} is ambiguous: choose one of {inside}")
        known = [f.demangled for f in kernels.values()]
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.4)
        hint = f"nearest: {', '.join(near)}" if near else f"it has {', '.join(known) or 'none'}"
        raise UsageError(f"there is no kernel {name!r} in this module: {hint}")

    def source_lines(self) -> dict[str, list[str]]:
        """Source text by file, as far as it can be had: what was compiled, else the file if it is there."""
        found = {name: text.splitlines() for name, text in self.sources.items()}
        for function in self.cubin.kernels.values():
            for entry in function.lines:
                if entry.file in found:
                    continue
                found[entry.file] = []
                try:
                    found[entry.file] = Path(entry.file).read_text(errors="replace").splitlines()
                except OSError:
                    continue
        return found


def _tell(listeners: Sequence[Listener], what: str, *about: Any) -> None:
    """Call the method ``what`` of the listeners that have it: ``started()`` and ``finished(Finished)`` are optional."""
    for listener in listeners:
        method = getattr(listener, what, None)
        if method is not None:
            method(*about)


def _squeeze(name: str) -> str:
    return "".join(name.split())


def _read_source(source: str | os.PathLike[str]) -> tuple[str, str]:
    """(text, file name): a path is read, anything with a line break or a brace is source text."""
    text = os.fspath(source)
    if "\n" in text or "{" in text:
        return text, "kernel.cu"
    try:
        return Path(text).read_text(), text
    except UnicodeDecodeError:
        raise InputError(f"{text} is not a CUDA source: it is not text; load a cubin with gpusim.load") from None
    except OSError as error:
        raise InputError(f"cannot read {text}: {error.strerror}") from None


def compile(
    path_or_source: str | os.PathLike[str],
    arch: str | int | None = None,
    options: Sequence[str] = (),
    names: Sequence[str] = (),
    *,
    filename: str | None = None,
    cache: bool = True,
    memory_base: int = DEFAULT_BASE,
) -> Module:
    """Compile CUDA C++ (a path, or the text itself) with NVRTC for a real architecture (default sm_90).

    ``options`` as for nvcc or NVRTC (``-D``, ``-I``, ``--use_fast_math`` ...), ``names``: C++ name expressions such as
    ``"matmul<128, 8>"`` to instantiate.  Raises CompileError, whose ``log`` is the compiler's text.
    """
    text, name = _read_source(path_or_source)
    name = filename or name
    made = compile_source(
        text,
        arch=arch,
        options=options,
        names=names,
        filename=name,
        cache=default_cache() if cache else None,
    )
    cubin = parse_cubin(made.cubin)
    if not cubin.kernels:
        raise CompileError(
            f"{name} compiles, but holds no kernel: a template kernel must be named, for example 'k<float>'", made.log
        )
    path = os.path.abspath(name)  # what the line table says, also of a source that is not in a file
    return Module(
        cubin,
        lowered=made.lowered,
        sources={path: text, name: text},
        log=made.log,
        nvrtc_version=made.nvrtc_version,
        memory_base=memory_base,
    )


def load(
    path_or_bytes: str | os.PathLike[str] | bytes,
    arch: str | None = None,
    kernel: str | None = None,
    *,
    memory_base: int = DEFAULT_BASE,
) -> Module:
    """Load a cubin, or pick one (by ``arch``) from a fatbin, object file or executable made by nvcc."""
    data = path_or_bytes if isinstance(path_or_bytes, bytes) else Path(path_or_bytes)
    return Module(parse_cubin(load_image(data, arch, kernel)), memory_base=memory_base)
