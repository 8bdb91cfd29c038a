//! LZ4 blocks: encoded, decoded as far as wanted, and runs recognised without decoding.
//!
//! The C library accepts one thing that the format forbids: a copy from zero bytes back. It writes
//! zeros for it, except where only the start of a block is decoded: there it leaves the old contents
//! of the output. So starts of blocks are decoded here, with zeros for such a copy too: a part of a
//! block is always equal to that part of the whole block.
//!
//! ```text
//! token: high nibble = literals, low nibble = copied bytes - 4; 15 = bytes follow that add
//! up to and including the first that is not 255
//! token [more literals] literals distance(u16) [more copied]      ... the last: token literals
//! ```

pub mod encode;
pub mod lookup;
#[cfg(target_arch = "x86_64")]
mod ssse3;

use crate::chunk::codecs::lz77::{WIDE, repeat};

const SHORTEST: usize = 4;
/// Room for any copy whose length fits its token.
const STEP: usize = 24;
/// The literals at the end of a block, as every encoder writes them.
const TAIL: usize = 5;

/// Decode all of `source` into `out`, which it must fill exactly. Where short copies follow
/// each other without literals, as in the bytes of numbers that are rounded, wide steps are
/// faster than the C library, which decodes the rest, and all of other blocks.
pub fn decode(source: &[u8], out: &mut [u8]) -> Option<()> {
    #[cfg(target_arch = "x86_64")]
    if ssse3::available() {
        let (at, made) = ssse3::decode_most(source, out, true)?;
        let (before, rest) = out.split_at_mut(made);
        // The output so far serves as a dictionary, which lies in front as it must.
        let more = lzzzz::lz4::decompress_with_dict(&source[at..], rest, before).ok()?;
        return (more == rest.len()).then_some(());
    }
    (lzzzz::lz4::decompress(source, out).ok()? == out.len()).then_some(())
}

/// Decode `source` until `out` is full. `None` for anything impossible on the way.
pub fn decode_prefix(source: &[u8], out: &mut [u8]) -> Option<()> {
    #[cfg(target_arch = "x86_64")]
    if ssse3::available() {
        let (at, made) = ssse3::decode_most(source, out, false)?;
        return decode_rest(source, out, at, made);
    }
    decode_rest(source, out, 0, 0)
}

/// Continue from byte `at` of the block, with `made` bytes of output.
fn decode_rest(source: &[u8], out: &mut [u8], mut at: usize, mut made: usize) -> Option<()> {
    loop {
        let token = *source.get(at)?;
        at += 1;
        let mut literals = (token >> 4) as usize;
        if literals > 0 {
            if literals < 15
                && let (Some(from), Some(to)) = (source.get(at..at + WIDE), out.get_mut(made..made + WIDE))
            {
                // Always a whole step: one load and one store instead of a loop.
                to.copy_from_slice(from);
            } else {
                if literals == 15 {
                    literals += extended(source, &mut at)?;
                }
                let fits = literals.min(out.len() - made);
                out[made..made + fits].copy_from_slice(source.get(at..at + fits)?);
                if fits < literals {
                    return Some(());
                }
            }
            at += literals;
            made += literals;
        }
        let Some(distance) = source.get(at..at + 2) else {
            // Nothing may follow the last literals, not even half a distance.
            return (at == source.len() && made == out.len()).then_some(());
        };
        let distance = distance[0] as usize | (distance[1] as usize) << 8;
        at += 2;
        let mut length = (token & 15) as usize + SHORTEST;
        if length < 15 + SHORTEST {
            // Such copies fit one step: no loop, no branch to predict.
            if distance >= STEP && distance <= made && made + STEP <= out.len() {
                let from = *out[made - distance..].first_chunk::<STEP>().expect("it lies before `made`");
                *out[made..].first_chunk_mut::<STEP>().expect("room was checked") = from;
                made += length;
                continue;
            }
        } else {
            length += extended(source, &mut at)?;
        }
        let room = out.len() - made;
        if distance > made {
            return None;
        }
        let length = length.min(room);
        if distance == 0 {
            out[made..made + length].fill(0);
        } else {
            repeat(out, made, distance, length);
        }
        made += length;
        if made == out.len() {
            return Some(());
        }
    }
}

fn extended(source: &[u8], at: &mut usize) -> Option<usize> {
    let mut length = 0;
    loop {
        let more = *source.get(*at)?;
        *at += 1;
        length += more as usize;
        if more != 255 {
            return Some(length);
        }
    }
}

