//! The keys in a raw stream, and the encryption parameters of payloads in its records (spec 08,
//! sections 2 and 6.2).

use rzfs_dmu::Objset;
use rzfs_dsl::dataset::SealedKeys;
use rzfs_format::block_pointer::Protection;
use rzfs_format::dnode::{CORE_SIZE, Dnode, DnodeFlags};
use rzfs_format::encryption::BlockCryptParams;
use rzfs_format::nvlist::{NvList, NvValue};
use rzfs_format::{BlockPointer, FormatError, Guid};

/// The name of the list in BEGIN.
pub(crate) const KEY_DATA: &str = "crypt_keydata";

/// Identifies the ciphertexts of two snapshots.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct IvSets {
    pub(crate) to: Guid,
    /// None in a full stream.
    pub(crate) from: Guid,
}

/// The keys, and properties of the object set that are in no record.
pub(crate) fn key_data(
    sealed: &SealedKeys,
    objset: &Objset,
    iv_sets: IvSets,
) -> Result<NvList, FormatError> {
    let (keys, mut list) = (&sealed.keys, NvList::new());
    let bytes = |bytes: &[u8]| NvValue::UInt8Array(bytes.into());
    list.insert("DSL_CRYPTO_SUITE", keys.suite.number())?;
    list.insert("DSL_CRYPTO_GUID", keys.guid.0)?;
    list.insert("DSL_CRYPTO_VERSION", keys.version.number())?;
    list.insert("DSL_CRYPTO_MASTER_KEY_1", bytes(&keys.master))?;
    list.insert("DSL_CRYPTO_HMAC_KEY_1", bytes(&keys.hmac))?;
    list.insert("DSL_CRYPTO_IV", bytes(&keys.iv))?;
    list.insert("DSL_CRYPTO_MAC", bytes(&keys.mac))?;
    list.insert("portable_mac", bytes(&objset.block().portable_mac))?;
    list.insert("keyformat", sealed.format.number())?;
    list.insert("pbkdf2iters", sealed.derivation.iterations)?;
    list.insert("pbkdf2salt", sealed.derivation.salt)?;
    if let Some(dnode) = &objset.block().meta_dnode {
        list.insert("mdn_checksum", u64::from(dnode.checksum))?;
        list.insert("mdn_compress", u64::from(dnode.compress))?;
        list.insert("mdn_nlevels", u64::from(dnode.levels))?;
        list.insert("mdn_blksz", u64::from(dnode.data_block_size))?;
        list.insert("mdn_indblkshift", u64::from(dnode.indirect_shift))?;
        list.insert("mdn_nblkptr", dnode.pointers.len() as u64)?;
        list.insert("mdn_maxblkid", dnode.max_block_id.0)?;
    }
    list.insert("to_ivset_guid", iv_sets.to.0)?;
    list.insert("from_ivset_guid", iv_sets.from.0)?;
    Ok(list)
}

/// The encryption parameters of a block; `None` if it is not part of an encrypted object set.
pub(crate) fn crypt_params(pointer: &BlockPointer) -> Option<BlockCryptParams> {
    let params = pointer.crypt_params();
    match pointer.protection() {
        Protection::None => None,
        Protection::Encrypted => Some(params),
        // It has only a MAC.
        _ => Some(BlockCryptParams { mac: params.mac, ..BlockCryptParams::default() }),
    }
}

/// The maximum extent of a dnode's bonus, which is encrypted as a whole; empty if it has none.
pub(crate) fn bonus_area<'a>(dnode: &Dnode, stored: &'a [u8]) -> &'a [u8] {
    if dnode.bonus.is_empty() {
        return &[];
    }
    let start = CORE_SIZE + dnode.pointers.len() * BlockPointer::SIZE;
    let spill = match dnode.flags.has(DnodeFlags::SPILL_POINTER) {
        true => BlockPointer::SIZE,
        false => 0,
    };
    stored.get(start..stored.len().saturating_sub(spill)).unwrap_or_default()
}
