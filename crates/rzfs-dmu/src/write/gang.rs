//! Writing gang blocks (spec 02, sections 8.3 and 8.5): a block in pieces, when no free segment is
//! large enough.
//!
//! Headers are classic: three pointers. The data is cut in three, and pieces that do not fit are
//! cut again.

use super::encode::member_checksum;
use super::error::WriteError;
use super::writer::{BlockWriter, SpacePart, SpaceRequest, WriteContext};
use crate::BlockError;
use bytes::Bytes;
use rzfs_blockdev::IoBuffer;
use rzfs_codec::checksum::{EmbeddedVerifier, generate_embedded};
use rzfs_format::block_pointer::{Protection, StoredBlock};
use rzfs_format::checksum::ChecksumFunction;
use rzfs_format::compression::CompressionFunction;
use rzfs_format::object_type::ObjectType;
use rzfs_format::units::SECTOR_SIZE;
use rzfs_format::{BlockPointer, ByteOrder, Dva, Level, Txg, gang};

/// Copies of a header whose data has only one.
const MIN_HEADER_COPIES: u8 = 2;

impl BlockWriter {
    /// Writes `data` in pieces; returns the addresses of the header, with the protection of the
    /// pointer to it.
    pub(super) fn place_gang(
        &self,
        context: WriteContext<'_>,
        wish: &SpaceRequest,
        protection: Protection,
        data: &Bytes,
    ) -> Result<[Dva; 3], WriteError> {
        let header = SpaceRequest {
            size: gang::CLASSIC_SIZE as u64,
            copies: wish.copies.max(MIN_HEADER_COPIES),
            part: SpacePart::GangHeader,
            ..*wish
        };
        // With only one copy, if there is no place for a second one.
        let single = SpaceRequest { copies: wish.copies, ..header };
        let place = |header| self.space.allocate(header, context.txg);
        let mut dvas = place(&header).or_else(|_| place(&single))?;
        let first = dvas[0];
        let slots = gang::pointer_count(gang::CLASSIC_SIZE);
        let mut members = Vec::with_capacity(slots);
        let mut rest = data.clone();
        while !rest.is_empty() {
            let parts = slots.saturating_sub(members.len()).max(1);
            let size = rest.len().div_ceil(parts).next_multiple_of(SECTOR_SIZE as usize);
            let part = rest.split_to(size.min(rest.len()));
            members.push(self.place_member(context, wish, first, part)?);
        }
        for dva in dvas.iter_mut().filter(|dva| dva.is_valid()) {
            *dva = Dva::new(dva.vdev(), dva.offset(), dva.asize(), true);
        }
        let header = sealed_header(&members, dvas[0], context.txg, protection)?;
        self.push_copies(context, &dvas, &header);
        for member in &members {
            for (dva, below) in dvas.iter_mut().filter(|dva| dva.is_valid()).zip(member.dvas()) {
                let asize = dva.asize() + below.asize();
                *dva = Dva::new(dva.vdev(), dva.offset(), asize, true);
            }
        }
        Ok(dvas)
    }

    fn place_member(
        &self,
        context: WriteContext<'_>,
        wish: &SpaceRequest,
        header: Dva,
        data: Bytes,
    ) -> Result<BlockPointer, WriteError> {
        let size = data.len() as u64;
        let wish = SpaceRequest { size, part: SpacePart::GangMember(header), ..*wish };
        let dvas = match self.space.allocate(&wish, context.txg) {
            Ok(dvas) => {
                self.push_copies(context, &dvas, &data);
                dvas
            }
            Err(_) if size > self.options.min_allocation => {
                // Members are plain data.
                self.place_gang(context, &wish, Protection::None, &data)?
            }
            Err(error) => return Err(error.into()),
        };
        Ok(self.member(wish.policy.checksum, &data, dvas, context.txg))
    }

    fn member(
        &self,
        checksum_function: ChecksumFunction,
        data: &[u8],
        dvas: [Dva; 3],
        birth: Txg,
    ) -> BlockPointer {
        BlockPointer::stored(&StoredBlock {
            object_type: ObjectType::NONE,
            level: Level::DATA,
            logical_size: data.len() as u64,
            physical_size: data.len() as u64,
            compression: CompressionFunction::Off,
            checksum_function,
            checksum: member_checksum(&self.options, checksum_function, data),
            dvas,
            birth,
        })
    }

    /// Rewrites the pieces of a gang with other data of the same size.
    pub(super) fn rewrite_gang(
        &self,
        context: WriteContext<'_>,
        leader: &BlockPointer,
        data: &Bytes,
    ) -> Result<(), BlockError> {
        let mut members = self.pipeline.gang_members(leader)?;
        let mut rest = data.clone();
        for member in &mut members {
            let part = rest.split_to((member.physical_size() as usize).min(rest.len()));
            if member.is_gang() {
                self.rewrite_gang(context, member, &part)?;
            } else {
                let dvas: Vec<Dva> = member.dvas().collect();
                self.push_copies(context, &dvas, &part);
            }
            let mut dvas = [Dva::default(); 3];
            for (slot, dva) in dvas.iter_mut().zip(member.dvas()) {
                *slot = dva;
            }
            *member = self.member(member.checksum_function()?, &part, dvas, context.txg);
        }
        let dvas: Vec<Dva> = leader.dvas().collect();
        let at = dvas.first().copied().unwrap_or_default();
        let problem = "no memory for the header";
        let header = sealed_header(&members, at, context.txg, leader.protection())
            .map_err(|_| BlockError::Gang { at, problem })?;
        self.push_copies(context, &dvas, &header);
        Ok(())
    }
}

/// The bytes of a header whose first copy is at `first`.
fn sealed_header(
    members: &[BlockPointer],
    first: Dva,
    birth: Txg,
    protection: Protection,
) -> std::io::Result<Bytes> {
    let mut header = IoBuffer::zeroed(gang::CLASSIC_SIZE)?;
    for (slot, member) in header.chunks_exact_mut(BlockPointer::SIZE).zip(members) {
        slot.copy_from_slice(&member.encode(ByteOrder::NATIVE));
    }
    let verifier = EmbeddedVerifier::of_gang(first, birth, protection);
    generate_embedded(ChecksumFunction::GangHeader, &mut header, verifier, ByteOrder::NATIVE)
        .map_err(std::io::Error::other)?;
    Ok(header.freeze())
}
