//! One case: a pool, its damage, and its limits.

use crate::blocks::{Aim, HostileInjector};
use crate::devices::{Truncated, damage_device};
use crate::exercise::{BlockWalk, Exercise};
use crate::labels::{damage_config, damage_uberblock};
use crate::patches::{BlockList, BlockRecorder, Patch, PatchInjector};
use crate::random::Random;
use crate::tally::Tally;
use crate::witness::{Chained, Contents, ContentsRecorder, Witness};
use rzfs_blockdev::{BlockDevice, FileDevice, OpenOptions};
use rzfs_dmu::BlockInjector;
use rzfs_dsl::import::{
    Clock, DeviceSource, HostCheck, ImportOptions, MissingLogs, RewindPolicy, Wait,
};
use rzfs_testkit::{OverlayDevice, ReferencePool};
use rzfs_tunables::Tunables;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Block cache size of a case in bytes: `arc_max`.
pub const ARC_MAX: u64 = 8 << 20;

/// A pool to be damaged.
#[derive(Debug)]
pub struct Subject {
    name: String,
    devices: Vec<Arc<dyn BlockDevice>>,
    /// The device reads of an undamaged exercise.
    reads: Vec<Vec<Range<u64>>>,
    /// The blocks it reads.
    blocks: Arc<BlockList>,
    /// Their contents.
    contents: Arc<Contents>,
}

/// The kinds of damage.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DamageKind {
    /// Sectors and whole devices.
    Devices,
    /// Labels and uberblocks with right checksums.
    Labels,
    /// Any blocks, with right checksums.
    Blocks,
    /// Blocks of one structure, with right checksums: loops, sizes, counts, references.
    Structures,
    /// Stored bytes with right checksums: compressed blocks, gang headers, intent logs.
    Stored,
}

impl DamageKind {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Devices, Self::Labels, Self::Blocks, Self::Structures, Self::Stored];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Devices => "devices",
            Self::Labels => "labels",
            Self::Blocks => "blocks",
            Self::Structures => "structures",
            Self::Stored => "stored",
        }
    }
}

impl Subject {
    /// Opens the images of a pool.
    ///
    /// # Errors
    /// They cannot be unpacked or opened.
    pub fn open(pool: &ReferencePool) -> io::Result<Self> {
        Self::of_images(pool.name(), &pool.images()?)
    }

    /// Opens the images of a pool made elsewhere.
    ///
    /// # Errors
    /// They cannot be opened.
    pub fn of_images(name: &str, images: &[PathBuf]) -> io::Result<Self> {
        let options = OpenOptions::new();
        let mut devices: Vec<Arc<dyn BlockDevice>> = Vec::new();
        for image in images {
            let device = FileDevice::open(image, &options).map_err(io::Error::other)?;
            devices.push(Arc::new(device));
        }
        Ok(Self::new(name, devices))
    }

    /// A pool on these devices.
    #[must_use]
    pub fn new(name: &str, devices: Vec<Arc<dyn BlockDevice>>) -> Self {
        let overlays: Vec<_> =
            devices.iter().map(|device| OverlayDevice::new(Arc::clone(device))).collect();
        let sources = overlays.iter().map(|overlay| DeviceSource::Device(overlay.clone()));
        let recorder = Arc::new(BlockRecorder::default());
        let writer = Arc::new(ContentsRecorder::default());
        let both = Arc::new(Chained(recorder.clone(), writer.clone()));
        let options = options(Some(both), &mut Random::new(0));
        Exercise::run(&sources.collect::<Vec<_>>(), &options, BlockWalk::Everything);
        let reads = overlays.iter().map(|overlay| overlay.take_reads()).collect();
        let (blocks, contents) = (Arc::new(recorder.blocks()), Arc::new(writer.contents()));
        Self { name: name.to_owned(), devices, reads, blocks, contents }
    }

    pub(crate) fn devices(&self) -> &[Arc<dyn BlockDevice>] {
        &self.devices
    }

    /// The pool's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The kind of damage of this seed.
    #[must_use]
    pub fn kind(seed: u64) -> DamageKind {
        match Random::new(seed).below(10) {
            0 | 1 => DamageKind::Devices,
            2 | 3 => DamageKind::Labels,
            4 | 5 => DamageKind::Blocks,
            6..=8 => DamageKind::Structures,
            _ => DamageKind::Stored,
        }
    }

    /// Damages the pool according to the seed, and reads everything.
    #[must_use]
    pub fn exercise(&self, seed: u64) -> Tally {
        let kind = Self::kind(seed);
        let mut random = Random::new(seed);
        // The kind was drawn with the first number.
        random.draw();
        let overlays: Vec<_> =
            self.devices.iter().map(|device| OverlayDevice::new(Arc::clone(device))).collect();
        let mut injector: Option<Arc<dyn BlockInjector>> = None;
        let witness = Arc::new(Witness::new(Arc::clone(&self.contents)));
        match kind {
            DamageKind::Devices => {
                self.damage_devices(&overlays, &mut random);
                // Data that is readable in spite of such damage must be what was written.
                injector = Some(witness.clone());
            }
            DamageKind::Labels => damage_labels(&overlays, &mut random),
            DamageKind::Blocks | DamageKind::Structures | DamageKind::Stored => {
                let aim = match kind {
                    DamageKind::Structures if random.once_in(8) => Aim::Endless,
                    DamageKind::Structures => Aim::Structure,
                    DamageKind::Stored => Aim::Stored,
                    _ => Aim::Anything,
                };
                injector = Some(Arc::new(HostileInjector::new(aim, random.draw())));
            }
        }
        let sources = sources(&overlays, kind, &mut random);
        let walk = if random.once_in(4) { BlockWalk::Everything } else { BlockWalk::Metadata };
        let tally = Exercise::run(&sources, &options(injector, &mut random), walk);
        Tally { wrong: witness.wrong(), ..tally }
    }

