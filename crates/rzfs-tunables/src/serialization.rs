//! Tunables in messages: those that have other values than by default, by their names.

use crate::table::Tunables;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;

impl Serialize for Tunables {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.changed().map(|(tunable, number)| (tunable.name, number)))
    }
}

impl<'de> Deserialize<'de> for Tunables {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut tunables = Self::default();
        for (name, number) in BTreeMap::<String, u64>::deserialize(deserializer)? {
            tunables.set(&name, &number.to_string()).map_err(Error::custom)?;
        }
        Ok(tunables)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_changed_is_told_and_all_of_it_is_understood() {
        let mut tunables = Tunables::default();
        assert_eq!(serde_json::to_string(&tunables).unwrap(), "{}");
        tunables.set("zfs_txg_timeout", "1").unwrap();
        tunables.set("zfs_arc_max", "64M").unwrap();
        let text = serde_json::to_string(&tunables).unwrap();
        assert_eq!(text, r#"{"zfs_arc_max":67108864,"zfs_txg_timeout":1}"#);
        assert_eq!(serde_json::from_str::<Tunables>(&text).unwrap(), tunables);
    }

    #[test]
    fn what_the_table_does_not_allow_is_refused() {
        for (text, problem) in [
            (r#"{"zfs_txg_timeout":0}"#, "zfs_txg_timeout: 0 is out of range: 1 to 86400 s"),
            (r#"{"xyz":1}"#, "there is no tunable 'xyz'"),
        ] {
            let error = serde_json::from_str::<Tunables>(text).unwrap_err().to_string();
            assert!(error.starts_with(problem), "{error}");
        }
    }
}
