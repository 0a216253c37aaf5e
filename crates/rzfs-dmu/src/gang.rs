//! Gang blocks: one logical block whose pieces lie in different places (spec 02, section 8).
//!
//! The leader points to a header of pointers; each member is data or again a gang header. The
//! members' data in order is the leader's data.

use crate::pipeline::Expectation;
use crate::{BlockError, BlockPipeline};
use bytes::{Bytes, BytesMut};
use rzfs_codec::checksum::{self, EmbeddedVerifier, verify_embedded};
use rzfs_format::checksum::ChecksumFunction;
use rzfs_format::compression::CompressionFunction;
use rzfs_format::{BlockPointer, Dva, gang};
use rzfs_vdev::BlockRead;

/// Members are smaller than their parent, so a tree is never deeper than halving 16 MiB down to a
/// sector could make it.
const MAX_DEPTH: u32 = 16;

impl BlockPipeline {
    /// The members of the gang header that `parent` points to, for whoever accounts for the space
    /// of a gang block; its data come from reading the leader.
    ///
    /// # Errors
    /// [`BlockError`] when no copy of the header can be read or the header is damaged.
    pub fn gang_members(&self, parent: &BlockPointer) -> Result<Vec<BlockPointer>, BlockError> {
        let first = parent.dvas().next().ok_or(BlockError::NoCopy)?;
        GangReader::new(self, Expectation::Present).header(parent, first)
    }
}

/// Reads whole gang trees.
pub(crate) struct GangReader<'a> {
    pipeline: &'a BlockPipeline,
    expectation: Expectation,
}

impl<'a> GangReader<'a> {
    pub(crate) fn new(pipeline: &'a BlockPipeline, expectation: Expectation) -> Self {
        Self { pipeline, expectation }
    }

    /// The stored bytes of the block that `leader` points to.
    pub(crate) fn read(&self, leader: &BlockPointer) -> Result<Bytes, BlockError> {
        let mut data = BytesMut::new();
        self.append(leader, MAX_DEPTH, &mut data)?;
        let data = data.freeze();
        let at = leader.dvas().next().unwrap_or_default();
        if checksum::verify(leader, &data, self.pipeline.salt()).is_err() {
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
        let fail = |problem| BlockError::Gang { at, problem };
        let depth = depth.checked_sub(1).ok_or(fail("the tree is too deep"))?;
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
        // Leaves of one header are read together.
        let leaves: Vec<&BlockPointer> = members.iter().filter(|bp| !bp.is_gang()).collect();
        let mut leaves = self.pipeline.read_verified(&leaves, self.expectation).into_iter();
        for member in &members {
            if member.is_gang() {
                self.append(member, depth, data)?;
            } else {
                data.extend_from_slice(&leaves.next().unwrap_or(Err(BlockError::NoCopy))?);
            }
        }
        Ok(())
    }

    /// The members of the gang that `leader` points to, in the order of the data.
    pub(crate) fn members(&self, leader: &BlockPointer) -> Result<Vec<BlockPointer>, BlockError> {
        self.header(leader, leader.dvas().next().ok_or(BlockError::NoCopy)?)
    }

    /// The members of a gang header. Every copy's verifier is made from the first address.
    fn header(&self, parent: &BlockPointer, first: Dva) -> Result<Vec<BlockPointer>, BlockError> {
        let verifier = EmbeddedVerifier::Gang {
            vdev: u64::from(first.vdev().get()),
            offset: first.offset(),
            birth: parent.physical_birth().get(),
        };
        let mut sizes = vec![gang::CLASSIC_SIZE];
        if self.pipeline.dynamic_gang_headers() {
            let vdevs = self.pipeline.vdevs();
            let dynamic = parent.dvas().filter_map(|dva| vdevs.min_allocation(dva.vdev())).min();
            sizes.extend(dynamic.map(|size| size as usize));
        }
        let mut last = BlockError::NoCopy;
        while let Some(size) = sizes.pop() {
            // Which size a header has is known only when it is read: the last try counts.
            let expectation =
                if sizes.is_empty() { self.expectation } else { Expectation::Possible };
            let verify =
                |data: &[u8]| verify_embedded(ChecksumFunction::GangHeader, data, verifier).is_ok();
            let mut copies = self.pipeline.copies(parent);
            while let Some(dva) = copies.pop() {
                let read = BlockRead {
                    dva,
                    size: size as u64,
                    birth: parent.physical_birth(),
                    verify: &verify,
                };
                match self.pipeline.read_copies(vec![read], expectation).pop() {
                    Some(Ok(header)) => {
                        let order =
                            verify_embedded(ChecksumFunction::GangHeader, &header, verifier)
                                .map_err(|_| BlockError::Gang { at: dva, problem: "bad header" })?;
                        let header = self.pipeline.injected(parent, header);
                        return Ok(gang::members(&header, order)?);
                    }
                    // As long as one may be had when its devices work again, nothing is lost.
                    Some(Err(error)) if last.is_damage() => last = error.into(),
                    Some(Err(_)) => {}
                    None => {}
                }
            }
        }
        Err(last)
    }
}
