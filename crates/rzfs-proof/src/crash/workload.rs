//! The workloads on a pool before it crashes.

use super::environment::ReplayedEnvironment;
use super::transfers::{Passage, transfer};
use crate::fill::{change, noise, text};
use crate::{Bounds, Encrypted, FeatureSet, Files, Habit, OpenPool, ProofError, Settings, Shape};
use rzfs_blockdev::BlockDevice;
use rzfs_dsl::live::{Destruction, LiveOptions as PoolOptions, NewSnapshots};
use rzfs_hostile::Random;
use rzfs_receive::Remains;
use rzfs_send::Form;
use rzfs_tunables::Tunables;
use rzfs_zpl::live::{LiveFileSystem, NewKind};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Minimum size of a device.
const DEVICE_SIZE: u64 = 64 << 20;
/// Memory for block contents.
const ARC_MAX: u64 = 32 << 20;
/// Vdevs added to a pool, one after the other.
const ADDED: [&str; 4] = ["B", "mirror C D", "log E", "special mirror F G"];
/// Longer than any run: groups end when the workload says so.
const NEVER: Duration = Duration::from_secs(86_400);
/// Steps after which sending and receiving restarts, and the actions at some of them: a snapshot is
/// taken, a stream breaks off and is kept, is received as a whole, breaks off and is dropped.
const TURN: u64 = 8;
const SNAPSHOT: u64 = 0;
const BROKEN_OFF: u64 = 1;
const WHOLE: u64 = 3;
const GIVEN_UP: u64 = 5;
/// The first step after a crash.
const AFTER: u64 = 800;
/// The key of encrypted pools.
const RAW_KEY: [u8; 32] = *b"thirty-two bytes that nobody has";

/// A workload on a pool before it crashes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Workload {
    /// Files of all sizes on one device.
    Single,
    /// The same on a mirror.
    Mirror,
    /// The same on RAID-Z with two parities.
    Raidz2,
    /// The same on a mirror with a special vdev and a log device.
    Classes,
    /// The same on one device beside a log device.
    LogDevice,
    /// Many groups with small changes all over the pool, few logs of space maps, and frequently
    /// condensed maps.
    Logs,
    /// The same without log space maps.
    NoLogs,
    /// File systems are created, filled, renamed and destroyed.
    Datasets,
    /// Snapshots are taken, renamed and destroyed, with rollbacks, and clones are promoted.
    Snapshots,
    /// Another file system receives snapshots, some of them in parts, while both change.
    Receive,
    /// Files share blocks: copies of each other, and equal ones with `dedup=on`.
    Shared,
    /// Vdevs of several kinds are added to a pool.
    Add,
    /// Files of all sizes, encrypted.
    Encrypted,
    /// Users, groups and projects reach their quotas, beside quotas and reservations.
    Limits,
}

