//! How a table of properties becomes an enum.

/// Makes an enum of properties from a table with an entry for each.
///
/// The entry type has a field `description`.
macro_rules! properties {
    (
        $(#[$meta:meta])*
        $properties:ident: $entry:ty {
            $($(#[$doc:meta])* $property:ident = $value:expr;)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum $properties {
            $($(#[$doc])* $property,)*
        }

        impl $properties {
            /// All properties.
            pub const ALL: &'static [Self] = &[$(Self::$property,)*];

            const fn entry(self) -> &'static $entry {
                match self {
                    $(Self::$property => const { &$value },)*
                }
            }

            /// What all sorts of properties have in common.
            #[must_use]
            pub const fn description(self) -> &'static $crate::property::description::Description {
                &self.entry().description
            }

            /// The full name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                self.description().name
            }

            /// What values it has.
            #[must_use]
            pub const fn values(self) -> $crate::property::values::Values {
                self.description().values
            }

            /// All but the name, which is a column of listings but nothing that can be set.
            pub fn all_but_name() -> impl Iterator<Item = Self> {
                Self::ALL.iter().copied().filter(|property| *property != Self::Name)
            }

            /// The property with this full name.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|property| property.name() == name)
            }

            /// The property with this full name, or whose header in lower case this is.
            #[must_use]
            pub fn from_name_or_header(name: &str) -> Option<Self> {
                let is_alias = |property: &Self| {
                    !name.bytes().any(|byte| byte.is_ascii_uppercase())
                        && property.description().header.eq_ignore_ascii_case(name)
                };
                Self::from_name(name).or_else(|| Self::ALL.iter().copied().find(is_alias))
            }
        }

        impl std::fmt::Display for $properties {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}
pub(super) use properties;
