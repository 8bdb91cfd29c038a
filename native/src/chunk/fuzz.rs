//! The fuzz target of the native kernel: damage sound chunks at random and decode them.
//!
//! Every execution follows from a seed and its number. Decoding any bytes ends with data or with an
//! error; the data depend on nothing but the chunk (not on the old contents of the output or the
//! scratch, not on the number of threads); and any part of them equals that part of the whole.
//! `cargo test` does a few executions; the environment asks for more:
//!
//! - `INGOT_FUZZ_EXECUTIONS`, `INGOT_FUZZ_SEED`, `INGOT_FUZZ_SECONDS`: how many at most, of which seed,
//!   for how long at most.
//! - `INGOT_FUZZ_BASES`: a folder of further sound chunks, `*.chunk`.
//! - `INGOT_FUZZ_COUNTER`: a file that holds the number of the present execution.
//! - `INGOT_FUZZ_SHOW`: only write the chunk of this execution to the file `INGOT_FUZZ_CHUNK`.

use crate::array::scatter::{Axis, Region};
use crate::chunk::codecs::streams::Codec;
use crate::chunk::decode::{Decoder, Window};
use crate::chunk::encode::{self, Packer};
use crate::chunk::encode2::{self, Split};
use crate::chunk::filters::pipeline;
use crate::chunk::header::{EXTENDED_BYTES, Filter, HEADER_BYTES, Header};
use crate::chunk::scratch::Scratch;
use crate::error::{Kind, Outcome};
use crate::interrupt::Interrupt;
use std::fs;
use std::io::{Seek, Write};
use std::time::{Duration, Instant};

const USUAL_EXECUTIONS: u64 = 20_000;
const LARGEST_BASE: usize = 120_000;
const LIMIT: usize = 1 << 18;
const NUMBERS: [i32; 18] =
    [0, 1, 2, -1, -2, -65, -255, -256, 15, 16, 127, 128, 255, 256, 1 << 16, 1 << 29, i32::MAX, i32::MIN];
const BYTES: [u8; 18] = [0, 1, 2, 3, 4, 5, 6, 8, 16, 32, 34, 35, 36, 48, 64, 80, 128, 255];

/// Numbers that follow from a seed (SplitMix64).
struct Random(u64);

