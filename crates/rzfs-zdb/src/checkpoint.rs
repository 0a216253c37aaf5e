//! The checkpoint of a pool: its uberblock, and the space of each vdev that only it needs.

use super::error::ZdbError;
use super::metaslabs;
use super::session::{Session, Verdict};
use super::uberblock;
use rzfs_dsl::pool::{MosStore, Pool};
use rzfs_format::space_map::Geometry;
use rzfs_metaslab::{SpaceMap, VdevMetaslabs};

/// Shows the checkpoint, if there is one; with `-mmmm` its space maps as well.
pub(crate) fn run(session: &mut Session<'_>, pool: &Pool) -> Result<Verdict, ZdbError> {
    let Some(checkpoint) = pool.checkpoint() else { return Ok(Verdict::Clean) };
    writeln!(session.out, "\nCheckpointed uberblock found:")?;
    uberblock::print_fields(session, checkpoint)?;
    writeln!(session.out)?;
    let mut verdict = Verdict::Clean;
    if session.arguments.metaslabs > 3 {
        for vdev in pool.metaslabs()?.vdevs() {
            if let Some(map) = space_map(pool, vdev)? {
                verdict = verdict.max(metaslabs::print_map(session, pool, &map)?);
            }
        }
    }
    Ok(verdict)
}

/// The map of space on a vdev that is allocated only for the checkpoint.
pub(crate) fn space_map(pool: &Pool, vdev: &VdevMetaslabs) -> Result<Option<SpaceMap>, ZdbError> {
    let geometry = vdev.geometry();
    let Some(top) = pool.vdevs().top_level(geometry.vdev) else { return Ok(None) };
    let Some(attributes) = pool.top_attributes(top)? else { return Ok(None) };
    let Some(object) = attributes.object("com.delphix:pool_checkpoint_sm")? else {
        return Ok(None);
    };
    let area = Geometry::checkpoint(geometry.asize, geometry.ashift);
    Ok(Some(SpaceMap::open(&MosStore::new(pool.mos().clone()), object, area)?))
}
