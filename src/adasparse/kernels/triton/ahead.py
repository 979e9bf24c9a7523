# mypy: disable-error-code="import-untyped, import-not-found"
"""Compilation without a device: the launches of a problem, and the resources that they take."""

import collections
import hashlib
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import triton
from triton._C.libtriton import ir
from triton.backends.amd.compiler import HIPBackend
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import CUDABackend
from triton.compiler import ASTSource
from triton.runtime.jit import create_function_from_signature

from adasparse.kernels.triton import launch, tuning

TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "sm_100": GPUTarget("cuda", 100, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}
#: Shared memory that one program may have, in bytes; for sm_80 that of the smaller cards (8.6, 8.9
#: and 12.x), which share its tiles.
SHARED_LIMITS = {"sm_80": 101376, "sm_90": 232448, "sm_100": 232448, "gfx942": 65536}
_TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"


@dataclass(frozen=True)
class Call:
    """One kernel launch, not carried out."""

    kernel: Any
    arguments: tuple[Any, ...]
    constants: dict[str, Any]
    warps: int
    stages: int

    @property
    def name(self) -> str:
        """Name of the kernel."""
        return str(self.kernel.fn.__name__)

    def specialization(self, target: str) -> tuple[Any, ...]:
        """Everything that Triton compiles this call for; equal for calls that share a binary."""
        _, specialization, _ = self._bound(target)
        return tuple(map(str, specialization))

    def _bound(self, target: str) -> tuple[Any, Any, Any]:
        backend = _backend(target)
        bind = create_function_from_signature(self.kernel.signature, self.kernel.params, backend)
        bound, specialization, options = bind(*self.arguments, **self.constants)
        return bound, specialization, options

    def _source(self, target: str) -> Any:
        bound, specialization, options = self._bound(target)
        _, signature, constants, attributes = self.kernel._pack_args(
            _backend(target), {}, bound, specialization, options
        )
        return ASTSource(self.kernel, signature, constants, attributes)

    @property
    def _options(self) -> dict[str, int]:
        return {"num_warps": self.warps, "num_stages": self.stages}

    def fingerprint(self, target: str) -> str:
        """Hash of everything the machine code follows from: equal means nothing to recompile.

        That is Triton's version, the options, and the kernel after the passes that every target
        shares, which no comment, helper or option that the kernel does not have reaches.
        """
        backend = _backend(target)
        options = backend.parse_options(self._options)
        context = ir.context()
        ir.load_dialects(context)
        backend.load_dialects(context)
        source = self._source(target)
        stages: dict[str, Any] = {}
        backend.add_stages(stages, options, source.language)
        module = source.make_ir(
            TARGETS[target],
            options,
            backend.get_codegen_implementation(options),
            backend.get_module_map(),
            context,
        )
        code = stages["ttir"](module, {}).str_nodebug()
        text = "\n".join((triton.__version__, target, repr(self._options), code))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def compile(self, target: str) -> Any:
        """Compile for one of TARGETS."""
        return triton.compile(self._source(target), target=TARGETS[target], options=self._options)


@dataclass(frozen=True)
class Resources:
    """Registers of a thread, instructions that spill them, bytes of shared memory."""

    registers: int
    spills: int
    shared: int


def _backend(target: str) -> Any:
    backend = HIPBackend if target.startswith("gfx") else CUDABackend
    return backend(TARGETS[target])


@contextmanager
def recorded(target: str, tiles: tuning.Tiles | None = None) -> Iterator[list[Call]]:
    """Collect the launches made inside instead of carrying them out; tensors may be ``meta``."""
    calls: list[Call] = []

    def record(
        kernel: Any, programs: int, *arguments: Any, warps: int, stages: int, **constants: Any
    ) -> None:
        calls.append(Call(kernel, arguments, constants, warps, stages))

    def chosen(*arguments: Any, **named: Any) -> tuning.Tiles:
        return tiles or tuning_default(*arguments, **named)

    tuning_default: Callable[..., tuning.Tiles] = tuning.tiles_for
    with (
        patch.object(launch, "run", record),
        patch.object(tuning, "target_of", lambda device: target),
        patch.object(tuning, "tiles_for", chosen),
    ):
        yield calls


def _tool(name: str, *arguments: str, code: bytes) -> str:
    """Output of a tool that ships with Triton, for a CUDA binary."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(code)
        file.flush()
        command = [str(_TOOLS / name), *arguments, file.name]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def machine_code(compiled: Any) -> str:
    """Assembly text of a compiled kernel."""
    if "amdgcn" in compiled.asm:
        return str(compiled.asm["amdgcn"])
    return _tool("nvdisasm", "-c", code=compiled.asm["cubin"])


def resources(compiled: Any) -> Resources:
    """Resources from the binary: spills are local loads and stores, or AMD's own count."""
    text, shared = machine_code(compiled), compiled.metadata.shared
    if "amdgcn" in compiled.asm:
        numbers = [re.search(rf"\.{x}:\s*(\d+)", text) for x in ("vgpr_count", "vgpr_spill_count")]
        registers, spills = (int(x.group(1)) if x else 0 for x in numbers)
        return Resources(registers, spills, shared)
    usage = re.search(r"REG:(\d+)", _tool("cuobjdump", "-res-usage", code=compiled.asm["cubin"]))
    spills = len(re.findall(r"\b(?:LDL|STL)\b", text))
    return Resources(int(usage.group(1)) if usage else 0, spills, shared)


def inner_loops(compiled: Any) -> list[collections.Counter[str]]:
    """Opcodes of each innermost loop of a CUDA binary."""
    lines: list[tuple[str, str]] = []
    labels: dict[str, int] = {}
    for line in machine_code(compiled).splitlines():
        if label := re.match(r"^(\.L_\S+):", line):
            labels[label.group(1)] = len(lines)
        code = re.match(
            r"^\s+(?:/\*[0-9a-f]+\*/\s+)?(?:@!?U?P\d+\s+)?([A-Z][A-Z0-9_.]*)\b(.*);", line
        )
        if code:
            lines.append((code.group(1), code.group(2)))
    found = []
    for n, (opcode, rest) in enumerate(lines):
        target = re.search(r"\((\.L_\S+)\)", rest)
        if opcode.startswith("BRA") and target and labels.get(target.group(1), n + 1) <= n:
            found.append((labels[target.group(1)], n))
    inner = [a for a in found if not any(b != a and a[0] <= b[0] and b[1] <= a[1] for b in found)]
    return [
        collections.Counter(
            opcode if opcode.startswith("MUFU") else opcode.split(".")[0]
            for opcode, _ in lines[start : end + 1]
        )
        for start, end in inner
    ]
