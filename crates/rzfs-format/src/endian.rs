//! Byte order of a block and bounded access to integers in it.

use crate::FormatError;

/// The byte order in which a block was written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ByteOrder {
    /// Least significant byte first.
    Little,
    /// Most significant byte first.
    Big,
}

impl ByteOrder {
    /// The order of this machine; what is newly written has it.
    pub const NATIVE: Self = if cfg!(target_endian = "little") { Self::Little } else { Self::Big };

    /// The other order.
    #[must_use]
    pub const fn swapped(self) -> Self {
        match self {
            Self::Little => Self::Big,
            Self::Big => Self::Little,
        }
    }

    /// A 16-bit number from its bytes.
    #[must_use]
    pub const fn u16(self, bytes: [u8; 2]) -> u16 {
        match self {
            Self::Little => u16::from_le_bytes(bytes),
            Self::Big => u16::from_be_bytes(bytes),
        }
    }

    /// A 32-bit number from its bytes.
    #[must_use]
    pub const fn u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            Self::Little => u32::from_le_bytes(bytes),
            Self::Big => u32::from_be_bytes(bytes),
        }
    }

    /// A 64-bit number from its bytes.
    #[must_use]
    pub const fn u64(self, bytes: [u8; 8]) -> u64 {
        match self {
            Self::Little => u64::from_le_bytes(bytes),
            Self::Big => u64::from_be_bytes(bytes),
        }
    }

    /// The bytes of a 16-bit number.
    #[must_use]
    pub const fn bytes16(self, value: u16) -> [u8; 2] {
        match self {
            Self::Little => value.to_le_bytes(),
            Self::Big => value.to_be_bytes(),
        }
    }

    /// The bytes of a 32-bit number.
    #[must_use]
    pub const fn bytes32(self, value: u32) -> [u8; 4] {
        match self {
            Self::Little => value.to_le_bytes(),
            Self::Big => value.to_be_bytes(),
        }
    }

    /// The bytes of a 64-bit number.
    #[must_use]
    pub const fn bytes64(self, value: u64) -> [u8; 8] {
        match self {
            Self::Little => value.to_le_bytes(),
            Self::Big => value.to_be_bytes(),
        }
    }
}

/// Bytes of one structure in one byte order, with checked access by offset.
///
/// Reads past the end answer with [`FormatError::Truncated`] that names the structure.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a> {
    what: &'static str,
    bytes: &'a [u8],
    order: ByteOrder,
}

impl<'a> Fields<'a> {
    /// A view of `bytes` as the structure called `what`.
    #[must_use]
    pub const fn new(what: &'static str, bytes: &'a [u8], order: ByteOrder) -> Self {
        Self { what, bytes, order }
    }

    /// The byte order.
    #[must_use]
    pub const fn order(&self) -> ByteOrder {
        self.order
    }

    /// Length of the view in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether the view is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// `len` bytes at `offset`.
    pub fn bytes(&self, offset: usize, len: usize) -> Result<&'a [u8], FormatError> {
        offset.checked_add(len).and_then(|end| self.bytes.get(offset..end)).ok_or(
            FormatError::Truncated {
                what: self.what,
                need: offset.saturating_add(len),
                have: self.bytes.len(),
            },
        )
    }

    /// `N` bytes at `offset` as an array.
    pub fn array<const N: usize>(&self, offset: usize) -> Result<[u8; N], FormatError> {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(offset, N)?);
        Ok(array)
    }

    /// The byte at `offset`.
    pub fn u8(&self, offset: usize) -> Result<u8, FormatError> {
        Ok(self.array::<1>(offset)?[0])
    }

    /// The 16-bit number at `offset`.
    pub fn u16(&self, offset: usize) -> Result<u16, FormatError> {
        Ok(self.order.u16(self.array(offset)?))
    }

    /// The 32-bit number at `offset`.
    pub fn u32(&self, offset: usize) -> Result<u32, FormatError> {
        Ok(self.order.u32(self.array(offset)?))
    }

    /// The 64-bit number at `offset`.
    pub fn u64(&self, offset: usize) -> Result<u64, FormatError> {
        Ok(self.order.u64(self.array(offset)?))
    }

    /// `N` 64-bit numbers from `offset` on.
    pub fn u64s<const N: usize>(&self, offset: usize) -> Result<[u64; N], FormatError> {
        let bytes = self.bytes(offset, N * 8)?;
        let mut words = [0; N];
        for (word, chunk) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            let mut array = [0; 8];
            array.copy_from_slice(chunk);
            *word = self.order.u64(array);
        }
        Ok(words)
    }

    /// A part of the structure that is a structure of its own.
    pub fn sub(
        &self,
        what: &'static str,
        offset: usize,
        len: usize,
    ) -> Result<Fields<'a>, FormatError> {
        Ok(Fields::new(what, self.bytes(offset, len)?, self.order))
    }
}

/// Writes integers of one byte order into a structure's buffer, at offsets that the structure's
/// own layout constants give.
///
/// # Panics
/// Every method panics when the offset lies outside of the buffer: the buffer is ours and its
/// size is known at compile time, so that is a bug of the encoder, never of the input.
#[derive(Debug)]
pub struct FieldsMut<'a> {
    bytes: &'a mut [u8],
    order: ByteOrder,
}

impl<'a> FieldsMut<'a> {
    /// A writer into `bytes`.
    pub fn new(bytes: &'a mut [u8], order: ByteOrder) -> Self {
        Self { bytes, order }
    }

    /// Stores bytes as they are.
    pub fn set_bytes(&mut self, offset: usize, bytes: &[u8]) {
        self.bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    /// Stores a byte.
    pub fn set_u8(&mut self, offset: usize, value: u8) {
        self.bytes[offset] = value;
    }

    /// Stores a 16-bit number.
    pub fn set_u16(&mut self, offset: usize, value: u16) {
        self.set_bytes(offset, &self.order.bytes16(value));
    }

    /// Stores a 32-bit number.
    pub fn set_u32(&mut self, offset: usize, value: u32) {
        self.set_bytes(offset, &self.order.bytes32(value));
    }

    /// Stores a 64-bit number.
    pub fn set_u64(&mut self, offset: usize, value: u64) {
        self.set_bytes(offset, &self.order.bytes64(value));
    }

    /// Stores 64-bit numbers one after another.
    pub fn set_u64s(&mut self, offset: usize, values: &[u64]) {
        for (index, value) in values.iter().enumerate() {
            self.set_u64(offset + index * 8, *value);
        }
    }
}

/// Copies `bytes` with the bytes of every 64-bit word reversed; a rest shorter than a word stays
/// as it is.
#[must_use]
pub fn swap_words(bytes: &[u8]) -> Vec<u8> {
    let mut out = bytes.to_vec();
    for word in out.chunks_exact_mut(8) {
        word.reverse();
    }
    out
}
