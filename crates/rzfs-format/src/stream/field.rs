//! What a field of a record can be: its size, and how it is read and written at its offset.

use crate::FormatError;
use crate::checksum::ChecksumValue;
use crate::endian::{Fields, FieldsMut};
use crate::units::{Guid, ObjectId};

/// A value with a fixed place in a record.
pub(super) trait Field: Sized {
    /// Bytes that it takes.
    const SIZE: usize;

    fn get(fields: &Fields<'_>, offset: usize) -> Result<Self, FormatError>;

    fn set(&self, fields: &mut FieldsMut<'_>, offset: usize);
}

macro_rules! numbers {
    ($($number:ident, $set:ident;)*) => {$(
        impl Field for $number {
            const SIZE: usize = size_of::<Self>();

            fn get(fields: &Fields<'_>, offset: usize) -> Result<Self, FormatError> {
                fields.$number(offset)
            }

            fn set(&self, fields: &mut FieldsMut<'_>, offset: usize) {
                fields.$set(offset, *self);
            }
        }
    )*};
}

numbers! {
    u8, set_u8;
    u32, set_u32;
    u64, set_u64;
}

/// Types that are a number with a name.
macro_rules! newtypes {
    ($($name:ident($number:ty);)*) => {$(
        impl Field for $name {
            const SIZE: usize = <$number as Field>::SIZE;

            fn get(fields: &Fields<'_>, offset: usize) -> Result<Self, FormatError> {
                Field::get(fields, offset).map(Self)
            }

            fn set(&self, fields: &mut FieldsMut<'_>, offset: usize) {
                Field::set(&self.0, fields, offset);
            }
        }
    )*};
}

pub(super) use newtypes;

newtypes! {
    ObjectId(u64);
    Guid(u64);
}

/// Bytes have no order.
impl<const N: usize> Field for [u8; N] {
    const SIZE: usize = N;

    fn get(fields: &Fields<'_>, offset: usize) -> Result<Self, FormatError> {
        fields.array(offset)
    }

    fn set(&self, fields: &mut FieldsMut<'_>, offset: usize) {
        fields.set_bytes(offset, self);
    }
}

impl Field for ChecksumValue {
    const SIZE: usize = 32;

    fn get(fields: &Fields<'_>, offset: usize) -> Result<Self, FormatError> {
        fields.u64s(offset).map(Self)
    }

    fn set(&self, fields: &mut FieldsMut<'_>, offset: usize) {
        fields.set_u64s(offset, &self.0);
    }
}
