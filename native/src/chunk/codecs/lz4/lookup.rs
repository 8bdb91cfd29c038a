//! Single bytes of a block, found without decoding it.
//!
//! Tokens are walked as far as the wanted byte, and now and then it is marked where one
//! begins. A byte then is a literal, or a copy of an earlier byte, which is looked for in the
//! same way. Walking costs a third of decoding, since nothing is moved.

#[cfg(target_arch = "x86_64")]
use super::ssse3;
use super::{SHORTEST, extended};

/// One in so many tokens is marked.
const SPACING: usize = 8;
/// So many copies of copies are followed; to decode the block is faster then.
const DEEPEST: usize = 2048;

/// A token at byte `at` of the block, in front of which `made` bytes of output lie.
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

/// What became of a lookup.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    All,
    /// Decode instead.
    TooDeep,
    /// The block is not one, or ends before the last wanted byte.
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

/// Mark tokens until `wanted` bytes would be made. `None` for anything impossible before.
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

/// Walk as far as tokens come many at a time and the end is far; returns how far that was.
///
/// Where tokens of another kind stand between is not to be guessed, so there is no branch on it:
/// of 16 tokens those up to the first other one are taken, however many, and then that one.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "ssse3")]
fn walk_together(source: &[u8], wanted: usize, marks: &mut Vec<Mark>) -> Option<Mark> {
    let (mut at, mut made, mut gain, mut marked) = (0, 0, PATIENCE, 0);
    // Distances are compared with what was made a round ago: nothing waits for the sum then.
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
        gain = (gain + bare.tokens as i32 - 2).min(PATIENCE);
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

/// Room for so many marks is made, at the least.
#[cfg(target_arch = "x86_64")]
const ENOUGH: usize = 64;

/// How long it may go on while tokens do not come many at a time.
#[cfg(target_arch = "x86_64")]
const PATIENCE: i32 = 64;

/// What 16 tokens and one of any kind may take.
#[cfg(target_arch = "x86_64")]
const TOGETHER_ROOM: usize = ssse3::TOGETHER_BYTES + 1 + 15 + 2 + 1;

/// Walk on from `place`, token by token.
fn walk_singly(source: &[u8], place: Mark, wanted: usize, marks: &mut Vec<Mark>) -> Option<()> {
    let (mut at, mut made) = (place.at as usize, place.made as usize);
    loop {
        marks.push(Mark { at: at as u32, made: made as u32 });
        for _ in 0..SPACING {
            if made >= wanted {
                return Some(());
            }
            // Most tokens have no literals and a short copy. The next one then lies three
            // bytes on: the processor need not wait for this one.
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

/// Where the token at byte `at` ends, and what is made then; nothing when its literals are as
/// many as wanted.
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

/// The byte at `position`, which lies before what was walked; `None` when it is a copy of too
/// many copies.
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

/// How many marks there are up to `position`; most copies come from near by, so the search
/// goes back from the last one in steps that room.
fn before(marks: &[Mark], position: usize) -> usize {
    let (mut high, mut step) = (marks.len(), 1);
    while step < high && marks[high - step].made as usize > position {
        high -= step;
        step *= 2;
    }
    let low = high.saturating_sub(step);
    low + marks[low..high].partition_point(|mark| mark.made as usize <= position)
}
