"""The kernels of a device decode what the CPU does, and refuse the rest without a stray access.

They are compiled for the host. The chunks of other writers run in a child with the address
sanitizer and the sanitizer of undefined behaviour; NVRTC compiles the same source for GPUs.
"""

import ctypes
import hashlib
import importlib.util
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ingot import blosc
from ingot.blosc.chunk import Filter
from ingot.blosc.header import ChunkHeader
from ingot.device.device import Device
from ingot.device.window import BoxAxis, Spans, Window, WindowBuilder, kernel_source
from ingot.interop import cupy
from tests.fuzz import fuzz_chunks, fuzz_device
from tests.golden import test_blosc2_chunks, test_blosc_chunks
from tests.golden.test_blosc_chunks import Row
from tests.host_device import (
    HostDevice,
    decoded,
    needs_compiler,
    needs_gpu,
    run_lanes,
    run_sanitized,
)

SEED = 20_260
EXECUTIONS = 3000
SMALL = 20_000
ARCHITECTURES = ("sm_80", "sm_90")


def golden() -> Iterator[tuple[Row, bytes]]:
    """Yield the chunks of C-Blosc and C-Blosc2, with what is known of each."""
    for module in (test_blosc_chunks, test_blosc2_chunks):
        for row in module.SAMPLE_ROWS:
            if row["nbytes"]:
                yield row, module.chunk_of(row)


def is_for_the_device(header: ChunkHeader) -> bool:
    """Return whether kernels decode a sound chunk."""
    if header.memcpyed or header.special != "none":
        return True
    return header.codec in ("lz4", "blosclz") and not header.variable and not header.has_dictionary


def check_golden(device: Device) -> None:
    """Decode all golden chunks, as a whole and in part."""
    count = 0
    for row, chunk in golden():
        header = ChunkHeader.parse(chunk)
        whole = decoded(device, chunk, 0, header.nbytes)
        assert (whole is not None) == is_for_the_device(header), row["file"]
        if whole is None:
            continue
        count += 1
        assert hashlib.sha256(whole).hexdigest() == row["sha256"], row["file"]
        choose = random.Random(row["size"])
        for _ in range(3):
            begin = choose.randrange(header.nbytes)
            end = choose.randrange(begin, header.nbytes) + 1
            assert decoded(device, chunk, begin, end) == whole[begin:end], row["file"]
    print(count, "chunks")


@needs_compiler
def test_golden_chunks_decode_under_the_sanitizers() -> None:
    code = "from tests.parity import test_device_kernels as t; t.check_golden(t.HostDevice())"
    assert run_sanitized("-c", code) == "234 chunks\n"


@pytest.mark.slow
@needs_compiler
def test_reads_run_under_the_sanitizers() -> None:
    """The property tests of reads, whose tables and offsets are made by the engine."""
    tests = ("tests/property/test_device_reads.py", "tests/unit/engine/test_device.py")
    assert "failed" not in run_sanitized("-m", "pytest", "-q", "-p", "no:cacheprovider", *tests)


@needs_gpu
def test_golden_chunks_decode_on_a_gpu() -> None:
    check_golden(cupy.find("cuda"))


@needs_gpu
def test_damaged_chunks_are_refused_on_a_gpu() -> None:
    device = cupy.find("cuda")
    for execution in range(EXECUTIONS):
        fuzz_device.attempt(device, SEED, execution)


@needs_compiler
def test_damaged_chunks_are_refused_or_decoded_as_on_the_cpu() -> None:
    executions, finding = fuzz_device.fuzz(SEED, executions=EXECUTIONS)
    assert finding is None, f"execution {finding.execution} of seed {SEED}: {finding.what}"
    assert executions == EXECUTIONS


@needs_compiler
def test_the_sanitizer_is_on_in_the_child() -> None:
    """A read behind the end of a buffer kills the child: otherwise the tests here prove nothing."""
    code = """
import ctypes, numpy as np
from tests.host_device import HostDevice, library
memory = np.zeros(4096, np.uint8)
library(True).swap_bytes(ctypes.c_void_p(memory.ctypes.data), ctypes.c_uint64(1024 + 1), 4)
"""
    with pytest.raises(AssertionError, match="heap-buffer-overflow"):
        run_sanitized("-c", code)


def small_chunks() -> tuple[Window, dict[int, tuple[int, int]]]:
    """Return a window of small chunks of every kind, and of damaged ones, each with a box.

    Also return where the items of each chunk lie in the result.
    """
    builder, target, ranges = WindowBuilder(), 0, {}
    chunks = [chunk for row, chunk in golden() if row["nbytes"] <= SMALL]
    data = np.repeat(np.arange(400, dtype="<i4"), 3).tobytes()
    for filters in (["shuffle"], ["delta", "bitshuffle"], ["shuffle", ("bytedelta", 4)]):
        for codec in ("lz4", "blosclz"):
            chunks.append(
                blosc.compress(
                    data, typesize=4, codec=codec, filters=filters, blocksize=1600, version=2
                )
            )
    chunks += [fuzz_chunks.damaged(SEED, number)[0] for number in range(300)]
    for number, chunk in enumerate(chunks):
        nbytes = int.from_bytes(chunk[4:8], "little", signed=True)
        if 0 < nbytes <= SMALL:
            spans = Spans(np.array([0]), np.array([nbytes]))
            staged = builder.add_chunk(number, chunk, nbytes, spans)
            if staged is not None:
                half = nbytes // 2
                # The bytes with even numbers come first, the others behind them.
                axes = [BoxAxis(2, 1, half), BoxAxis(half, 2, 1)]
                if nbytes % 2:
                    axes = [BoxAxis(nbytes, 1, 1)]
                builder.add_box(staged, 0, target, 1, axes)
                ranges[number] = target, target + nbytes
                target += nbytes
    turned = [BoxAxis(9, 0, 0, np.arange(9)[::-1].copy(), np.arange(9))]
    builder.add_box(builder.add_plain(len(chunks), b"spam eggs"), 0, target, 1, turned)
    ranges[len(chunks)] = target, target + 9
    return builder.build(), ranges


