"""The entropy codes of Zstandard, FSE and Huffman, decoding only, in pure Python.

Tables are parsed from their descriptions in a frame, and streams of bits are read from their end.
Streams that end too early raise ``IndexError``; impossible descriptions raise ``CorruptionError``.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ingot.errors import CorruptionError

__all__ = ["BitReader", "StateTable", "SymbolTable"]

_LARGEST_WEIGHT_ACCURACY = 6
_LONGEST_CODE = 11


class BitReader:
    """A stream of bits that is read from its end, which a 1 bit marks.

    >>> bits = BitReader(bytes([0b0110_1001, 0b0000_0101]))
    >>> bits.read(2), bits.read(3), bits.left
    (1, 3, 5)
    """

    __slots__ = ("_data", "left")

    def __init__(self, data: bytes) -> None:
        if not data or not data[-1]:
            raise CorruptionError("Zstandard: a stream of bits has no mark at its end")
        self._data = data
        self.left = 8 * len(data) - 9 + data[-1].bit_length()

    def peek(self, count: int) -> int:
        """Return the next bits without consuming them; zeros beyond the first bit."""
        at = self.left - count
        if at < 0:
            stored = self._at(0, self.left) if self.left > 0 else 0
            return stored << min(-at, count)
        return self._at(at, count)

    def read(self, count: int) -> int:
        """Return the next bits; ``left`` becomes negative when there are not enough."""
        value = self.peek(count)
        self.left -= count
        return value

    def _at(self, at: int, count: int) -> int:
        stored = self._data[at >> 3 : (at + count + 7) >> 3]
        return int.from_bytes(stored, "little") >> (at & 7) & (1 << count) - 1


@dataclass(frozen=True, slots=True)
class StateTable:
    """An FSE table: for every state its symbol, and the bits and base of the next state.

    >>> StateTable.build((16, 15, -1), 5).symbols.count(0)
    16
    """

    accuracy: int
    symbols: tuple[int, ...]
    widths: tuple[int, ...]
    bases: tuple[int, ...]

    @classmethod
    def repeat(cls, symbol: int) -> "StateTable":
        """Return the table of a single symbol, which takes no bits."""
        return cls(0, (symbol,), (0,), (0,))

    @classmethod
    def build(cls, counts: Sequence[int], accuracy: int) -> "StateTable":
        """Return the table for the counts of the symbols; -1 stands for less than one."""
        size = 1 << accuracy
        symbols = [0] * size
        following = [max(count, 1) for count in counts]
        top = size
        for symbol, count in enumerate(counts):
            if count == -1:
                top -= 1
                symbols[top] = symbol
        position, step = 0, (size >> 1) + (size >> 3) + 3
        for symbol, count in enumerate(counts):
            for _ in range(count):
                symbols[position] = symbol
                position = (position + step) % size
                while position >= top:
                    position = (position + step) % size
        widths, bases = [], []
        for symbol in symbols:
            widths.append(accuracy + 1 - following[symbol].bit_length())
            bases.append((following[symbol] << widths[-1]) - size)
            following[symbol] += 1
        return cls(accuracy, tuple(symbols), tuple(widths), tuple(bases))

    @classmethod
    def parse(
        cls, data: bytes, position: int, most_symbols: int, largest_accuracy: int
    ) -> tuple["StateTable", int]:
        """Read a description at ``position``; return the table and where the description ends."""
        bits = int.from_bytes(data[position:], "little")
        at = 4
        accuracy = (bits & 15) + 5
        if accuracy > largest_accuracy:
            raise CorruptionError(
                f"Zstandard: a table of 2^{accuracy} states, at most 2^{largest_accuracy} are due"
            )
        counts: list[int] = []
        remaining = 1 << accuracy
        while remaining > 0 and len(counts) <= most_symbols:
            width = (remaining + 1).bit_length()
            value = bits >> at & (1 << width) - 1
            low = value & (1 << width - 1) - 1
            spare = (1 << width) - 2 - remaining
            short = low < spare
            at += width - short
            count = low if short else value - (spare if value >> width - 1 else 0)
            remaining -= abs(count - 1)
            counts.append(count - 1)
            while count == 1:
                repeats = bits >> at & 3
                at += 2
                counts += [0] * repeats
                if repeats != 3:
                    break
        end = position + (at + 7 >> 3)
        if remaining or len(counts) > most_symbols + 1:
            raise CorruptionError("Zstandard: the counts of a table do not add up")
        if end > len(data):
            raise IndexError
        return cls.build(counts, accuracy), end

    def step(self, state: int, bits: BitReader) -> int:
        """Return the state that follows."""
        return self.bases[state] + bits.read(self.widths[state])


@dataclass(frozen=True, slots=True)
class SymbolTable:
    """A Huffman table: for the next ``width`` bits, the symbol and how many of them it takes.

    >>> table, _ = SymbolTable.parse(bytes([128, 0x10]), 0)
    >>> table.width, table.symbols, table.decode(bytes([0b1101]), 3)
    (1, (0, 1), b'\\x01\\x00\\x01')
    """

    width: int
    symbols: tuple[int, ...]
    lengths: tuple[int, ...]

    @classmethod
    def parse(cls, data: bytes, position: int) -> tuple["SymbolTable", int]:
        """Read a description at ``position``; return the table and where the description ends."""
        head = data[position]
        position += 1
        stored = head if head < 128 else (head - 126) // 2
        described = data[position : position + stored]
        if len(described) < stored:
            raise IndexError
        if head >= 128:
            nibbles = [nibble for byte in described for nibble in (byte >> 4, byte & 15)]
            weights = nibbles[: head - 127]
        else:
            weights = _parse_weights(described)
        return cls._build(weights), position + stored

    @classmethod
    def _build(cls, weights: list[int]) -> "SymbolTable":
        total = sum(1 << weight >> 1 for weight in weights)
        width = total.bit_length()
        rest = (1 << width) - total
        if not total or rest & rest - 1 or width > _LONGEST_CODE or len(weights) > 255:
            raise CorruptionError("Zstandard: the weights of a Huffman table do not add up")
        weights = [*weights, rest.bit_length()]
        symbols: list[int] = []
        lengths: list[int] = []
        for weight in range(1, width + 1):
            for symbol, own in enumerate(weights):
                if own == weight:
                    symbols += [symbol] * (1 << weight - 1)
                    lengths += [width + 1 - weight] * (1 << weight - 1)
        # At least two codes have the full length, otherwise the table would be shorter.
        if weights.count(1) < 2 or len(symbols) != 1 << width:
            raise CorruptionError("Zstandard: the weights of a Huffman table do not add up")
        return cls(width, tuple(symbols), tuple(lengths))

    def decode(self, data: bytes, count: int) -> bytes:
        """Decode exactly ``count`` symbols, which take all of ``data``."""
        bits = BitReader(data)
        output = bytearray()
        for _ in range(count):
            index = bits.peek(self.width)
            bits.left -= self.lengths[index]
            output.append(self.symbols[index])
        if bits.left:
            raise CorruptionError(f"Zstandard: a stream of {count} literals ends elsewhere")
        return bytes(output)


def _parse_weights(data: bytes) -> list[int]:
    """Return the weights that FSE has compressed, by two states that alternate."""
    table, start = StateTable.parse(data, 0, 255, _LARGEST_WEIGHT_ACCURACY)
    bits = BitReader(data[start:])
    one, other = bits.read(table.accuracy), bits.read(table.accuracy)
    weights: list[int] = []
    while bits.left >= 0:
        if len(weights) > 255:
            raise CorruptionError("Zstandard: more weights than a Huffman table can have")
        weights.append(table.symbols[one])
        one, other = other, table.step(one, bits)
    weights.append(table.symbols[one])
    return weights
