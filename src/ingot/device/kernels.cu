// The kernels that decode Blosc chunks on a device: streams, filters, and the way into the result.
//
// One source for two compilers. NVRTC makes device code of it. A C++ compiler makes host code of it,
// with a warp of one lane and a thread block of one thread; the tests run that under sanitizers. With
// HOST_LANES, each lane is a thread of the host, so that tests can look for races between lanes.
//
// A window (ingot.device.window) is a table of blocks and boxes, with the stored bytes of the blocks
// in one buffer, `input`. Three kernels work on it, one after the other:
//
//   decode_streams   a warp for each stream: from `input` into `front`, one of two equal buffers
//   undo_filters     a thread block for each block: from `front` to `back` and so on
//   scatter          a warp for each part of a box: from `front` or `back` into `result`
//
// The stored bytes are hostile. Every length and every offset is compared with the buffer that it
// points into before it is used. A stream that is not what it has to be leaves a status that is not
// zero, and what it has written so far lies inside its own part of the buffer. The tables are made
// by Ingot; their offsets are compared as well.

#ifdef __CUDACC__
typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;
#define DEVICE static __device__ __forceinline__
#define KERNEL extern "C" __global__ void
#define SHARED __shared__
// Kernels are started with this many threads in a block.
#define THREADS 256
#define LANES 32
#define THREAD threadIdx.x
#define TEAM blockIdx.x
#define TEAMS gridDim.x
#define SYNC_WARP() __syncwarp()
#define SYNC_TEAM() __syncthreads()

DEVICE u32 byte_perm(u32 low, u32 high, u32 selector) { return __byte_perm(low, high, selector); }

// Loads four bytes, little end first, from any address.
DEVICE u32 load4(const u8* from) {
    if (((u64)from & 3) == 0) return *(const u32*)from;
    return from[0] | (u32)from[1] << 8 | (u32)from[2] << 16 | (u32)from[3] << 24;
}

// Stores four words at an address that is a multiple of 16.
DEVICE void store16(u8* to, u32 a, u32 b, u32 c, u32 d) { *(uint4*)to = make_uint4(a, b, c, d); }

DEVICE void copy16(u8* to, const u8* from) { *(uint4*)to = *(const uint4*)from; }
#else
#include <stdint.h>
#include <string.h>
typedef uint8_t u8;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int64_t i64;
#define DEVICE static inline
#define KERNEL extern "C" void
#define TEAM 0u
#define TEAMS 1u
#ifdef HOST_LANES
extern thread_local u32 host_thread;
void host_sync_warp();
void host_sync_team();
#define SHARED static
#define THREADS HOST_THREADS
#define LANES HOST_LANES
#define THREAD host_thread
#define SYNC_WARP() host_sync_warp()
#define SYNC_TEAM() host_sync_team()
#else
#define SHARED
#define THREADS 1
#define LANES 1
#define THREAD 0u
#define SYNC_WARP()
#define SYNC_TEAM()
#endif

DEVICE u32 byte_perm(u32 low, u32 high, u32 selector) {
    u64 both = (u64)high << 32 | low;
    u32 made = 0;
    for (u32 at = 0; at < 4; ++at) made |= (u32)(both >> 8 * (selector >> 4 * at & 7) & 255) << 8 * at;
    return made;
}

DEVICE u32 load4(const u8* from) {
    return from[0] | (u32)from[1] << 8 | (u32)from[2] << 16 | (u32)from[3] << 24;
}

DEVICE void store16(u8* to, u32 a, u32 b, u32 c, u32 d) {
    u32 words[4] = {a, b, c, d};
    memcpy(to, words, 16);
}

DEVICE void copy16(u8* to, const u8* from) { memcpy(to, from, 16); }
#endif

#define LANE (THREAD % LANES)
#define WARP ((u64)TEAM * (THREADS / LANES) + THREAD / LANES)
#define WARPS ((u64)TEAMS * (THREADS / LANES))

// The tables. ingot.device.window has the same records as NumPy types; a test compares the sizes.

