//! Failed checks as `Err`, for functions that return the mistake to their caller instead of panicking.

/// Returns `Err` with this message if the condition holds.
macro_rules! fail_if {
    ($condition:expr, $($message:tt)+) => {
        if $condition {
            return Err(format_args!($($message)+).to_string());
        }
    };
}
