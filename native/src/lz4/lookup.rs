//! Single bytes of a block, found without decoding it.
//!
//! Tokens are walked as far as the wanted byte, and now and then it is marked where one
//! begins. A byte then is a literal, or a copy of an earlier byte, which is looked for in the
//! same way. Walking costs a third of decoding, since nothing is moved.

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
    let (mut at, mut made) = (0, 0);
    marks.clear();
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
            let token = parse(source, at)?;
            if made + token.literals >= wanted {
                return (token.literals_at + wanted - made <= source.len()).then_some(());
            }
            made += token.literals;
            if token.length == 0 || token.distance > made {
                return None;
            }
            made += token.length;
            at = token.next;
        }
    }
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
/// goes back from the last one in steps that grow.
fn before(marks: &[Mark], position: usize) -> usize {
    let (mut high, mut step) = (marks.len(), 1);
    while step < high && marks[high - step].made as usize > position {
        high -= step;
        step *= 2;
    }
    let low = high.saturating_sub(step);
    low + marks[low..high].partition_point(|mark| mark.made as usize <= position)
}
