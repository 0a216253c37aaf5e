//! Declaring what is counted.

/// Declares a struct of `u64` that is a [`Kstat`](crate::Kstat). With `counted by`, a struct of the
/// atomics behind the numbers as well.
///
/// ```
/// use std::sync::atomic::Ordering;
///
/// rzfs_kstat::kstat! {
///     /// What a door has seen.
///     pub struct DoorStats = "door", counted by pub struct DoorCounters {
///         /// Who came in.
///         entered: Counter Count,
///         /// Who is inside.
///         inside: Gauge Count,
///     }
/// }
///
/// let counters = DoorCounters::default();
/// counters.entered.fetch_add(2, Ordering::Relaxed);
/// assert_eq!(counters.read().entered, 2);
/// ```
#[macro_export]
macro_rules! kstat {
    (
        $(#[$doc:meta])*
        pub struct $name:ident = $kstat:literal, counted by $visibility:vis struct $counters:ident {
            $($(#[doc = $about:literal])+ $field:ident: $kind:ident $unit:ident,)*
        }
    ) => {
        $crate::kstat! {
            $(#[$doc])*
            pub struct $name = $kstat { $($(#[doc = $about])+ $field: $kind $unit,)* }
        }

        #[doc = concat!("The counters behind [`", stringify!($name), "`].")]
        #[derive(Debug, Default)]
        $visibility struct $counters {
            $($(#[doc = $about])+ $visibility $field: ::std::sync::atomic::AtomicU64,)*
        }

        impl $counters {
            /// The counters as they are now.
            #[must_use]
            $visibility fn read(&self) -> $name {
                $name { $($field: self.$field.load(::std::sync::atomic::Ordering::Relaxed),)* }
            }
        }
    };
    (
        $(#[$doc:meta])*
        pub struct $name:ident = $kstat:literal {
            $($(#[doc = $about:literal])+ $field:ident: $kind:ident $unit:ident,)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        #[non_exhaustive]
        pub struct $name {
            $($(#[doc = $about])+ pub $field: u64,)*
        }

        impl $crate::Kstat for $name {
            const NAME: &'static str = $kstat;
            const FIGURES: &'static [$crate::Figure] = &[
                $($crate::Figure {
                    name: stringify!($field),
                    kind: $crate::Kind::$kind,
                    unit: $crate::Unit::$unit,
                    about: concat!($($about),+),
                },)*
            ];

            fn values(&self) -> Vec<u64> {
                vec![$(self.$field),*]
            }
        }

        impl $name {
            /// Adds each number of `other` to the number of the same name.
            pub const fn add(&mut self, other: &Self) {
                $(self.$field = self.$field.wrapping_add(other.$field);)*
            }
        }
    };
}

#[cfg(test)]
#[expect(unreachable_pub, reason = "what the macro makes is public")]
mod tests {
    use crate::{Figure, Kind, Kstat, Unit};
    use std::sync::atomic::Ordering;

    kstat! {
        /// Two numbers.
        pub struct Two = "two", counted by struct TwoCounters {
            /// How many bytes
            /// came.
            came: Counter Bytes,
            /// How many are there.
            there: Gauge Count,
        }
    }

    #[test]
    fn what_is_declared_is_listed_in_its_order() {
        let counters = TwoCounters::default();
        counters.came.fetch_add(7, Ordering::Relaxed);
        let mut two = counters.read();
        two.add(&Two { came: 1, there: 3 });
        assert_eq!(Two::NAME, "two");
        assert_eq!(two.named().collect::<Vec<_>>(), [("came", 8), ("there", 3)]);
        let [Figure { name, kind, unit, .. }, there] = Two::FIGURES else { panic!() };
        assert_eq!((*name, *kind, *unit), ("came", Kind::Counter, Unit::Bytes));
        assert_eq!((there.kind, there.about()), (Kind::Gauge, "How many are there."));
    }
}
