//! Gang blocks: one logical block in several pieces (spec 02, section 8).
//!
//! The leader points to a header of pointers; each member is data or another gang header. The data
//! of the members, concatenated, is the leader's data.

use crate::BlockError;
use crate::in_force::InForce;
use crate::stored::{Expectation, StoredBlocks};
use bytes::{Bytes, BytesMut};
use rzfs_codec::checksum::{self, EmbeddedVerifier, verify_embedded};
use rzfs_format::checksum::ChecksumFunction;
use rzfs_format::compression::CompressionFunction;
use rzfs_format::{BlockPointer, ByteOrder, Dva, gang};
use rzfs_vdev::{BlockRead, VdevError, Verify};

/// Maximum nesting of gang headers in one tree. Members are smaller than their parent, so a tree is
/// never deeper than the number of halvings from 16 MiB to a sector.
pub const MAX_GANG_DEPTH: u32 = 16;

impl StoredBlocks {
    /// Reads the stored data of these pointers, with verified checksums.
    fn read_verified(
        &self,
        pointers: &[&BlockPointer],
        expectation: Expectation<'_>,
    ) -> Vec<Result<Bytes, BlockError>> {
        self.patiently(pointers, |pointers| {
            let (gangs, whole): (Vec<_>, Vec<_>) = pointers.iter().partition(|bp| bp.is_gang());
            let mut gangs = gangs.into_iter().map(|leader| {
                let gang = Gang { leader, expectation };
                let expectation = match expectation {
                    Expectation::While(_) => Expectation::While(&gang),
                    other => other,
                };
                GangReader { stored: self, expectation }.read(leader)
            });
            let mut whole = self.try_to_read(&whole, expectation).into_iter();
            let next = |bp: &&BlockPointer| if bp.is_gang() { gangs.next() } else { whole.next() };
            pointers.iter().map(next).map(|it| it.unwrap_or(Err(BlockError::NoCopy))).collect()
        })
    }

    /// The same, or its replacement by an injector.
    pub(crate) fn read_injected(
        &self,
        pointers: &[&BlockPointer],
        expectation: Expectation<'_>,
    ) -> Vec<Result<Bytes, BlockError>> {
        let mut results = self.read_verified(pointers, expectation);
        if self.injector.is_some() {
            for (pointer, result) in pointers.iter().zip(&mut results) {
                if let Ok(stored) = result {
                    *stored = self.injected(pointer, std::mem::take(stored));
                }
            }
        }
        results
    }

    /// The members of the gang that `leader` points to, in the order of the data.
    pub(crate) fn gang_members(
        &self,
        leader: &BlockPointer,
    ) -> Result<Vec<BlockPointer>, BlockError> {
        GangReader { stored: self, expectation: Expectation::Present }.members(leader)
    }
}

/// The blocks of a gang, which are in force as long as their leader is.
struct Gang<'a> {
    leader: &'a BlockPointer,
    expectation: Expectation<'a>,
}

impl InForce for Gang<'_> {
    fn is_in_force(&self, _: &BlockPointer) -> bool {
        self.expectation.is_in_force(self.leader)
    }
}

/// Verifies a gang header by its checksum.
struct ChecksummedHeader<'a> {
    parent: &'a BlockPointer,
    verifier: EmbeddedVerifier,
    expectation: Expectation<'a>,
}

impl ChecksummedHeader<'_> {
    /// Its byte order, if this is the header.
    fn order(&self, data: &[u8]) -> Option<ByteOrder> {
        verify_embedded(ChecksumFunction::GangHeader, data, self.verifier).ok()
    }
}

impl Verify for ChecksummedHeader<'_> {
    fn is_block(&self, data: &[u8]) -> bool {
        self.order(data).is_some()
    }

    fn is_expected(&self) -> bool {
        self.expectation.is_in_force(self.parent)
    }
}

/// Reads whole gang trees.
struct GangReader<'a> {
    stored: &'a StoredBlocks,
    expectation: Expectation<'a>,
}