impl Random {
    fn of(seed: u64, execution: u64) -> Self {
        let mut random = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ execution.wrapping_mul(0xd134_2543_de82_ef95));
        random.next();
        random
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Less than `end`, which is not 0.
    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn choose<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

/// Sound chunks of both versions: every codec, all filters, split and unsplit, with and
/// without dictionaries, special ones and blocks of variable length.
fn bases() -> Vec<Vec<u8>> {
    let text: Vec<u8> = (0..250).flat_map(|n| format!("{} green bottles on the wall, ", n / 3).into_bytes()).collect();
    let numbers: Vec<u8> = (0..1500u64).flat_map(|n| (n * n % 9001).to_le_bytes()).collect();
    let mut chunks = Vec::new();
    for source in [&text[..], &numbers[..]] {
        for codec in Codec::NAMES.map(|(_, codec)| codec) {
            chunks.extend(first_version(source, codec));
            chunks.extend(second_version(source, codec, &text[..700]));
        }
    }
    chunks.extend(special(&text));
    chunks.extend(variable(&numbers));
    if let Some(folder) = std::env::var_os("INGOT_FUZZ_BASES") {
        let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        chunks.extend(paths.iter().map(|path| fs::read(path).unwrap()));
    }
    chunks.retain(|chunk| Header::parse(chunk, chunk.len(), LARGEST_BASE).is_ok());
    chunks
}

fn first_version(source: &[u8], codec: Codec) -> Vec<Vec<u8>> {
    let mut chunks = Vec::new();
    for filter in [Filter::None, Filter::Shuffle, Filter::Bitshuffle] {
        for (typesize, blocksize) in [(1, 0), (4, 1000), (8, 2048)] {
            let recipe = encode::Recipe { codec, level: 5, filter, typesize, blocksize, gain: 0 };
            let mut chunk = Packer::default();
            encode::encode(source, recipe, &mut chunk, &mut Scratch::default(), 1, &Interrupt::never()).unwrap();
            chunks.push(chunk.bytes().to_vec());
        }
    }
    chunks
}

fn second_version(source: &[u8], codec: Codec, dictionary: &[u8]) -> Vec<Vec<u8>> {
    use pipeline::{BITSHUFFLE, BYTEDELTA, DELTA, SHUFFLE};
    let pipelines: [&[(u8, u8)]; 6] = [
        &[],
        &[(SHUFFLE, 0)],
        &[(BITSHUFFLE, 0)],
        &[(DELTA, 0), (SHUFFLE, 0)],
        &[(SHUFFLE, 0), (BYTEDELTA, 4)],
        &[(SHUFFLE, 3), (DELTA, 0), (BITSHUFFLE, 0)],
    ];
    let takes_dictionary = matches!(codec, Codec::Lz4 | Codec::Lz4Hc | Codec::Zstd);
    let mut chunks = Vec::new();
    for filters in pipelines {
        for split in [Split::Always, Split::Never] {
            for dictionary in [None, Some(dictionary).filter(|_| takes_dictionary)] {
                let recipe =
                    encode2::Recipe { codec, level: 5, filters, typesize: 4, blocksize: 1024, split, dictionary };
                let mut chunk = Packer::default();
                encode2::encode(source, recipe, &mut chunk, &mut Scratch::default(), 1, &Interrupt::never()).unwrap();
                chunks.push(chunk.bytes().to_vec());
            }
        }
    }
    chunks
}

/// Special chunks, and an uncompressed one to compare.
fn special(source: &[u8]) -> Vec<Vec<u8>> {
    let values: [&[u8]; 4] = [&[0; 8], &crate::chunk::special::NAN_64, b"ingotbar", source];
    let recipe = encode2::Recipe {
        codec: Codec::Lz4,
        level: 5,
        filters: &[],
        typesize: 8,
        blocksize: 0,
        split: Split::Auto,
        dictionary: None,
    };
    let mut chunks = Vec::new();
    for value in values {
        for level in [0, 5] {
            let mut chunk = Packer::default();
            let data = if value.len() == 8 { value.repeat(300) } else { value.to_vec() };
            let recipe = encode2::Recipe { level, ..recipe };
            encode2::encode(&data, recipe, &mut chunk, &mut Scratch::default(), 1, &Interrupt::never()).unwrap();
            chunks.push(chunk.bytes().to_vec());
        }
    }
    chunks
}

/// A chunk with blocks of variable length for each filter, some of LZ4 and some uncompressed.
fn variable(source: &[u8]) -> Vec<Vec<u8>> {
    let sizes = [1, 40, 700, 3, 2000, 0, 256];
    [0, pipeline::SHUFFLE, pipeline::BITSHUFFLE].map(|filter| variable_chunk(source, &sizes, filter)).to_vec()
}

fn variable_chunk(source: &[u8], sizes: &[usize], filter: u8) -> Vec<u8> {
    let mut chunk = vec![0; EXTENDED_BYTES + 4 * sizes.len()];
    let mut done = 0;
    for (number, size) in sizes.iter().enumerate() {
        let start = chunk.len() as u32;
        chunk[EXTENDED_BYTES + 4 * number..][..4].copy_from_slice(&start.to_le_bytes());
        chunk.extend((*size as u32).to_le_bytes());
        let plain = &source[done..done + size];
        let mut packed = vec![0; size + 32];
        let used = lzzzz::lz4::compress(plain, &mut packed, 1).unwrap_or(usize::MAX);
        chunk.extend(if used < *size { &packed[..used] } else { plain });
        done += size;
    }
    chunk[..4].copy_from_slice(&[6, 1, 0x35, 4]);
    for (field, value) in [(4, done), (8, sizes.len()), (12, chunk.len())] {
        chunk[field..field + 4].copy_from_slice(&(value as u32).to_le_bytes());
    }
    (chunk[21], chunk[22], chunk[30]) = (filter, 1, 1);
    chunk
}

/// The chunk of one execution, and the source of its further choices.
fn damaged(bases: &[Vec<u8>], seed: u64, execution: u64) -> (Vec<u8>, Random) {
    let mut random = Random::of(seed, execution);
    let mut chunk = bases[random.below(bases.len())].clone();
    for _ in 0..random.choose(&[1, 1, 1, 2, 3, 6]) {
        damage(&mut chunk, bases, &mut random);
    }
    if random.below(2) == 0 {
        let length = chunk.len() as i32;
        put(&mut chunk, 12, length);
    }
    (chunk, random)
}

/// One change; most respect that a chunk has fields and streams.
fn damage(chunk: &mut Vec<u8>, bases: &[Vec<u8>], random: &mut Random) {
    let length = chunk.len();
    if length < HEADER_BYTES {
        return;
    }
    match random.below(16) {
        0 => chunk[random.below(length)] = random.next() as u8,
        1 => chunk[random.below(length)] ^= 1 << random.below(8),
        2 => chunk[random.below(HEADER_BYTES)] = random.choose(&BYTES),
        3 => chunk[random.below(length.min(EXTENDED_BYTES))] = random.choose(&BYTES),
        4 => chunk[2] = chunk[2] & 31 | (random.below(8) as u8) << 5,
        5 => chunk[0] = random.below(8) as u8,
        6 => chunk[2] ^= random.choose(&[0x05, 0x08, 0x10, 0x02]),
        7 => put(chunk, 4 * (1 + random.below(15)), random.choose(&NUMBERS)),
        8 => nudge(chunk, 4 * (1 + random.below(15)), random),
        9 => chunk.truncate(1 + random.below(length)),
        10 => chunk.extend((0..random.below(40)).map(|byte| byte as u8)),
        11 => copy_within(chunk, random),
        12 => splice(chunk, &bases[random.below(bases.len())], random),
        _ => damage_structure(chunk, random),
    }
}

fn put(chunk: &mut [u8], at: usize, value: i32) {
    if let Some(place) = chunk.get_mut(at..at + 4) {
        place.copy_from_slice(&value.to_le_bytes());
    }
}

fn number(chunk: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_le_bytes(*chunk.get(at..)?.first_chunk()?))
}

