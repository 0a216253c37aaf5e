//! Shapes of pools to test.

use rzfs_format::features::{Feature, Release};

/// The features of a new pool.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FeatureSet {
    /// All that `zpool create` enables.
    Default,
    /// None: `zpool create -d`.
    None,
    /// All that `zpool create` enables, except for log space maps.
    NoLogSpaceMap,
    /// All that `zpool create` enables, except for flat dedup tables.
    NoFastDedup,
}

impl FeatureSet {
    /// The features that are enabled.
    #[must_use]
    pub fn features(self) -> Vec<Feature> {
        // Those of the release on the reference machine.
        let is_enabled = |it: &Feature| it.is_enabled_by_upgrade() && it.since() <= Release::V2_3;
        let all = Feature::ALL.iter().copied().filter(is_enabled);
        match self {
            Self::Default => all.collect(),
            Self::None => Vec::new(),
            Self::NoLogSpaceMap => all.filter(|it| *it != Feature::LogSpaceMap).collect(),
            Self::NoFastDedup => all.filter(|it| *it != Feature::FastDedup).collect(),
        }
    }
}

/// A special usage pattern of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Habit {
    /// Nothing.
    Plain,
    /// Files share blocks: copies of each other, and equal ones with `dedup=sha256`.
    Sharing,
    /// Datasets, users, groups and projects have limits, and reach some of them.
    Limits,
}

/// Which file systems of a new pool are encrypted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Encrypted {
    /// None.
    Nothing,
    /// All of them: the root of the pool is.
    Everything,
    /// One with each suite, below an unencrypted root, and one that inherits its key.
    Suites,
}

/// A shape of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Shape {
    /// The pool's name, which must not begin like a kind of vdev: OpenZFS would not import it.
    pub name: &'static str,
    /// The arguments of `zpool create`; a capital letter stands for a device.
    pub vdevs: &'static str,
    /// The property `ashift`.
    pub ashift: u64,
    /// Its features.
    pub features: FeatureSet,
    /// Its usage pattern.
    pub habit: Habit,
    /// Bytes of each device.
    pub device_size: u64,
    /// Which file systems are encrypted.
    pub encrypted: Encrypted,
}

/// Room for what all turns leave in snapshots: a pool that is nearly full waits for a txg at every
/// change.
const DEVICE_SIZE: u64 = 320 << 20;

const fn shape(name: &'static str, vdevs: &'static str, ashift: u64) -> Shape {
    let (features, habit) = (FeatureSet::Default, Habit::Plain);
    let (device_size, encrypted) = (DEVICE_SIZE, Encrypted::Nothing);
    Shape { name, vdevs, ashift, features, habit, device_size, encrypted }
}

/// Every layout of vdevs, every ashift, pools without features, shared blocks, quotas, and
/// encrypted ones.
pub const SHAPES: [Shape; 18] = [
    shape("single", "A", 12),
    shape("single9", "A", 9),
    shape("stripe", "A B C", 12),
    shape("two-sided", "mirror A B", 12),
    shape("rz1", "raidz1 A B C", 12),
    shape("rz2", "raidz2 A B C D E", 9),
    Shape { device_size: 2 * DEVICE_SIZE, ..shape("rz2x13", "raidz2 A B C D", 13) },
    shape("rz3", "raidz3 A B C D E F", 12),
    shape("dr1", "draid1:2d:5c:1s A B C D E", 12),
    shape("classes", "mirror A B special mirror C D log E", 12),
    Shape { features: FeatureSet::None, ..shape("nofeatures", "A", 12) },
    Shape { features: FeatureSet::NoLogSpaceMap, ..shape("nologs", "mirror A B", 12) },
    shape("single13", "A", 13),
    Shape { habit: Habit::Sharing, ..shape("sharing", "mirror A B", 12) },
    Shape {
        habit: Habit::Sharing,
        features: FeatureSet::NoFastDedup,
        ..shape("sharing-legacy", "raidz1 A B C", 12)
    },
    Shape { habit: Habit::Limits, ..shape("limits", "A", 12) },
    Shape {
        device_size: 2 * DEVICE_SIZE,
        encrypted: Encrypted::Suites,
        ..shape("encrypted", "A", 12)
    },
    Shape { encrypted: Encrypted::Everything, ..shape("encrypted-rz1", "raidz1 A B C log D", 9) },
];

impl Shape {
    /// The shape with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        SHAPES.into_iter().find(|shape| shape.name == name)
    }

    /// The arguments of `zpool create`, with device letters replaced by `device`.
    pub(crate) fn words(&self, mut device: impl FnMut(&str) -> String) -> Vec<String> {
        let word = |word: &str| match word.chars().next() {
            Some('A'..='Z') => device(word),
            _ => word.to_owned(),
        };
        self.vdevs.split(' ').map(word).collect()
    }

    /// The letters of its devices.
    pub fn devices(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.vdevs.split(' ').filter(|word| word.starts_with(|c: char| c.is_ascii_uppercase()))
    }
}
