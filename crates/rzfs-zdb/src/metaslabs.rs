//! `zdb -m` and `-M`: metaslabs, their space maps, and their fragmentation.

mod groups;
mod indirect;
mod logs;
mod map;
mod report;

pub(crate) use groups::embedded_log;

use super::Arguments;
use super::error::ZdbError;
use super::session::{Session, Verdict};
use super::text::histogram;
use report::{Detail, Report};
use rzfs_dsl::pool::{MosStore, Pool};
use rzfs_format::features::Feature;
use rzfs_metaslab::{Metaslab, MetaslabError, RangeTree, SpaceMap, VdevMetaslabs};
use rzfs_vdev::Vdev;
use rzfs_vdev::config::AllocationBias;
use std::io;

/// A metaslab keeps free segments from 16 KiB on sorted by size.
const SORTED_FLOOR_SHIFT: usize = 14;

/// Whether the command line asks for anything here.
pub(crate) fn is_wanted(arguments: &Arguments) -> bool {
    Detail::of(arguments).is_some() || arguments.metaslab_groups > 0
}

/// Shows metaslabs, groups and log space maps, as requested.
pub(crate) fn run(session: &mut Session<'_>, pool: &Pool) -> Result<Verdict, ZdbError> {
    let arguments = session.arguments;
    let detail = Detail::of(arguments);
    let metaslabs = &pool.metaslabs()?;
    let store = MosStore::new(pool.mos().clone());
    let report = Report { pool, metaslabs, store, detail: detail.unwrap_or_default() };
    let mut verdict = Verdict::Clean;
    if detail.is_some() {
        verdict = verdict.max(report.vdevs(session)?);
    }
    if arguments.metaslab_groups > 0 {
        groups::print(session, pool, metaslabs)?;
    }
    if detail.is_some() && pool.features().is_active(Feature::LogSpaceMap) {
        verdict = verdict.max(logs::print(session, &report)?);
    }
    Ok(verdict)
}

/// Shows a space map with its entries.
pub(crate) fn print_map(
    session: &mut Session<'_>,
    pool: &Pool,
    map: &SpaceMap,
) -> Result<Verdict, ZdbError> {
    map::print(
        session,
        &MosStore::new(pool.mos().clone()),
        map,
        Detail { entries: true, ..Detail::default() },
    )
}

/// The vdev and the metaslabs after the pool on the command line.
struct Selection {
    vdev: Option<u64>,
    metaslabs: Vec<u64>,
}

impl Selection {
    /// With `-d` the words after the pool are objects.
    fn of(arguments: &Arguments) -> Result<Self, ZdbError> {
        let mut numbers = Vec::new();
        if arguments.datasets == 0 {
            for word in arguments.targets.iter().skip(1) {
                let number = word.parse();
                numbers.push(number.map_err(|_| ZdbError::Usage(format!("bad number {word}")))?);
            }
        }
        let mut numbers = numbers.into_iter();
        Ok(Self { vdev: numbers.next(), metaslabs: numbers.collect() })
    }
}

