//! Single bytes of a block, found without decoding it.
//!
//! Tokens are walked as far as the wanted byte, and the start of one in several is marked. A byte is
//! a literal, or a copy of an earlier byte, which is looked up in the same way. Walking costs a third
//! of decoding, since no bytes are moved.

#[cfg(target_arch = "x86_64")]
use super::ssse3;
use super::{SHORTEST, extended};

/// One in so many tokens is marked.
const SPACING: usize = 8;
/// So many copies of copies are followed; beyond that, decoding the block is faster.
const DEEPEST: usize = 2048;

/// A token at byte `at` of the block, before which there are `made` bytes of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    at: u32,
    made: u32,
}

/// What a token stands for: literals from byte `literals_at` of the block on, then a copy,
/// which is missing where the block ends.
struct Token {
    literals: usize,
    literals_at: usize,
    distance: usize,
    length: usize,
    next: usize,
}

/// The result of a lookup.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    All,
    /// Decode instead.
    TooDeep,
    /// The block is damaged, or ends before the last wanted byte.
    Impossible,
}

/// Write the bytes of the block at `positions`, which ascend, to `out`. `marks` is scratch.
pub fn find(source: &[u8], positions: &[usize], marks: &mut Vec<Mark>, out: &mut [u8]) -> Found {
    let Some(last) = positions.last() else { return Found::All };
    if source.len().max(*last) > u32::MAX as usize || walk(source, *last + 1, marks).is_none() {
        return Found::Impossible;
    }
    for (position, place) in positions.iter().zip(out) {
        match follow(source, marks, *position) {
            Some(byte) => *place = byte,
            None => return Found::TooDeep,
        }
    }
    Found::All
}

/// Mark tokens until `wanted` bytes of output are reached. `None` for an impossible block.
fn walk(source: &[u8], wanted: usize, marks: &mut Vec<Mark>) -> Option<()> {
    marks.clear();
    let mut place = Mark { at: 0, made: 0 };
    #[cfg(target_arch = "x86_64")]
    if ssse3::available() {
        // SAFETY: SSSE3 is available.
        place = unsafe { walk_together(source, wanted, marks)? };
    }
    walk_singly(source, place, wanted, marks)
}

/// Walk several tokens at a time, as long as that pays and the end is far; return how far it went.
///
/// Tokens of other kinds cannot be predicted, so there is no branch on them: of 16 tokens, those up
/// to the first other one are taken, and then that one.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "ssse3")]
fn walk_together(source: &[u8], wanted: usize, marks: &mut Vec<Mark>) -> Option<Mark> {
    let (mut at, mut made, mut gain, mut marked) = (0, 0, MOST_TRIES, 0);
    // Distances are compared with the output of a round ago, so that they need not wait for the sum.
    let mut surely_made = 0;
    let left = loop {
        if marks.len() < marked + 2 {
            marks.resize(2 * marked + ENOUGH, Mark { at: 0, made: 0 });
        }
        let next = source.get(at..).and_then(|rest| rest.first_chunk::<TOGETHER_ROOM>());
        let Some(next) = next.filter(|_| made < wanted && gain > 0) else { break (at, made) };
        let bare = ssse3::count_bare(next.first_chunk().expect("it is longer"), surely_made);
        surely_made = made;
        marks[marked] = Mark { at: at as u32, made: made as u32 };
        marks[marked + 1] = Mark { at: (at + 3 * SPACING) as u32, made: (made + bare.first_made) as u32 };
        marked += 1 + usize::from(bare.tokens > SPACING);
        made += bare.all_made;
        if bare.tokens == ssse3::TOGETHER {
            at += ssse3::TOGETHER_BYTES;
            continue;
        }
        let begin = 3 * bare.tokens;
        if made >= wanted {
            break (at + begin, made);
        }
        gain = (gain + bare.tokens as i32 - 2).min(MOST_TRIES);
        let token = usize::from(next[begin]);
        let (literals, copied) = (token >> 4, token & 15);
        let behind = begin + 1 + literals;
        let distance = usize::from(next[behind]) | usize::from(next[behind + 1]) << 8;
        let extended = usize::from(copied == 15);
        let more = extended * usize::from(next[behind + 2]);
        at += begin;
        if literals == 15 || more == 255 || distance > made + literals {
            match step(source, at, made, wanted)? {
                Some(behind) => (at, made) = behind,
                None => break (at, made),
            }
            continue;
        }
        at += 3 + literals + extended;
        made += literals + copied + SHORTEST + more;
    };
    marks.truncate(marked);
    Some(Mark { at: left.0 as u32, made: left.1 as u32 })
}