enum Kind { RAW = 0, PATTERN = 1, BLOSCLZ = 2, LZ4 = 3 };
enum Filter { SHUFFLE = 1, BITSHUFFLE = 2, DELTA = 3, BYTEDELTA = 35 };
#define MOST_FILTERS 6

struct Block {
    u64 source;         // where its bytes begin in `input`
    u64 source_end;     // where they end
    u64 target;         // where it begins in `front` and `back`
    u64 reference;      // where the first block of its chunk begins, for delta
    u32 nbytes;         // its decoded size
    u32 typesize;       // the bytes of an item
    u32 streams;        // how many streams it has
    u32 first_stream;   // the number of the first one in the window
    u8 kind;            // RAW and PATTERN have no lengths of streams
    u8 runs;            // whether lengths up to zero are runs
    u8 partial;         // whether bitshuffle filters the first multiple of eight items
    u8 referring;       // whether delta refers to another block
    u8 filters[MOST_FILTERS];  // in the order of encoding; zero for none
    u8 metas[MOST_FILTERS];
};

struct Box {
    i64 source;         // where its first item lies in `front` or `back`
    i64 target;         // where that lies in `result`
    u64 items;
    u32 first_axis;     // its axes in the table of axes, slowest first
    u32 axes;
    u32 itemsize;
    u32 side;           // 0: the items lie in `front`, 1: in `back`
    u64 first_unit;     // the number of its first unit of work
};

// One axis of a box. Offsets are in bytes: a step each, or the numbers of a table.
struct Axis {
    u64 count;
    i64 source_step;
    i64 target_step;
    i64 source_table;   // where the offsets begin in `offsets`; below zero for none
    i64 target_table;
};

static_assert(sizeof(Block) == 64 && sizeof(Box) == 48 && sizeof(Axis) == 40, "as NumPy has them");

// What a stream can be found to be. Zero is sound; the other numbers are for tests and for people.
enum Status {
    SOUND = 0,
    OUTSIDE = 1,        // a record of a table points outside of a buffer
    CUT_LENGTH = 2,     // the length of a stream lies behind the end of its block
    BAD_LENGTH = 3,     // the length of a stream is impossible
    BAD_RUN = 4,        // a run without its token
    CUT_INPUT = 5,      // the stream ends inside an operation
    FULL = 6,           // the stream holds more than is due
    FAR = 7,            // a match reaches back in front of the stream's first byte
    SHORT = 8,          // the stream holds less than is due
};

// How many items of a box one warp moves.
#define UNIT_ITEMS 4096

// Streams -----------------------------------------------------------------------------------------

DEVICE void copy_bytes(u8* to, const u8* from, u32 count) {
    for (u32 at = LANE; at < count; at += LANES) to[at] = from[at];
}

DEVICE void repeat_pattern(u8* to, u32 count, const u8* pattern, u32 width) {
    for (u32 at = LANE; at < count; at += LANES) to[at] = pattern[at % width];
}

DEVICE void fill_bytes(u8* to, u32 count, u8 value) {
    for (u32 at = LANE; at < count; at += LANES) to[at] = value;
}

// Copies a match; where both parts overlap, the bytes repeat. All that is read is written already.
DEVICE void copy_match(u8* out, u32 made, u32 distance, u32 length) {
    const u8* from = out + made - distance;
    SYNC_WARP();
    if (distance >= length) {
        for (u32 at = LANE; at < length; at += LANES) out[made + at] = from[at];
    } else {
        for (u32 at = LANE; at < length; at += LANES) out[made + at] = from[at % distance];
    }
    SYNC_WARP();
}

// Adds the bytes of a long length. False where the stream ends, or the length is beyond `most`.
DEVICE bool add_length(const u8* in, u32 size, u32& at, u32& length, u32 most) {
    u32 more;
    do {
        if (at >= size) return false;
        more = in[at++];
        length += more;
        if (length > most) return false;
    } while (more == 255);
    return true;
}

