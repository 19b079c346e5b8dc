//! Enums whose variants have names for people and programs.

/// Makes an enum with the list of its variants, and the name of each.
macro_rules! named {
    ($(#[$meta:meta])* $vis:vis enum $Name:ident { $($(#[doc = $doc:literal])+ $one:ident = $name:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        $vis enum $Name { $($(#[doc = $doc])+ $one,)* }

        impl $Name {
            /// List of all, in order.
            pub const ALL: [Self; { [$(Self::$one,)*].len() }] = [$(Self::$one,)*];

            /// Returns the name for people and programs.
            pub fn name(self) -> &'static str {
                match self { $(Self::$one => $name,)* }
            }
        }
    };
}
pub(crate) use named;
