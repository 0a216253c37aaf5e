//! Reads everything of a pool accessible to users, within limits.

mod files;
mod logs;

use crate::tally::Tally;
use rzfs_blockdev::OpenOptions;
use rzfs_dmu::{Object, Objset};
use rzfs_dsl::Pool;
use rzfs_dsl::dataset::Dataset;
use rzfs_dsl::import::{DeviceSource, Discovery, ImportOptions, ImportablePool};
use rzfs_dsl::pool::MosStore;
use rzfs_zdb::calendar::Calendar;
use rzfs_zdb::{self as zdb, Arguments};
use rzfs_zpl::{FileSystem, Volume};
use std::error::Error;
use std::io;

/// Objects of the MOS that are looked into.
const OBJECTS: usize = 400;
/// Entries of a ZAP that are looked at.
const ENTRIES: usize = 200;
/// Metaslabs of a vdev that are loaded.
const METASLABS: usize = 3;
/// File systems, volumes and snapshots that are opened.
const DATASETS: usize = 12;
/// Snapshots of each that are.
const SNAPSHOTS: usize = 2;
/// Records of the history that are read.
const RECORDS: usize = 100;
/// Maximum depth of an error's causes to format.
const CAUSES: usize = 10;

/// What the walk over all blocks reads.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum BlockWalk {
    /// Metadata: `zdb -bc`.
    #[default]
    Metadata,
    /// Contents of files too: `zdb -bcc`.
    Everything,
}

/// A reader of everything.
#[derive(Debug, Default)]
pub(crate) struct Exercise {
    tally: Tally,
    walk: BlockWalk,
}

impl Exercise {
    /// Searches these devices for pools, and reads what can be imported.
    pub(crate) fn run(sources: &[DeviceSource], options: &ImportOptions, walk: BlockWalk) -> Tally {
        let mut this = Self { walk, ..Self::default() };
        let discovery = Discovery::search(sources, &OpenOptions::new());
        for (_, error) in discovery.damaged() {
            this.note::<(), _>(Err(error));
        }
        for discovered in discovery.pools() {
            let importable = ImportablePool::examine(discovered, options);
            if let Some(error) = &importable.error {
                this.note::<(), _>(Err(error));
            }
            if let Some(pool) = this.note(Pool::import(discovered, options)) {
                this.tally.imported = true;
                this.pool(&pool);
            }
        }
        this.tally
    }

    /// Counts a result; an error and its causes must have non-empty messages.
    fn note<T, E: Error>(&mut self, result: Result<T, E>) -> Option<T> {
        match result {
            Ok(value) => {
                self.tally.successes += 1;
                Some(value)
            }
            Err(error) => {
                self.tally.errors += 1;
                let mut cause: Option<&dyn Error> = Some(&error);
                for _ in 0..CAUSES {
                    let Some(error) = cause else { break };
                    self.tally.speechless += u64::from(error.to_string().trim().is_empty());
                    cause = error.source();
                }
                None
            }
        }
    }

    fn pool(&mut self, pool: &Pool) {
        self.note(pool.properties());
        let damaged = pool.known_errors().map(|errors| errors.len());
        self.note(pool.status(*damaged.as_ref().unwrap_or(&0)));
        self.note(damaged);
        self.note(pool.scan());
        self.note(pool.root_attributes());
        self.note(pool.space());
        self.note(pool.usable_space());
        self.note(pool.dedup_tables());
        self.note(pool.clone_savings());
        self.note(pool.pending_frees());
        self.note(pool.freeing());
        self.note(pool.leaked());
        self.note(pool.unreplayed_logs());
        if let Some(Some(history)) = self.note(pool.history()) {
            for record in history.take(RECORDS) {
                if let Some(record) = self.note(record) {
                    let _ = record.event();
                }
            }
        }
        for top in pool.vdevs().top_levels() {
            self.note(pool.expansion(top));
            self.note(pool.top_attributes(top));
        }
        self.metaslabs(pool);
        self.objects(pool.mos());
        self.datasets(pool);
        self.block_walk(pool);
    }