impl Report<'_> {
    fn vdevs(&self, session: &mut Session<'_>) -> Result<Verdict, ZdbError> {
        let selection = Selection::of(session.arguments)?;
        writeln!(session.out, "\nMetaslabs:")?;
        let all: Vec<Vdev<'_>> = self.pool.vdevs().top_levels().collect();
        let Some(index) = selection.vdev else {
            return self.whole_vdevs(session, &all);
        };
        let position = usize::try_from(index).ok();
        let Some(vdev) = position.and_then(|position| all.get(position)) else {
            return Err(ZdbError::Usage(format!("bad vdev id: {index}")));
        };
        if selection.metaslabs.is_empty() {
            return self.whole_vdevs(session, &[*vdev]);
        }
        self.print_header(session, *vdev)?;
        let metaslabs = self.metaslabs_of(*vdev);
        let mut verdict = Verdict::Clean;
        for number in selection.metaslabs {
            match metaslabs.iter().find(|metaslab| metaslab.id() == number) {
                Some(metaslab) => verdict = verdict.max(self.metaslab(session, *vdev, metaslab)?),
                None => writeln!(session.notes, "bad metaslab number {number}")?,
            }
        }
        writeln!(session.out)?;
        Ok(verdict)
    }

    fn whole_vdevs(
        &self,
        session: &mut Session<'_>,
        vdevs: &[Vdev<'_>],
    ) -> Result<Verdict, ZdbError> {
        let mut verdict = Verdict::Clean;
        for vdev in vdevs {
            self.print_header(session, *vdev)?;
            verdict = verdict.max(indirect::print(session, self, *vdev)?);
            for metaslab in self.metaslabs_of(*vdev) {
                verdict = verdict.max(self.metaslab(session, *vdev, metaslab)?);
            }
            writeln!(session.out)?;
        }
        Ok(verdict)
    }

    fn metaslabs_of(&self, vdev: Vdev<'_>) -> &[Metaslab] {
        let vdev = vdev.vdev_id().and_then(|id| self.metaslabs.vdev(id));
        vdev.map_or(&[], VdevMetaslabs::metaslabs)
    }

    fn print_header(&self, session: &mut Session<'_>, vdev: Vdev<'_>) -> Result<(), ZdbError> {
        let bias = match vdev.allocation_bias() {
            None => "",
            Some(AllocationBias::Log) => "log",
            Some(AllocationBias::Special) => "special",
            Some(AllocationBias::Dedup) => "dedup",
        };
        let unflushed = match self.pool.top_attributes(vdev)? {
            Some(attributes) => attributes.object("com.delphix:ms_unflushed_phys_txgs")?,
            None => None,
        };
        let count = self.metaslabs_of(vdev).len();
        let out = &mut *session.out;
        write!(out, "\tvdev {:10}   {bias}", vdev.id())?;
        if let Some(object) = unflushed {
            write!(out, "   ms_unflushed_phys object {object}")?;
        }
        writeln!(
            out,
            "\n\t{:<10}{count:5}   {:<19}   {:<15}   {:<12}",
            "metaslabs", "offset", "spacemap", "free"
        )?;
        let line = "-".repeat(19);
        writeln!(out, "\t{line:.15}   {line:.19}   {line:.15}   {line:.12}")?;
        Ok(())
    }

    /// The free space of a metaslab according to its own map. Changes only in the logs are ignored,
    /// as by OpenZFS's zdb.
    fn free(&self, metaslab: &Metaslab) -> Result<Free, MetaslabError> {
        let map = metaslab.space_map();
        let allocated = map.map(|map| map.load_allocated(&self.store)).transpose()?;
        let mut free = Free { buckets: [0; 64], largest: 0, space: 0 };
        let mut start = metaslab.range().start;
        for range in allocated.iter().flat_map(RangeTree::iter) {
            free.add(range.start.saturating_sub(start));
            start = range.end;
        }
        free.add(metaslab.range().end.saturating_sub(start));
        Ok(free)
    }

    fn metaslab(
        &self,
        session: &mut Session<'_>,
        vdev: Vdev<'_>,
        metaslab: &Metaslab,
    ) -> Result<Verdict, ZdbError> {
        let mut verdict = Verdict::Clean;
        let free = metaslab.size().cast_signed().saturating_sub(metaslab.own_allocated());
        writeln!(
            session.out,
            "\tmetaslab {:6}   offset {:12x}   spacemap {:6}   free    {:>5}",
            metaslab.id(),
            metaslab.range().start,
            metaslab.space_map().map_or(0, |map| map.object().0),
            session.number(free.cast_unsigned())
        )?;
        if self.detail.free && session.arguments.no_leaks == 0 {
            match self.free(metaslab) {
                Ok(free) => free.print(session, metaslab.size())?,
                Err(error) => {
                    writeln!(session.out, "\tcannot be loaded: {error}")?;
                    verdict = Verdict::Damaged;
                }
            }
        }
        let keeps_histograms = self.pool.features().is_active(Feature::SpaceMapHistogram);
        if let Some(map) = metaslab.space_map() {
            if self.detail.histogram && keeps_histograms {
                let fragmentation = metaslab.fragmentation().unwrap_or(u64::MAX);
                writeln!(session.out, "\tOn-disk histogram:\t\tfragmentation {fragmentation}")?;
                if let Some(buckets) = &map.header().histogram {
                    histogram::print(session.out, buckets, vdev.ashift().unwrap_or(0).into())?;
                }
            }
            verdict = verdict.max(map::print(session, &self.store, map, self.detail)?);
        }
        if self.pool.features().is_active(Feature::LogSpaceMap) {
            let txg = metaslab.unflushed_txg();
            writeln!(session.out, "\tFlush data:\n\tunflushed txg={txg}\n")?;
        }
        Ok(verdict)
    }
}

/// The free space of a metaslab.
struct Free {
    buckets: [u64; 64],
    largest: u64,
    space: u64,
}

impl Free {
    fn add(&mut self, size: u64) {
        let Some(power) = size.checked_ilog2() else { return };
        if let Some(count) = self.buckets.get_mut(power as usize) {
            *count += 1;
        }
        self.largest = self.largest.max(size);
        self.space = self.space.saturating_add(size);
    }

    fn print(&self, session: &mut Session<'_>, size: u64) -> io::Result<()> {
        let sorted: u64 = self.buckets.iter().skip(SORTED_FLOOR_SHIFT).sum();
        let segments = if sorted > 0 { sorted } else { self.buckets.iter().sum() };
        let percent = (u128::from(self.space) * 100).checked_div(size.into()).unwrap_or(0);
        let largest = session.number(self.largest);
        writeln!(
            session.out,
            "\t {:>25} {segments:10}   {:>7}  {largest:>6}   {:>4} {percent:4}%",
            "segments", "maxsize", "freepct"
        )?;
        writeln!(session.out, "\tIn-memory histogram:")?;
        histogram::print(session.out, &self.buckets, 0)
    }
}
