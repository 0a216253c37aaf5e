//! Log blocks and the chain that they form (spec 05, sections 10.2 and 10.3).
//!
//! ```text
//! chain: 0 pad  8 next block pointer (128)  136 bytes used  144 magic  152 checksum (32)
//! ```

use super::record::Records;
use crate::FormatError;
use crate::block_pointer::{BlockPointer, Dva, StoredBlock};
use crate::checksum::{ChecksumFunction, ChecksumValue};
use crate::compression::CompressionFunction;
use crate::endian::{ByteOrder, Fields, FieldsMut};
use crate::object_type::ObjectType;
use crate::units::{Level, MAX_BLOCK_SIZE, ObjsetId, Txg};

/// Bytes of the chain structure.
pub const CHAIN_SIZE: usize = 184;
/// The magic number before the embedded checksum.
pub const CHAIN_MAGIC: u64 = 0x0210_da7a_b10c_7a11;

const WHAT: &str = "log block";
const MIN_BLOCK_SIZE: u64 = 4096;
const NEXT_OFFSET: usize = 8;
const USED_OFFSET: usize = 136;
const MAGIC_OFFSET: usize = 144;
const CHECKSUM_OFFSET: usize = 152;

/// Where a log block keeps its chain structure.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BlockForm {
    /// At the end (checksum function ZILOG).
    Trailer,
    /// At the start (checksum function ZILOG2).
    Leader,
}

impl BlockForm {
    /// The form of the blocks that a pointer with this checksum function points to.
    pub fn of(function: ChecksumFunction) -> Result<Self, FormatError> {
        match function {
            ChecksumFunction::Zilog => Ok(Self::Trailer),
            ChecksumFunction::Zilog2 => Ok(Self::Leader),
            _ => Err(FormatError::field(WHAT, "checksum function", function.number())),
        }
    }

    /// The checksum function of blocks of this form.
    #[must_use]
    pub const fn checksum_function(self) -> ChecksumFunction {
        match self {
            Self::Trailer => ChecksumFunction::Zilog,
            Self::Leader => ChecksumFunction::Zilog2,
        }
    }

    /// Where the first record is.
    #[must_use]
    pub const fn records_at(self) -> usize {
        match self {
            Self::Trailer => 0,
            Self::Leader => CHAIN_SIZE,
        }
    }
}

/// What identifies a block of a chain: the checksum words of the pointer to it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Verifier {
    /// Two random words, the same for the whole chain.
    pub guid: [u64; 2],
    /// The objset whose log it is.
    pub objset: ObjsetId,
    /// Number of the block; the first is 1.
    pub seq: u64,
}

impl Verifier {
    /// The verifier in a pointer to a log block.
    #[must_use]
    pub const fn of(pointer: &BlockPointer) -> Self {
        let [first, second, objset, seq] = pointer.checksum().0;
        Self { guid: [first, second], objset: ObjsetId(objset), seq }
    }

    /// The verifier of the next block of the chain.
    #[must_use]
    pub const fn next(&self) -> Self {
        Self { seq: self.seq.wrapping_add(1), ..*self }
    }

    /// Its words, as a checksum is seeded with them.
    #[must_use]
    pub const fn words(&self) -> [u64; 4] {
        [self.guid[0], self.guid[1], self.objset.0, self.seq]
    }

    /// The pointer to a block of `size` bytes at `dva` that was allocated in `birth`.
    #[must_use]
    pub fn pointer(&self, form: BlockForm, dva: Dva, size: u64, birth: Txg) -> BlockPointer {
        BlockPointer::stored(&StoredBlock {
            object_type: ObjectType::INTENT_LOG,
            level: Level::DATA,
            logical_size: size,
            physical_size: size,
            compression: CompressionFunction::Off,
            checksum_function: form.checksum_function(),
            checksum: ChecksumValue(self.words()),
            dvas: [dva, Dva::default(), Dva::default()],
            birth,
        })
    }

    /// Whether `next` is the block after this one.
    #[must_use]
    pub fn is_followed_by(&self, next: &Self) -> bool {
        self.seq.checked_add(1).is_some_and(|seq| *next == Self { seq, ..*self })
    }
}

