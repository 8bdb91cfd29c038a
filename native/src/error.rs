//! Why a call failed: a kind for the caller to decide on, and a sentence for a person to read.
//!
//! Knows nothing of Python; `python` turns an `Error` into an exception of `ingot.errors`.

use std::fmt;

/// The kinds of failure, one per exception class (plus what only the boundary needs).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The bytes are not what the format allows.
    Format,
    /// Data is missing, truncated or impossible.
    Corruption,
    /// Known to the format, not decoded by this kernel.
    Unsupported,
    /// Larger than the caller allows.
    Limit,
    /// A range outside the data.
    Selection,
    /// An argument of the caller is wrong (a buffer that is too small, an unknown name).
    Argument,
    /// A path that leaves the root, or a special file.
    Unsafe,
    /// A system call failed; the code is `errno`.
    System(i32),
    /// The kernel itself is at fault.
    Kernel,
    /// A signal handler raised while the call ran.
    Interrupted,
}

/// One failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    pub kind: Kind,
    pub text: String,
}

impl Error {
    pub fn new(kind: Kind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

pub type Outcome<T> = Result<T, Error>;

/// `corrupt!("stream claims {n} bytes")`: the most frequent error, as an `Err`.
macro_rules! corrupt {
    ($($part:tt)*) => {
        Err($crate::error::Error::new($crate::error::Kind::Corruption, format!($($part)*)))
    };
}

macro_rules! malformed {
    ($($part:tt)*) => {
        Err($crate::error::Error::new($crate::error::Kind::Format, format!($($part)*)))
    };
}

macro_rules! unsupported {
    ($($part:tt)*) => {
        Err($crate::error::Error::new($crate::error::Kind::Unsupported, format!($($part)*)))
    };
}

pub(crate) use {corrupt, malformed, unsupported};
