//! Positions along an axis in any order: what an index array wants of each chunk.
//!
//! The box around the wanted items of a chunk is decoded into memory of the thread, and its
//! items are copied from there to their places. Where they are neighbours on both sides,
//! they are a range like any other and need no such detour.

use crate::array::layout::{Job, Part};
use crate::array::scatter::{Axis, Destination, Region};
use crate::chunk::scratch::grow;
use crate::error::{Error, Kind, Outcome};

/// Some items of a chunk along one axis: their positions in the box around them, and where
/// each one goes.
pub struct Pick {
    sources: Vec<usize>,
    targets: Vec<usize>,
}

/// Cut an index array by the chunks of an axis that is `length` long; `Part::pick` of those
/// that are no plain ranges counts into the picks.
pub fn cut(indices: &[i64], length: usize, chunk: usize) -> Outcome<(Vec<Part>, Vec<Pick>)> {
    if indices.is_empty() {
        return Err(Error::new(Kind::Selection, "an axis without items"));
    }
    if let Some(bad) = indices.iter().find(|index| **index < 0 || **index as usize >= length) {
        return Err(Error::new(Kind::Selection, format!("index {bad} of an axis of {length} items")));
    }
    let number = |position: usize| indices[position] as usize / chunk;
    let mut order: Vec<usize> = (0..indices.len()).collect();
    if !order.is_sorted_by_key(|position| number(*position)) {
        order.sort_by_key(|position| number(*position));
    }
    let (mut parts, mut picks) = (Vec::new(), Vec::new());
    for group in order.chunk_by(|a, b| number(*a) == number(*b)) {
        let offset = |position: &usize| indices[*position] as usize % chunk;
        let start = group.iter().map(offset).min().unwrap_or(0);
        let end = group.iter().map(offset).max().unwrap_or(0) + 1;
        let neighbours = |pair: &[usize]| pair[1] == pair[0] + 1 && offset(&pair[1]) == offset(&pair[0]) + 1;
        let mut pick = None;
        if !group.windows(2).all(neighbours) {
            pick = Some(picks.len());
            let sources = group.iter().map(|position| offset(position) - start).collect();
            picks.push(Pick { sources, targets: group.to_vec() });
        }
        parts.push(Part { chunk: number(group[0]), start, count: end - start, position: group[0], pick });
    }
    Ok((parts, picks))
}

impl Job<'_> {
    /// Let `decode` bring what a row wants of its chunk to its place.
    pub fn place(
        &self,
        parts: &[Part],
        memory: &mut Vec<u8>,
        decode: impl FnOnce(&Region) -> Outcome<()>,
    ) -> Outcome<()> {
        if parts.iter().all(|part| part.pick.is_none()) {
            return decode(&self.region(parts)?);
        }
        let itemsize = self.layout.itemsize;
        let mut strides = vec![itemsize; parts.len()];
        for axis in (1..parts.len()).rev() {
            strides[axis - 1] = strides[axis] * parts[axis].count;
        }
        let memory = grow(memory, strides[0] * parts[0].count)?;
        // SAFETY: `memory` outlives the region, and is not used beside it.
        let around = unsafe { Destination::new(memory.as_mut_ptr(), memory.len()) };
        let axes: Vec<Axis> = (self.layout.axes.iter())
            .map(|axis| Axis {
                size: self.layout.chunk[*axis],
                start: parts[*axis].start,
                count: parts[*axis].count,
                step: if parts[*axis].pick.is_some() { 1 } else { self.steps[*axis] },
                stride: strides[*axis] as isize,
            })
            .collect();
        decode(&Region::new(&axes, itemsize, 0, around)?)?;
        let ways: Vec<Way<'_>> = (parts.iter().enumerate())
            .map(|(axis, part)| Way {
                count: part.pick.map_or(part.count, |pick| self.picks[axis][pick].sources.len()),
                first: part.position,
                pick: part.pick.map(|pick| &self.picks[axis][pick]),
                source: strides[axis],
                target: self.strides()[axis],
            })
            .collect();
        spread(&ways, memory, self.origin(), self.memory(), itemsize);
        Ok(())
    }
}

/// How items of the box go to their places along one axis.
struct Way<'a> {
    count: usize,
    /// Where the first one goes, when there is no pick.
    first: usize,
    pick: Option<&'a Pick>,
    /// Bytes from one item to the next, in the box and at their places.
    source: usize,
    target: isize,
}

impl Way<'_> {
    fn item(&self, number: usize) -> (usize, isize) {
        match self.pick {
            Some(pick) => (pick.sources[number] * self.source, pick.targets[number] as isize * self.target),
            None => (number * self.source, (self.first + number) as isize * self.target),
        }
    }
}

fn spread(ways: &[Way<'_>], source: &[u8], target: isize, memory: Destination, itemsize: usize) {
    let [way, inner @ ..] = ways else {
        memory.piece(target, itemsize).copy_from_slice(&source[..itemsize]);
        return;
    };
    if inner.is_empty() && way.pick.is_none() && way.target == itemsize as isize {
        let bytes = way.count * itemsize;
        let (from, to) = way.item(0);
        memory.piece(target + to, bytes).copy_from_slice(&source[from..from + bytes]);
        return;
    }
    for number in 0..way.count {
        let (from, to) = way.item(number);
        spread(inner, &source[from..], target + to, memory, itemsize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_ranges_and_others_are_picked() {
        let (parts, picks) = cut(&[3, 4, 5, 9, 8, 21, 21], 30, 4).unwrap();
        let found: Vec<_> = parts.iter().map(|part| (part.chunk, part.start, part.count, part.pick)).collect();
        assert_eq!(found, [(0, 3, 1, None), (1, 0, 2, None), (2, 0, 2, Some(0)), (5, 1, 1, Some(1))]);
        assert_eq!((&picks[0].sources, &picks[0].targets), (&vec![1, 0], &vec![3, 4]));
        assert_eq!((&picks[1].sources, &picks[1].targets), (&vec![0, 0], &vec![5, 6]));
    }

    #[test]
    fn chunks_come_in_order() {
        let (parts, picks) = cut(&[9, 1, 5, 2], 12, 4).unwrap();
        assert_eq!(parts.iter().map(|part| part.chunk).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!((&picks[0].sources, &picks[0].targets), (&vec![0, 1], &vec![1, 3]));
    }

    #[test]
    fn positions_outside_are_refused() {
        assert!(cut(&[0, 12], 12, 4).is_err());
        assert!(cut(&[-1], 12, 4).is_err());
        assert!(cut(&[], 12, 4).is_err());
    }
}