// LZ4, by the rules of LZ4_decompress_safe: the last five bytes are literals, the last match begins
// twelve bytes before the end or earlier. All lanes parse the same bytes, and share the copying.
DEVICE u32 decode_lz4(const u8* in, u32 size, u8* out, u32 room) {
    const u32 LAST_LITERALS = 5, MATCH_LIMIT = 12, SHORTEST = 4;
    u32 at = 0, made = 0;
    while (true) {
        if (at >= size) return CUT_INPUT;
        u32 token = in[at++];
        u32 literals = token >> 4;
        if (literals == 15 && !add_length(in, size, at, literals, room)) return CUT_INPUT;
        if (literals > size - at) return CUT_INPUT;
        if (literals > room - made) return FULL;
        copy_bytes(out + made, in + at, literals);
        at += literals;
        made += literals;
        if (at == size) {
            SYNC_WARP();
            return made == room ? SOUND : SHORT;
        }
        if (room - made < MATCH_LIMIT || size - at < 2 + 1 + LAST_LITERALS) return CUT_INPUT;
        u32 distance = in[at] | (u32)in[at + 1] << 8;
        at += 2;
        u32 length = (token & 15) + SHORTEST;
        if (length == 15 + SHORTEST && !add_length(in, size, at, length, room)) return CUT_INPUT;
        if (distance == 0 || distance > made) return FAR;
        if (length > room - made || room - made - length < LAST_LITERALS) return FULL;
        copy_match(out, made, distance, length);
        made += length;
    }
}

DEVICE u32 decode_blosclz(const u8* in, u32 size, u8* out, u32 room) {
    const u32 NEAR = 8192, LONG_MATCH = 9;
    if (size == 0) return CUT_INPUT;
    u32 at = 1, made = 0, control = in[0] & 31;
    while (true) {
        if (control < 32) {
            u32 literals = control + 1;
            if (literals > size - at) return CUT_INPUT;
            if (literals > room - made) return FULL;
            copy_bytes(out + made, in + at, literals);
            at += literals;
            made += literals;
        } else {
            u32 length = (control >> 5) + 2;
            if (length == LONG_MATCH && !add_length(in, size, at, length, room)) return CUT_INPUT;
            if (at >= size) return CUT_INPUT;
            u32 distance = ((control & 31) << 8) + in[at++] + 1;
            if (distance == NEAR) {
                if (size - at < 2) return CUT_INPUT;
                distance += (u32)in[at] << 8 | in[at + 1];
                at += 2;
            }
            if (distance > made) return FAR;
            if (length > room - made) return FULL;
            copy_match(out, made, distance, length);
            made += length;
        }
        if (at == size) break;
        control = in[at++];
    }
    SYNC_WARP();
    return made == room ? SOUND : SHORT;
}

// Where a stream lies in `input`, and its length as it is stored.
struct Stream {
    u64 at;
    int length;
};

// Walks over the streams of a block to the one with a number.
DEVICE u32 find_stream(const Block& block, const u8* input, u32 number, u32 each, Stream& found) {
    u64 at = block.source;
    for (u32 passed = 0;; ++passed) {
        if (block.source_end - at < 4) return CUT_LENGTH;
        int length = (int)load4(input + at);
        at += 4;
        u64 stored = length < 0 ? 1 : (u64)length;
        if (length <= 0 ? !block.runs : stored > each) return BAD_LENGTH;
        if (length < -255) return BAD_RUN;
        if (stored > block.source_end - at) return CUT_LENGTH;
        if (length < 0 && input[at] != 1) return BAD_RUN;
        if (passed == number) {
            found.at = at;
            found.length = length;
            return SOUND;
        }
        at += stored;
    }
}

