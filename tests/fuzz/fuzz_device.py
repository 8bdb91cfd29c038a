"""Damaged chunks on the kernels of a device, which are compiled for the host with sanitizers.

Whatever the kernels decode is what the CPU decodes from the same bytes, and nothing is read or
written outside of its buffer. A chunk that they refuse is the CPU's to judge.
"""

import os
import struct
import sys
from pathlib import Path

from ingot import native
from ingot.device.device import Device
from ingot.errors import IngotError
from tests.fuzz import fuzz_chunks
from tests.fuzz.driver import (
    Finding,
    count_executions,
    fuzz_in_child,
    parser_of,
    report,
    seconds_of,
)
from tests.host_device import COMPILER, HostDevice, decoded, sanitized, sanitized_environment

LARGEST = 1 << 20


def attempt(device: Device, seed: int, execution: int) -> None:
    """Decode the chunk of one execution, as a whole and in part."""
    chunk, choose = fuzz_chunks.damaged(seed, execution)
    nbytes = struct.unpack_from("<i", chunk, 4)[0] if len(chunk) >= 8 else 0
    if not 0 < nbytes <= LARGEST:
        return
    found = decoded(device, chunk, 0, nbytes)
    begin = choose.randrange(nbytes)
    part = decoded(device, chunk, begin, choose.randrange(begin, nbytes) + 1)
    if found is None:
        return
    try:
        expected = native.kernel().decompress(chunk, None, 1, LARGEST)
    except IngotError as error:
        raise AssertionError("decoded, but the CPU refuses it") from error
    assert found == expected, "the device and the CPU disagree"
    assert part is not None, "the whole is decoded, and a part is refused"
    assert part == found[begin : begin + len(part)], "a part differs from the whole"


def fuzz(
    seed: int, executions: int | None = None, seconds: float | None = None
) -> tuple[int, Finding | None]:
    """Run a child and watch it; return how many executions it did, and what it died of."""
    return fuzz_in_child(__spec__.name, fuzz_chunks.damaged, seed, executions, seconds)


def run_child(seed: int, executions: int | None, seconds: float, path: str) -> None:
    """Do the executions in this process, which the sanitizers watch."""
    if not sanitized():
        arguments = [sys.executable, "-m", __spec__.name, *sys.argv[1:]]
        os.execve(sys.executable, arguments, sanitized_environment())
    device = HostDevice()
    count_executions(lambda number: attempt(device, seed, number), executions, seconds, path)


def save(finding: Finding, seed: int) -> Path:
    """Save a chunk that was found where the tests of chunks read it again."""
    return fuzz_chunks.save(finding, "device", seed)


def main() -> int:
    options = parser_of(__doc__).parse_args()
    if COMPILER is None:
        print("no g++ to compile the kernels with: nothing is fuzzed")
        return 0
    if options.child:
        run_child(options.seed, options.executions, seconds_of(options) or 1e9, options.child)
        return 0
    return report("the kernels of a device", options, fuzz, save)


if __name__ == "__main__":
    sys.exit(main())
