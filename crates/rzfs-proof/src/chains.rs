//! Checks that heads and snapshots are linked correctly, directories are charged for the space of
//! their datasets, and features count their bookmarks (spec 04, sections 3.2, 5, 12.2 and 15.2).
//! Undecodable data panics: the test has failed.

use rzfs_dmu::SourceObject;
use rzfs_dsl::dataset::{Dataset, DatasetError, DatasetTree};
use rzfs_dsl::pool::{FeatureState, FeatureStates, PointerList, Pool};
use rzfs_format::bpobj::BpobjHeader;
use rzfs_format::deadlist::{DeadlistHeader, parse_key};
use rzfs_format::dsl::{DslDataset, DslDir};
use rzfs_format::features::Feature;
use rzfs_format::{ObjectId, Txg};
use std::collections::{BTreeMap, BTreeSet};

/// A dead list: its own sums, and the lists by their keys.
struct Deadlist {
    header: DeadlistHeader,
    lists: BTreeMap<Txg, BpobjHeader>,
}

impl Deadlist {
    /// Bytes of blocks that were born after a txg.
    fn used_since(&self, txg: Txg) -> u64 {
        self.lists.range(txg..).map(|(_, list)| list.bytes).sum()
    }
}

/// The errors in the chains, the space and the bookmarks of all datasets of a pool from version 26
/// on.
///
/// # Errors
/// Something cannot be read.
pub fn wrong_chains(pool: &Pool) -> Result<Vec<String>, DatasetError> {
    let tree = pool.datasets();
    let mut check = Check { tree, bookmark_users: BTreeMap::new(), wrong: Vec::new() };
    check.head(&tree.root()?)?;
    check.bookmark_features(pool.features());
    Ok(check.wrong)
}

/// The children of a head, including a partial receive.
fn below(head: &Dataset) -> Result<Vec<Dataset>, DatasetError> {
    let mut below = head.children()?;
    below.extend(head.received_into()?);
    Ok(below)
}

struct Check<'t> {
    tree: &'t DatasetTree,
    /// Number of heads and bookmarks that use each feature.
    bookmark_users: BTreeMap<Feature, u64>,
    wrong: Vec<String>,
}

