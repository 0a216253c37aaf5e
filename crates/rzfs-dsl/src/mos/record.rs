//! Records in the bonus buffers of objects.

use super::error::MosError;
use rzfs_dmu::SourceObject;
use rzfs_format::bpobj::{BpobjHeader, BptreeHeader};
use rzfs_format::brt::BrtHeader;
use rzfs_format::ddt::log::LogHeader;
use rzfs_format::deadlist::DeadlistHeader;
use rzfs_format::dsl::{DslDataset, DslDir};
use rzfs_format::object_type::ObjectType;
use rzfs_format::{ByteOrder, FormatError};

/// A record in the bonus of an object.
pub(crate) trait BonusRecord: Sized {
    /// The type of such a bonus.
    const BONUS_TYPE: ObjectType;

    fn decode(bonus: &[u8], order: ByteOrder) -> Result<Self, FormatError>;
    fn encode(&self) -> Vec<u8>;
}

macro_rules! bonus_records {
    ($($record:ident: $bonus_type:ident),*) => {
        $(impl BonusRecord for $record {
            const BONUS_TYPE: ObjectType = ObjectType::$bonus_type;

            fn decode(bonus: &[u8], order: ByteOrder) -> Result<Self, FormatError> {
                Self::decode(bonus, order)
            }

            fn encode(&self) -> Vec<u8> {
                Self::encode(self, ByteOrder::NATIVE).into()
            }
        })*
    };
}

bonus_records! {
    DslDir: DSL_DIR, DslDataset: DSL_DATASET, DeadlistHeader: DEADLIST_HDR,
    BpobjHeader: BPOBJ_HDR, BptreeHeader: UINT64_METADATA, BrtHeader: UINT64_METADATA,
    LogHeader: UINT64_METADATA
}

/// The record of an object.
pub(crate) fn record_of<R: BonusRecord>(object: &impl SourceObject) -> Result<R, MosError> {
    if object.bonus_type()? != R::BONUS_TYPE {
        return Err(object.is_not(object.object_type()?, R::BONUS_TYPE.name()).into());
    }
    R::decode(&object.bonus()?, object.bonus_order()).map_err(MosError::corrupt(object.id()))
}
