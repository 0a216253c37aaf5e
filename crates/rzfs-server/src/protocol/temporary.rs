//! Temporary options of a mount.

use rzfs_format::property::DatasetProperty;
use serde::{Deserialize, Serialize};

/// Values of properties that hold for one mount as long as it lasts: mount(8) options that
/// correspond to properties. `zfs get` shows them with the source `temporary`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Temporary {
    /// `readonly`
    pub readonly: Option<bool>,
    /// `devices`
    pub devices: Option<bool>,
    /// `setuid`
    pub setuid: Option<bool>,
    /// `exec`
    pub exec: Option<bool>,
    /// `atime`
    pub atime: Option<bool>,
    /// `relatime`
    pub relatime: Option<bool>,
}

impl Temporary {
    /// The properties covered.
    pub const PROPERTIES: [DatasetProperty; 6] = [
        DatasetProperty::ReadOnly,
        DatasetProperty::Devices,
        DatasetProperty::SetUid,
        DatasetProperty::Exec,
        DatasetProperty::Atime,
        DatasetProperty::Relatime,
    ];

    /// Parses a mount option; returns whether it corresponds to one of these properties.
    #[must_use]
    pub fn take(&mut self, option: &str) -> bool {
        let (property, is_on) = match option {
            "ro" => (DatasetProperty::ReadOnly, true),
            "rw" => (DatasetProperty::ReadOnly, false),
            "dev" => (DatasetProperty::Devices, true),
            "nodev" => (DatasetProperty::Devices, false),
            "suid" => (DatasetProperty::SetUid, true),
            "nosuid" => (DatasetProperty::SetUid, false),
            "strictatime" => {
                self.atime = Some(true);
                (DatasetProperty::Relatime, false)
            }
            _ => {
                let negated = option.strip_prefix("no");
                match DatasetProperty::from_name(negated.unwrap_or(option)) {
                    // mount(8) has special options for this one.
                    None | Some(DatasetProperty::ReadOnly) => return false,
                    // It passes those first, regardless of their order: of two contradictory ones
                    // the safe one counts.
                    Some(property @ (DatasetProperty::Devices | DatasetProperty::SetUid))
                        if self.value(property) == Some(false) =>
                    {
                        (property, false)
                    }
                    Some(property) => (property, negated.is_none()),
                }
            }
        };
        let Some(value) = self.value_mut(property) else { return false };
        *value = Some(is_on);
        true
    }

    /// The corresponding mount options.
    #[must_use]
    pub fn options(&self) -> Vec<&'static str> {
        let words = [
            (self.readonly, "ro", "rw"),
            (self.devices, "dev", "nodev"),
            (self.setuid, "suid", "nosuid"),
            (self.exec, DatasetProperty::Exec.name(), "noexec"),
            (self.atime, DatasetProperty::Atime.name(), "noatime"),
            (self.relatime, DatasetProperty::Relatime.name(), "norelatime"),
        ];
        let word = |(value, on, off): (Option<bool>, _, _)| {
            value.map(|is_on| if is_on { on } else { off })
        };
        words.into_iter().filter_map(word).collect()
    }

    /// The value of a property, if it is overridden.
    #[must_use]
    pub fn value(mut self, property: DatasetProperty) -> Option<bool> {
        self.value_mut(property).and_then(|value| *value)
    }

    const fn value_mut(&mut self, property: DatasetProperty) -> Option<&mut Option<bool>> {
        Some(match property {
            DatasetProperty::ReadOnly => &mut self.readonly,
            DatasetProperty::Devices => &mut self.devices,
            DatasetProperty::SetUid => &mut self.setuid,
            DatasetProperty::Exec => &mut self.exec,
            DatasetProperty::Atime => &mut self.atime,
            DatasetProperty::Relatime => &mut self.relatime,
            _ => return None,
        })
    }

    /// These, or else the others.
    #[must_use]
    pub fn or(self, others: Self) -> Self {
        self.mapped(|property, value| value.or(others.value(property)))
    }

    /// The same where a property counts again.
    #[must_use]
    pub fn settled(self, property: DatasetProperty) -> Self {
        self.filtered(|other, _| other != property)
    }

    /// The same with the opposite of each value.
    #[must_use]
    pub fn reversed(self) -> Self {
        self.mapped(|_, value| value.map(|is_on| !is_on))
    }

    /// Those that satisfy a condition on property and value.
    #[must_use]
    pub fn filtered(self, is_so: impl Fn(DatasetProperty, bool) -> bool) -> Self {
        self.mapped(|property, value| value.filter(|is_on| is_so(property, *is_on)))
    }

    fn mapped(mut self, new: impl Fn(DatasetProperty, Option<bool>) -> Option<bool>) -> Self {
        for property in Self::PROPERTIES {
            if let Some(value) = self.value_mut(property) {
                *value = new(property, *value);
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(options: &[&str]) -> Temporary {
        let mut temporary = Temporary::default();
        for option in options {
            assert!(temporary.take(option), "{option}");
        }
        temporary
    }

    #[test]
    fn the_last_option_counts() {
        let temporary = of(&["ro", "noatime", "rw", "strictatime", "nosuid", "nodev", "exec"]);
        let values = Temporary::PROPERTIES.map(|property| temporary.value(property));
        assert_eq!(values, [false, false, false, true, true, false].map(Some));
        let options = temporary.options();
        assert_eq!(options, ["rw", "nodev", "nosuid", "exec", "atime", "norelatime"]);
        assert_eq!(of(&options), temporary);
        assert_eq!(of(&["ro", "noexec"]).reversed(), of(&["rw", "exec"]));
        assert_eq!(of(&["nosuid", "setuid", "nodev", "devices"]), of(&["nosuid", "nodev"]));
        for other in ["readonly", "noreadonly", "sync", "recordsize", "ro=1", "no", ""] {
            assert!(!Temporary::default().take(other), "{other}");
            assert_eq!(temporary.value(DatasetProperty::RecordSize), None);
        }
    }

    #[test]
    fn what_is_not_said_stays() {
        let (new, old) = (of(&["ro"]), of(&["rw", "noexec"]));
        assert_eq!(new.or(old), of(&["ro", "noexec"]));
        assert_eq!(
            new.or(old).filtered(|property, is_on| property == DatasetProperty::Exec && !is_on),
            of(&["noexec"])
        );
    }
}
