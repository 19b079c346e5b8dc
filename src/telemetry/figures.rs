//! Structs of metrics, in which each member has its first value, and each gauge its name, beside it.

/// Makes a struct with a constructor, and gauges that are rendered in their order. Of each gauge, the kind, the name
/// and the help are given; the help is also its documentation.
macro_rules! figures {
    (
        $(#[$meta:meta])*
        $vis:vis struct $Name:ident($($from:ident: $From:ty),*) {
            $($(#[$doc:meta])* $own:vis $member:ident: $Member:ty = $first:expr,)*
        }
        $($of:vis $gauge:ident: $Gauge:ty = $kind:literal $name:literal $help:literal,)*
    ) => {
        $(#[$meta])*
        #[derive(Debug)]
        $vis struct $Name {
            $($(#[$doc])* $own $member: $Member,)*
            $(#[doc = $help] $of $gauge: $Gauge,)*
        }

        impl $Name {
            pub(super) fn new($($from: $From),*) -> Self {
                Self { $($member: $first,)* $($gauge: <$Gauge>::default(),)* }
            }

            /// Appends the gauges of all, each with its labels.
            pub(super) fn render_gauges(all: &[&Self], labels: fn(&Self) -> &str, out: &mut String) {
                $(
                    series::head($name, $help, $kind, out);
                    all.iter().for_each(|one| one.$gauge.render($name, labels(one), out));
                )*
            }
        }
    };
}
pub(super) use figures;
