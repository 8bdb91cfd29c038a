//! Sums whose terms are added in the order in which they are known.
//!
//! In a digest each step waits for the one before it. Compilers put the terms of a sum in an order of
//! their own, often those last that are known first, so that the next step has to wait for all of them.
//!
//! `unsafe`: assembly without instructions, which only hides from the compiler how a value is made.

/// The same value, in a way that the compiler cannot see through: what it is made of is added up first.
#[inline(always)]
pub fn early<T: Word>(value: T) -> T {
    value.hidden()
}

/// An unsigned integer that fits a register.
pub trait Word {
    fn hidden(self) -> Self;
}

impl Word for u32 {
    #[inline(always)]
    fn hidden(self) -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            let mut hidden = self;
            // SAFETY: there is no instruction, only a comment.
            unsafe {
                std::arch::asm!("/* {0:e} */", inout(reg) hidden, options(pure, nomem, nostack, preserves_flags));
            }
            hidden
        }
        #[cfg(not(target_arch = "x86_64"))]
        self
    }
}

#[cfg(target_arch = "x86_64")]
impl Word for u64 {
    #[inline(always)]
    fn hidden(self) -> Self {
        let mut hidden = self;
        // SAFETY: as above.
        unsafe {
            std::arch::asm!("/* {0} */", inout(reg) hidden, options(pure, nomem, nostack, preserves_flags));
        }
        hidden
    }
}