fn nudge(chunk: &mut [u8], at: usize, random: &mut Random) {
    if let Some(value) = number(chunk, at) {
        put(chunk, at, value.wrapping_add(random.choose(&[-17, -4, -1, 1, 4, 17])));
    }
}

fn copy_within(chunk: &mut [u8], random: &mut Random) {
    let length = 1 + random.below(chunk.len().min(64));
    let (from, to) = (random.below(chunk.len() - length + 1), random.below(chunk.len() - length + 1));
    chunk.copy_within(from..from + length, to);
}

/// Continue with the bytes of another chunk, behind the header.
fn splice(chunk: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    let at = HEADER_BYTES + random.below(chunk.len() - HEADER_BYTES + 1);
    if at < other.len() {
        chunk.truncate(at);
        chunk.extend_from_slice(&other[at..]);
    }
}

/// Change a block start, the size of a stream or that of the dictionary.
fn damage_structure(chunk: &mut [u8], random: &mut Random) {
    let Ok(header) = Header::parse(chunk, chunk.len(), LIMIT) else {
        return;
    };
    let mut places: Vec<usize> = (header.header_bytes()..header.blocks_start()).step_by(4).collect();
    let starts: Vec<usize> = places.iter().filter_map(|at| usize::try_from(number(chunk, *at)?).ok()).collect();
    for (index, start) in starts.iter().enumerate().take(64) {
        let mut at = *start;
        let streams = if header.variable { 1 } else { header.stream_count(header.block_range(index).len()) };
        for _ in 0..streams {
            let Some(size) = number(chunk, at) else { break };
            places.push(at);
            at += 4 + if size < 0 { 1 } else { size as usize };
        }
    }
    if header.dictionary {
        places.extend([header.blocks_start(); 4]);
    }
    if places.is_empty() {
        return;
    }
    let at = random.choose(&places);
    let other = number(chunk, random.choose(&places)).unwrap_or(0);
    match random.below(4) {
        0 => put(chunk, at, random.choose(&NUMBERS)),
        1 => put(chunk, at, other),
        2 => put(chunk, at, other.wrapping_add(1)),
        _ => nudge(chunk, at, random),
    }
}

/// The memory that threads keep between calls, not cleared, and outputs with other contents.
#[derive(Default)]
struct Bench {
    scratches: [Scratch; 2],
    outputs: [Vec<u8>; 3],
}