    /// Reads everything of the undamaged pool, with an engine that has this fault.
    #[must_use]
    pub fn exercise_fault(&self, fault: Arc<dyn BlockInjector>) -> Tally {
        let witness = Arc::new(Witness::new(Arc::clone(&self.contents)));
        let both = Arc::new(Chained(fault, witness.clone()));
        let sources: Vec<_> =
            self.devices.iter().map(|device| DeviceSource::Device(device.clone())).collect();
        let options = options(Some(both), &mut Random::new(0));
        let tally = Exercise::run(&sources, &options, BlockWalk::Everything);
        Tally { wrong: witness.wrong(), ..tally }
    }

    /// Changes the pool according to a fuzzer's input, and reads everything: see [`Patch`].
    #[must_use]
    pub fn exercise_patched(&self, input: &[u8]) -> Tally {
        let patches = Patch::parse_all(input);
        let overlays: Vec<_> =
            self.devices.iter().map(|device| OverlayDevice::new(Arc::clone(device))).collect();
        for patch in &patches {
            patch.apply_to_devices(&overlays, &self.reads);
        }
        let injector = PatchInjector::new(Arc::clone(&self.blocks), &patches);
        let sources: Vec<_> =
            overlays.iter().map(|overlay| DeviceSource::Device(overlay.clone())).collect();
        let options = options(Some(Arc::new(injector)), &mut Random::new(0));
        Exercise::run(&sources, &options, BlockWalk::Metadata)
    }

    pub(crate) fn damage_devices(&self, overlays: &[Arc<OverlayDevice>], random: &mut Random) {
        for (overlay, reads) in overlays.iter().zip(&self.reads) {
            let most = random.pick(&[1, 4, 20, 100]).copied().unwrap_or(1);
            for _ in 0..=random.below(most) {
                damage_device(overlay, reads, random);
            }
        }
    }
}

pub(crate) fn damage_labels(overlays: &[Arc<OverlayDevice>], random: &mut Random) {
    // The same damage everywhere is consistent.
    let alike = random.once_in(2);
    let seed = random.draw();
    let config = !random.once_in(3);
    for overlay in overlays {
        let mut own = Random::new(if alike { seed } else { random.draw() });
        match config {
            true => damage_config(overlay, &mut own),
            false => damage_uberblock(overlay, &mut own),
        }
    }
}

/// The devices, sometimes incomplete, reordered, or with other lengths.
fn sources(
    overlays: &[Arc<OverlayDevice>],
    kind: DamageKind,
    random: &mut Random,
) -> Vec<DeviceSource> {
    let mut devices: Vec<Arc<dyn BlockDevice>> =
        overlays.iter().map(|overlay| overlay.clone() as Arc<dyn BlockDevice>).collect();
    if kind == DamageKind::Devices {
        let at = random.index(devices.len());
        let mut others = devices.iter().cycle().skip(at + 1);
        match (random.below(8), others.next().cloned()) {
            (0, _) => {
                devices.remove(at);
            }
            (1, Some(other)) => devices[at] = other,
            (2, Some(_)) => {
                let base = Arc::clone(&devices[at]);
                let size = random.below(base.geometry().size);
                devices[at] = Arc::new(Truncated { base, size });
            }
            _ => {}
        }
    }
    devices.into_iter().map(DeviceSource::Device).collect()
}

fn options(injector: Option<Arc<dyn BlockInjector>>, random: &mut Random) -> ImportOptions {
    let rewind = match random.below(8) {
        0 => RewindPolicy::Rewind,
        1 => RewindPolicy::Extreme,
        2 | 3 => RewindPolicy::Explain,
        _ => RewindPolicy::Never,
    };
    let tunables = Tunables {
        zfs_max_missing_tvds: random.index(2),
        zfs_arc_max: ARC_MAX,
        ..Tunables::default()
    };
    ImportOptions {
        rewind,
        host_check: HostCheck::Override,
        missing_logs: MissingLogs::Ignore,
        tunables,
        clock: Arc::new(NoTime::default()),
        injector,
        ..ImportOptions::default()
    }
}

/// A clock whose waits return at once, and are interrupted after a number of them.
#[derive(Default)]
struct NoTime {
    waits: AtomicU64,
}

/// Uberblocks can demand a watch of a day.
const PATIENCE: u64 = 60;

impl Clock for NoTime {
    fn sleep(&self, _: std::time::Duration) -> Wait {
        let waits = self.waits.fetch_add(1, Ordering::Relaxed);
        if waits < PATIENCE { Wait::Elapsed } else { Wait::Interrupted }
    }

    fn random(&self, _: u64) -> u64 {
        0
    }
}
