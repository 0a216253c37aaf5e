//! Changes of an open ZAP (spec 03, sections 12.5 and 12.8).

use std::convert::Infallible;

use rzfs_format::zap::MAX_NAME_SIZE;
use rzfs_format::zap::fat::{Geometry, ZapFlags};
use rzfs_format::{BlockId, ByteOrder};

use crate::entry::KeyRef;
use crate::fat::Fat;
use crate::form::Form;
use crate::micro::{Micro, Room};
use crate::{Matching, MemoryBlocks, ZapBlocks, ZapBlocksMut, ZapError, ZapValue};

/// Blocks of a fat ZAP that was a microzap.
pub(crate) const FAT_BLOCK_SIZE: usize = 16 << 10;

/// What an administrator can set about ZAPs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tunables {
    /// `zap_micro_max_size`: largest microzap in bytes, rounded up to 512; 128 KiB unless
    /// `large_microzap` is enabled, then up to 1 MiB and to the largest block of the pool.
    pub micro_max_size: usize,
    /// `zap_shrink_enabled`: whether empty leaves collapse.
    pub shrink_enabled: bool,
}

impl Default for Tunables {
    fn default() -> Self {
        Self { micro_max_size: 128 << 10, shrink_enabled: true }
    }
}

/// What to do about a key that is there already.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Present {
    Refuse,
    Replace,
}

/// Changes an open ZAP in a transaction.
///
/// A change that fails because of the ZAP's contents or of what is asked has changed nothing that
/// readers can see, although a leaf may have been split. After an error of the blocks the ZAP has
/// to be reopened.
#[derive(Debug)]
pub struct ZapWriter<'z, B: ZapBlocksMut> {
    form: &'z mut Form,
    blocks: B,
    tunables: Tunables,
}

impl<'z, B: ZapBlocksMut> ZapWriter<'z, B> {
    pub(crate) fn new(form: &'z mut Form, blocks: B) -> Self {
        form.first_block().release();
        Self { form, blocks, tunables: Tunables::default() }
    }

    /// Goes by these tunables from now on.
    #[must_use]
    pub fn tunables(mut self, tunables: Tunables) -> Self {
        self.tunables = tunables;
        self
    }

