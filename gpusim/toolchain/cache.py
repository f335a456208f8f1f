"""Compilations and disassemblies kept on disk, found by content.

An entry's name is the digest of everything that it depends on, so entries never become stale and need no locking:
two processes that make the same entry write the same bytes.  An entry is written to a temporary file that is renamed
into place, carries the digest of its own content, and is ignored (and made anew) if that does not fit.

The cache is in ``$GPUSIM_CACHE_DIR``, else ``$XDG_CACHE_HOME/gpusim``, else ``~/.cache/gpusim``.  Where it cannot be
written, everything works without it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .tools import cuda_include_directories, cuda_include_identity

#: Part of every key: to be raised when the content or the meaning of entries changes.
FORMAT_VERSION = 1
#: Size in bytes to which the first write of a process shrinks the cache, oldest entries first.
LARGEST_CACHE_BYTES = 512 << 20
#: A source with more than this much in included files (bytes) is compiled anew every time.
LARGEST_CLOSURE_BYTES = 64 << 20

_MAGIC = b"gpusim-cache "
_DIGEST_LENGTH = 64
#: Directives that name a file, and the test for one.  What is in comments or inactive branches is found as well:
#: that makes a key depend on too much, never on too little.
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*(?:include|import|embed)[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>)', re.M)
_HAS_INCLUDE = re.compile(r'__has_(?:include|embed)\s*\(\s*(?:"([^"\n]+)"|<([^>\n]+)>)')
#: Includes whose file only the preprocessor knows.
_UNKNOWN_INCLUDE = re.compile(
    r'#[ \t]*(?:include_next\b|(?:include|import|embed)\b[ \t]*[^"<\s])|\\\r?\n.*include', re.M
)
_PRE_INCLUDE = ("-include=", "--pre-include=")


@dataclass(frozen=True)
class CompiledEntry:
    """A cached compilation: the fields of :class:`~gpusim.toolchain.nvrtc.Compiled` that the key does not tell."""

    cubin: bytes
    lowered: dict[str, str]
    log: str


def default_directory() -> Path | None:
    """Where the cache is, None if the environment gives no place for one."""
    override = os.environ.get("GPUSIM_CACHE_DIR")
    if override:
        return Path(override)
    base = os.environ.get("XDG_CACHE_HOME")
    if base and os.path.isabs(base):
        return Path(base, "gpusim")
    with suppress(RuntimeError):
        return Path.home() / ".cache" / "gpusim"
    return None


class Cache:
    """A cache in one directory; with ``directory`` None, one that keeps nothing."""

    def __init__(self, directory: Path | None) -> None:
        self.directory = directory
        self._pruned = False

    # compilations

    def source_key(
        self, source: str, command: Sequence[str], names: Sequence[str], path: str, compiler: str
    ) -> str | None:
        """The key of a compilation, None if it depends on files that cannot be told without compiling.

        ``command`` are the compiler's options, with "-I<directory>" in the order of searching; ``path`` is the name
        of the source, which is in the line table and whose directory is searched first.
        """
        if self.directory is None:
            return None
        closure = _closure(source, command, os.path.dirname(os.path.abspath(path)))
        if closure is None:
            return None
        # a relative name is completed by the compiler with the current directory
        parts = [FORMAT_VERSION, compiler, list(command), list(names), os.path.abspath(path), closure, source]
        return _digest(json.dumps(parts).encode())

    def load_compiled(self, key: str) -> CompiledEntry | None:
        """The compilation of that key, None if there is none."""
        payload = self._load("compiled", key)
        if payload is None:
            return None
        try:
            header, cubin = payload.split(b"\n", 1)
            facts = json.loads(header)
            return CompiledEntry(cubin, dict(facts["lowered"]), str(facts["log"]))
        except (ValueError, LookupError, TypeError):
            return None

    def store_compiled(self, key: str, cubin: bytes, lowered: dict[str, str], log: str) -> None:
        """Keep a compilation; does nothing where the cache cannot be written."""
        header = json.dumps({"lowered": lowered, "log": log}).encode()
        self._store("compiled", key, header + b"\n" + cubin)

    # disassemblies

    def load_listing(self, cubin_sha256: str, tool: str) -> Any | None:
        """What nvdisasm of version ``tool`` said about a cubin (parsed JSON), None if that is not kept."""
        payload = self._load("listing", _listing_key(cubin_sha256, tool))
        if payload is None:
            return None
        try:
            return json.loads(zlib.decompress(payload))
        except (ValueError, zlib.error):
            return None

    def store_listing(self, cubin_sha256: str, tool: str, listing: Any) -> None:
        """Keep what nvdisasm said; does nothing where the cache cannot be written."""
        self._store("listing", _listing_key(cubin_sha256, tool), zlib.compress(json.dumps(listing).encode(), 6))

    # files

    def _path(self, kind: str, key: str) -> Path:
        assert self.directory is not None
        return self.directory / kind / key[:2] / key

    def _load(self, kind: str, key: str) -> bytes | None:
        if self.directory is None:
            return None
        try:
            content = self._path(kind, key).read_bytes()
        except OSError:
            return None
        start = len(_MAGIC) + _DIGEST_LENGTH + 1
        payload = content[start:]
        if content[:start] != _MAGIC + _digest(payload).encode() + b"\n":
            return None
        return payload

    def _store(self, kind: str, key: str, payload: bytes) -> None:
        if self.directory is None:
            return
        path = self._path(kind, key)
        temporary = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(prefix=".new-", dir=path.parent)
            with os.fdopen(handle, "wb") as file:
                file.write(_MAGIC + _digest(payload).encode() + b"\n" + payload)
            os.replace(temporary, path)
        except OSError:
            if temporary is not None:
                with suppress(OSError):
                    os.unlink(temporary)
            return
        if not self._pruned:
            self._pruned = True
            self.prune()

    def prune(self, limit: int = LARGEST_CACHE_BYTES) -> None:
        """Remove the oldest entries until at most ``limit`` bytes are left."""
        if self.directory is None:
            return
        entries = []
        for kind in ("compiled", "listing"):
            for path in (self.directory / kind).glob("*/*"):
                with suppress(OSError):
                    status = path.stat()
                    entries.append((status.st_mtime, status.st_size, path))
        total = sum(size for _, size, _ in entries)
        for _, size, path in sorted(entries):
            if total <= limit:
                break
            with suppress(OSError):
                path.unlink()
            total -= size


def default_cache() -> Cache:
    """The user's cache, as the environment says now."""
    return Cache(default_directory())


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _listing_key(cubin_sha256: str, tool: str) -> str:
    return _digest(f"{FORMAT_VERSION} {tool} {cubin_sha256}".encode())


