// The kernels that decode Blosc chunks on a device: streams, filters, and the way into the result.
//
// One source for two compilers. NVRTC makes device code of it. A C++ compiler makes host code of it,
// with a warp of one lane and a thread block of one thread; the tests run that under sanitizers. With
// HOST_LANES, each lane is a thread of the host, so that tests can look for races between lanes.
//
// A window (ingot.device.window) is a table of blocks and boxes, with the stored bytes of the blocks
// in one buffer, `input`. Four kernels work on it, one after the other:
//
//   find_streams     a thread for each block: where its streams lie
//   decode_streams   a warp for each stream: from `input` into `front`, one of two equal buffers
//   undo_filters     a thread block for each block: from `front` to `back` and so on
//   scatter          a warp for each part of a box: from `front` or `back` into `result`
//
// Two steps save memory traffic. A block whose bytes follow each other in the result goes there at once,
// without a box. A stream that is stored as it is, and is a plane of shuffled bytes, is not copied: the
// filter reads it where it is stored.
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
#define DEVICE_MEMBER static __device__ __forceinline__
#define KERNEL extern "C" __global__ void
#define LAUNCHED(threads, blocks) __launch_bounds__(threads, blocks)
#define SHARED __shared__
// Kernels are started with this many threads in a block.
#define THREADS 256
#define LANES 32
#define UNROLL _Pragma("unroll")
#define UNROLL_NOT _Pragma("unroll 1")
#define THREAD threadIdx.x
#define TEAM blockIdx.x
#define TEAMS gridDim.x
#define SYNC_WARP() __syncwarp()
#define SYNC_TEAM() __syncthreads()

DEVICE u32 byte_perm(u32 low, u32 high, u32 selector) { return __byte_perm(low, high, selector); }

// Loads four bytes, little end first, from any address. Each of the words that are read holds one of them.
DEVICE u32 load4(const u8* from) {
    const u32* words = (const u32*)((u64)from & ~3ull);
    u32 shift = 8 * ((u64)from & 3);
    return shift == 0 ? words[0] : __funnelshift_r(words[0], words[1], shift);
}

DEVICE u32 leading_zeros(u64 bits) { return __clzll(bits); }

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
#define DEVICE_MEMBER static inline
#define KERNEL extern "C" void
#define LAUNCHED(threads, blocks)
#define TEAM 0u
#define TEAMS 1u
#define UNROLL
#define UNROLL_NOT
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

DEVICE u32 leading_zeros(u64 bits) { return (u32)__builtin_clzll(bits); }

DEVICE void store16(u8* to, u32 a, u32 b, u32 c, u32 d) {
    u32 words[4] = {a, b, c, d};
    memcpy(to, words, 16);
}

DEVICE void copy16(u8* to, const u8* from) { memcpy(to, from, 16); }
#endif

#define LANE (THREAD % LANES)
#define WARPS_OF_TEAM (THREADS / LANES)
#define WARP ((u64)TEAM * WARPS_OF_TEAM + THREAD / LANES)
#define WARPS ((u64)TEAMS * WARPS_OF_TEAM)

// The tables. ingot.device.window has the same records as NumPy types; a test compares the sizes.

enum Kind { RAW = 0, PATTERN = 1, BLOSCLZ = 2, LZ4 = 3 };
enum Filter { SHUFFLE = 1, BITSHUFFLE = 2, DELTA = 3, BYTEDELTA = 35 };
#define MOST_FILTERS 6

