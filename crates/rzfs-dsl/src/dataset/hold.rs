//! Holds: tags that keep a snapshot from being destroyed (spec 04, section 16).

use super::{Dataset, DatasetError};
use crate::mos::names;

/// A user's hold on a snapshot.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Hold {
    /// Its name.
    pub tag: String,
    /// When it was made, seconds since 1970.
    pub time: u64,
}

impl Dataset {
    /// The holds on this snapshot, by tag; other datasets have none.
    pub fn holds(&self) -> Result<Vec<Hold>, DatasetError> {
        let tags = names::all(self.tree.mos(), self.dataset.user_references)?;
        let mut holds: Vec<_> =
            tags.into_iter().map(|(tag, time)| Hold { tag, time: time.0 }).collect();
        holds.sort();
        Ok(holds)
    }
}
