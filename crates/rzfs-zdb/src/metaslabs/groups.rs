//! `zdb -M`: the sizes of free segments by vdev and in the whole class.

use crate::session::Session;
use crate::text::histogram;
use rzfs_dsl::pool::Pool;
use rzfs_format::features::Feature;
use rzfs_metaslab::{Metaslab, PoolMetaslabs, VdevMetaslabs, fragmentation};
use rzfs_vdev::config::AllocationBias;
use std::io;

/// Buckets: powers of two in bytes.
const BUCKETS: usize = 64;

/// Vdevs with more metaslabs reserve one for the intent log.
const EMBEDDED_LOG_MIN_METASLABS: usize = 64;

/// The metaslab that a vdev reserves for the intent log: its emptiest.
pub(crate) fn embedded_log(vdev: &VdevMetaslabs, bias: Option<AllocationBias>) -> Option<u64> {
    if bias.is_some() || vdev.metaslabs().len() <= EMBEDDED_LOG_MIN_METASLABS {
        return None;
    }
    vdev.metaslabs().iter().min_by_key(|metaslab| metaslab.own_allocated()).map(Metaslab::id)
}

/// The metaslabs of a vdev that belong to its class: without the one for the intent log.
struct Group {
    fragmentation: Option<u64>,
    space: u64,
    buckets: [u64; BUCKETS],
}

impl Group {
    fn of(vdev: &VdevMetaslabs, bias: Option<AllocationBias>, keeps_histograms: bool) -> Self {
        let log = embedded_log(vdev, bias);
        let members = || vdev.metaslabs().iter().filter(|metaslab| log != Some(metaslab.id()));
        let mut buckets = [0; BUCKETS];
        for map in members().filter_map(|metaslab| metaslab.space_map()) {
            let counts = map.header().histogram.iter().flatten();
            let own = buckets.iter_mut().skip(vdev.geometry().ashift as usize);
            for (bucket, count) in own.zip(counts) {
                *bucket = count.saturating_add(*bucket);
            }
        }
        let parts = members().map(|metaslab| {
            let free = metaslab.size().cast_signed().saturating_sub(metaslab.own_allocated());
            (metaslab.fragmentation(), free.max(0).cast_unsigned())
        });
        let fragmentation = fragmentation::mean(parts).filter(|_| keeps_histograms);
        Self { fragmentation, space: vdev.space(), buckets }
    }
}

/// Shows the groups of the normal class (`-MM`: and of the special class), and the normal class.
pub(super) fn print(
    session: &mut Session<'_>,
    pool: &Pool,
    metaslabs: &PoolMetaslabs,
) -> io::Result<()> {
    let keeps_histograms = pool.features().is_active(Feature::SpaceMapHistogram);
    let with_special = session.arguments.metaslab_groups > 1;
    let mut class = Vec::new();
    for vdev in metaslabs.vdevs() {
        let id = vdev.geometry().vdev;
        let bias = pool.vdevs().top_level(id).and_then(|top| top.allocation_bias());
        let shown = bias.is_none() || (with_special && bias == Some(AllocationBias::Special));
        if !shown {
            continue;
        }
        let group = Group::of(vdev, bias, keeps_histograms);
        write!(session.out, "\tvdev {:10}\t\tmetaslabs{:5}", id.0, vdev.metaslabs().len())?;
        let shown = percent(group.fragmentation);
        writeln!(session.out, "\t\tfragmentation{shown}")?;
        histogram::print(session.out, &group.buckets, 0)?;
        if bias.is_none() {
            class.push(group);
        }
    }
    let mut buckets = [0_u64; BUCKETS];
    for group in &class {
        for (bucket, count) in buckets.iter_mut().zip(&group.buckets) {
            *bucket = bucket.saturating_add(*count);
        }
    }
    let known = class.iter().all(|group| group.fragmentation.is_some());
    let parts = class.iter().map(|group| (group.fragmentation, group.space));
    let shown = percent(fragmentation::mean(parts).filter(|_| known));
    writeln!(session.out, "\tpool {}\tfragmentation\t{shown}", pool.name())?;
    histogram::print(session.out, &buckets, 0)
}

fn percent(fragmentation: Option<u64>) -> String {
    fragmentation.map_or_else(|| "  -".to_owned(), |percent| format!("{percent:3}%"))
}