DEVICE u32 decode_stream(const Block& block, const u8* input, u32 number, u8* front) {
    u64 size = block.source_end - block.source;
    u8* whole = front + block.target;
    if (block.kind == RAW) {
        if (size != block.nbytes) return BAD_LENGTH;
        copy_bytes(whole, input + block.source, block.nbytes);
        return SOUND;
    }
    if (block.kind == PATTERN) {
        if (size == 0 || size > 0xffffffffu) return BAD_LENGTH;
        repeat_pattern(whole, block.nbytes, input + block.source, (u32)size);
        return SOUND;
    }
    u32 each = block.nbytes / block.streams;
    u8* out = whole + (u64)number * each;
    Stream stream = {0, 0};
    u32 status = find_stream(block, input, number, each, stream);
    if (status != SOUND) return status;
    const u8* in = input + stream.at;
    if (stream.length <= 0) {
        fill_bytes(out, each, (u8)-stream.length);
        return SOUND;
    }
    u32 length = (u32)stream.length;
    if (length == each) {
        copy_bytes(out, in, each);
        return SOUND;
    }
    if (block.kind == LZ4) return decode_lz4(in, length, out, each);
    return decode_blosclz(in, length, out, each);
}

// Whether a part of a buffer lies inside of it.
DEVICE bool inside(u64 start, u64 count, u64 size) { return count <= size && start <= size - count; }

DEVICE bool is_possible(const Block& block, u64 input_size, u64 room) {
    return block.source <= block.source_end && block.source_end <= input_size &&
           inside(block.target, block.nbytes, room) && block.typesize != 0 && block.streams != 0 &&
           block.streams <= block.nbytes && block.nbytes % block.streams == 0 && block.kind <= LZ4 &&
           (!block.referring || inside(block.reference, block.nbytes, room));
}

// `owners` has the number of the block of each stream.
KERNEL decode_streams(
    const Block* blocks, u64 block_count, const u32* owners, u64 stream_count, const u8* input,
    u64 input_size, u8* front, u64 room, u32* status
) {
    for (u64 number = WARP; number < stream_count; number += WARPS) {
        u32 owner = owners[number], found = OUTSIDE;
        if (owner < block_count) {
            const Block& block = blocks[owner];
            u64 own = number - block.first_stream;
            if (own < block.streams && is_possible(block, input_size, room))
                found = decode_stream(block, input, (u32)own, front);
        }
        if (LANE == 0) status[number] = found;
    }
}

// Filters -----------------------------------------------------------------------------------------

// Transposes four words of four bytes.
DEVICE void transpose4(u32& a, u32& b, u32& c, u32& d) {
    u32 ab_low = byte_perm(a, b, 0x5140), ab_high = byte_perm(a, b, 0x7362);
    u32 cd_low = byte_perm(c, d, 0x5140), cd_high = byte_perm(c, d, 0x7362);
    a = byte_perm(ab_low, cd_low, 0x5410);
    b = byte_perm(ab_low, cd_low, 0x7632);
    c = byte_perm(ab_high, cd_high, 0x5410);
    d = byte_perm(ab_high, cd_high, 0x7632);
}

// Four items of four planes, from four bytes of each.
DEVICE void gather4(const u8* planes, u32 count, u32 item, u32 words[4]) {
    for (u32 plane = 0; plane < 4; ++plane) words[plane] = load4(planes + (u64)plane * count + item);
    transpose4(words[0], words[1], words[2], words[3]);
}

DEVICE void unshuffle2(const u8* from, u8* to, u32 items) {
    for (u32 item = 8 * THREAD; item + 8 <= items; item += 8 * THREADS) {
        u32 low = load4(from + item), high = load4(from + items + item);
        u32 low_next = load4(from + item + 4), high_next = load4(from + items + item + 4);
        store16(
            to + 2ull * item, byte_perm(low, high, 0x5140), byte_perm(low, high, 0x7362),
            byte_perm(low_next, high_next, 0x5140), byte_perm(low_next, high_next, 0x7362)
        );
    }
}

DEVICE void unshuffle4(const u8* from, u8* to, u32 items) {
    for (u32 item = 4 * THREAD; item + 4 <= items; item += 4 * THREADS) {
        u32 made[4];
        gather4(from, items, item, made);
        store16(to + 4ull * item, made[0], made[1], made[2], made[3]);
    }
}

