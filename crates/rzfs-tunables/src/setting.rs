//! Setting tunables by their names.

use crate::error::TunableError;
use crate::nearest::nearest;
use crate::number;
use crate::table::{TABLE, Tunable, Tunables};

impl Tunable {
    /// The tunable of this name.
    ///
    /// # Errors
    /// [`TunableError::Unknown`] names the one that may have been meant.
    pub fn of_name(name: &str) -> Result<&'static Self, TunableError> {
        TABLE.iter().find(|one| one.name == name).ok_or_else(|| TunableError::Unknown {
            name: name.to_owned(),
            nearest: nearest(name, TABLE.iter().map(|one| one.name)),
        })
    }
}

impl Tunables {
    /// Sets the tunable of this name to what a text says.
    ///
    /// # Errors
    /// [`TunableError`]; nothing has changed then.
    pub fn set(&mut self, name: &str, text: &str) -> Result<(), TunableError> {
        let tunable = Tunable::of_name(name)?;
        let text = text.to_owned();
        match number::parse(&text, tunable.unit) {
            None => Err(TunableError::NotAValue { tunable, text }),
            Some(number) if !tunable.range.contains(&number) => {
                Err(TunableError::OutOfRange { tunable, text })
            }
            Some(number) => {
                (tunable.put)(self, number);
                Ok(())
            }
        }
    }

    /// The tunables that have other values than by default, with their numbers.
    pub fn changed(&self) -> impl Iterator<Item = (&'static Tunable, u64)> {
        let with_number = TABLE.iter().map(|one| (one, one.number(self)));
        with_number.filter(|(one, number)| *number != one.default)
    }
}
