//! The plan of a window for a device: which blocks of which chunks it gets, and where their items go.
//!
//! - `region`: wanted items of a chunk, the ranges of bytes that they lie in, and where they go.
//! - `blocks`: the blocks of one Blosc chunk that hold them, once its header and block starts are checked.
//! - `window`: the tables of all chunks of a window, as the kernels of a device take them.
//!
//! Its twin is `ingot.device.plan`; the records are those of `kernels.cu`.

pub mod blocks;
pub mod region;
pub mod window;