DEVICE void unshuffle8(const u8* from, u8* to, u32 items) {
    for (u32 item = 4 * THREAD; item + 4 <= items; item += 4 * THREADS) {
        u32 low[4], high[4];
        gather4(from, items, item, low);
        gather4(from + 4ull * items, items, item, high);
        store16(to + 8ull * item, low[0], high[0], low[1], high[1]);
        store16(to + 8ull * item + 16, low[2], high[2], low[3], high[3]);
    }
}

// The items from `first` on, byte by byte, and the bytes behind the last whole item.
DEVICE void unshuffle_bytes(const u8* from, u8* to, u32 nbytes, u32 size, u32 first) {
    u32 items = nbytes / size, whole = items * size;
    for (u32 at = first * size + THREAD; at < nbytes; at += THREADS)
        to[at] = at < whole ? from[(u64)(at % size) * items + at / size] : from[at];
}

DEVICE void unshuffle(const u8* from, u8* to, u32 nbytes, u32 size) {
    u32 items = nbytes / size, done = 0;
    if ((u64)to & 15) {
        // Sixteen bytes are stored at once only where they may be.
    } else if (size == 2) {
        unshuffle2(from, to, items);
        done = items / 8 * 8;
    } else if (size == 4) {
        unshuffle4(from, to, items);
        done = items / 4 * 4;
    } else if (size == 8) {
        unshuffle8(from, to, items);
        done = items / 4 * 4;
    }
    unshuffle_bytes(from, to, nbytes, size, done);
}

// Transposes eight rows of eight bits.
DEVICE u64 transpose_bits(u64 rows) {
    u64 swapped = (rows ^ (rows >> 7)) & 0x00AA00AA00AA00AAull;
    rows ^= swapped ^ (swapped << 7);
    swapped = (rows ^ (rows >> 14)) & 0x0000CCCC0000CCCCull;
    rows ^= swapped ^ (swapped << 14);
    swapped = (rows ^ (rows >> 28)) & 0x00000000F0F0F0F0ull;
    return rows ^ swapped ^ (swapped << 28);
}

// Row 8 k + b has bit b of byte k of all items, eight items in a byte.
DEVICE void unbitshuffle(const u8* from, u8* to, u32 nbytes, u32 size, bool partial) {
    u32 items = nbytes / size;
    u32 filtered = partial || items % 8 == 0 ? items - items % 8 : 0;
    u32 groups = filtered / 8;
    for (u32 at = THREAD; at < groups * size; at += THREADS) {
        u32 group = at % groups, place = at / groups;
        u64 rows = 0;
        for (u32 bit = 0; bit < 8; ++bit)
            rows |= (u64)from[(8ull * place + bit) * groups + group] << 8 * bit;
        rows = transpose_bits(rows);
        for (u32 item = 0; item < 8; ++item)
            to[(8ull * group + item) * size + place] = (u8)(rows >> 8 * item);
    }
    for (u32 at = filtered * size + THREAD; at < nbytes; at += THREADS) to[at] = from[at];
}

// Adds up bytes in place: each becomes the sum of those before it, `step` bytes apart, and of itself.
DEVICE void accumulate(u8* bytes, u32 count, u32 step, bool adds, u8* sums) {
    u32 each = (count + THREADS - 1) / THREADS;
    u32 first = THREAD * each, last = first + each < count ? first + each : count;
    u8 sum = 0;
    for (u32 at = first; at < last; ++at) sum = adds ? sum + bytes[at * step] : sum ^ bytes[at * step];
    sums[THREAD] = sum;
    SYNC_TEAM();
    sum = 0;
    for (u32 before = THREAD; before-- > 0;) sum = adds ? sum + sums[before] : sum ^ sums[before];
    for (u32 at = first; at < last; ++at) {
        sum = adds ? sum + bytes[at * step] : sum ^ bytes[at * step];
        bytes[at * step] = sum;
    }
    SYNC_TEAM();
}

// The bytes of the words that delta compares.
DEVICE u32 delta_word(u32 typesize) {
    if (typesize == 1 || typesize == 2 || typesize == 4 || typesize == 8) return typesize;
    return typesize % 8 == 0 ? 8 : 1;
}