/// The chain structure of a log block, decoded and checked against the block's size.
#[derive(Clone, Debug)]
pub struct Chain {
    /// Where the block keeps it.
    pub form: BlockForm,
    /// Byte order of the block.
    pub order: ByteOrder,
    /// Pointer to the next block, whether that was ever written or not.
    pub next: BlockPointer,
    /// Bytes of the records.
    pub record_bytes: usize,
    /// The embedded checksum; in encrypted logs the last two words are the MAC.
    pub checksum: ChecksumValue,
}

impl Chain {
    /// Checks a pointer to a log block, before anything is read (spec 05, section 15).
    pub fn check_pointer(pointer: &BlockPointer, objset: ObjsetId) -> Result<(), FormatError> {
        if pointer.object_type()? != ObjectType::INTENT_LOG {
            return Err(FormatError::field(WHAT, "type", pointer.object_type_number()));
        }
        if pointer.level() != Level::DATA {
            return Err(FormatError::invalid(WHAT, "a level above 0"));
        }
        BlockForm::of(pointer.checksum_function()?)?;
        let size = pointer.logical_size();
        if !(MIN_BLOCK_SIZE..=MAX_BLOCK_SIZE).contains(&size) || size != pointer.physical_size() {
            return Err(FormatError::field(WHAT, "size", size));
        }
        let verifier = Verifier::of(pointer);
        if verifier.objset != objset {
            return Err(FormatError::field(WHAT, "objset", verifier.objset.0));
        }
        Ok(())
    }

    /// Decodes the chain structure of a block whose checksum verified.
    pub fn decode(block: &[u8], form: BlockForm, order: ByteOrder) -> Result<Self, FormatError> {
        let all = Fields::new(WHAT, block, order);
        let start = match form {
            BlockForm::Leader => 0,
            BlockForm::Trailer => block.len().saturating_sub(CHAIN_SIZE),
        };
        let fields = all.sub(WHAT, start, CHAIN_SIZE)?;
        let magic = fields.u64(MAGIC_OFFSET)?;
        if magic != CHAIN_MAGIC {
            return Err(FormatError::field(WHAT, "magic", magic));
        }
        let used = fields.u64(USED_OFFSET)?;
        let record_bytes = usize::try_from(used)
            .ok()
            .and_then(|used| match form {
                BlockForm::Leader => used.checked_sub(CHAIN_SIZE),
                BlockForm::Trailer => Some(used),
            })
            .filter(|bytes| *bytes <= block.len() - CHAIN_SIZE)
            .ok_or_else(|| FormatError::field(WHAT, "bytes used", used))?;
        Ok(Self {
            form,
            order,
            next: BlockPointer::decode(fields.bytes(NEXT_OFFSET, BlockPointer::SIZE)?, order)?,
            record_bytes,
            checksum: ChecksumValue(fields.u64s(CHECKSUM_OFFSET)?),
        })
    }

    /// Writes the chain structure, but for magic and checksum, into a block whose `record_bytes`
    /// bytes of records are in their place and whose other bytes are zeros.
    ///
    /// # Panics
    /// When the block has no room for it: its owner makes it larger than records and chain.
    pub fn encode(
        block: &mut [u8],
        form: BlockForm,
        next: &BlockPointer,
        record_bytes: usize,
        order: ByteOrder,
    ) {
        let (start, used) = match form {
            BlockForm::Leader => (0, CHAIN_SIZE + record_bytes),
            BlockForm::Trailer => (block.len() - CHAIN_SIZE, record_bytes),
        };
        let mut fields = FieldsMut::new(&mut block[start..start + CHAIN_SIZE], order);
        fields.set_bytes(NEXT_OFFSET, &next.encode(order));
        fields.set_u64(USED_OFFSET, used as u64);
        fields.set_u64(MAGIC_OFFSET, CHAIN_MAGIC);
    }