    /// The value of the entry with exactly this key.
    pub fn lookup<'k>(
        &self,
        key: impl Into<KeyRef<'k>>,
    ) -> Result<Option<ZapValue>, ZapError<B::Error>> {
        self.form.lookup(&self.blocks, key.into())
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// [`ZapError::Exists`] when the same key is there. Whether names that a normalising ZAP takes
    /// for the same may exist side by side is up to the caller: see [`Self::insert_matching`].
    pub fn insert<'k>(
        &mut self,
        key: impl Into<KeyRef<'k>>,
        value: impl Into<ZapValue>,
    ) -> Result<(), ZapError<B::Error>> {
        self.store(key.into(), &value.into(), Present::Refuse)
    }

    /// Adds a name unless one that matches it is there.
    ///
    /// # Errors
    /// [`ZapError::Exists`] when a name matches, [`ZapError::NotNormalizing`] when the ZAP does
    /// not normalise and the match is not exact.
    pub fn insert_matching(
        &mut self,
        name: &[u8],
        matching: Matching,
        value: impl Into<ZapValue>,
    ) -> Result<(), ZapError<B::Error>> {
        if self.form.lookup_matching(&self.blocks, name, matching)?.is_some() {
            return Err(ZapError::Exists);
        }
        self.insert(name, value)
    }

    /// Sets the value of a key, whether it exists or not.
    pub fn update<'k>(
        &mut self,
        key: impl Into<KeyRef<'k>>,
        value: impl Into<ZapValue>,
    ) -> Result<(), ZapError<B::Error>> {
        self.store(key.into(), &value.into(), Present::Replace)
    }

    fn store(
        &mut self,
        key: KeyRef<'_>,
        value: &ZapValue,
        present: Present,
    ) -> Result<(), ZapError<B::Error>> {
        if let Form::Micro(_) = &*self.form {
            let KeyRef::Name(name) = key else { return Err(ZapError::KeyKind) };
            check_name(name)?;
            if self.store_in_micro(name, value, present)? {
                return Ok(());
            }
            check_size(name, value)?;
            self.upgrade()?;
        }
        let Form::Fat(fat) = &mut *self.form else { return Ok(()) };
        fat.check_writable(&self.blocks)?;
        value.with_stored(|value| fat.store(&mut self.blocks, key, value, present))
    }

    /// Stores a value in a microzap; `false` if it has to become a fat ZAP for it.
    ///
    /// A block whose entries are all used grows when one is added, not when one is replaced or
    /// turns out to be there, as it does in OpenZFS.
    fn store_in_micro(
        &mut self,
        name: &[u8],
        value: &ZapValue,
        present: Present,
    ) -> Result<bool, ZapError<B::Error>> {
        let Form::Micro(micro) = &mut *self.form else { return Ok(false) };
        let hash = micro.hash(name);
        if present == Present::Refuse && micro.has(&self.blocks, hash, name)? {
            return Err(ZapError::Exists);
        }
        let Some(number) = Micro::number(name, value) else { return Ok(false) };
        if present == Present::Replace && micro.set(&mut self.blocks, hash, name, number)? {
            return Ok(true);
        }
        match micro.room_for(hash, self.tunables.micro_max_size) {
            Room::Free => {}
            Room::AfterGrowth(size) => micro.grow(&mut self.blocks, size)?,
            Room::OnlyInFat => return Ok(false),
        }
        micro.add(&mut self.blocks, hash, name, number)?;
        Ok(true)
    }

    /// Removes the entry with exactly this key; `false` if there is none.
    pub fn remove<'k>(&mut self, key: impl Into<KeyRef<'k>>) -> Result<bool, ZapError<B::Error>> {
        match (&mut *self.form, key.into()) {
            (Form::Micro(micro), KeyRef::Name(name)) => micro.remove(&mut self.blocks, name),
            (Form::Micro(_), KeyRef::Words(_)) => Err(ZapError::KeyKind),
            (Form::Fat(fat), key) => {
                fat.check_writable(&self.blocks)?;
                fat.remove(&mut self.blocks, key, &self.tunables)
            }
        }
    }

    /// Makes the leaf of a fat ZAP that would hold a key unreadable, with all of its entries, so that
    /// lookups fail instead of finding a stale entry, or none, where damage keeps the entry from
    /// being changed.
    ///
    /// # Errors
    /// [`ZapError::KeyKind`] when the ZAP has no leaves.
    pub fn spoil<'k>(&mut self, key: impl Into<KeyRef<'k>>) -> Result<(), ZapError<B::Error>> {
        match &mut *self.form {
            Form::Micro(_) => Err(ZapError::KeyKind),
            Form::Fat(fat) => fat.spoil(&mut self.blocks, key.into()),
        }
    }

    /// Removes the first entry, by collision differentiator, whose name matches; `false` if none
    /// does.
    ///
    /// # Errors
    /// [`ZapError::NotNormalizing`] when the ZAP does not normalise and the match is not exact.
    pub fn remove_matching(
        &mut self,
        name: &[u8],
        matching: Matching,
    ) -> Result<bool, ZapError<B::Error>> {
        match self.form.lookup_matching(&self.blocks, name, matching)? {
            // The name is copied: the entry's shares the block, which would be copied instead.
            Some(entry) => {
                let name = entry.name().to_vec();
                drop(entry);
                self.remove(&name[..])
            }
            None => Ok(false),
        }
    }

    /// Adds a number, modulo 2^64, to the 64-bit integer that a key has; a key that is not there
    /// counts as 0, and one whose number becomes 0 is removed. Returns the sum.
    ///
    /// # Errors
    /// [`ZapError::ValueKind`] when the value is something else.
    pub fn add_u64<'k>(
        &mut self,
        key: impl Into<KeyRef<'k>>,
        delta: i64,
    ) -> Result<u64, ZapError<B::Error>> {
        let key = key.into();
        let before = self.lookup(key)?.map_or(Some(0), |value| value.single_u64());
        let before = before.ok_or(ZapError::ValueKind)?;
        let sum = before.wrapping_add_signed(delta);
        match (delta, sum) {
            (0, _) => {}
            (_, 0) => {
                self.remove(key)?;
            }
            _ => self.update(key, sum)?,
        }
        Ok(sum)
    }

    /// Makes a microzap a fat ZAP, with the same salt and the same collision differentiators.
    ///
    /// It is made in memory first: entries that no fat ZAP could have leave the microzap as it
    /// is.
    fn upgrade(&mut self) -> Result<(), ZapError<B::Error>> {
        let Form::Micro(micro) = &*self.form else { return Ok(()) };
        let shape = Geometry::of_block_size(FAT_BLOCK_SIZE).and_then(|geometry| {
            Fat::encode_empty(geometry, micro.salt(), micro.normalization(), ZapFlags::NONE)
        });
        let empty = shape.map_err(ZapError::BadShape)?.map(Into::into).into();
        let mut made = MemoryBlocks::new(FAT_BLOCK_SIZE, ByteOrder::NATIVE, empty);
        let Form::Fat(mut fat) = Form::open(&made).map_err(in_memory)? else { return Ok(()) };
        fat.first_block().release();
        micro.in_block_order(&self.blocks, |entry| {
            let name = KeyRef::Name(entry.name);
            ZapValue::from(entry.value)
                .with_stored(|value| fat.add(&mut made, name, entry.cd, value))
                .map_err(in_memory)
        })?;
        self.blocks.set_block_size(FAT_BLOCK_SIZE).map_err(ZapError::Blocks)?;
        let Ok(count) = made.block_count();
        for id in (0..count).map(BlockId) {
            let Ok((contents, _)) = made.read_block(id);
            self.blocks.write_block(id, contents).map_err(ZapError::Blocks)?;
        }
        *self.form = Form::Fat(fat);
        Ok(())
    }
}

impl<B: ZapBlocksMut> Drop for ZapWriter<'_, B> {
    fn drop(&mut self) {
        self.form.first_block().keep(&self.blocks);
    }
}

/// Refuses names that no ZAP can have.
fn check_name<E>(name: &[u8]) -> Result<(), ZapError<E>> {
    let fits = !name.is_empty() && name.len() < MAX_NAME_SIZE && !name.contains(&0);
    if fits { Ok(()) } else { Err(ZapError::BadKey) }
}

/// Refuses entries that are too big for the leaves of a fat ZAP that was a microzap, before it
/// becomes one.
fn check_size<E>(name: &[u8], value: &ZapValue) -> Result<(), ZapError<E>> {
    let geometry = Geometry::of_block_size(FAT_BLOCK_SIZE).map_err(ZapError::BadShape)?;
    let fits = value.with_stored(|value| Fat::can_have(geometry, name.len() + 1, value));
    if fits { Ok(()) } else { Err(ZapError::TooBig) }
}

/// The error of a change in memory, where blocks have none.
fn in_memory<E>(error: ZapError<Infallible>) -> ZapError<E> {
    error.map_blocks(|never| match never {})
}