@needs_compiler
def test_lanes_and_threads_do_not_race(tmp_path: Path) -> None:
    """The thread sanitizer watches lanes that are threads; the outcome is that of one lane."""
    window, ranges = small_chunks()
    assert 0 < np.count_nonzero(window.blocks["direct"] >= 0) < len(window.blocks)
    nbytes = max(end for _, end in ranges.values())
    statuses, result = run_lanes(tmp_path, window, nbytes)
    alone = HostDevice()
    expected = alone.empty((nbytes,), np.dtype("u1"))
    assert statuses[:-1].tolist() == alone.submit(window, expected)().tolist()
    assert statuses.any()
    assert not statuses[-1]
    failed = window.failed(statuses[:-1])
    assert 0 < len(failed) < len(set(window.chunk_owners.tolist()))
    sound = np.ones(nbytes, np.bool_)
    for owner in failed:
        begin, end = ranges[owner]
        sound[begin:end] = False
    assert (np.frombuffer(result, np.uint8)[sound] == expected[sound]).all()


@needs_compiler
def test_the_thread_sanitizer_finds_races(tmp_path: Path) -> None:
    """Without barriers the same kernels race: otherwise the test before this one proves nothing."""
    window, ranges = small_chunks()
    nbytes = max(end for _, end in ranges.values())
    with pytest.raises(AssertionError, match="data race"):
        run_lanes(tmp_path, window, nbytes, barriers=False)


@needs_compiler
@pytest.mark.parametrize("typesize", [1, 2, 3, 4, 7, 8, 16, 24])
@pytest.mark.parametrize("items", [1, 7, 8, 9, 33, 1000])
def test_filters_are_undone_for_any_size(typesize: int, items: int) -> None:
    """Odd counts leave the fast forms of the kernels, and odd blocks the alignment they need."""
    random_bytes = np.random.default_rng(typesize * items).integers(0, 4, typesize * items, "u1")
    data = np.repeat(random_bytes, 3)[: typesize * items].tobytes() * 3
    device = HostDevice()
    pipelines: list[list[Filter]] = [
        ["shuffle"],
        ["bitshuffle"],
        ["delta", "shuffle"],
        ["delta", "bitshuffle"],
        ["shuffle", ("bytedelta", typesize)],
        ["shuffle", "bitshuffle"],
    ]
    for filters in pipelines:
        for blocksize in (typesize * items, typesize * max(items // 3, 1)):
            chunk = blosc.compress(
                data, typesize=typesize, filters=filters, blocksize=blocksize, version=2
            )
            assert decoded(device, chunk, 0, len(data)) == data
            assert decoded(device, chunk, len(data) // 2, len(data)) == data[len(data) // 2 :]


def nvrtc() -> ctypes.CDLL:
    """Load the compiler of CUDA C++, which needs no GPU."""
    if importlib.util.find_spec("nvidia") is not None:
        found = importlib.util.find_spec("nvidia.cuda_nvrtc")
        for folder in (found.submodule_search_locations or ()) if found else ():
            for path in Path(folder, "lib").glob("libnvrtc.so.*"):
                return ctypes.CDLL(str(path))
    pytest.skip("NVRTC is not installed: it is in the extra gpu-test")


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_nvrtc_compiles_the_same_source(architecture: str) -> None:
    compiler, program, size = nvrtc(), ctypes.c_void_p(), ctypes.c_size_t()
    source = kernel_source().encode()
    none = ctypes.c_void_p()
    made = ctypes.byref(program)
    assert not compiler.nvrtcCreateProgram(made, source, b"kernels.cu", 0, none, none)
    options = (ctypes.c_char_p * 2)(f"--gpu-architecture={architecture}".encode(), b"--std=c++17")
    failed = compiler.nvrtcCompileProgram(program, 2, options)
    compiler.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    compiler.nvrtcGetProgramLog(program, log)
    assert not failed, log.value.decode()
    compiler.nvrtcGetCUBINSize(program, ctypes.byref(size))
    code = ctypes.create_string_buffer(size.value)
    compiler.nvrtcGetCUBIN(program, code)
    assert code.raw.startswith(b"\x7fELF")
    for name in (b"find_streams", b"decode_streams", b"undo_filters", b"scatter", b"swap_bytes"):
        assert name in code.raw