impl Workload {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::Single,
        Self::Mirror,
        Self::Raidz2,
        Self::Classes,
        Self::Logs,
        Self::NoLogs,
        Self::Datasets,
        Self::Snapshots,
        Self::Receive,
        Self::Shared,
        Self::Add,
        Self::Encrypted,
        Self::Limits,
    ];

    /// Those tested with programs that wait for their changes.
    pub const SYNCED: [Self; 6] =
        [Self::Single, Self::Mirror, Self::Raidz2, Self::Classes, Self::Encrypted, Self::Shared];

    /// Those tested with failing devices below programs that wait for their changes.
    pub const FAULTY: [Self; 4] = [Self::Single, Self::Mirror, Self::Raidz2, Self::LogDevice];

    /// Its name on command lines.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Mirror => "mirror",
            Self::Raidz2 => "raidz2",
            Self::Classes => "classes",
            Self::LogDevice => "log",
            Self::Logs => "logs",
            Self::NoLogs => "nologs",
            Self::Datasets => "datasets",
            Self::Snapshots => "snapshots",
            Self::Receive => "receive",
            Self::Shared => "shared",
            Self::Add => "add",
            Self::Encrypted => "encrypted",
            Self::Limits => "limits",
        }
    }

    /// The shape of its pool.
    #[must_use]
    pub const fn shape(self) -> Shape {
        let (vdevs, ashift, features) = match self {
            Self::Single
            | Self::Datasets
            | Self::Snapshots
            | Self::Receive
            | Self::Shared
            | Self::Add
            | Self::Encrypted
            | Self::Limits => ("A", 12, FeatureSet::Default),
            Self::Mirror => ("mirror A B", 12, FeatureSet::Default),
            Self::Raidz2 => ("raidz2 A B C D", 9, FeatureSet::Default),
            Self::Classes => ("mirror A B special mirror C D log E", 12, FeatureSet::Default),
            Self::LogDevice => ("A log B", 12, FeatureSet::Default),
            Self::Logs => ("A", 9, FeatureSet::Default),
            Self::NoLogs => ("A", 9, FeatureSet::NoLogSpaceMap),
        };
        let habit = match self {
            Self::Shared => Habit::Sharing,
            Self::Limits => Habit::Limits,
            _ => Habit::Plain,
        };
        let encrypted = match self {
            Self::Encrypted => Encrypted::Everything,
            _ => Encrypted::Nothing,
        };
        let device_size = match self {
            // There must be room for the reservations.
            Self::Limits => 4 * DEVICE_SIZE,
            // There is twice as much.
            Self::Receive => 2 * DEVICE_SIZE,
            _ => DEVICE_SIZE,
        };
        Shape { name: "crash", vdevs, ashift, features, habit, device_size, encrypted }
    }

    /// The settings of its pool.
    #[must_use]
    pub fn settings(self, seed: u64) -> Settings {
        let mut tunables =
            Tunables { zfs_arc_max: ARC_MAX, zfs_txg_timeout: NEVER, ..Tunables::default() };
        if self.is_about_space() {
            tunables.zfs_unflushed_log_block_min = 6;
            tunables.zfs_unflushed_log_block_max = 12;
            tunables.zfs_unflushed_log_txg_max = 4;
            tunables.zfs_metaslab_condense_block_threshold = 0;
            tunables.zfs_metaslab_condense_pct = 110;
            tunables.metaslab_unload_delay = 2;
        }
        let pool = PoolOptions { tunables, threads: 1, ..PoolOptions::default() };
        let environment = Arc::new(ReplayedEnvironment::new(seed));
        let (bounds, keys) = (Bounds::Devices, vec![RAW_KEY.to_vec()]);
        Settings { pool, environment: environment.clone(), clock: environment, bounds, keys }
    }

    const fn is_about_space(self) -> bool {
        matches!(self, Self::Logs | Self::NoLogs)
    }

    /// The number of groups with changes.
    pub(super) const fn steps(self) -> u64 {
        match self {
            Self::Logs | Self::NoLogs => 24,
            Self::Snapshots | Self::Receive => 16,
            _ => 10,
        }
    }

    /// Devices added to its pool.
    pub(super) fn more_devices(self) -> impl Iterator<Item = &'static str> {
        let words = match self {
            Self::Add => ADDED.as_slice(),
            _ => &[],
        };
        let letters = words.iter().flat_map(|words| words.split(' '));
        letters.filter(|word| word.starts_with(|c: char| c.is_ascii_uppercase()))
    }

    /// Creates, renames or destroys a file system, or adds vdevs.
    pub(super) fn administer(
        self,
        open: &mut OpenPool,
        step: u64,
        random: &mut Random,
        devices: &BTreeMap<&'static str, Arc<dyn BlockDevice>>,
    ) -> Result<(), ProofError> {
        if self == Self::Add {
            let added = ADDED.get((step / 2) as usize).filter(|_| step % 2 == 1);
            return added.map_or(Ok(()), |words| open.add_vdevs(words, devices));
        }
        if self == Self::Snapshots {
            return change_snapshots(open, step, random);
        }
        if self == Self::Receive {
            return send_and_receive(open, step);
        }
        let names: Vec<String> = open.file_systems.keys().cloned().collect();
        let root = names.first().cloned().unwrap_or_default();
        let is_leaf = |name: &&String| {
            **name != root && !names.iter().any(|other| other.starts_with(&format!("{name}/")))
        };
        let leaves: Vec<&String> = names.iter().filter(is_leaf).collect();
        let leaf = leaves.get(random.below(leaves.len() as u64) as usize);
        match (step % 4, leaf) {
            (1, Some(leaf)) => open.rename_file_system(leaf, &format!("{root}/renamed{step}")),
            (2, Some(leaf)) => open.destroy_file_system(leaf),
            (3, Some(leaf)) => open.create_file_system(&format!("{leaf}/below{step}")),
            _ => open.create_file_system(&format!("{root}/new{step}")),
        }
    }

    /// Administrative operations after a crash.
    pub(super) fn go_on(self, open: &mut OpenPool) -> Result<(), ProofError> {
        match self {
            Self::Receive => [SNAPSHOT, WHOLE]
                .into_iter()
                .try_for_each(|step| send_and_receive(open, AFTER + step)),
            _ => Ok(()),
        }
    }

    /// Performs one step's changes on the files of a file system.
    pub(super) fn step(
        self,
        fs: &LiveFileSystem,
        step: u64,
        random: &mut Random,
    ) -> Result<(), ProofError> {
        let files = Files(fs);
        let directory = format!("d{}", step % 4);
        files.mkdir_if_missing(&directory)?;
        let (count, largest) = if self.is_about_space() { (10, 40_000) } else { (6, 400_000) };
        for number in 0..count {
            let (path, seed) = (format!("{directory}/s{step}-{number}"), random.draw());
            let size = random.below(random_bound(seed, largest)) as usize;
            let contents = if seed % 3 == 0 { text(seed, size) } else { noise(seed, size) };
            files.put(&path, &contents)?;
        }
        if step % 5 == 2 {
            let crowd = format!("crowd{step}");
            files.mkdir(&crowd)?;
            for number in 0..150 {
                let name = format!("{crowd}/entry with a long name, for a fat ZAP, {number}");
                files.make(&name, NewKind::Symlink(b"somewhere"))?;
            }
        }
        self.shape().habit.follow(fs, step, random)?;
        change(fs, random.draw())?;
        Ok(())
    }
}

