//! Index arrays along an axis: which items of each chunk they want, in any order.
//!
//! The box around the wanted items of a chunk is decoded into memory of the thread, and its items
//! are copied from there to their places. Indices that are neighbours on both sides are a range and
//! are decoded in place.

use crate::array::grid::{Cut, Part};
use crate::array::scatter::Destination;
use crate::error::{Error, Kind, Outcome};
use crate::memory::{push, reserved};

/// Some items of a chunk along one axis: their positions in the box around them, and the positions
/// in the result that they go to.
pub struct IndexList {
    sources: Vec<usize>,
    targets: Vec<usize>,
}

/// Cut an index array by the chunks of an axis that is `length` long. `Part::list` of those
/// that are no ranges is the number of a list.
pub fn cut(indices: &[i64], length: usize, chunks: Cut<'_>) -> Outcome<(Vec<Part>, Vec<IndexList>)> {
    if indices.is_empty() {
        return Err(Error::new(Kind::Selection, "an axis without items"));
    }
    if let Some(bad) = indices.iter().find(|index| **index < 0 || **index as usize >= length) {
        return Err(Error::new(Kind::Selection, format!("index {bad} of an axis of {length} items")));
    }
    let number = |position: usize| chunks.locate(indices[position] as usize).0;
    let mut order: Vec<usize> = reserved(indices.len())?;
    order.extend(0..indices.len());
    if !order.is_sorted_by_key(|position| number(*position)) {
        order.sort_by_key(|position| number(*position));
    }
    let (mut parts, mut lists) = (Vec::new(), Vec::new());
    for group in order.chunk_by(|a, b| number(*a) == number(*b)) {
        let start = chunks.start(number(group[0]));
        let offset = |position: &usize| indices[*position] as usize - start;
        let start = group.iter().map(offset).min().unwrap_or(0);
        let end = group.iter().map(offset).max().unwrap_or(0) + 1;
        let neighbours = |pair: &[usize]| pair[1] == pair[0] + 1 && offset(&pair[1]) == offset(&pair[0]) + 1;
        let mut list = None;
        if !group.windows(2).all(neighbours) {
            list = Some(lists.len());
            let (mut sources, mut targets) = (reserved(group.len())?, reserved(group.len())?);
            sources.extend(group.iter().map(|position| offset(position) - start));
            targets.extend_from_slice(group);
            push(&mut lists, IndexList { sources, targets })?;
        }
        push(&mut parts, Part { chunk: number(group[0]), start, count: end - start, position: group[0], list })?;
    }
    Ok((parts, lists))
}

/// Copy the items of `enclosing`, the box around those that are wanted of a chunk, to their places
/// in `memory`.
///
/// # Safety
/// Nothing else may access these places at the same time.
#[allow(clippy::too_many_arguments, reason = "both sides have strides; called once")]
pub unsafe fn scatter(
    parts: &[Part],
    lists: &[Vec<IndexList>],
    enclosing: &[u8],
    box_strides: &[usize],
    memory: &Destination<'_>,
    origin: isize,
    strides: &[isize],
    itemsize: usize,
) {
    let axes: Vec<Axis<'_>> = (parts.iter().enumerate())
        .map(|(axis, part)| Axis {
            count: part.list.map_or(part.count, |list| lists[axis][list].sources.len()),
            first: part.position,
            list: part.list.map(|list| &lists[axis][list]),
            source: box_strides[axis],
            target: strides[axis],
        })
        .collect();
    // SAFETY: by the caller's promise.
    unsafe { scatter_axes(&axes, enclosing, origin, memory, itemsize) };
}

/// How items of the box go to their places along one axis.
struct Axis<'a> {
    count: usize,
    /// Where the first one goes, when there is no list.
    first: usize,
    list: Option<&'a IndexList>,
    /// Bytes from one item to the next, in the box and at their places.
    source: usize,
    target: isize,
}

impl Axis<'_> {
    /// Where item `number` lies, and where it goes.
    fn item(&self, number: usize) -> (usize, isize) {
        match self.list {
            Some(list) => (list.sources[number] * self.source, list.targets[number] as isize * self.target),
            None => (number * self.source, (self.first + number) as isize * self.target),
        }
    }
}

/// # Safety
/// As of `scatter`.
unsafe fn scatter_axes(axes: &[Axis<'_>], source: &[u8], target: isize, memory: &Destination<'_>, itemsize: usize) {
    let [axis, inner @ ..] = axes else {
        // SAFETY: by the caller's promise.
        unsafe { memory.slice(target, itemsize) }.copy_from_slice(&source[..itemsize]);
        return;
    };
    if inner.is_empty() && axis.list.is_none() && axis.target == itemsize as isize {
        let bytes = axis.count * itemsize;
        let (from, to) = axis.item(0);
        // SAFETY: by the caller's promise.
        unsafe { memory.slice(target + to, bytes) }.copy_from_slice(&source[from..from + bytes]);
        return;
    }
    for number in 0..axis.count {
        let (from, to) = axis.item(number);
        // SAFETY: by the caller's promise.
        unsafe { scatter_axes(inner, &source[from..], target + to, memory, itemsize) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_of_several_lengths_are_told_apart() {
        let (parts, lists) = cut(&[0, 2, 3, 4, 9, 8], 12, Cut::Rectilinear(&[0, 3, 4, 8, 13])).unwrap();
        let found: Vec<_> = parts.iter().map(|part| (part.chunk, part.start, part.count, part.position)).collect();
        assert_eq!(found, [(0, 0, 3, 0), (1, 0, 1, 2), (2, 0, 1, 3), (3, 0, 2, 4)]);
        assert_eq!((lists.len(), parts[1].list, parts[2].list), (2, None, None));
        assert_eq!((&lists[0].sources[..], &lists[1].targets[..]), (&[0, 2][..], &[4, 5][..]));
    }

    #[test]
    fn neighbours_are_ranges_and_others_are_picked() {
        let (parts, lists) = cut(&[3, 4, 5, 9, 8, 21, 21], 30, Cut::Regular(4)).unwrap();
        let found: Vec<_> = parts.iter().map(|part| (part.chunk, part.start, part.count, part.list)).collect();
        assert_eq!(found, [(0, 3, 1, None), (1, 0, 2, None), (2, 0, 2, Some(0)), (5, 1, 1, Some(1))]);
        assert_eq!((&lists[0].sources, &lists[0].targets), (&vec![1, 0], &vec![3, 4]));
        assert_eq!((&lists[1].sources, &lists[1].targets), (&vec![0, 0], &vec![5, 6]));
    }

    #[test]
    fn chunks_come_in_order() {
        let (parts, lists) = cut(&[9, 1, 5, 2], 12, Cut::Regular(4)).unwrap();
        assert_eq!(parts.iter().map(|part| part.chunk).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!((&lists[0].sources, &lists[0].targets), (&vec![0, 1], &vec![1, 3]));
    }

    #[test]
    fn positions_outside_are_refused() {
        assert!(cut(&[0, 12], 12, Cut::Regular(4)).is_err());
        assert!(cut(&[-1], 12, Cut::Regular(4)).is_err());
        assert!(cut(&[], 12, Cut::Regular(4)).is_err());
    }
}
