//! Pools with damaged blocks. What OpenZFS's zdb prints for copies of the pool with the same damage
//! is in `damaged/WHAT.txt`.

use rzfs_blockdev::{FileDevice, OpenOptions};
use rzfs_dsl::Pool;
use rzfs_dsl::import::{DeviceSource, Discovery, HostCheck, ImportOptions, LoadVerification};
use rzfs_testkit::{Damage, OverlayDevice, ReferencePool};
use rzfs_zdb::Verdict;
use rzfs_zdb::calendar::Calendar;
use std::ffi::OsString;
use std::sync::Arc;

/// The offset on a device of address 0.
const START: u64 = 4 << 20;

/// The size in bytes of every metadata block of the pool g01.
const METADATA: u64 = 0x1000;

/// A golden pool whose devices can be damaged.
struct Damaged {
    name: String,
    devices: Vec<Arc<OverlayDevice>>,
}

impl Damaged {
    fn golden(name: &str) -> Option<Self> {
        let pool = ReferencePool::golden(name)?;
        let open = |image: &_| FileDevice::open(image, &OpenOptions::new()).unwrap();
        let images = pool.images().unwrap();
        let devices =
            images.iter().map(|image| OverlayDevice::new(Arc::new(open(image)))).collect();
        Some(Self { name: pool.pool_name().to_owned(), devices })
    }

    /// Overwrites bytes at an address on a device.
    fn damage(&self, device: usize, offset: u64, len: u64) {
        let start = START + offset;
        self.devices[device].damage(start..start + len, Damage::Garbage { seed: offset });
    }

    /// The pool, unless the damage prevents it from being opened.
    fn import(&self) -> Option<Pool> {
        let devices = self.devices.iter().cloned();
        let sources: Vec<_> = devices.map(|device| DeviceSource::Device(device)).collect();
        let found = Discovery::search(&sources, &OpenOptions::new());
        let options_of_import = ImportOptions {
            host_check: HostCheck::Override,
            verification: LoadVerification::None,
            ..ImportOptions::default()
        };
        Pool::import(found.pools().first()?, &options_of_import).ok()
    }

    /// The output of zdb with these options before the pool's name.
    fn zdb(&self, options: &[&str]) -> (Verdict, String) {
        self.zdb_on(&self.import().unwrap(), options)
    }

    fn zdb_on(&self, pool: &Pool, options: &[&str]) -> (Verdict, String) {
        let words = options.iter().copied().chain([&*self.name]).map(OsString::from);
        let (arguments, calendar) = (rzfs_zdb::parse(words).unwrap(), Calendar::utc());
        let (mut out, mut notes) = (Vec::new(), std::io::sink());
        let verdict =
            rzfs_zdb::report_on(pool, &arguments, calendar, &mut out, &mut notes).unwrap();
        (verdict, String::from_utf8_lossy(&out).into_owned())
    }
}

/// Damages blocks of g01 and compares the report with that of OpenZFS.
fn agrees(blocks: &[(u64, u64)], expected: &str) {
    let Some(pool) = Damaged::golden("g01-default") else { return };
    for (offset, len) in blocks {
        pool.damage(0, *offset, *len);
    }
    let (verdict, report) = pool.zdb(&["-bcc"]);
    assert_eq!(report, expected);
    assert_eq!(verdict.exit_status(), 3);
}

#[test]
fn damaged_data_are_named_and_counted() {
    agrees(&[(0x17_c000, 0x2_0000), (0x19_e000, 0x1000)], include_str!("damaged/data.txt"));
}

#[test]
fn what_a_damaged_indirect_block_leads_to_is_leaked() {
    let copies = [(0x17_1000, METADATA), (0x10c_9000, METADATA)];
    agrees(&copies, include_str!("damaged/indirect.txt"));
}

#[test]
fn damaged_dnodes_are_reported_once() {
    let copies = [(0x1f_7000, METADATA), (0x110_3000, METADATA)];
    agrees(&copies, include_str!("damaged/dnodes.txt"));
}

#[test]
fn a_damaged_objset_does_not_stop_the_walk() {
    let copies = [(0x1f_e000, METADATA), (0x110_a000, METADATA)];
    agrees(&copies, include_str!("damaged/objset.txt"));
}

#[test]
fn one_good_copy_is_enough() {
    let Some(pool) = Damaged::golden("g01-default") else { return };
    pool.damage(0, 0x17_1000, METADATA);
    let (verdict, report) = pool.zdb(&["-bcc"]);
    assert_eq!(verdict, Verdict::Clean, "{report}");
    assert!(report.contains("No leaks"));
}

#[test]
fn blocks_that_nobody_verifies_are_missed_only_by_the_walk() {
    let Some(pool) = Damaged::golden("g01-default") else { return };
    pool.damage(0, 0x17_c000, 0x2_0000);
    assert_eq!(pool.zdb(&["-bc"]).0, Verdict::Clean, "data are not verified");
    pool.damage(0, 0x17_1000, METADATA);
    pool.damage(0, 0x10c_9000, METADATA);
    let (verdict, report) = pool.zdb(&["-b"]);
    assert_eq!(verdict, Verdict::Unreadable);
    assert!(report.contains("Got error 52 reading <133, 13, 1, 0>  -- skipping"), "{report}");
    assert!(report.contains("leaked space: vdev 0, offset 0x169000, size 32768"), "{report}");
}

#[test]
fn redundancy_makes_up_for_what_one_device_lost() {
    let Some(pool) = Damaged::golden("g05-raidz1") else { return };
    pool.damage(1, 0, 80 << 20);
    let (verdict, report) = pool.zdb(&["-bcc"]);
    assert_eq!(verdict, Verdict::Clean, "{report}");
    pool.damage(2, 1 << 20, 4 << 20);
    let (verdict, report) = pool.zdb(&["-bcc"]);
    assert_eq!(verdict, Verdict::Unreadable, "{report}");
    assert!(report.contains("\n\t   52  "), "{report}");
}

/// OpenZFS's zdb aborts here.
#[test]
fn damaged_dnodes_hide_no_other_dataset() {
    let Some(pool) = Damaged::golden("g01-default") else { return };
    let (_, whole) = pool.zdb(&["-dddd"]);
    pool.damage(0, 0x1f_7000, METADATA);
    pool.damage(0, 0x110_3000, METADATA);
    let (verdict, damaged) = pool.zdb(&["-dddd"]);
    assert_eq!(verdict, Verdict::Damaged);
    let differing: Vec<&str> = whole
        .split("\nDataset ")
        .zip(damaged.split("\nDataset "))
        .filter(|(whole, damaged)| whole != damaged)
        .map(|(_, damaged)| damaged.split(' ').next().unwrap())
        .collect();
    assert_eq!(differing, ["g01/xdir@s1", "g01/xdir"], "the two share these dnodes");
}

#[test]
fn listings_survive_any_damage() {
    let mut listed = 0;
    for round in 0..24_u64 {
        for name in ["g15-removed", "g21-v28", "g22-v8"] {
            let Some(pool) = Damaged::golden(name) else { return };
            let mut random = round;
            for _ in 0..4 + round * 4 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(round | 1);
                pool.damage(pool.devices.len() - 1, (random >> 40) % 0x1000 * 512, 512);
            }
            let Some(opened) = pool.import() else { continue };
            let (_, report) = pool.zdb_on(&opened, &["-dddddd"]);
            assert!(report.contains("Dataset mos [META]"), "{name}, {round}: {report}");
            listed += 1;
        }
    }
    assert!(listed > 20, "only {listed} pools could be opened");
}