    /// What `zdb -Cbch` reads.
    fn block_walk(&mut self, pool: &Pool) {
        let checksum = match self.walk {
            BlockWalk::Metadata => 1,
            BlockWalk::Everything => 2,
        };
        let arguments =
            Arguments { blocks: 1, checksum, config: 1, history: 1, ..Arguments::default() };
        let (out, notes) = (&mut io::sink(), &mut io::sink());
        self.note(zdb::report_pool(&arguments, Calendar::utc(), pool, out, notes));
    }

    fn metaslabs(&mut self, pool: &Pool) {
        let Some(metaslabs) = self.note(pool.metaslabs()) else { return };
        let store = MosStore::new(pool.mos().clone());
        for vdev in metaslabs.vdevs() {
            let _ = (vdev.space(), vdev.allocated(), vdev.fragmentation());
            for metaslab in vdev.metaslabs().iter().take(METASLABS) {
                self.note(metaslab.load_free(&store));
            }
        }
    }

    /// Reads objects of any kind.
    fn objects(&mut self, objset: &Objset) {
        for entry in objset.objects().take(OBJECTS) {
            let Some(entry) = self.note(entry) else { continue };
            if let Some(object) = self.note(objset.object(entry.id)) {
                self.object(&object);
            }
        }
    }

    fn object(&mut self, object: &Object) {
        self.note(object.spill());
        self.note(object.next_data(0));
        self.note(object.next_hole(0));
        self.note(object.read_block(object.dnode().max_block_id));
        if !object.object_type().is_zap() {
            return;
        }
        let Some(zap) = self.note(object.zap()) else { return };
        self.note(zap.statistics());
        let entries: Vec<_> = zap.entries().take(ENTRIES).collect();
        for entry in entries {
            if let Some(entry) = self.note(entry) {
                self.note(zap.lookup(entry.name()));
            }
        }
    }

    fn datasets(&mut self, pool: &Pool) {
        let Some(root) = self.note(pool.datasets().root()) else { return };
        let mut datasets = vec![root.clone()];
        datasets.extend(self.note(root.descendants()).unwrap_or_default());
        for dataset in datasets.iter().take(DATASETS) {
            self.dataset(pool, dataset);
            let snapshots = self.note(dataset.snapshots()).unwrap_or_default();
            for snapshot in snapshots.iter().take(SNAPSHOTS) {
                self.note(dataset.written_since(snapshot));
                self.dataset(pool, snapshot);
            }
        }
    }

    fn dataset(&mut self, pool: &Pool, dataset: &Dataset) {
        self.note(dataset.properties());
        self.note(dataset.origin());
        self.note(dataset.clone_names());
        self.note(dataset.holds());
        self.note(dataset.redaction_snapshots());
        self.note(dataset.key_status());
        self.note(dataset.encryption_root());
        self.note(pool.datasets().by_object(dataset.object()));
        for bookmark in self.note(dataset.bookmarks()).unwrap_or_default() {
            self.note(bookmark.properties());
        }
        match self.note(dataset.open_objset()) {
            Some(objset) => self.contents(pool, dataset, &objset),
            None => {
                self.note(dataset.open_locked());
            }
        }
    }

    fn contents(&mut self, pool: &Pool, dataset: &Dataset, objset: &Objset) {
        self.intent_log(objset, pool.txg());
        if let Ok(volume) = Volume::open(objset) {
            let mut buffer = vec![0; 64 << 10];
            self.note(volume.read_at(0, &mut buffer));
            self.note(volume.read_at(volume.size().saturating_sub(10), &mut buffer));
            return;
        }
        if let Some(file_system) = self.note(FileSystem::of_dataset(dataset, pool.version())) {
            self.file_system(&file_system);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt;

    /// An error with an empty cause.
    #[derive(Debug)]
    struct Vague(Option<Box<Vague>>);

    impl fmt::Display for Vague {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(if self.0.is_some() { "something" } else { " " })
        }
    }

    impl Error for Vague {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.0.as_deref().map(|cause| cause as _)
        }
    }

    #[test]
    fn errors_and_their_causes_have_to_say_something() {
        let mut exercise = Exercise::default();
        assert_eq!(exercise.note::<_, Vague>(Ok(7)), Some(7));
        assert_eq!(exercise.tally.speechless, 0);
        exercise.note::<(), _>(Err(Vague(Some(Box::new(Vague(None))))));
        assert_eq!((exercise.tally.errors, exercise.tally.speechless), (1, 1));
    }
}