impl Bench {
    /// Decode a chunk in every way and compare. How many bytes it holds, if it is sound.
    fn judge(&mut self, chunk: &[u8], random: &mut Random) -> Option<usize> {
        let header = Header::parse(chunk, chunk.len(), LIMIT).ok()?;
        let Self { scratches: [one, two], outputs: [first, second, part] } = self;
        let threads = if random.below(64) == 0 { 3 } else { 1 };
        let whole = decode_whole(chunk, &header, first, 0x11, one, 1);
        let again = decode_whole(chunk, &header, second, 0xee, two, threads);
        assert_eq!(whole.is_ok(), again.is_ok(), "{whole:?} at first, then {again:?}");
        assert!(whole.is_err() || first == second, "the data depend on more than the chunk");
        let size = random.choose(&[1, header.typesize]);
        let items = header.nbytes / size;
        let (from, to) = (random.below(items + 1), random.below(items + 1));
        let (start, count) = (from.min(to), from.abs_diff(to));
        if count > 0 {
            let found = decode_part(chunk, &header, start, count, size, part, two);
            match (&whole, found) {
                (Ok(()), found) => {
                    found.unwrap();
                    assert!(part[..] == first[start * size..][..count * size], "a part is not the whole's");
                }
                (Err(_), Ok(())) => {}
                (Err(_), Err(error)) => assert!(!matches!(error.kind, Kind::System(_) | Kind::Argument), "{error}"),
            }
        }
        whole.is_ok().then_some(header.nbytes)
    }
}

fn decode_whole(
    chunk: &[u8],
    header: &Header,
    out: &mut Vec<u8>,
    before: u8,
    scratch: &mut Scratch,
    threads: usize,
) -> Outcome<()> {
    out.clear();
    out.resize(header.nbytes, before);
    let decoder = Decoder::new(header, &chunk[HEADER_BYTES..header.data_start()]);
    decoder.decode_whole(chunk, out, scratch, threads, &Interrupt::never())
}

fn decode_part(
    chunk: &[u8],
    header: &Header,
    start: usize,
    count: usize,
    size: usize,
    out: &mut Vec<u8>,
    scratch: &mut Scratch,
) -> Outcome<()> {
    out.clear();
    out.resize(count * size, 0x77);
    let axis = Axis { size: header.nbytes / size, start, count, step: 1, stride: size as isize };
    let mut region = Region::new(&[axis], size, 0, out)?;
    let decoder = Decoder::new(header, &chunk[HEADER_BYTES..header.data_start()]);
    let window = Window { bytes: chunk, offset: 0 };
    decoder.decode_region(window, decoder.blocks_of(&region), &mut region, scratch)
}

fn asked(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}")))
}

#[test]
fn damaged_chunks_end_with_data_or_an_error() {
    let (seed, bases) = (asked("INGOT_FUZZ_SEED").unwrap_or(5), bases());
    if let Some(execution) = asked("INGOT_FUZZ_SHOW") {
        let path = std::env::var_os("INGOT_FUZZ_CHUNK").expect("where to write the chunk");
        return fs::write(path, damaged(&bases, seed, execution).0).unwrap();
    }
    let executions = asked("INGOT_FUZZ_EXECUTIONS").unwrap_or(USUAL_EXECUTIONS);
    let deadline = asked("INGOT_FUZZ_SECONDS").map(|seconds| Instant::now() + Duration::from_secs(seconds));
    // The process that watches has mapped the file: it must never be shorter than the number.
    let mut counter =
        std::env::var_os("INGOT_FUZZ_COUNTER").map(|path| fs::File::options().write(true).open(path).unwrap());
    let mut record = |execution: u64| {
        if let Some(file) = &mut counter {
            file.rewind().and_then(|()| file.write_all(&execution.to_le_bytes())).unwrap();
        }
    };
    let (mut bench, mut sound) = (Bench::default(), 0);
    let mut done = 0;
    while done < executions && deadline.is_none_or(|deadline| done % 256 != 0 || Instant::now() < deadline) {
        record(done);
        let (chunk, mut random) = damaged(&bases, seed, done);
        sound += u64::from(bench.judge(&chunk, &mut random).is_some());
        done += 1;
    }
    record(done);
    // Both outcomes must occur, or the damage is too little or too much to test anything.
    assert!(done < 1000 || (sound > done / 20 && sound < done * 9 / 10), "{sound} of {done} chunks are sound");
}

#[test]
fn undamaged_chunks_are_sound() {
    let mut bench = Bench::default();
    let bases = bases();
    assert!(bases.len() > 300);
    for (number, chunk) in bases.iter().enumerate() {
        assert!(bench.judge(chunk, &mut Random::of(1, number as u64)).is_some(), "chunk {number}");
    }
}
