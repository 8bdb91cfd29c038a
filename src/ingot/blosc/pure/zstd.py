"""Zstandard frames with a dictionary, decoded in pure Python (RFC 8878).

Dictionaries are trained ones or plain bytes. Frames without a dictionary are decoded by numcodecs,
which supports no dictionaries. ``ingot.blosc.streams`` checks the structure of a frame before, and
its checksum afterwards.

This decoder follows the RFC where the library accepts damage: a stream of literals must end with
its last bit, and a match reaches the content of a dictionary, not the tables before it.
"""

from dataclasses import dataclass, field

from ingot.blosc.pure.fse import BitReader, StateTable, SymbolTable
from ingot.errors import CorruptionError

__all__ = ["ZstdDictionary", "decode"]

_DICTIONARY_MAGIC = bytes.fromhex("37 a4 30 ec")
_FIRST_OFFSETS = (1, 4, 8)
_LARGEST_BLOCK = 128 << 10
# A window of 2 GiB, the most that the library accepts.
_LARGEST_WINDOW_EXPONENT = 21

# The tables in the order of the modes byte: literal lengths, offsets, match lengths. Each has the
# counts and the accuracy for blocks that describe none, a largest symbol and a largest accuracy.
_LITERAL_COUNTS = (4, 3, *[2] * 11, *[1] * 3, *[2] * 9, 3, 2, *[1] * 5, *[-1] * 4)
_OFFSET_COUNTS = (*[1] * 6, *[2] * 3, *[1] * 15, *[-1] * 5)
_MATCH_COUNTS = (1, 4, 3, *[2] * 6, *[1] * 37, *[-1] * 7)
_BOUNDS = ((35, 9), (31, 8), (52, 9))
_PREDEFINED = (
    StateTable.build(_LITERAL_COUNTS, 6),
    StateTable.build(_OFFSET_COUNTS, 5),
    StateTable.build(_MATCH_COUNTS, 6),
)

_LITERAL_WIDTHS = (*[0] * 16, 1, 1, 1, 1, 2, 2, 3, 3, 4, *range(6, 17))
_MATCH_WIDTHS = (*[0] * 32, 1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, *range(7, 17))


def _bases(first: int, widths: tuple[int, ...]) -> tuple[int, ...]:
    bases = [first]
    for width in widths[:-1]:
        bases.append(bases[-1] + (1 << width))
    return tuple(bases)


_LITERAL_BASES = _bases(0, _LITERAL_WIDTHS)
_MATCH_BASES = _bases(3, _MATCH_WIDTHS)


@dataclass(frozen=True, slots=True)
class ZstdDictionary:
    """A parsed dictionary: the bytes, tables and offsets in use before the first block.

    >>> ZstdDictionary.parse(b"any bytes are a dictionary").number
    0
    """

    content: bytes
    number: int = 0
    literals: SymbolTable | None = None
    tables: tuple[StateTable | None, ...] = (None, None, None)
    offsets: tuple[int, ...] = _FIRST_OFFSETS

    @classmethod
    def parse(cls, dictionary: bytes) -> "ZstdDictionary":
        """Read a dictionary: a trained one by its magic number, otherwise plain bytes."""
        if dictionary[:4] != _DICTIONARY_MAGIC or len(dictionary) < 8:
            return cls(dictionary)
        try:
            return cls._parse_trained(dictionary)
        except IndexError:
            raise CorruptionError(
                f"Zstandard: the dictionary of {len(dictionary)} bytes is cut off"
            ) from None

    @classmethod
    def _parse_trained(cls, dictionary: bytes) -> "ZstdDictionary":
        literals, at = SymbolTable.parse(dictionary, 8)
        # Here the order is offsets, match lengths, literal lengths.
        tables: list[StateTable | None] = [None, None, None]
        for kind in (1, 2, 0):
            tables[kind], at = StateTable.parse(dictionary, at, *_BOUNDS[kind])
        content = dictionary[at + 12 :]
        numbers = [dictionary[at + 4 * n : at + 4 * n + 4] for n in range(3)]
        offsets = tuple(int.from_bytes(number, "little") for number in numbers)
        if not all(1 <= offset <= len(content) for offset in offsets):
            raise CorruptionError(
                f"Zstandard: the dictionary's offsets {offsets} leave its {len(content)} bytes"
            )
        number = int.from_bytes(dictionary[4:8], "little")
        return cls(content, number, literals, tuple(tables), offsets)


