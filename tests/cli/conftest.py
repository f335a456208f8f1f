"""Running the command line in this process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpusim.cli import main

SOURCE = """\
extern "C" __global__ void scale(float *a, float factor, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        a[i] *= factor;
}

extern "C" __global__ void wide(float4 *a, int offset)
{
    float4 *moved = (float4 *)((char *)a + offset);
    moved[threadIdx.x] = make_float4(0, 1, 2, 3);
}

extern "C" __global__ void dynamic(float *a)
{
    extern __shared__ float tile[];
    tile[threadIdx.x] = a[threadIdx.x];
    __syncthreads();
    a[threadIdx.x] = tile[threadIdx.x ^ 1];
}

struct Pair { int first, second; };

extern "C" __global__ void pair(int *out, Pair p) { out[threadIdx.x] = p.first + p.second; }
"""

TEMPLATE = """\
template <class T, int N>
__global__ void turn(T *out, const T *in, int n)
{
    __shared__ T tile[N][N];
    int x = threadIdx.x, y = threadIdx.y;
    tile[y][x] = in[y * n + x];
    __syncthreads();
    out[y * n + x] = tile[x][y];
}
"""


@dataclass(frozen=True)
class Outcome:
    """What a command left: exit code, standard output and standard error."""

    code: int
    out: str
    err: str

    @property
    def words(self) -> str:
        """Standard output without its line breaks, which depend on how long paths are."""
        return " ".join(self.out.split())

    @property
    def flat(self) -> str:
        """Standard output with single blanks for blanks and line ends."""
        return " ".join(self.out.split())

    @property
    def sentence(self) -> str:
        """The one sentence of a refusal, which must be all there is."""
        assert self.code == 2, (self.code, self.out, self.err)
        assert self.out == ""
        lines = self.err.splitlines()
        assert len(lines) == 1 and lines[0].startswith("gpusim: ")
        assert "Traceback" not in self.err
        return lines[0].removeprefix("gpusim: ")


Run = Callable[..., Outcome]


@pytest.fixture
def gpusim_run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Call it with the words of a command line, after ``gpusim``."""
    monkeypatch.delenv("COLUMNS", raising=False)

    def run(*words: object) -> Outcome:
        result = CliRunner().invoke(main, [str(word) for word in words])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Outcome(result.exit_code, result.stdout, result.stderr)

    return run


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "some.cu"
    path.write_text(SOURCE)
    return path


@pytest.fixture
def template(tmp_path: Path) -> Path:
    path = tmp_path / "turn.cu"
    path.write_text(TEMPLATE)
    return path