def _closure(source: str, command: Sequence[str], directory: str) -> list[list[str]] | None:
    """[name, file, digest] of every file that the source includes, directly or not; None if that cannot be told.

    CUDA's own headers are not opened: which ones there are is told by the version of their packages.
    """
    search = [option[2:] for option in command if option.startswith("-I")]
    own = [str(path) for path in cuda_include_directories()]
    found: list[list[str]] = [["", "", cuda_include_identity()]]
    seen: set[str] = set()
    total = 0
    waiting = [(source, directory)]
    for option in command:
        if option.startswith(_PRE_INCLUDE):
            waiting.append((f'#include "{option.split("=", 1)[1]}"\n', os.getcwd()))
    while waiting:
        text, here = waiting.pop()
        if _UNKNOWN_INCLUDE.search(text):
            return None
        for quoted, angled in _INCLUDE.findall(text) + _HAS_INCLUDE.findall(text):
            name = quoted or angled
            places = ([here] if quoted else []) + search
            paths = [os.path.normpath(os.path.join(place, name)) for place in places]
            path = next((path for path in paths if os.path.isfile(path)), "")
            if not path or any(path.startswith(place + os.sep) for place in own):
                found.append([name, path, "system" if path else "missing"])
            elif path not in seen:
                seen.add(path)
                try:
                    content = Path(path).read_bytes()
                except OSError:
                    return None
                total += len(content)
                if total > LARGEST_CLOSURE_BYTES:
                    return None
                found.append([name, path, _digest(content)])
                waiting.append((content.decode(errors="replace"), os.path.dirname(path)))
    return sorted(found)