impl GangReader<'_> {
    /// The stored bytes of the block that `leader` points to.
    fn read(&self, leader: &BlockPointer) -> Result<Bytes, BlockError> {
        let mut data = BytesMut::new();
        self.append(leader, MAX_GANG_DEPTH, &mut data)?;
        let data = data.freeze();
        let at = leader.dvas().next().unwrap_or_default();
        if checksum::verify(leader, &data, &self.stored.salt).is_err() {
            return Err(BlockError::Gang {
                at,
                problem: "the assembled data has another checksum",
            });
        }
        Ok(data)
    }

    fn append(
        &self,
        parent: &BlockPointer,
        depth: u32,
        data: &mut BytesMut,
    ) -> Result<(), BlockError> {
        let at = parent.dvas().next().ok_or(BlockError::NoCopy)?;
        let too_deep = BlockError::Gang { at, problem: "the tree is too deep" };
        let depth = depth.checked_sub(1).ok_or(too_deep)?;
        let members = self.members(parent)?;
        // Leaves of one header are read together.
        let leaves: Vec<&BlockPointer> = members.iter().filter(|bp| !bp.is_gang()).collect();
        let mut leaves = self.stored.read_verified(&leaves, self.expectation).into_iter();
        for member in &members {
            if member.is_gang() {
                self.append(member, depth, data)?;
            } else {
                data.extend_from_slice(&leaves.next().unwrap_or(Err(BlockError::NoCopy))?);
            }
        }
        Ok(())
    }

    /// The members of a gang header, checked against its parent.
    fn members(&self, parent: &BlockPointer) -> Result<Vec<BlockPointer>, BlockError> {
        let at = parent.dvas().next().ok_or(BlockError::NoCopy)?;
        let fail = |problem| BlockError::Gang { at, problem };
        let members = self.header(parent, at)?;
        let total = members.iter().map(BlockPointer::physical_size).fold(0, u64::saturating_add);
        if total != parent.physical_size() {
            return Err(fail("the members' sizes do not add up"));
        }
        for member in &members {
            member.validate()?;
            if member.is_embedded()
                || member.compression()? != CompressionFunction::Off
                || member.checksum_function()? != parent.checksum_function()?
                || (member.is_gang() && member.physical_size() >= parent.physical_size())
            {
                return Err(fail("a member cannot belong to it"));
            }
        }
        Ok(members)
    }

    /// The members in a gang header. Every copy's verifier is derived from the first address.
    fn header(&self, parent: &BlockPointer, first: Dva) -> Result<Vec<BlockPointer>, BlockError> {
        let verifier =
            EmbeddedVerifier::of_gang(first, parent.physical_birth(), parent.protection());
        let mut sizes = vec![gang::CLASSIC_SIZE];
        if self.stored.dynamic_gang_headers {
            let vdevs = self.stored.vdevs.get();
            let dynamic = parent.dvas().filter_map(|dva| vdevs.min_allocation(dva.vdev())).min();
            sizes.extend(dynamic.map(|size| size as usize));
        }
        let mut last = BlockError::NoCopy;
        while let Some(size) = sizes.pop() {
            // The size of a header is known only when it is read: the last attempt counts.
            let expectation =
                if sizes.is_empty() { self.expectation } else { Expectation::Possible };
            let verify = ChecksummedHeader { parent, verifier, expectation };
            let mut copies = self.stored.copies(parent);
            while let Some(dva) = copies.pop() {
                let read = BlockRead {
                    dva,
                    size: size as u64,
                    birth: parent.physical_birth(),
                    verify: &verify,
                };
                match self.stored.read_copies(vec![read], expectation).pop() {
                    Some(Ok(header)) => {
                        let bad = BlockError::Gang { at: dva, problem: "bad header" };
                        let order = verify.order(&header).ok_or(bad)?;
                        let header = self.stored.injected(parent, header);
                        return Ok(gang::members(&header, order)?);
                    }
                    Some(Err(VdevError::Overtaken { .. })) => return Err(BlockError::Overtaken),
                    // As long as a copy may become readable again, nothing is lost.
                    Some(Err(error)) if last.is_damage() => last = error.into(),
                    Some(Err(_)) => {}
                    None => {}
                }
            }
        }
        Err(last)
    }
}