    /// The records of the block that this was decoded from.
    #[must_use]
    pub fn records<'a>(&self, block: &'a [u8]) -> Records<'a> {
        let start = match self.form {
            BlockForm::Leader => CHAIN_SIZE,
            BlockForm::Trailer => 0,
        };
        let bytes = block.get(start..).and_then(|rest| rest.get(..self.record_bytes));
        Records::new(bytes.unwrap_or_default(), self.order)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endian::FieldsMut;

    fn leader(used: u64) -> Vec<u8> {
        let mut block = vec![0; 8192];
        let mut fields = FieldsMut::new(&mut block, ByteOrder::Little);
        fields.set_u64s(8, &[0x10, 0x1e8]);
        fields.set_bytes(0x38, &[0x0f, 0, 0x0f, 0, 2, 9, 9, 0x80]);
        fields.set_u64(0x58, 31);
        fields.set_u64s(0x68, &[0xcbe2_d993_fafe_94e3, 0x3efa_38df_94be_c7a8, 0x90, 3]);
        fields.set_u64(0x88, used);
        fields.set_u64(0x90, CHAIN_MAGIC);
        fields.set_u64(0x98, 0x26c_cce3_fc12);
        fields.set_u64s(0xb8, &[5, 48, 30, 9, 34]);
        fields.set_bytes(0xb8 + 40, b"name");
        block
    }

    #[test]
    fn block_of_the_spec_decodes() {
        let block = leader(184 + 48);
        let chain = Chain::decode(&block, BlockForm::Leader, ByteOrder::Little).unwrap();
        assert_eq!(chain.record_bytes, 48);
        assert_eq!(chain.checksum.0[0], 0x26c_cce3_fc12);
        Chain::check_pointer(&chain.next, ObjsetId(0x90)).unwrap();
        assert!(Chain::check_pointer(&chain.next, ObjsetId(0x91)).is_err());
        let next = Verifier::of(&chain.next);
        assert!(Verifier { seq: 2, ..next }.is_followed_by(&next));
        assert!(!Verifier { seq: 1, ..next }.is_followed_by(&next));
        assert!(!Verifier { seq: u64::MAX, ..next }.is_followed_by(&next));
        let dva = chain.next.dvas().next().unwrap();
        assert_eq!((dva.asize(), dva.offset()), (0x2000, 0x3d000));
        assert_eq!(chain.records(&block).count(), 1);
    }

    #[test]
    fn the_next_pointer_is_encoded_as_in_the_spec() {
        let block = leader(184 + 48);
        let spec = Chain::decode(&block, BlockForm::Leader, ByteOrder::Little).unwrap();
        let guid = [0xcbe2_d993_fafe_94e3, 0x3efa_38df_94be_c7a8];
        let verifier = Verifier { guid, objset: ObjsetId(0x90), seq: 2 };
        let dva = spec.next.dvas().next().unwrap();
        let next = verifier.next().pointer(BlockForm::Leader, dva, 0x2000, Txg(31));
        assert_eq!(next, spec.next);
        for form in [BlockForm::Leader, BlockForm::Trailer] {
            let mut block = vec![0; 4096];
            Chain::encode(&mut block, form, &next, 96, ByteOrder::Little);
            let chain = Chain::decode(&block, form, ByteOrder::Little).unwrap();
            assert_eq!((chain.next, chain.record_bytes), (next, 96));
            assert_eq!(BlockForm::of(form.checksum_function()), Ok(form));
        }
    }

    #[test]
    fn trailers_are_at_the_end() {
        let mut block = leader(48);
        block.rotate_left(CHAIN_SIZE);
        let chain = Chain::decode(&block, BlockForm::Trailer, ByteOrder::Little).unwrap();
        assert_eq!(chain.record_bytes, 48);
        assert_eq!(chain.records(&block).next().unwrap().unwrap().seq, 9);
    }

    #[test]
    fn hostile_blocks_are_refused() {
        for used in [0, 183, 8193, u64::MAX] {
            let block = leader(used);
            assert!(Chain::decode(&block, BlockForm::Leader, ByteOrder::Little).is_err());
        }
        let block = leader(184);
        assert!(Chain::decode(&block, BlockForm::Leader, ByteOrder::Big).is_err());
        assert!(Chain::decode(&block, BlockForm::Trailer, ByteOrder::Little).is_err());
        assert!(Chain::decode(&block[..183], BlockForm::Leader, ByteOrder::Little).is_err());
    }
}