/// Takes a snapshot of the root, or makes another file system receive what it lacks.
fn send_and_receive(open: &mut OpenPool, step: u64) -> Result<(), ProofError> {
    let root = open.root()?.0.to_owned();
    let passage = match step % TURN {
        BROKEN_OFF => Passage::BreaksOff(Remains::Kept),
        GIVEN_UP => Passage::BreaksOff(Remains::Destroyed),
        step if step % 2 == 1 => Passage::Whole,
        _ => {
            let names = vec![format!("{root}@s{step}")];
            return Ok(open
                .pool
                .take_snapshots(&NewSnapshots { names, properties: Vec::new() })?);
        }
    };
    let form = Form { compressed: step % 16 < 8, ..Form::default() };
    transfer(open, &format!("{root}/received"), passage, form)
}

/// Takes, renames or destroys snapshots, or does something with clones.
fn change_snapshots(open: &mut OpenPool, step: u64, random: &mut Random) -> Result<(), ProofError> {
    let tree = open.pool.dataset_tree()?;
    let root = tree.root()?;
    let heads = std::iter::once(root.clone()).chain(root.descendants()?).collect::<Vec<_>>();
    let mut snapshots = Vec::new();
    for head in &heads {
        snapshots.extend(head.snapshots()?);
    }
    let at = random.below(snapshots.len().max(1) as u64) as usize;
    let snapshot = snapshots.get(at).map(|one| one.name().to_owned());
    let mut clones = heads.iter().filter(|head| matches!(head.origin(), Ok(Some(_))));
    let clone = clones.next_back().map(|one| one.name().to_owned());
    match (step % 8, snapshot, clone) {
        (2, Some(origin), _) => {
            open.clone_snapshot(&origin, &format!("{}/clone{step}", root.name()))
        }
        (3, Some(one), _) => {
            let head = one.split('@').next().unwrap_or_default();
            open.roll_back(head)
        }
        (5, _, Some(clone)) => Ok(open.pool.promote(&clone)?),
        (6, Some(_), _) => {
            let free = snapshots.iter().find(|one| one.dsl_dataset().child_count == 1);
            let names: Vec<_> = free.iter().map(|one| one.name().to_owned()).collect();
            Ok(open.pool.destroy_snapshots(&names, Destruction::AtOnce)?)
        }
        (7, Some(one), _) => {
            open.pool.hold_snapshots(std::slice::from_ref(&one), "held")?;
            Ok(open.pool.rename_snapshots(&[one], &format!("renamed{step}"))?)
        }
        _ => open.take_snapshots(&format!("s{step}")),
    }
}

/// Small sizes are as likely as large ones.
const fn random_bound(seed: u64, largest: u64) -> u64 {
    match seed % 4 {
        0 => 200,
        1 => 6000,
        _ => largest,
    }
}
