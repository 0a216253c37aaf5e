//! Objects of words that a fuzzer wrote: space maps and arrays.

use bytes::Bytes;
use rzfs_format::object_type::ObjectType;
use rzfs_format::{ByteOrder, ObjectId};
use rzfs_metaslab::{SpaceMapStore, StoreError, StoredObject};
use std::collections::HashMap;

/// Bytes of a header of a space map, with a histogram and without.
const HEADERS: [usize; 2] = [320, 24];
const BLOCK_SIZE: u32 = 4096;

/// An object of words.
#[derive(Debug)]
pub struct WordObject {
    /// Its type.
    pub object_type: ObjectType,
    /// The byte order of bonus and data.
    pub order: ByteOrder,
    /// The bonus.
    pub bonus: Vec<u8>,
    /// The data.
    pub data: Vec<u8>,
}

/// Objects by number.
#[derive(Debug, Default)]
pub struct WordObjects(HashMap<ObjectId, WordObject>);

impl WordObjects {
    /// The object with this number.
    pub fn get(&self, id: ObjectId) -> Option<&WordObject> {
        self.0.get(&id)
    }

    /// Adds a space map: a byte of flags, the header, and all that is left.
    pub fn take_space_map<'a>(&mut self, id: ObjectId, input: &'a [u8]) -> Option<&'a [u8]> {
        let (&flags, input) = input.split_first()?;
        let order = if flags & 1 == 0 { ByteOrder::Little } else { ByteOrder::Big };
        let (bonus, data) = input.split_at_checked(HEADERS[usize::from(flags >> 1 & 1)])?;
        let (bonus, data) = (bonus.to_vec(), data.to_vec());
        let object_type = ObjectType::SPACE_MAP;
        self.0.insert(id, WordObject { object_type, order, bonus, data });
        Some(&[])
    }
}

impl SpaceMapStore for WordObjects {
    fn object(&self, object: ObjectId) -> Result<StoredObject, StoreError> {
        let found = self.get(object).ok_or("no such object")?;
        Ok(StoredObject {
            object_type: found.object_type,
            block_size: BLOCK_SIZE,
            extent: found.data.len().next_multiple_of(BLOCK_SIZE as usize) as u64,
            bonus: Bytes::from(found.bonus.clone()),
            order: found.order,
        })
    }

    fn read_words(
        &self,
        object: ObjectId,
        first: u64,
        count: usize,
    ) -> Result<Vec<u64>, StoreError> {
        assert!(count <= 1 << 17, "more than a MiB at once");
        let found = self.get(object).ok_or("no such object")?;
        let word = |index: u64| {
            let at = usize::try_from(index).ok()?.checked_mul(8)?;
            Some(found.order.u64(*found.data.get(at..)?.first_chunk()?))
        };
        Ok((first..).take(count).map(|index| word(index).unwrap_or(0)).collect())
    }
}