/// The byte that `stream` repeats `size` times, if it is one literal, one copy of it and equal literals
/// to the end: the upper bytes of numbers are often all equal, and to find that out is much faster
/// than decoding.
pub fn run(stream: &[u8], size: usize) -> Option<u8> {
    let (&[0x1f, byte, 1, 0], rest) = stream.split_first_chunk::<4>()? else {
        return None;
    };
    let more = rest.iter().take_while(|more| **more == 255).count();
    let (last, end) = rest.get(more..)?.split_first()?;
    let (&token, literals) = end.split_first()?;
    let length = 1 + (15 + SHORTEST) + 255 * more + *last as usize + literals.len();
    let alike = (1..15).contains(&literals.len())
        && token as usize == literals.len() << 4
        && literals.iter().all(|other| *other == byte);
    (alike && length == size).then_some(byte)
}

/// Encode `source` as the stream that `run` recognises, when it is one repeated byte and fits `out`.
pub fn encode_run(source: &[u8], out: &mut [u8]) -> Option<usize> {
    let (&byte, rest) = source.split_first()?;
    if source.len() < 64 || source[..rest.len()] != *rest {
        return None;
    }
    let copied = source.len() - 1 - TAIL - (15 + SHORTEST);
    let used = 4 + copied / 255 + 1 + 1 + TAIL;
    let out = out.get_mut(..used)?;
    out[..4].copy_from_slice(&[0x1f, byte, 1, 0]);
    let (more, end) = out[4..].split_at_mut(copied / 255);
    more.fill(255);
    end[0] = (copied % 255) as u8;
    end[1] = (TAIL as u8) << 4;
    end[2..].fill(byte);
    Some(used)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_of_the_library_decode() {
        let mut state = 1u32;
        for (length, mask) in [(1, 255), (12, 255), (13, 0), (100, 3), (5000, 1), (70_000, 7), (70_000, 255)] {
            let source: Vec<u8> = (0..length)
                .map(|_| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (state >> 24) as u8 & mask
                })
                .collect();
            let mut packed = vec![0; length + length / 200 + 32];
            let used = lzzzz::lz4::compress(&source, &mut packed, 1).unwrap();
            let packed = &packed[..used];
            let mut back = vec![0; length];
            assert_eq!(decode(packed, &mut back), Some(()));
            assert_eq!(back, source);
            for part in [1, length / 3, length / 2, length] {
                let mut prefix = vec![0; part];
                assert_eq!(decode_prefix(packed, &mut prefix), Some(()));
                assert_eq!(prefix, source[..part]);
            }
            assert_eq!(decode(packed, &mut vec![0; length + 1]), None);
            assert_eq!(decode(packed, &mut back[1..]), None);
            assert_eq!(decode(&packed[..used - 1], &mut back), None);
            assert_eq!(decode(&[packed, &[0]].concat(), &mut back), None);
        }
    }

    #[test]
    fn impossible_blocks_are_refused() {
        let mut out = [9; 64];
        for stream in [
            &[][..],
            &[0x1f, 7, 2, 0, 39, 0x50, 7, 7, 7, 7, 7], // from before the first byte
            &[0x1f, 7, 1, 0, 40, 0x50, 7, 7, 7, 7, 7], // one byte too many
            &[0x1f, 7, 1, 0, 255, 255],                // a length without an end
            &[0x1f, 7, 1],                             // half a distance
            &[0xf0, 255, 255],                         // literals without an end
        ] {
            assert_eq!(decode(stream, &mut out), None, "{stream:?}");
        }
        assert_eq!(decode(&[0x1f, 7, 1, 0, 39, 0x50, 7, 7, 7, 7, 7], &mut out), Some(()));
        assert_eq!(out, [7; 64]);
    }

    #[test]
    fn copies_from_distance_zero_are_zeros_on_every_path() {
        // Literals, such a copy, and enough behind it to reach each of the library's loops.
        for length in [4, 5, 7, 8, 9, 12, 17, 18, 19, 20, 35, 64, 100, 273] {
            for behind in [12, 13, 40, 100, 300] {
                for literals in [1, 2, 7, 14] {
                    let mut stream = vec![(literals as u8) << 4 | (length - SHORTEST).min(15) as u8];
                    stream.extend(vec![0x11; literals]);
                    stream.extend([0, 0]);
                    if length >= 15 + SHORTEST {
                        stream.push((length - 15 - SHORTEST) as u8);
                    }
                    stream.push((behind.min(15) as u8) << 4);
                    if behind >= 15 {
                        stream.extend(vec![255; (behind - 15) / 255]);
                        stream.push(((behind - 15) % 255) as u8);
                    }
                    stream.extend(vec![0x22; behind]);
                    let expected = [vec![0x11; literals], vec![0; length], vec![0x22; behind]].concat();
                    let mut out = vec![0xee; expected.len()];
                    assert_eq!(lzzzz::lz4::decompress(&stream, &mut out).ok(), Some(expected.len()));
                    assert_eq!(out, expected, "the library: {literals} {length} {behind}");
                    for part in 1..=expected.len() {
                        let mut out = vec![0xee; part];
                        assert_eq!(decode_prefix(&stream, &mut out), Some(()));
                        assert_eq!(out, expected[..part]);
                    }
                }
            }
        }
    }

    /// A block of `tokens` tokens, most of them possible: distances and lengths of all kinds. One
    /// in so many has literals.
    fn block(tokens: usize, rarity: usize, next: &mut impl FnMut(usize) -> usize) -> (Vec<u8>, usize) {
        let (mut stream, mut made) = (Vec::new(), 0);
        let lengthen = |stream: &mut Vec<u8>, length: usize| {
            if length >= 15 {
                stream.extend(vec![255; (length - 15) / 255]);
                stream.push(((length - 15) % 255) as u8);
            }
        };
        for number in 0..=tokens {
            let literals = if number == 0 || number == tokens || next(rarity) == 0 { 1 + next(20) } else { 0 };
            let literals = if next(40) == 0 { literals + 200 } else { literals };
            let length = if next(2 * rarity) == 0 { next(300) } else { next(15) };
            stream.push((literals.min(15) << 4 | length.min(15)) as u8);
            lengthen(&mut stream, literals);
            stream.extend((0..literals).map(|byte| (byte * 7 + number) as u8));
            made += literals;
            if number == tokens {
                return (stream, made);
            }
            let distance = match next(4) {
                0 => next(20).min(made),
                1 if next(20_000) == 0 => made + 1,
                _ => 1 + next(made.min(65_535)),
            };
            stream.extend((distance as u16).to_le_bytes());
            lengthen(&mut stream, length);
            made += length + SHORTEST;
        }
        unreachable!()
    }

    /// Look up some bytes of a block that decodes to `expected`, if it does, and its last one.
    fn find_all(stream: &[u8], expected: &[u8], decodes: Option<()>, next: &mut impl FnMut(usize) -> usize) {
        if expected.is_empty() {
            return;
        }
        let mut positions: Vec<usize> = (0..next(6)).map(|_| next(expected.len())).collect();
        positions.push(expected.len() - 1);
        positions.sort_unstable();
        let mut found = vec![0xee; positions.len()];
        let outcome = lookup::find(stream, &positions, &mut Vec::new(), &mut found);
        assert_eq!(outcome == lookup::Found::Impossible, decodes.is_none());
        if outcome == lookup::Found::All {
            assert!(positions.iter().zip(found).all(|(position, byte)| expected[*position] == byte));
        }
    }

    #[test]
    fn wide_steps_do_what_narrow_ones_do() {
        let mut state = 7u64;
        let mut next = |limit: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % limit.max(1)
        };
        let mut sound = 0;
        // Under a sanitizer everything takes long.
        let rounds = if cfg!(debug_assertions) { 240 } else { 3000 };
        for round in 0..rounds {
            let (mut stream, size) = block(1 + round % 300 * 10, [3, 60][round % 2], &mut next);
            let at = next(stream.len());
            match round % 6 {
                0 => stream.truncate(at),
                3 => stream[at] ^= 1 << next(8),
                _ => {}
            }
            for room in [size, size / 2, next(size + 1), size + 1] {
                let (mut wide, mut narrow) = (vec![0xee; room], vec![0x11; room]);
                let expected = decode_rest(&stream, &mut narrow, 0, 0);
                assert_eq!(decode_prefix(&stream, &mut wide), expected);
                assert!(expected.is_none() || wide == narrow, "round {round}, {room} of {size} bytes");
                find_all(&stream, &narrow, expected, &mut next);
                let made = lzzzz::lz4::decompress(&stream, &mut narrow).ok().filter(|made| *made == room);
                assert_eq!(decode(&stream, &mut wide), made.map(|_| ()), "round {round}, {room} of {size} bytes");
                assert!(made.is_none() || wide == narrow, "round {round}, {room} of {size} bytes");
                sound += usize::from(made.is_some());
            }
        }
        assert!(sound > rounds / 6, "{sound} blocks decode");
    }

    /// A block of literals, one copy, and literals; what it decodes to.
    fn copying(before: usize, distance: usize, length: usize, behind: usize) -> (Vec<u8>, Vec<u8>) {
        let mut stream = Vec::new();
        let literals = |count: usize, copied: usize, stream: &mut Vec<u8>| {
            stream.push((count.min(15) << 4 | copied.min(15)) as u8);
            if count >= 15 {
                stream.extend(vec![255; (count - 15) / 255]);
                stream.push(((count - 15) % 255) as u8);
            }
            let bytes: Vec<u8> = (0..count).map(|byte| (byte * 7 + count) as u8).collect();
            stream.extend_from_slice(&bytes);
            bytes
        };
        let copied = length - SHORTEST;
        let mut expected = literals(before, copied, &mut stream);
        stream.extend((distance as u16).to_le_bytes());
        if copied >= 15 {
            stream.extend(vec![255; (copied - 15) / 255]);
            stream.push(((copied - 15) % 255) as u8);
        }
        for _ in 0..length {
            expected.push(expected[expected.len() - distance]);
        }
        expected.extend(literals(behind, 0, &mut stream));
        (stream, expected)
    }

    #[test]
    fn wide_copies_write_nothing_behind_the_output() {
        const CANARY: u8 = 0xc5;
        for before in [1, 15, 40, 70, 300] {
            for distance in [1, 7, 8, 16, 17, 24, 25, 32, 300] {
                for length in [4, 11, 12, 13, 18, 19, 20, 40, 64, 200, 300] {
                    for behind in [1, 12, 47, 64, 65, 80] {
                        if distance > before {
                            continue;
                        }
                        let (stream, expected) = copying(before, distance, length, behind);
                        let size = expected.len();
                        // Room that ends in the middle of the literals, of the copy, and behind it.
                        for room in [size, before, before + 1, before + length - 1, before + length, size - 1] {
                            let mut memory = vec![CANARY; room + 400];
                            assert_eq!(decode_prefix(&stream, &mut memory[..room]), Some(()));
                            assert_eq!(
                                memory[..room],
                                expected[..room],
                                "{before} {distance} {length} {behind} {room}"
                            );
                            assert!(memory[room..].iter().all(|byte| *byte == CANARY), "{before} {length} {room}");
                            let mut memory = vec![CANARY; room + 400];
                            // The library refuses blocks whose last copy is too near to their end.
                            let decodes = decode(&stream, &mut memory[..room]).is_some();
                            assert!(decodes == (room == size) || behind < 12);
                            assert!(memory[room..].iter().all(|byte| *byte == CANARY), "{before} {length} {room}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn copies_from_before_the_output_are_refused_on_every_path() {
        for before in [1, 14, 40, 70, 300] {
            for length in [4, 13, 18, 19, 40, 300] {
                for behind in [12, 64, 200] {
                    let (mut stream, expected) = copying(before, 1, length, behind);
                    let at = 1 + before + if before >= 15 { 1 + (before - 15) / 255 } else { 0 };
                    assert_eq!(stream[at..at + 2], [1, 0]);
                    stream[at..at + 2].copy_from_slice(&(before as u16 + 1).to_le_bytes());
                    assert_eq!(decode(&stream, &mut vec![0; expected.len()]), None);
                    assert_eq!(decode_prefix(&stream, &mut vec![0; expected.len()]), None);
                    stream[at..at + 2].copy_from_slice(&(before as u16).to_le_bytes());
                    assert_eq!(decode(&stream, &mut vec![0; expected.len()]), Some(()));
                }
            }
        }
    }

    #[test]
    fn runs_are_ordinary_lz4() {
        for length in [1, 20, 63, 64, 65, 300, 301, 5000] {
            let source = vec![42; length];
            let mut packed = vec![0; 200];
            let Some(used) = encode_run(&source, &mut packed) else {
                assert!(length < 64);
                continue;
            };
            assert_eq!(run(&packed[..used], length), Some(42));
            assert_eq!(run(&packed[..used], length + 1), None);
            let mut back = vec![0; length];
            assert_eq!(lzzzz::lz4::decompress(&packed[..used], &mut back).unwrap(), length);
            assert_eq!(back, source);
            let usual = lzzzz::lz4::compress(&source, &mut back, 1).unwrap();
            assert_eq!(run(&back[..usual], length), Some(42), "what LZ4 itself writes");
            packed[used - 1] = 41;
            assert_eq!(run(&packed[..used], length), None);
        }
    }
}