struct Block {
    u64 source;         // where its bytes begin in `input`
    u64 source_end;     // where they end
    u64 target;         // where it begins in `front` and `back`
    u64 reference;      // where the first block of its chunk begins, for delta
    i64 direct;         // where it begins in `result`; below zero where boxes move it there
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

static_assert(sizeof(Block) == 72 && sizeof(Box) == 48 && sizeof(Axis) == 40, "as NumPy has them");

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

// Up to this many bytes are copied one by one, by each lane.
#define FEW_BYTES 128

// Copies bytes to a place behind them, or to another buffer.
DEVICE void copy_bytes(u8* to, const u8* from, u32 count) {
    u32 at = 0;
    if (count > FEW_BYTES) {
        u32 head = (u32)(16 - ((u64)to & 15)) & 15;
        for (u32 byte = LANE; byte < head; byte += LANES) to[byte] = from[byte];
        for (at = head + 16 * LANE; at + 16 <= count; at += 16 * LANES)
            store16(to + at, load4(from + at), load4(from + at + 4), load4(from + at + 8), load4(from + at + 12));
        at = head + (count - head) / 16 * 16;
    }
    for (at += LANE; at < count; at += LANES) to[at] = from[at];
}

DEVICE void repeat_pattern(u8* to, u32 count, const u8* pattern, u32 width) {
    for (u32 at = LANE; at < count; at += LANES) to[at] = pattern[at % width];
}

DEVICE void fill_bytes(u8* to, u32 count, u8 value) {
    u32 at = 0, word = value * 0x01010101u;
    if (count > FEW_BYTES) {
        u32 head = (u32)(16 - ((u64)to & 15)) & 15;
        for (u32 byte = LANE; byte < head; byte += LANES) to[byte] = value;
        for (at = head + 16 * LANE; at + 16 <= count; at += 16 * LANES) store16(to + at, word, word, word, word);
        at = head + (count - head) / 16 * 16;
    }
    for (at += LANE; at < count; at += LANES) to[at] = value;
}

// Copies a match; where both parts overlap, the bytes repeat. All that is read is written already.
DEVICE void copy_match(u8* out, u32 made, u32 distance, u32 length) {
    u8* to = out + made;
    const u8* from = to - distance;
    if (distance >= length) {
        copy_bytes(to, from, length);
    } else if (distance == 1) {
        fill_bytes(to, length, from[0]);
    } else {
        // A few whole repetitions, then twice as many each time.
        u32 first = distance * ((FEW_BYTES + distance - 1) / distance);
        u32 done = length < first ? length : first;
        for (u32 at = LANE; at < done; at += LANES) to[at] = from[at % distance];
        while (done < length) {
            SYNC_WARP();
            u32 more = length - done < done ? length - done : done;
            copy_bytes(to + done, to, more);
            done += more;
        }
    }
    SYNC_WARP();
}

// Short operations are decoded several at a time. The lanes take the bytes of a window of the input as the
// first bytes of operations, all at once; which of them are such follows from the lengths. Then each lane
// finds the sources of some bytes of the output. Bytes of the same batch are no sources: a lane goes on
// to the bytes that those are copies of.

#define WINDOW 32
// The places of a window that a lane has: those that leave its own number when divided by LANES.
#define EACH (WINDOW / LANES)
#define PLACE(number) ((number) * LANES + LANE)
// So many rounds find all operations of a window, of at least two bytes each.
#define ROUNDS 4
// The most bytes that a batch makes, and how many bytes of the input it may read.
#define BATCH 64
#define AHEAD 72

// A value for each place of a window.
struct Spread {
    u32 of[EACH];
};

// What the lanes of a warp share.
struct Batch {
    u32 board[WINDOW];      // values of places, where lanes cannot read those of others
    u32 operations[BATCH];  // by their first byte of output: place, literals and distance
};

struct Operation {
    u32 size;               // its bytes in the input; zero where it is not short
    u32 literals;
    u32 match;              // the length of its match, behind the literals
};

// The four bytes from each place of a window on; zero where the input ends before. On a GPU these are parts of
// two words, which are put together when they are needed: the loads are on their way until then.
struct Window {
    Spread words;
#ifdef __CUDACC__
    u32 behind, shift;
#endif
};

#ifdef __CUDACC__
DEVICE Window load_window(const u8* in, u32 left) {
    const u8* from = in + LANE;
    const u32* words = (const u32*)((u64)from & ~3ull);
    Window found = {{{0}}, 0, 8 * (u32)((u64)from & 3)};
    if (LANE + 4 <= left) {
        found.words.of[0] = words[0];
        if (found.shift) found.behind = words[1];
    }
    return found;
}

DEVICE Spread bytes_of(const Window& window) {
    return {{__funnelshift_r(window.words.of[0], window.behind, window.shift)}};
}
#else
DEVICE Window load_window(const u8* in, u32 left) {
    Window found;
    for (u32 e = 0; e < EACH; ++e) found.words.of[e] = PLACE(e) + 4 <= left ? load4(in + PLACE(e)) : 0;
    return found;
}

DEVICE Spread bytes_of(const Window& window) { return window.words; }
#endif

// Bytes of a batch that are loaded and not stored yet: the next batch is parsed meanwhile.
struct Pending {
    u8 values[BATCH / LANES];
    u32 count;
    u32 target;
};

// Stores what is pending. All lanes see it afterwards.
DEVICE void store_pending(u8* out, Pending& pending) {
    UNROLL for (u32 e = 0; e < BATCH / LANES; ++e)
        if (PLACE(e) < pending.count) out[pending.target + PLACE(e)] = pending.values[e];
    pending.count = 0;
    SYNC_WARP();
}

#ifdef __CUDACC__
DEVICE u32 value_of(const Spread& values, u32 place, Batch&) {
    return __shfl_sync(~0u, values.of[0], place);
}

DEVICE Spread gather(const Spread& values, const Spread& places, Batch&) {
    return {{__shfl_sync(~0u, values.of[0], places.of[0])}};
}

DEVICE u32 any_bits(const Spread& bits, Batch&) {
#if __CUDA_ARCH__ >= 800
    return __reduce_or_sync(~0u, bits.of[0]);
#else
    u32 found = bits.of[0];
    for (u32 step = 16; step; step /= 2) found |= __shfl_xor_sync(~0u, found, step);
    return found;
#endif
}

// The bits of the places that have a value other than zero.
DEVICE u32 places_of(const Spread& values, Batch&) { return __ballot_sync(~0u, values.of[0]); }

// The sums of the values up to each place.
DEVICE Spread sums_of(const Spread& values, Batch&) {
    u32 sum = values.of[0];
    for (u32 step = 1; step < WINDOW; step *= 2) {
        u32 before = __shfl_up_sync(~0u, sum, step);
        if (LANE >= step) sum += before;
    }
    return {{sum}};
}
#else
DEVICE void share(const Spread& values, Batch& batch) {
    SYNC_WARP();
    for (u32 e = 0; e < EACH; ++e) batch.board[PLACE(e)] = values.of[e];
    SYNC_WARP();
}

DEVICE u32 value_of(const Spread& values, u32 place, Batch& batch) {
    share(values, batch);
    return batch.board[place];
}

DEVICE Spread gather(const Spread& values, const Spread& places, Batch& batch) {
    share(values, batch);
    Spread found;
    for (u32 e = 0; e < EACH; ++e) found.of[e] = batch.board[places.of[e] % WINDOW];
    return found;
}

DEVICE u32 any_bits(const Spread& bits, Batch& batch) {
    share(bits, batch);
    u32 found = 0;
    for (u32 place = 0; place < WINDOW; ++place) found |= batch.board[place];
    return found;
}

DEVICE u32 places_of(const Spread& values, Batch& batch) {
    share(values, batch);
    u32 found = 0;
    for (u32 place = 0; place < WINDOW; ++place) found |= (u32)(batch.board[place] != 0) << place;
    return found;
}

DEVICE Spread sums_of(const Spread& values, Batch& batch) {
    share(values, batch);
    Spread found;
    for (u32 e = 0; e < EACH; ++e) {
        found.of[e] = 0;
        for (u32 place = 0; place <= PLACE(e); ++place) found.of[e] += batch.board[place];
    }
    return found;
}
#endif

// The first byte of the operation that makes a byte. `starts` has the bits of the first bytes of all.
DEVICE u32 first_of(u32 byte, u64 starts) { return 63 - leading_zeros(starts & ~0ull >> (63 - byte)); }

// Where a byte of a batch comes from where all matches have their sources in front of it.
DEVICE const u8* outer_source(u32 byte, u64 starts, const Batch& batch, const u8* in, const u8* out) {
    u32 first = first_of(byte, starts), operation = batch.operations[first];
    u32 within = byte - first, distance = operation >> 11;
    const u8* literal = in + (operation & 31) + 1 + within;
    const u8* match = out + (i64)(int)(byte - distance);
    return within < (operation >> 5 & 63) ? literal : match;
}

// Where a byte of a batch comes from.
DEVICE const u8* source_of(u32 byte, u64 starts, const Batch& batch, const u8* in, const u8* out) {
    while (true) {
        u32 first = first_of(byte, starts);
        u32 operation = batch.operations[first];
        u32 place = operation & 31, literals = operation >> 5 & 63, distance = operation >> 11;
        u32 within = byte - first;
        if (within < literals) return in + place + 1 + within;
        within -= literals;
        if (within >= distance) within %= distance;
        u32 behind = first + literals + within;
        if (behind < distance) return out - (distance - behind);
        byte = behind - distance;
    }
}

// Decodes short operations of the input, of which `left` bytes are there, to the output, of which `made` bytes
// exist. Returns how many bytes of the input they have: none where the first is not short or not sound. At
// least AHEAD bytes have to be left, and room for BATCH. The window becomes the next one.
template <class Codec>
DEVICE u32 decode_batch(
    const u8* in, u32 left, u8* out, u32 made, Window& window, Pending& pending, Batch& batch, u32& produced
) {
    Spread bytes = bytes_of(window);
    Spread sizes, short_ones, matches, literals, jumps, bits;
    UNROLL for (u32 e = 0; e < EACH; ++e) {
        Operation found = Codec::read(bytes.of[e]);
        sizes.of[e] = PLACE(e) + found.size;
        short_ones.of[e] = found.size;
        literals.of[e] = found.literals;
        matches.of[e] = found.match;
        jumps.of[e] = found.size && sizes.of[e] < WINDOW ? sizes.of[e] : WINDOW;
    }
    u32 operations = places_of(short_ones, batch);
    if (!(operations & 1)) return 0;
    u32 reached = 1;
    UNROLL for (u32 round = 0; round < ROUNDS; ++round) {
        UNROLL for (u32 e = 0; e < EACH; ++e) {
            bool on = (reached >> PLACE(e) & 1) && jumps.of[e] < WINDOW;
            bits.of[e] = on ? 1u << jumps.of[e] : 0;
        }
        reached |= any_bits(bits, batch);
        if (round + 1 < ROUNDS) {
            Spread further = gather(jumps, jumps, batch);
            UNROLL for (u32 e = 0; e < EACH; ++e)
                if (jumps.of[e] < WINDOW) jumps.of[e] = further.of[e];
        }
    }
    operations &= reached;
    UNROLL for (u32 e = 0; e < EACH; ++e)
        bits.of[e] = operations >> PLACE(e) & 1 ? literals.of[e] + matches.of[e] : 0;
    Spread ends = sums_of(bits, batch), failed;
    UNROLL for (u32 e = 0; e < EACH; ++e) {
        bits.of[e] = ends.of[e] <= BATCH;
        failed.of[e] = 0;
    }
    operations &= places_of(bits, batch);
    if (!operations) return 0;
    Spread low, high, inner;
    UNROLL for (u32 e = 0; e < EACH; ++e) {
        low.of[e] = high.of[e] = inner.of[e] = 0;
        if (!(operations >> PLACE(e) & 1)) continue;
        u32 first = ends.of[e] - matches.of[e] - literals.of[e];
        u32 distance = 1;
        if (matches.of[e]) {
            distance = Codec::distance(bytes.of[e], in + PLACE(e));
            failed.of[e] = distance == 0 || distance > made + first + literals.of[e];
            inner.of[e] = distance < ends.of[e];
        }
        batch.operations[first] = PLACE(e) | literals.of[e] << 5 | distance << 11;
        (first < 32 ? low : high).of[e] = 1u << first % 32;
    }
    if (places_of(failed, batch)) return 0;
    u64 starts = (u64)any_bits(high, batch) << 32 | any_bits(low, batch);
    u32 last = 63 - leading_zeros(operations);
    u32 consumed = value_of(sizes, last, batch);
    produced = value_of(ends, last, batch);
    window = load_window(in + consumed, left - consumed);
    bool has_inner = places_of(inner, batch);
    store_pending(out, pending);
    if (has_inner) {
        UNROLL for (u32 e = 0; e < BATCH / LANES; ++e)
            if (PLACE(e) < produced) pending.values[e] = *source_of(PLACE(e), starts, batch, in, out + made);
    } else {
        UNROLL for (u32 e = 0; e < BATCH / LANES; ++e)
            if (PLACE(e) < produced) pending.values[e] = *outer_source(PLACE(e), starts, batch, in, out + made);
    }
    pending.count = produced;
    pending.target = made;
    SYNC_WARP();
    return consumed;
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

struct Lz4 {
    // A longer match with one more byte for its length is short as well, where that byte is at hand.
    DEVICE_MEMBER Operation read(u32 bytes) {
        u32 literals = bytes >> 4 & 15, match = bytes & 15, more = bytes >> 24;
        bool longer = match == 15;
        if (literals == 15 || (longer && (literals || more == 255))) return {0, 0, 0};
        return {3 + literals + longer, literals, match + 4 + (longer ? more : 0)};
    }

    DEVICE_MEMBER u32 distance(u32 bytes, const u8* in) {
        u32 literals = bytes >> 4 & 15;
        if (literals < 2) return bytes >> (8 + 8 * literals) & 0xffff;
        return in[1 + literals] | (u32)in[2 + literals] << 8;
    }
};

// LZ4, by the rules of LZ4_decompress_safe: the last five bytes are literals, the last match begins
// twelve bytes before the end or earlier. All lanes parse the same bytes, and share the copying.
DEVICE u32 decode_lz4(const u8* in, u32 size, u8* out, u32 room, Batch& batch) {
    const u32 LAST_LITERALS = 5, MATCH_LIMIT = 12, SHORTEST = 4;
    u32 at = 0, made = 0;
    Window window = load_window(in, size);
    Pending pending = {{0}, 0, 0};
    while (true) {
        if (at >= size) return CUT_INPUT;
        if (size - at >= AHEAD && room - made >= BATCH + MATCH_LIMIT) {
            u32 more = 0;
            u32 passed = decode_batch<Lz4>(in + at, size - at, out, made, window, pending, batch, more);
            at += passed;
            made += more;
            if (passed) continue;
        }
        store_pending(out, pending);
        u32 token = in[at++];
        u32 literals = token >> 4;
        if (literals == 15 && !add_length(in, size, at, literals, room)) return CUT_INPUT;
        if (literals > size - at) return CUT_INPUT;
        if (literals > room - made) return FULL;
        copy_bytes(out + made, in + at, literals);
        at += literals;
        made += literals;
        SYNC_WARP();
        if (at == size) return made == room ? SOUND : SHORT;
        if (room - made < MATCH_LIMIT || size - at < 2 + 1 + LAST_LITERALS) return CUT_INPUT;
        u32 distance = in[at] | (u32)in[at + 1] << 8;
        at += 2;
        u32 length = (token & 15) + SHORTEST;
        if (length == 15 + SHORTEST && !add_length(in, size, at, length, room)) return CUT_INPUT;
        if (distance == 0 || distance > made) return FAR;
        if (length > room - made || room - made - length < LAST_LITERALS) return FULL;
        window = load_window(in + at, size - at);
        copy_match(out, made, distance, length);
        made += length;
    }
}

// Matches that reach back further than this have two more bytes for their distance.
#define NEAR 8192

struct Blosclz {
    DEVICE_MEMBER Operation read(u32 bytes) {
        u32 control = bytes & 255, next = bytes >> 8 & 255, after = bytes >> 16 & 255;
        if (control < 32) return {control + 2, control + 1, 0};
        bool longer = control >> 5 == 7, far = (control & 31) == 31 && (longer ? after : next) == 255;
        if (longer && (next == 255 || far)) return {0, 0, 0};
        return {far ? 4u : 2u + longer, 0, (control >> 5) + 2 + (longer ? next : 0)};
    }

    DEVICE_MEMBER u32 distance(u32 bytes, const u8*) {
        u32 low = bytes >> ((bytes & 255) >> 5 == 7 ? 16 : 8) & 255;
        u32 found = ((bytes & 31) << 8) + low + 1;
        return found == NEAR ? found + (bytes >> 8 & 0xff00) + (bytes >> 24) : found;
    }
};

DEVICE u32 decode_blosclz(const u8* in, u32 size, u8* out, u32 room, Batch& batch) {
    const u32 LONG_MATCH = 9;
    u32 at = 0, made = 0;
    if (size == 0) return CUT_INPUT;
    Window window = load_window(in, size);
    Pending pending = {{0}, 0, 0};
    while (at < size) {
        if (at && size - at >= AHEAD && room - made >= BATCH) {
            u32 more = 0;
            u32 passed = decode_batch<Blosclz>(in + at, size - at, out, made, window, pending, batch, more);
            at += passed;
            made += more;
            if (passed) continue;
        }
        store_pending(out, pending);
        // The upper bits of the first byte have the version.
        u32 control = at ? in[at] : in[at] & 31;
        ++at;
        if (control < 32) {
            u32 literals = control + 1;
            if (literals > size - at) return CUT_INPUT;
            if (literals > room - made) return FULL;
            copy_bytes(out + made, in + at, literals);
            SYNC_WARP();
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
        window = load_window(in + at, size - at);
    }
    return made == room ? SOUND : SHORT;
}

// Whether a part of a buffer lies inside of it.
DEVICE bool inside(u64 start, u64 count, u64 size) { return count <= size && start <= size - count; }

DEVICE bool is_possible(const Block& block, u64 input_size, u64 room, u64 result_size, u64 stream_count) {
    return block.source <= block.source_end && block.source_end <= input_size &&
           inside(block.target, block.nbytes, room) && block.typesize != 0 && block.streams != 0 &&
           block.streams <= block.nbytes && block.nbytes % block.streams == 0 && block.kind <= LZ4 &&
           (!block.referring || inside(block.reference, block.nbytes, room)) &&
           (block.direct < 0 || inside(block.direct, block.nbytes, result_size)) &&
           inside(block.first_stream, block.streams, stream_count);
}

// Checks the length of the stream at a place of `input`, which the place is moved behind.
DEVICE u32 check_length(const Block& block, const u8* input, u32 each, u64& at) {
    if (block.source_end - at < 4) return CUT_LENGTH;
    int length = (int)load4(input + at);
    at += 4;
    u64 stored = length < 0 ? 1 : (u64)length;
    if (length <= 0 ? !block.runs : stored > each) return BAD_LENGTH;
    if (length < -255) return BAD_RUN;
    if (stored > block.source_end - at) return CUT_LENGTH;
    if (length < 0 && input[at] != 1) return BAD_RUN;
    at += stored;
    return SOUND;
}

// The lengths of streams stand in front of each. `places` gets the number behind that of the place where the
// length of a stream lies; zero where a stream is not sound, or one before it, and then `status` says why.
KERNEL LAUNCHED(THREADS, 4) find_streams(
    const Block* blocks, u64 block_count, const u8* input, u64 input_size, u64 room, u64 result_size, u64* places,
    u32* status, u64 stream_count
) {
    for (u64 number = (u64)TEAM * THREADS + THREAD; number < block_count; number += (u64)TEAMS * THREADS) {
        const Block& block = blocks[number];
        if (block.kind == RAW || block.kind == PATTERN) continue;
        if (!is_possible(block, input_size, room, result_size, stream_count)) continue;
        u64 at = block.source;
        u32 each = block.nbytes / block.streams, found = SOUND;
        for (u32 stream = 0; stream < block.streams; ++stream) {
            u64 place = at + 1;
            if (found == SOUND) found = check_length(block, input, each, at);
            places[block.first_stream + stream] = found == SOUND ? place : 0;
            status[block.first_stream + stream] = found;
        }
    }
}

// The filters of a block are undone from the last one to the first.
DEVICE u32 last_filter(const Block& block) {
    u32 last = 0;
    for (u32 step = 0; step < MOST_FILTERS; ++step)
        if (block.filters[step]) last = step;
    return last;
}

#define MOST_PLANES 16

// Whether the streams of a block are the planes of its shuffled bytes, and these are read where they lie.
DEVICE bool has_planes(const Block& block) {
    u32 last = last_filter(block);
    return block.filters[last] == SHUFFLE && (block.metas[last] == 0 || block.metas[last] == block.typesize) &&
           block.streams == block.typesize && block.streams > 1 && block.streams <= MOST_PLANES &&
           block.kind != RAW && block.kind != PATTERN;
}

// Decodes a stream into its part of `whole`. `plane` becomes the number behind where it lies in `input`,
// where that is where it is read; else zero. `place` is what `find_streams` found.
DEVICE u32 decode_stream(
    const Block& block, const u8* input, u32 number, u64 place, u8* whole, Batch& batch, u64& plane
) {
    u64 size = block.source_end - block.source;
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
    if (place <= block.source || place > block.source_end || block.source_end - place < 3) return OUTSIDE;
    int stored = (int)load4(input + place - 1);
    const u8* in = input + place + 3;
    if (stored <= 0) {
        fill_bytes(out, each, (u8)-stored);
        return SOUND;
    }
    u32 length = (u32)stored;
    if (length > block.source_end - place - 3) return OUTSIDE;
    if (length == each) {
        if (has_planes(block)) {
            plane = place + 4;
        } else {
            copy_bytes(out, in, each);
        }
        return SOUND;
    }
    if (block.kind == LZ4) return decode_lz4(in, length, out, each, batch);
    return decode_blosclz(in, length, out, each, batch);
}

// Takes the next one of some streams, for all lanes of a warp.
#ifdef __CUDACC__
DEVICE u32 take_stream(u32* next, Batch&) {
    u32 taken = LANE == 0 ? atomicAdd(next, 1) : 0;
    return __shfl_sync(~0u, taken, 0);
}
#else
DEVICE u32 take_stream(u32* next, Batch& batch) {
    SYNC_WARP();
    if (LANE == 0) batch.board[0] = __atomic_fetch_add(next, 1, __ATOMIC_RELAXED);
    SYNC_WARP();
    return batch.board[0];
}
#endif

// `owners` has the number of the block of each stream; `planes` has what `find_streams` found, and gets where
// streams are read in `input`. Streams differ much: each warp takes the next one when it is done with one, by counting up `next`.
KERNEL LAUNCHED(THREADS, 4) decode_streams(
    const Block* blocks, u64 block_count, const u32* owners, u64 stream_count, const u8* input,
    u64 input_size, u8* front, u64 room, u8* result, u64 result_size, u64* planes, u32* status, u32* next
) {
    SHARED Batch batches[WARPS_OF_TEAM];
    Batch& batch = batches[THREAD / LANES];
    while (true) {
        u32 number = take_stream(next, batch);
        if (number >= stream_count) return;
        u32 owner = owners[number], found = OUTSIDE;
        u64 plane = 0;
        if (owner < block_count) {
            const Block& block = blocks[owner];
            u64 own = number - block.first_stream;
            if (own < block.streams && is_possible(block, input_size, room, result_size, stream_count)) {
                bool plain = block.kind == RAW || block.kind == PATTERN;
                u64 place = plain ? 0 : planes[number];
                bool filtered = block.filters[last_filter(block)] != 0;
                u8* whole = block.direct < 0 || filtered ? front + block.target : result + block.direct;
                if (plain || place)
                    found = decode_stream(block, input, (u32)own, place, whole, batch, plane);
                else
                    found = status[number];
            }
        }
        // All lanes have read what the first one writes now.
        SYNC_WARP();
        if (LANE == 0) {
            status[number] = found;
            planes[number] = plane;
        }
        SYNC_WARP();
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

// Where the planes of shuffled bytes begin: one behind the other, but for those that are read in `input`.
struct Planes {
    const u64* stored;      // the numbers behind their places in `input`, zero for others; null for none
    const u8* input;
    const u8* from;
    u32 items;
};

DEVICE const u8* plane_at(const Planes& planes, u32 number) {
    u64 stored = planes.stored ? planes.stored[number] : 0;
    return stored ? planes.input + stored - 1 : planes.from + (u64)number * planes.items;
}

DEVICE void unshuffle2(const Planes& planes, u8* to, u32 items) {
    const u8 *first = plane_at(planes, 0), *second = plane_at(planes, 1);
    for (u32 item = 8 * THREAD; item + 8 <= items; item += 8 * THREADS) {
        u32 low = load4(first + item), high = load4(second + item);
        u32 low_next = load4(first + item + 4), high_next = load4(second + item + 4);
        store16(
            to + 2ull * item, byte_perm(low, high, 0x5140), byte_perm(low, high, 0x7362),
            byte_perm(low_next, high_next, 0x5140), byte_perm(low_next, high_next, 0x7362)
        );
    }
}

// Items of several words of four bytes, four items at a time.
template <u32 WORDS> DEVICE void unshuffle_words(const Planes& planes, u8* to, u32 items) {
    const u8* from[4 * WORDS];
    UNROLL for (u32 number = 0; number < 4 * WORDS; ++number) from[number] = plane_at(planes, number);
    for (u32 item = 4 * THREAD; item + 4 <= items; item += 4 * THREADS) {
        u32 made[WORDS][4];
        UNROLL for (u32 word = 0; word < WORDS; ++word) {
            UNROLL for (u32 byte = 0; byte < 4; ++byte) made[word][byte] = load4(from[4 * word + byte] + item);
        }
        UNROLL for (u32 word = 0; word < WORDS; ++word)
            transpose4(made[word][0], made[word][1], made[word][2], made[word][3]);
        u8* begin = to + 4ull * WORDS * item;
        UNROLL for (u32 part = 0; part < WORDS; ++part) {
            u32 at = 4 * part;
            store16(
                begin + 16 * part, made[at % WORDS][at / WORDS], made[(at + 1) % WORDS][(at + 1) / WORDS],
                made[(at + 2) % WORDS][(at + 2) / WORDS], made[(at + 3) % WORDS][(at + 3) / WORDS]
            );
        }
    }
}

// The items from `first` on, byte by byte.
DEVICE void unshuffle_items(const Planes& planes, u8* to, u32 items, u32 size, u32 first) {
    for (u32 place = 0; place < size; ++place) {
        const u8* plane = plane_at(planes, place);
        for (u32 item = first + THREAD; item < items; item += THREADS) to[(u64)item * size + place] = plane[item];
    }
}

// Items of any size, and the bytes behind the last whole item.
DEVICE void unshuffle(const Planes& planes, u8* to, u32 nbytes, u32 size) {
    u32 items = planes.items, done = 0;
    if ((u64)to & 15) {
        // Sixteen bytes are stored at once only where they may be.
    } else if (size == 2) {
        unshuffle2(planes, to, items);
        done = items / 8 * 8;
    } else if (size == 4) {
        unshuffle_words<1>(planes, to, items);
        done = items / 4 * 4;
    } else if (size == 8) {
        unshuffle_words<2>(planes, to, items);
        done = items / 4 * 4;
    } else if (size == 16) {
        unshuffle_words<4>(planes, to, items);
        done = items / 4 * 4;
    }
    unshuffle_items(planes, to, items, size, done);
    for (u32 at = items * size + THREAD; at < nbytes; at += THREADS) to[at] = planes.from[at];
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

// Eight bytes of one place in eight items, from the eight rows of their bits.
DEVICE u64 gather_bits(const u8* from, u32 groups, u32 place, u32 group) {
    u64 rows = 0;
    UNROLL for (u32 bit = 0; bit < 8; ++bit) rows |= (u64)from[(8ull * place + bit) * groups + group] << 8 * bit;
    return transpose_bits(rows);
}

// Items of several words of four bytes, eight items at a time.
template <u32 WORDS> DEVICE void unbitshuffle_words(const u8* from, u8* to, u32 groups) {
    for (u32 group = THREAD; group < groups; group += THREADS) {
        u32 made[WORDS][8];
        UNROLL for (u32 word = 0; word < WORDS; ++word) {
            UNROLL for (u32 byte = 0; byte < 4; ++byte) {
                u64 bytes = gather_bits(from, groups, 4 * word + byte, group);
                made[word][byte] = (u32)bytes;
                made[word][4 + byte] = (u32)(bytes >> 32);
            }
            transpose4(made[word][0], made[word][1], made[word][2], made[word][3]);
            transpose4(made[word][4], made[word][5], made[word][6], made[word][7]);
        }
        u8* begin = to + 32ull * WORDS * group;
        UNROLL for (u32 part = 0; part < 2 * WORDS; ++part) {
            u32 at = 4 * part;
            store16(
                begin + 16 * part, made[at % WORDS][at / WORDS], made[(at + 1) % WORDS][(at + 1) / WORDS],
                made[(at + 2) % WORDS][(at + 2) / WORDS], made[(at + 3) % WORDS][(at + 3) / WORDS]
            );
        }
    }
}

DEVICE void unbitshuffle2(const u8* from, u8* to, u32 groups) {
    for (u32 group = THREAD; group < groups; group += THREADS) {
        u64 low = gather_bits(from, groups, 0, group), high = gather_bits(from, groups, 1, group);
        store16(
            to + 16ull * group, byte_perm((u32)low, (u32)high, 0x5140), byte_perm((u32)low, (u32)high, 0x7362),
            byte_perm((u32)(low >> 32), (u32)(high >> 32), 0x5140),
            byte_perm((u32)(low >> 32), (u32)(high >> 32), 0x7362)
        );
    }
}

DEVICE void unbitshuffle_bytes(const u8* from, u8* to, u32 groups, u32 size) {
    for (u32 at = THREAD; at < groups * size; at += THREADS) {
        u32 group = at % groups, place = at / groups;
        u64 bytes = gather_bits(from, groups, place, group);
        for (u32 item = 0; item < 8; ++item) to[(8ull * group + item) * size + place] = (u8)(bytes >> 8 * item);
    }
}

// Row 8 k + b has bit b of byte k of all items, eight items in a byte.
DEVICE void unbitshuffle(const u8* from, u8* to, u32 nbytes, u32 size, bool partial) {
    u32 items = nbytes / size;
    u32 filtered = partial || items % 8 == 0 ? items - items % 8 : 0;
    u32 groups = filtered / 8;
    if ((u64)to & 15) {
        unbitshuffle_bytes(from, to, groups, size);
    } else if (size == 2) {
        unbitshuffle2(from, to, groups);
    } else if (size == 4) {
        unbitshuffle_words<1>(from, to, groups);
    } else if (size == 8) {
        unbitshuffle_words<2>(from, to, groups);
    } else {
        unbitshuffle_bytes(from, to, groups, size);
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

DEVICE void undo_block(
    const Block& block, const u64* planes, const u8* input, u8* front, u8* back, u8* result, u8* sums
) {
    u8 *from = front + block.target, *to = back + block.target;
    const u8* reference = (count_turns(block) % 2 ? back : front) + block.reference;
    // A block that goes to the result at once has one filter, or none.
    if (block.direct >= 0) to = result + block.direct;
    // Only the filter that is undone first reads the streams.
    const u64* stored = has_planes(block) ? planes + block.first_stream : nullptr;
    UNROLL_NOT for (u32 step = MOST_FILTERS; step-- > 0;) {
        if (block.filters[step] == 0) continue;
        u32 meta = block.metas[step] ? block.metas[step] : block.typesize;
        bool turns = false;
        if (block.filters[step] == SHUFFLE) {
            unshuffle({stored, input, from, block.nbytes / meta}, to, block.nbytes, meta);
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
            stored = nullptr;
            u8* done = from;
            from = to;
            to = done;
        }
    }
}

// Undoes the filters of the blocks that refer to another block, or of those that do not. The first
// block of a chunk is done in the launch before the one for blocks that refer to it.
KERNEL LAUNCHED(THREADS, 5) undo_filters(
    const Block* blocks, u64 block_count, const u64* planes, u64 stream_count, const u8* input, u64 input_size,
    u8* front, u8* back, u64 room, u8* result, u64 result_size, u32 referring
) {
    SHARED u8 sums[THREADS];
    for (u64 number = TEAM; number < block_count; number += TEAMS) {
        const Block& block = blocks[number];
        if (block.referring == referring && is_possible(block, input_size, room, result_size, stream_count))
            undo_block(block, planes, input, front, back, result, sums);
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