def decode(frame: bytes, nbytes: int, dictionary: bytes) -> bytes:
    """Decode one frame that holds exactly ``nbytes`` bytes, with a dictionary.

    >>> frame = bytes.fromhex("28b52ffd 20 0a 51 00 00 61 62 63 64 65 66 67 68 69 6a")
    >>> decode(frame, 10, b"spam")
    b'abcdefghij'
    """
    try:
        parsed = ZstdDictionary.parse(dictionary)
        decoder = _FrameDecoder(parsed, nbytes, bytearray(parsed.content), parsed.literals)
        decoder.tables, decoder.offsets = list(parsed.tables), list(parsed.offsets)
        return decoder.decode(frame)
    except IndexError:
        raise CorruptionError(f"Zstandard: the frame of {len(frame)} bytes is cut off") from None


@dataclass(slots=True)
class _FrameDecoder:
    """The state that passes from block to block of a frame: output, tables, recent offsets."""

    dictionary: ZstdDictionary
    nbytes: int
    output: bytearray
    literals: SymbolTable | None
    largest: int = _LARGEST_BLOCK
    tables: list[StateTable | None] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)

    def decode(self, frame: bytes) -> bytes:
        position = self._skip_header(frame)
        last = 0
        while not last:
            head = int.from_bytes(frame[position : position + 3], "little")
            last, kind, size = head & 1, head >> 1 & 3, head >> 3
            position += 3
            if size > self.largest or kind == 3:
                raise CorruptionError(f"Zstandard: a block of kind {kind} and {size} bytes")
            if kind == 1:
                self._append(frame[position : position + 1] * size)
                position += 1
                continue
            body = frame[position : position + size]
            position += size
            if kind == 0:
                self._append(body)
            else:
                before = len(self.output)
                self._decode_block(body)
                if len(self.output) - before > self.largest:
                    raise CorruptionError(
                        f"Zstandard: a block holds {len(self.output) - before} bytes, "
                        f"the most is {self.largest}"
                    )
        decoded = len(self.output) - len(self.dictionary.content)
        if decoded != self.nbytes:
            raise CorruptionError(f"Zstandard: the frame holds {decoded}, {self.nbytes} are due")
        return bytes(self.output[len(self.dictionary.content) :])

    def _skip_header(self, frame: bytes) -> int:
        descriptor = frame[4]
        if descriptor & 8:
            raise CorruptionError("Zstandard: a reserved bit of the frame is set")
        single = descriptor >> 5 & 1
        window = self.nbytes if single else _window(frame[5])
        self.largest = min(window, _LARGEST_BLOCK)
        at = 5 + 1 - single
        width = (0, 1, 2, 4)[descriptor & 3]
        number = int.from_bytes(frame[at : at + width], "little")
        if number and number != self.dictionary.number:
            raise CorruptionError(
                f"Zstandard: the frame wants dictionary {number}, this is {self.dictionary.number}"
            )
        return at + width + (single, 2, 4, 8)[descriptor >> 6]

    def _append(self, data: bytes) -> None:
        if len(self.output) - len(self.dictionary.content) + len(data) > self.nbytes:
            raise CorruptionError(f"Zstandard: the frame holds more than {self.nbytes} bytes")
        self.output += data

    def _decode_block(self, body: bytes) -> None:
        literals, position = self._decode_literals(body)
        count, position = _parse_count(body, position)
        done = 0
        if count:
            done = self._decode_sequences(body, position, count, literals)
        elif position != len(body):
            raise CorruptionError("Zstandard: a block goes on behind its last section")
        self._append(literals[done:])

    def _decode_literals(self, body: bytes) -> tuple[bytes, int]:
        """Return the literals of a block, and where its sequences begin."""
        kind, form = body[0] & 3, body[0] >> 2 & 3
        head = int.from_bytes(body[:5], "little")
        if kind < 2:
            width = (1, 2, 1, 3)[form]
            size = head >> (3 if width == 1 else 4) & (1 << (5, 12, 20)[width - 1]) - 1
            stored = size if kind == 0 else 1
            data = body[width : width + stored]
            if size > _LARGEST_BLOCK or len(data) < stored:
                raise IndexError
            return (data if kind == 0 else data * size), width + stored
        width, bits = ((3, 10), (3, 10), (4, 14), (5, 18))[form]
        mask = (1 << bits) - 1
        size, stored = head >> 4 & mask, head >> 4 + bits & mask
        end = width + stored
        if size > _LARGEST_BLOCK or end > len(body):
            raise IndexError
        if kind == 2:
            self.literals, width = SymbolTable.parse(body[:end], width)
        if self.literals is None:
            raise CorruptionError("Zstandard: literals by a table that was never given")
        streams = 1 if form == 0 else 4
        return _decode_streams(self.literals, body[width:end], size, streams), end

    def _decode_sequences(self, body: bytes, position: int, count: int, literals: bytes) -> int:
        """Append what all sequences write; return how many literals they took."""
        position = self._parse_tables(body, position)
        tables = [table for table in self.tables if table is not None]
        bits = BitReader(body[position:])
        states = [bits.read(table.accuracy) for table in tables]
        done = 0
        for number in range(count):
            codes = [table.symbols[state] for table, state in zip(tables, states, strict=True)]
            value = (1 << codes[1]) + bits.read(codes[1])
            match = _MATCH_BASES[codes[2]] + bits.read(_MATCH_WIDTHS[codes[2]])
            run = _LITERAL_BASES[codes[0]] + bits.read(_LITERAL_WIDTHS[codes[0]])
            if number + 1 < count:
                for kind in (0, 2, 1):
                    states[kind] = tables[kind].step(states[kind], bits)
            if bits.left < 0 or done + run > len(literals):
                raise IndexError
            self._append(literals[done : done + run])
            done += run
            self._copy(self._choose_offset(value, run), match)
        if bits.left:
            raise CorruptionError("Zstandard: the sequences of a block end elsewhere")
        return done

    def _parse_tables(self, body: bytes, position: int) -> int:
        modes = body[position]
        position += 1
        if modes & 3:
            raise CorruptionError(f"Zstandard: the modes of a block are {modes:#04x}")
        for kind, (most_symbols, accuracy) in enumerate(_BOUNDS):
            mode = modes >> 6 - 2 * kind & 3
            if mode == 0:
                self.tables[kind] = _PREDEFINED[kind]
            elif mode == 1:
                if body[position] > most_symbols:
                    raise CorruptionError(f"Zstandard: no code has number {body[position]}")
                self.tables[kind] = StateTable.repeat(body[position])
                position += 1
            elif mode == 2:
                self.tables[kind], position = StateTable.parse(
                    body, position, most_symbols, accuracy
                )
            elif self.tables[kind] is None:
                raise CorruptionError("Zstandard: sequences by a table that was never given")
        return position

    def _choose_offset(self, value: int, run: int) -> int:
        """Return the offset that ``value`` stands for, and make it the most recent one."""
        if value > 3:
            self.offsets = [value - 3, *self.offsets[:2]]
            return value - 3
        place = value - 1 + (not run)
        offset = self.offsets[0] - 1 if place == 3 else self.offsets[place]
        others = [old for at, old in enumerate(self.offsets) if at != min(place, 2)]
        self.offsets = [offset, *others]
        return offset

    def _copy(self, offset: int, length: int) -> None:
        if not 1 <= offset <= len(self.output):
            raise CorruptionError(
                f"Zstandard: a match reaches {offset} bytes back, {len(self.output)} are known"
            )
        start = len(self.output) - offset
        pattern = bytes(self.output[start : start + length])
        self._append((pattern * -(-length // len(pattern)))[:length])


def _window(octet: int) -> int:
    """Return the window of a frame, which one byte of its header gives."""
    exponent, eighths = octet >> 3, octet & 7
    if exponent > _LARGEST_WINDOW_EXPONENT:
        raise CorruptionError(f"Zstandard: the frame wants a window of 2**{10 + exponent} bytes")
    return (8 + eighths) << 7 + exponent


def _parse_count(body: bytes, position: int) -> tuple[int, int]:
    """Return how many sequences a block has, and where their tables begin."""
    first = body[position]
    if first < 128:
        return first, position + 1
    if first < 255:
        return (first - 128 << 8) + body[position + 1], position + 2
    return body[position + 1] + (body[position + 2] << 8) + 0x7F00, position + 3


def _decode_streams(table: SymbolTable, data: bytes, size: int, streams: int) -> bytes:
    if streams == 1:
        return table.decode(data, size)
    lengths = [int.from_bytes(data[at : at + 2], "little") for at in (0, 2, 4)]
    each = (size + 3) // 4
    if sum(lengths) + 6 > len(data) or 3 * each > size:
        raise IndexError
    parts, at = [], 6
    for length, count in zip(
        (*lengths, len(data) - 6 - sum(lengths)), (each, each, each, size - 3 * each), strict=True
    ):
        parts.append(table.decode(data[at : at + length], count))
        at += length
    return b"".join(parts)