/// The least number of marks that memory is allocated for.
#[cfg(target_arch = "x86_64")]
const ENOUGH: usize = 64;

/// How long several tokens at a time are tried while that does not pay.
#[cfg(target_arch = "x86_64")]
const MOST_TRIES: i32 = 64;

/// The most bytes of 16 tokens and one of any kind.
#[cfg(target_arch = "x86_64")]
const TOGETHER_ROOM: usize = ssse3::TOGETHER_BYTES + 1 + 15 + 2 + 1;

/// Continue from `place`, token by token.
fn walk_singly(source: &[u8], place: Mark, wanted: usize, marks: &mut Vec<Mark>) -> Option<()> {
    let (mut at, mut made) = (place.at as usize, place.made as usize);
    loop {
        marks.push(Mark { at: at as u32, made: made as u32 });
        for _ in 0..SPACING {
            if made >= wanted {
                return Some(());
            }
            // Most tokens have no literals and a short copy. The next one then lies three bytes
            // further, so that the processor need not wait for this one.
            if let Some(&[token, low, high, _]) = source.get(at..)?.first_chunk()
                && token < 15
            {
                if usize::from(low) | usize::from(high) << 8 > made {
                    return None;
                }
                made += usize::from(token) + SHORTEST;
                at += 3;
                continue;
            }
            match step(source, at, made, wanted)? {
                Some(behind) => (at, made) = behind,
                None => return Some(()),
            }
        }
    }
}

/// Where the token at byte `at` ends, and the output up to there; an inner `None` when its literals
/// reach the wanted bytes.
fn step(source: &[u8], at: usize, made: usize, wanted: usize) -> Option<Option<(usize, usize)>> {
    let token = parse(source, at)?;
    if made + token.literals >= wanted {
        return (token.literals_at + wanted - made <= source.len()).then_some(None);
    }
    let made = made + token.literals;
    (token.length > 0 && token.distance <= made).then_some(Some((token.next, made + token.length)))
}

/// The token at byte `at`.
fn parse(source: &[u8], at: usize) -> Option<Token> {
    let token = *source.get(at)?;
    let mut literals_at = at + 1;
    let mut literals = usize::from(token >> 4);
    if literals == 15 {
        literals += extended(source, &mut literals_at)?;
    }
    let mut next = literals_at + literals;
    let Some(distance) = source.get(next..).and_then(|rest| rest.first_chunk::<2>()) else {
        return Some(Token { literals, literals_at, distance: 0, length: 0, next });
    };
    let distance = usize::from(u16::from_le_bytes(*distance));
    next += 2;
    let mut length = usize::from(token & 15) + SHORTEST;
    if length == 15 + SHORTEST {
        length += extended(source, &mut next)?;
    }
    Some(Token { literals, literals_at, distance, length, next })
}

/// The byte at `position`, which must have been walked over; `None` when it is a copy of too many
/// copies.
fn follow(source: &[u8], marks: &[Mark], mut position: usize) -> Option<u8> {
    let mut marks = marks;
    for _ in 0..DEEPEST {
        marks = &marks[..before(marks, position)];
        let mark = marks.last()?;
        let (mut at, mut made) = (mark.at as usize, mark.made as usize);
        loop {
            let token = parse(source, at)?;
            if position - made < token.literals {
                return Some(source[token.literals_at + position - made]);
            }
            made += token.literals;
            let into = position - made;
            if into < token.length {
                if token.distance == 0 {
                    return Some(0);
                }
                // A copy that reaches into itself repeats what lies before it.
                let into = if into < token.distance { into } else { into % token.distance };
                position = made - token.distance + into;
                break;
            }
            made += token.length;
            at = token.next;
        }
    }
    None
}

/// How many marks lie up to `position`. Most copies have short distances, so that the search goes back
/// from the last mark in growing steps.
fn before(marks: &[Mark], position: usize) -> usize {
    let (mut high, mut step) = (marks.len(), 1);
    while step < high && marks[high - step].made as usize > position {
        high -= step;
        step *= 2;
    }
    let low = high.saturating_sub(step);
    low + marks[low..high].partition_point(|mark| mark.made as usize <= position)
}
