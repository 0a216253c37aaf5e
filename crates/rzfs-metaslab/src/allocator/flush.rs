//! Selects the metaslabs a txg flushes so that logs do not pile up (spec 06, sections 13.7 and
//! 13.11).

use super::condense::Flushed;
use super::metaslab::LiveMetaslab;
use super::sync::{Activity, SyncPass};
use super::topology::Topology;
use super::tunables::LogFeature;
use super::{Allocator, FlushRequest};
use crate::MetaslabError;
use crate::metaslab::Freshness;
use crate::store::SyncStore;

impl Allocator {
    /// Makes the next txg that begins to sync flush all metaslabs, so that only its own log
    /// remains: for an export. That txg is then never idle.
    pub fn flush_for_export(&self) {
        if !self.context.tunables.keep_log_spacemaps_at_export {
            *self.flush_all.lock() = Some(FlushRequest::All);
        }
    }
}

impl SyncPass<'_> {
    /// Flushes the metaslabs that are due, oldest first.
    pub(crate) fn flush_due(
        &mut self,
        topology: &Topology,
        store: &mut dyn SyncStore,
        activity: Activity,
    ) -> Result<(), MetaslabError> {
        let request = self.allocator.flush_all.lock().take();
        let nothing = activity == Activity::Idle && request.is_none();
        if self.features.logs == LogFeature::Disabled
            || nothing
            || self.books.book.oldest().is_none()
        {
            return Ok(());
        }
        self.open_log(store)?;
        let txg = self.stamp.txg;
        let mut due = match request {
            Some(FlushRequest::All) => u64::MAX,
            None => self.books.book.flushes_due(txg),
        };
        let memory_limit = self.allocator.context.tunables.unflushed_memory_limit();
        let mut last = None;
        while let Some((unflushed_txg, id)) = self.books.book.after(last) {
            if unflushed_txg == txg || (due == 0 && self.books.unflushed_memory <= memory_limit) {
                break;
            }
            last = Some((unflushed_txg, id));
            let Some(metaslab) = topology.metaslab(id) else { continue };
            let freshness = metaslab.state.lock().freshness;
            match freshness {
                Freshness::Clean => self.bump(metaslab, Freshness::Clean)?,
                Freshness::Dirty => {
                    due = due.saturating_sub(1);
                    self.flush(metaslab, store)?;
                }
            }
        }
        Ok(())
    }

    fn flush(
        &mut self,
        metaslab: &LiveMetaslab,
        store: &mut dyn SyncStore,
    ) -> Result<(), MetaslabError> {
        self.open_map(metaslab, store)?;
        let memory = metaslab.state.lock().unflushed_memory();
        let context = &self.allocator.context;
        match metaslab.flush(store, context, &self.features, self.stamp)? {
            Flushed::Busy => Ok(()),
            Flushed::Condensed(object) => self.condensed(metaslab, object, memory),
            Flushed::Appended => {
                self.books.unflushed_memory = self.books.unflushed_memory.saturating_sub(memory);
                self.bump(metaslab, Freshness::Clean)
            }
        }
    }
}
