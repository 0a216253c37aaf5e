//! Trimming and initializing free space while a pool is in use.

use crate::{block, find, make, put};
use rzfs_clock::{Clock, Passing};
use rzfs_dsl::live::{SweepOrder, SystemEnvironment};
use rzfs_dsl::pool::{LeafSweep, SweepKind, SweepState};
use rzfs_format::{Guid, ObjectId};
use rzfs_proof::{ImagePool, Session};
use rzfs_testkit::SetWhenDropped;
use rzfs_vdev::Vdev;
use rzfs_zpl::live::{LiveFileSystem, NewKind};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const RECORD: u64 = 128 << 10;
const START: SweepOrder = SweepOrder::Start { rate: None };

fn leaves(session: &Session) -> Vec<Guid> {
    session.pool.vdevs().leaves().map(Vdev::guid).collect()
}

fn sweeps(session: &Session, kind: SweepKind) -> Vec<LeafSweep> {
    let all = session.pool.view().unwrap().sweeps().unwrap();
    all.into_iter().filter(|sweep| sweep.kind == kind).collect()
}

/// Waits until all sweeps of a kind are `expected`.
fn await_sweeps(session: &Session, kind: SweepKind, expected: impl Fn(&LeafSweep) -> bool) {
    let start = Instant::now();
    while !sweeps(session, kind).iter().all(&expected) {
        assert!(start.elapsed() < Duration::from_secs(300), "{:?}", sweeps(session, kind));
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn is_complete(sweep: &LeafSweep) -> bool {
    sweep.record.state == SweepState::Complete
}

/// Bytes used by the images on the host.
fn held(world: &ImagePool) -> u64 {
    let images = std::fs::read_dir(world.directory()).unwrap();
    images.map(|image| image.unwrap().metadata().unwrap().blocks() * 512).sum()
}

/// A simple random number generator.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Overwrites blocks of a file in random order; returns their final contents.
fn churn(fs: &LiveFileSystem, file: ObjectId, seed: u64, rounds: u64) -> Vec<u64> {
    let mut numbers = Numbers(seed);
    let mut held = vec![0; 48];
    for round in 1..=rounds {
        for _ in 0..12 {
            let at = numbers.below(held.len() as u64);
            let number = seed * 1000 + round;
            put(fs, file, at * RECORD, &block(number));
            held[usize::try_from(at).unwrap()] = number;
        }
        // Freed space must be reusable to be swept.
        fs.sync().unwrap();
    }
    held
}

#[test]
fn writers_lose_nothing_while_free_space_is_swept() {
    for shape in ["A", "mirror A B", "raidz1 A B C", "draid1:2d:5c:1s A B C D E"] {
        let world = ImagePool::new(shape);
        let session = world.create();
        let (fs, pool) = (&session.fs, &session.pool);
        let files: Vec<ObjectId> = (0..2)
            .map(|number| make(fs, fs.root(), &format!("file-{number}"), NewKind::Regular))
            .collect();
        let is_over = AtomicBool::new(false);
        let mut rounds = 0;
        let held = std::thread::scope(|scope| {
            let writers: Vec<_> = files
                .iter()
                .zip(1..)
                .map(|(file, seed)| scope.spawn(move || churn(fs, *file, seed, 12)))
                .collect();
            let sweeper = scope.spawn(|| {
                let mut rounds = 0;
                let leaves = leaves(&session);
                while !is_over.load(Ordering::Acquire) {
                    for kind in SweepKind::ALL {
                        assert!(pool.sweep(kind, &leaves, START).unwrap().is_empty(), "{shape}");
                    }
                    for kind in SweepKind::ALL {
                        await_sweeps(&session, kind, is_complete);
                    }
                    let forgotten =
                        pool.sweep(SweepKind::Initialize, &leaves, SweepOrder::Forget).unwrap();
                    assert!(forgotten.is_empty());
                    rounds += 1;
                }
                rounds
            });
            let end = SetWhenDropped(&is_over);
            let held: Vec<_> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
            drop(end);
            rounds = sweeper.join().unwrap();
            held
        });
        assert!(rounds > 0);
        session.export();
        world.judge();
        let fs = world.read();
        for (number, held) in held.iter().enumerate() {
            let file = find(&fs, fs.root(), &format!("file-{number}")).unwrap();
            for (at, number) in held.iter().enumerate().filter(|(_, number)| **number != 0) {
                let mut bytes = vec![0; 128 << 10];
                fs.read(file, at as u64 * RECORD, &mut bytes).unwrap();
                assert!(bytes == block(*number), "{shape}: block {at}");
            }
        }
    }
}

#[test]
fn a_sweep_goes_on_after_a_crash_where_it_was() {
    for kind in SweepKind::ALL {
        let world = ImagePool::new("mirror A B");
        let session = world.create();
        let slow = SweepOrder::Start { rate: Some(16 << 20) };
        let leaves = leaves(&session);
        assert!(session.pool.sweep(kind, &leaves, slow).unwrap().is_empty());
        let start = Instant::now();
        let before = loop {
            session.pool.sync().unwrap();
            let now = sweeps(&session, kind);
            if now.iter().all(|sweep| sweep.record.offset > 16 << 20) {
                break now;
            }
            assert!(start.elapsed() < Duration::from_secs(120), "{now:?}");
            std::thread::sleep(Duration::from_millis(10));
        };
        session.abandon();
        world.judge();
        // The rate is still limited, but nothing waits for it.
        let (clock, _) = Clock::simulated(Passing::WhenIdle);
        let session = world.open_in(SystemEnvironment::default().with_clock(clock));
        for (old, new) in before.iter().zip(sweeps(&session, kind)) {
            assert!(new.record.offset >= old.record.offset, "{old:?} {new:?}");
            assert_eq!(new.record.rate, if kind == SweepKind::Trim { 16 << 20 } else { 0 });
        }
        await_sweeps(&session, kind, is_complete);
        let done = sweeps(&session, kind);
        assert!(done.iter().all(|sweep| sweep.done <= sweep.total && sweep.total > 32 << 20));
        if kind == SweepKind::Trim {
            assert!(held(&world) < 16 << 20, "{}", held(&world));
        } else {
            assert!(held(&world) > 160 << 20, "{}", held(&world));
        }
        session.export();
        world.judge();
    }
}