impl Check<'_> {
    fn expect<T: PartialEq + std::fmt::Debug>(&mut self, what: &str, found: T, expected: T) {
        if found != expected {
            self.wrong.push(format!("{what} is {found:?}, not {expected:?}"));
        }
    }

    fn record(&self, id: ObjectId) -> Result<DslDataset, DatasetError> {
        let object = self.tree.mos().object(id)?;
        Ok(DslDataset::decode(object.bonus(), object.bonus_order()).unwrap())
    }

    fn deadlist(&self, id: Option<ObjectId>) -> Result<Deadlist, DatasetError> {
        let mut list = Deadlist { header: DeadlistHeader::default(), lists: BTreeMap::new() };
        let Some(id) = id else { return Ok(list) };
        let mos = self.tree.mos();
        let object = mos.object(id)?;
        list.header = DeadlistHeader::decode(object.bonus(), object.bonus_order()).unwrap();
        for entry in object.zap()?.entries() {
            let entry = entry.unwrap();
            let part = mos.object(ObjectId(entry.value.first_u64().unwrap()))?;
            let key = parse_key(entry.name()).unwrap();
            list.lists.insert(key, *PointerList::of(part)?.header());
        }
        Ok(list)
    }

    fn clones_of(&self, snapshot: &DslDataset) -> Result<BTreeSet<ObjectId>, DatasetError> {
        let Some(zap) = snapshot.next_clones else { return Ok(BTreeSet::new()) };
        let zap = self.tree.mos().object(zap)?.zap()?;
        let clones = zap.entries().map(|entry| ObjectId(entry.unwrap().value.first_u64().unwrap()));
        Ok(clones.collect())
    }

    /// A head with its snapshots and children.
    fn head(&mut self, head: &Dataset) -> Result<(), DatasetError> {
        let (name, dir) = (head.name().to_owned(), head.dsl_dir().clone());
        self.chain(head, &dir)?;
        self.children(head, &dir)?;
        self.bookmarks(head)?;
        let breakdown = dir.breakdown;
        let used = breakdown.head
            + breakdown.snapshots
            + breakdown.children
            + breakdown.child_reservations
            + breakdown.refreservation;
        self.expect(&format!("{name}: used"), dir.used, used);
        for child in below(head)? {
            self.head(&child)?;
        }
        Ok(())
    }

    fn bookmarks(&mut self, head: &Dataset) -> Result<(), DatasetError> {
        let marks = head.bookmarks()?;
        let mut uses = |feature, users| *self.bookmark_users.entry(feature).or_default() += users;
        uses(Feature::Bookmarks, u64::from(!marks.is_empty()));
        for mark in &marks {
            uses(Feature::BookmarkV2, u64::from(mark.record().needs_second_version()));
            uses(Feature::BookmarkWritten, u64::from(mark.record().has_sums()));
        }
        Ok(())
    }

    fn bookmark_features(&mut self, features: &FeatureStates) {
        for (feature, users) in std::mem::take(&mut self.bookmark_users) {
            let count = match features.state(feature) {
                FeatureState::Active(count) => count,
                FeatureState::Enabled | FeatureState::Disabled => 0,
            };
            self.expect(&format!("{}: users", feature.name()), count, users);
        }
    }

    fn children(&mut self, head: &Dataset, dir: &DslDir) -> Result<(), DatasetError> {
        // The pool's own directories are children of the root.
        if head.dsl_dir().parent.is_none() {
            return Ok(());
        }
        let (mut used, mut reserved) = (0, 0);
        for child in below(head)? {
            let dir = child.dsl_dir();
            used += dir.used;
            reserved += dir.reserved.saturating_sub(dir.used);
        }
        let name = head.name();
        self.expect(&format!("{name}: used by children"), dir.breakdown.children, used);
        let of_children = dir.breakdown.child_reservations;
        self.expect(&format!("{name}: reserved by children"), of_children, reserved);
        Ok(())
    }

    /// A head and all its predecessors.
    fn chain(&mut self, head: &Dataset, dir: &DslDir) -> Result<(), DatasetError> {
        let name = head.name().to_owned();
        let mut known: BTreeMap<ObjectId, String> = head
            .snapshots()?
            .into_iter()
            .map(|snapshot| (snapshot.object(), snapshot.name().to_owned()))
            .collect();
        let origin_txg = match dir.origin {
            Some(origin) => self.record(origin)?.creation_txg,
            None => Txg(0),
        };
        let (mut later, mut record) = (head.object(), head.dsl_dataset().clone());
        let mut keys = BTreeSet::new();
        let mut snapshots = 0;
        let own_dir = record.dir;
        let head_list = self.deadlist(record.deadlist)?;
        loop {
            let title = known.remove(&later).unwrap_or_else(|| name.clone());
            let list = self.deadlist(record.deadlist)?;
            let sum = |of: fn(&BpobjHeader) -> u64| list.lists.values().map(of).sum::<u64>();
            let sums =
                (sum(|one| one.bytes), sum(|one| one.compressed), sum(|one| one.uncompressed));
            let header = list.header;
            let told = (header.used, header.compressed, header.uncompressed);
            self.expect(&format!("{title}: its dead list"), told, sums);
            snapshots += list.used_since(origin_txg);
            let Some(previous) = record.previous_snapshot else { break };
            let earlier = self.record(previous)?;
            let txg = earlier.creation_txg;
            self.expect(&format!("{title}: previous txg"), record.previous_snapshot_txg, txg);
            let branches = self.clones_of(&earlier)?;
            let children = 1 + branches.len() as u64;
            self.expect(&format!("before {title}: children"), earlier.child_count, children);
            keys.insert(earlier.previous_snapshot_txg);
            if earlier.dir == own_dir {
                self.expect(&format!("before {title}: next"), earlier.next_snapshot, Some(later));
                self.expect(&format!("before {title}: clones"), branches.contains(&later), false);
                let unique = list.used_since(earlier.previous_snapshot_txg);
                self.expect(&format!("before {title}: unique"), earlier.unique, unique);
            } else {
                self.expect(&format!("{title}: is a branch"), branches.contains(&later), true);
                self.expect(&format!("{title}: origin"), dir.origin, Some(previous));
                self.older_keys(previous, &mut keys)?;
            }
            if record.is_snapshot() {
                self.expect(&format!("{title}: its directory"), record.dir, own_dir);
            } else {
                let shared = earlier.referenced.saturating_sub(list.header.used);
                let unique = record.referenced - shared;
                self.expect(&format!("{title}: unique"), record.unique, unique);
            }
            if earlier.dir != own_dir {
                break;
            }
            (later, record) = (previous, earlier);
        }
        self.expect(&format!("{name}: snapshots outside of the chain"), known, BTreeMap::new());
        self.expect(&format!("{name}: used by snapshots"), dir.breakdown.snapshots, snapshots);
        let head_keys: BTreeSet<Txg> = head_list.lists.into_keys().collect();
        // Bookmarks may need more.
        let missing: Vec<_> = keys.difference(&head_keys).copied().collect();
        self.expect(&format!("{name}: keys that are missing"), missing, Vec::new());
        if !self.has_bookmarks()? {
            let extra: Vec<_> = head_keys.difference(&keys).copied().collect();
            self.expect(&format!("{name}: keys that nobody needs"), extra, Vec::new());
        }
        Ok(())
    }

    /// Whether there are bookmarks, which may need keys in all clones.
    fn has_bookmarks(&self) -> Result<bool, DatasetError> {
        let root = self.tree.root()?;
        let mut all = root.descendants()?;
        all.push(root);
        for dataset in all {
            if !dataset.bookmarks()?.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The keys required by everything before a snapshot.
    fn older_keys(&self, from: ObjectId, keys: &mut BTreeSet<Txg>) -> Result<(), DatasetError> {
        let mut next = Some(from);
        while let Some(id) = next {
            let record = self.record(id)?;
            keys.insert(record.previous_snapshot_txg);
            next = record.previous_snapshot;
        }
        Ok(())
    }
}
