//! LZ4 blocks: beginnings decoded without `unsafe`, and runs recognised without decoding.
//!
//! Whole blocks are decoded by the C library, which lets one thing pass that the format
//! forbids: a copy from zero bytes back. It makes zeros of it, except where only the
//! beginning of a block is decoded: there it leaves whatever the output held before, memory
//! that is nobody's business. So beginnings are decoded here, with zeros for such a copy as
//! well: what a slice shows is what the whole block shows.
//!
//! ```text
//! token: high nibble = literals, low nibble = copied bytes - 4; 15 = bytes follow that add
//! up to and including the first that is not 255
//! token [more literals] literals distance(u16) [more copied]      ... the last: token literals
//! ```

use crate::copies::{WIDE, repeat};

const SHORTEST: usize = 4;
/// Room for any copy whose length fits its token.
const STEP: usize = 24;
/// The last literals of a block, as every encoder leaves them.
const TAIL: usize = 5;

/// Decode `source` into `out`. With `whole`, the block must fill `out` exactly and be used
/// up; without, decoding stops when `out` is full. `None` for anything impossible.
pub fn decode(source: &[u8], out: &mut [u8], whole: bool) -> Option<()> {
    let (mut at, mut made) = (0, 0);
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
                if whole && fits < literals {
                    return None;
                }
                out[made..made + fits].copy_from_slice(source.get(at..at + fits)?);
                if fits < literals {
                    return Some(());
                }
            }
            at += literals;
            made += literals;
        }
        let Some(distance) = source.get(at..at + 2) else {
            // Behind the last literals nothing may be left, not even half a distance.
            return (at == source.len() && made == out.len()).then_some(());
        };
        let distance = distance[0] as usize | (distance[1] as usize) << 8;
        at += 2;
        let mut length = (token & 15) as usize + SHORTEST;
        if length < 15 + SHORTEST {
            // Copies of this kind fit one step: no loop, nothing to guess.
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
        if distance > made || (whole && length > room) {
            return None;
        }
        let length = length.min(room);
        if distance == 0 {
            out[made..made + length].fill(0);
        } else {
            repeat(out, made, distance, length);
        }
        made += length;
        if !whole && made == out.len() {
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

/// The byte that `stream` repeats `size` times, if it is one literal, one copy of it and
/// literals alike to the end: the upper bytes of numbers are often all the same, and
/// knowing that is much faster than decoding.
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

/// The stream that `run` knows, when all of `source` is one byte and `out` has the room.
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
    fn what_the_library_writes_decodes() {
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
            assert_eq!(decode(packed, &mut back, true), Some(()));
            assert_eq!(back, source);
            for part in [1, length / 3, length / 2, length] {
                let mut prefix = vec![0; part];
                assert_eq!(decode(packed, &mut prefix, false), Some(()));
                assert_eq!(prefix, source[..part]);
            }
            assert_eq!(decode(packed, &mut vec![0; length + 1], true), None);
            assert_eq!(decode(packed, &mut back[1..], true), None);
            assert_eq!(decode(&packed[..used - 1], &mut back, true), None);
            assert_eq!(decode(&[packed, &[0]].concat(), &mut back, true), None);
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
            assert_eq!(decode(stream, &mut out, true), None, "{stream:?}");
        }
        assert_eq!(decode(&[0x1f, 7, 1, 0, 39, 0x50, 7, 7, 7, 7, 7], &mut out, true), Some(()));
        assert_eq!(out, [7; 64]);
    }

    #[test]
    fn copies_from_nowhere_are_zeros_on_every_path() {
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
                        assert_eq!(decode(&stream, &mut out, false), Some(()));
                        assert_eq!(out, expected[..part]);
                    }
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
