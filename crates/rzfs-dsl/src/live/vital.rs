//! Objects that stay in memory while a pool is open: every txg changes them, and nothing can
//! replace them. Damage to objects of one dataset only, or to those that can be rewritten, is
//! handled where they are used.

use super::space::store::{LOGS, UNFLUSHED};
use crate::mos::config::VDEV_ZAPS;
use crate::mos::live::LiveMos;
use crate::mos::{OBJECT_DIRECTORY as DIRECTORY, features};
use crate::pool::{Attributes, Pool};
use rzfs_format::ObjectId;

/// Holds those of a new pool whose numbers are fixed; the creators of others hold them.
pub(crate) fn hold_new(mos: &LiveMos) {
    mos.hold(DIRECTORY);
    mos.hold(ObjectId::META_DNODE);
}

/// Holds those of a pool on disk, as far as they can be read and there is room: the dnodes of all
/// objects come last.
pub(crate) fn hold(mos: &LiveMos, pool: &Pool) {
    mos.hold(DIRECTORY);
    let in_directory = |name: &str| pool.directory().object(name).ok().flatten();
    let hold = |id: Option<ObjectId>| {
        if let Some(id) = id.and_then(ObjectId::non_zero) {
            mos.hold(id);
        }
    };
    for name in features::TABLES.into_iter().chain([LOGS, VDEV_ZAPS]) {
        hold(in_directory(name));
    }
    let vdevs = pool.vdevs();
    hold(vdevs.root().own_config().root_zap);
    for top in vdevs.top_levels() {
        top.leaves_below().iter().for_each(|leaf| hold(leaf.own_config().leaf.zap));
        let zap = top.own_config().top.zap;
        hold(zap);
        let attributes = zap.and_then(|zap| Attributes::open(pool.mos(), zap).ok());
        hold(attributes.and_then(|attributes| attributes.object(UNFLUSHED).ok().flatten()));
    }
    mos.hold(ObjectId::META_DNODE);
}