DEVICE void undo_delta(u8* bytes, const Block& block, const u8* reference, u8* sums) {
    u32 word = delta_word(block.typesize), words = block.nbytes / word;
    if (block.referring) {
        for (u32 at = THREAD; at < words * word; at += THREADS) bytes[at] ^= reference[at];
    } else {
        for (u32 place = 0; place < word; ++place) accumulate(bytes + place, words, word, false, sums);
    }
}

DEVICE void undo_bytedelta(u8* bytes, u32 nbytes, u32 planes, u8* sums) {
    u32 each = nbytes / planes;
    for (u32 plane = 0; plane < planes; ++plane) accumulate(bytes + (u64)plane * each, each, 1, true, sums);
}

// How many of the filters of a block write into the other buffer.
DEVICE u32 count_turns(const Block& block) {
    u32 turns = 0;
    for (u32 step = 0; step < MOST_FILTERS; ++step)
        turns += block.filters[step] == SHUFFLE || block.filters[step] == BITSHUFFLE;
    return turns;
}

DEVICE void undo_block(const Block& block, u8* front, u8* back, u8* sums) {
    u8 *from = front + block.target, *to = back + block.target;
    const u8* reference = (count_turns(block) % 2 ? back : front) + block.reference;
    for (u32 step = MOST_FILTERS; step-- > 0;) {
        u32 meta = block.metas[step] ? block.metas[step] : block.typesize;
        bool turns = false;
        if (block.filters[step] == SHUFFLE) {
            unshuffle(from, to, block.nbytes, meta);
            turns = true;
        } else if (block.filters[step] == BITSHUFFLE) {
            unbitshuffle(from, to, block.nbytes, block.typesize, block.partial);
            turns = true;
        } else if (block.filters[step] == DELTA) {
            undo_delta(from, block, reference, sums);
        } else if (block.filters[step] == BYTEDELTA) {
            undo_bytedelta(from, block.nbytes, meta, sums);
        }
        SYNC_TEAM();
        if (turns) {
            u8* done = from;
            from = to;
            to = done;
        }
    }
}

// Undoes the filters of the blocks that refer to another block, or of those that do not. The first
// block of a chunk is done in the launch before the one for blocks that refer to it.
KERNEL undo_filters(
    const Block* blocks, u64 block_count, u64 input_size, u8* front, u8* back, u64 room, u32 referring
) {
    SHARED u8 sums[THREADS];
    for (u64 number = TEAM; number < block_count; number += TEAMS) {
        const Block& block = blocks[number];
        if (block.referring == referring && is_possible(block, input_size, room))
            undo_block(block, front, back, sums);
    }
}

// The way into the result -------------------------------------------------------------------------

// Where an item of a box lies, and where it goes.
struct Place {
    i64 source;
    i64 target;
};

DEVICE Place place_of(const Box& box, const Axis* axes, const i64* offsets, u64 item) {
    Place place = {box.source, box.target};
    for (u32 number = box.axes; number-- > 0;) {
        const Axis& axis = axes[box.first_axis + number];
        u64 at = item;
        if (number > 0) {
            // Division of 32 bits is much faster, and serves all but huge boxes.
            u64 rest = item >> 32 || axis.count >> 32 ? item / axis.count : (u32)item / (u32)axis.count;
            at = item - rest * axis.count;
            item = rest;
        }
        place.source += axis.source_table < 0 ? (i64)at * axis.source_step : offsets[axis.source_table + at];
        place.target += axis.target_table < 0 ? (i64)at * axis.target_step : offsets[axis.target_table + at];
    }
    return place;
}

DEVICE bool is_possible(const Box& box, const Axis* axes, u64 axis_count, u64 offset_count) {
    if (box.itemsize == 0 || box.side > 1 || !inside(box.first_axis, box.axes, axis_count)) return false;
    u64 items = 1;
    for (u32 number = 0; number < box.axes; ++number) {
        const Axis& axis = axes[box.first_axis + number];
        if (axis.count == 0 || axis.count > ~0ull / items) return false;
        items *= axis.count;
        if (axis.source_table >= 0 && !inside(axis.source_table, axis.count, offset_count)) return false;
        if (axis.target_table >= 0 && !inside(axis.target_table, axis.count, offset_count)) return false;
    }
    return items == box.items;
}

// Whether the items of a box lie one behind the other on both sides.
DEVICE bool is_run(const Box& box, const Axis* axes) {
    if (box.axes != 1) return false;
    const Axis& axis = axes[box.first_axis];
    return axis.source_table < 0 && axis.target_table < 0 && axis.source_step == box.itemsize &&
           axis.target_step == box.itemsize;
}

DEVICE void move_run(u8* to, const u8* from, u64 nbytes) {
    u64 at = 0;
    if ((((u64)to | (u64)from) & 15) == 0) {
        for (at = 16ull * LANE; at + 16 <= nbytes; at += 16ull * LANES) copy16(to + at, from + at);
        at = nbytes / 16 * 16;
    }
    for (at += LANE; at < nbytes; at += LANES) to[at] = from[at];
}

DEVICE void move_item(u8* to, const u8* from, u32 size) {
    if (size == 4 && (((u64)to | (u64)from) & 3) == 0) {
        *(u32*)to = *(const u32*)from;
    } else if (size == 8 && (((u64)to | (u64)from) & 7) == 0) {
        *(u64*)to = *(const u64*)from;
    } else {
        for (u32 at = 0; at < size; ++at) to[at] = from[at];
    }
}

// Moves the items from `first` to `last` of a box; false where one of them lies outside of a buffer.
DEVICE bool move_items(
    const Box& box, const Axis* axes, const i64* offsets, const u8* staged, u64 room, u8* result,
    u64 result_size, u64 first, u64 last
) {
    u32 size = box.itemsize;
    if (is_run(box, axes)) {
        Place place = place_of(box, axes, offsets, first);
        u64 nbytes = (last - first) * size;
        if (!inside(place.source, nbytes, room) || !inside(place.target, nbytes, result_size)) return false;
        move_run(result + place.target, staged + place.source, nbytes);
        return true;
    }
    bool sound = true;
    for (u64 item = first + LANE; item < last; item += LANES) {
        Place place = place_of(box, axes, offsets, item);
        if (inside(place.source, size, room) && inside(place.target, size, result_size))
            move_item(result + place.target, staged + place.source, size);
        else
            sound = false;
    }
    return sound;
}

// `owners` has the number of the box of each unit, which is UNIT_ITEMS of its items.
KERNEL scatter(
    const Box* boxes, u64 box_count, const u32* owners, u64 unit_count, const Axis* axes, u64 axis_count,
    const i64* offsets, u64 offset_count, const u8* front, const u8* back, u64 room, u8* result,
    u64 result_size, u32* status
) {
    for (u64 unit = WARP; unit < unit_count; unit += WARPS) {
        u32 owner = owners[unit];
        bool sound = false;
        if (owner < box_count && is_possible(boxes[owner], axes, axis_count, offset_count)) {
            const Box& box = boxes[owner];
            u64 first = (unit - box.first_unit) * UNIT_ITEMS;
            if (unit >= box.first_unit && first < box.items) {
                u64 last = box.items - first < UNIT_ITEMS ? box.items : first + UNIT_ITEMS;
                const u8* staged = box.side ? back : front;
                sound = move_items(box, axes, offsets, staged, room, result, result_size, first, last);
            }
        }
        // One word for all units: they are Ingot's own, and none of them may fail.
        if (!sound) *status = OUTSIDE;
    }
}

// Turns the bytes of words of 2, 4 or 8 bytes around, in place.
KERNEL swap_bytes(u8* result, u64 words, u32 width) {
    for (u64 word = WARP * LANES + LANE; word < words; word += WARPS * LANES) {
        u8* bytes = result + word * width;
        for (u32 at = 0; at < width / 2; ++at) {
            u8 low = bytes[at];
            bytes[at] = bytes[width - 1 - at];
            bytes[width - 1 - at] = low;
        }
    }
}
