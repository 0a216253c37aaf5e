//! The simulated device: crashes, order, faults.

use proptest::prelude::*;
use rzfs_blockdev::simulated::{CompletionOrder, Fault, FaultKind, Loss, Moment};
use rzfs_blockdev::{
    BlockDevice, CompletionQueue, DeviceError, IoBuffer, IoOperation, IoRequest, SimulatedDevice,
    Simulation, read_exact_at,
};
use std::sync::Arc;

const EIO: i32 = 5;
const ENXIO: i32 = 6;
const SECTOR: usize = 512;
const SIZE: usize = 64 * SECTOR;

fn device(seed: u64) -> SimulatedDevice {
    Simulation::new(seed).device("simulated", vec![0; SIZE])
}

fn write_request(token: u64, sector: usize, sectors: usize, byte: u8) -> IoRequest {
    let bytes = vec![byte; sectors * SECTOR].into();
    IoRequest { token, offset: (sector * SECTOR) as u64, operation: IoOperation::Write(bytes) }
}

fn flush_request(token: u64) -> IoRequest {
    IoRequest { token, offset: 0, operation: IoOperation::Flush }
}

fn perform(device: &SimulatedDevice, request: IoRequest) -> Result<Option<IoBuffer>, DeviceError> {
    let completions = CompletionQueue::new();
    device.submit(vec![request], &completions);
    completions.wait().result
}

fn write(device: &SimulatedDevice, sector: usize, sectors: usize, byte: u8) {
    perform(device, write_request(0, sector, sectors, byte)).unwrap();
}

fn flush(device: &SimulatedDevice) {
    perform(device, flush_request(0)).unwrap();
}

/// The first byte of a sector.
fn at(image: &[u8], sector: usize) -> u8 {
    image[sector * SECTOR]
}

/// The present moment as the device's history knows it.
fn end(device: &SimulatedDevice) -> Moment {
    device.history().moments().last().copied().unwrap_or(Moment(0))
}

#[test]
fn a_crash_loses_only_what_was_not_flushed() {
    let device = device(1);
    write(&device, 0, 2, 0xaa);
    flush(&device);
    write(&device, 1, 2, 0xbb);
    let history = device.history();
    assert_eq!(history.loose_writes(end(&device)), 1);
    let lost = history.crash_image(end(&device), &Loss::Everything);
    assert_eq!([at(&lost, 0), at(&lost, 1), at(&lost, 2)], [0xaa, 0xaa, 0]);
    let kept = history.crash_image(end(&device), &Loss::Nothing);
    assert_eq!([at(&kept, 0), at(&kept, 1), at(&kept, 2)], [0xaa, 0xbb, 0xbb]);
    assert_eq!(kept, device.content());
}

#[test]
fn a_flush_in_the_same_batch_makes_nothing_durable() {
    let device = device(2);
    let completions = CompletionQueue::new();
    device.submit(vec![write_request(0, 0, 1, 1), flush_request(1)], &completions);
    assert_eq!(device.history().loose_writes(end(&device)), 1);
    flush(&device);
    assert_eq!(device.history().loose_writes(end(&device)), 0);
}

#[test]
fn a_write_that_is_not_answered_is_not_made_durable() {
    let device = device(3);
    device.set_order(CompletionOrder::Held);
    let completions = CompletionQueue::new();
    device.submit(vec![write_request(0, 0, 1, 1)], &completions);
    device.set_order(CompletionOrder::Submitted);
    flush(&device);
    assert_eq!(device.history().loose_writes(end(&device)), 1);
    assert_eq!(device.release(10), 1);
    flush(&device);
    assert_eq!(device.history().loose_writes(end(&device)), 0);
}

#[test]
fn loose_writes_can_be_lost_one_by_one() {
    let device = device(4);
    for sector in 0..3 {
        write(&device, sector, 1, sector as u8 + 1);
    }
    for choice in 0..8_u8 {
        let keep = (0..3).map(|bit| choice >> bit & 1 == 1).collect();
        let image = device.history().crash_image(end(&device), &Loss::AllBut(keep));
        for sector in 0..3 {
            let expected = if choice >> sector & 1 == 1 { sector as u8 + 1 } else { 0 };
            assert_eq!(at(&image, sector), expected);
        }
    }
}

#[test]
fn random_losses_tear_between_sectors_and_repeat() {
    let device = device(5);
    write(&device, 0, 64, 0xcc);
    let (mut lost, mut kept, mut torn) = (0, 0, 0);
    for seed in 0..60 {
        let loss = Loss::Random { seed };
        let image = device.history().crash_image(end(&device), &loss);
        assert_eq!(image, device.history().crash_image(end(&device), &loss));
        let sectors: Vec<&[u8]> = image.chunks(SECTOR).collect();
        assert!(sectors.iter().all(|sector| sector.iter().all(|byte| *byte == sector[0])));
        match sectors.iter().filter(|sector| sector[0] == 0xcc).count() {
            0 => lost += 1,
            64 => kept += 1,
            _ => torn += 1,
        }
    }
    assert!(lost > 5 && kept > 5 && torn > 5, "{lost} {kept} {torn}");
}

#[test]
fn devices_of_a_simulation_crash_at_the_same_moment() {
    let simulation = Simulation::new(6);
    let [first, second] = ["a", "b"].map(|name| simulation.device(name, vec![0; SIZE]));
    write(&first, 0, 1, 1);
    let between = simulation.now();
    write(&second, 0, 1, 2);
    assert_eq!(at(&first.history().crash_image(between, &Loss::Nothing), 0), 1);
    assert_eq!(at(&second.history().crash_image(between, &Loss::Nothing), 0), 0);
    assert_eq!(at(&second.history().crash_image(simulation.now(), &Loss::Nothing), 0), 2);
}

#[test]
fn cutting_the_power_answers_what_is_held_and_starts_anew() {
    let device = device(7);
    write(&device, 0, 1, 1);
    flush(&device);
    write(&device, 1, 1, 2);
    device.set_order(CompletionOrder::Held);
    let completions = CompletionQueue::new();
    device.submit(vec![write_request(9, 2, 1, 3)], &completions);
    device.cut_power(&Loss::Everything);
    assert_eq!(completions.wait().result.unwrap_err().errno(), ENXIO);
    assert_eq!([at(&device.content(), 0), at(&device.content(), 1)], [1, 0]);
    assert!(device.history().events().is_empty());
}

#[test]
fn shuffled_batches_are_answered_in_an_order_that_follows_the_seed() {
    let order = |seed| {
        let device = device(seed);
        device.set_order(CompletionOrder::Shuffled);
        let completions = CompletionQueue::new();
        device.submit((0..32).map(|token| write_request(token, 0, 1, 0)).collect(), &completions);
        (0..32).map(|_| completions.wait().token).collect::<Vec<_>>()
    };
    assert_eq!(order(1), order(1));
    assert_ne!(order(1), order(2));
    let mut sorted = order(1);
    assert_ne!(sorted, (0..32).collect::<Vec<_>>());
    sorted.sort_unstable();
    assert_eq!(sorted, (0..32).collect::<Vec<_>>());
}

#[test]
fn reads_fail_where_and_as_often_as_told() {
    let device = device(8);
    let fault = Fault::new(FaultKind::FailRead(EIO)).within(1024..2048).after(1).times(2);
    device.inject(fault);
    assert!(read_exact_at(&device, 0, 1024).is_ok());
    assert!(read_exact_at(&device, 2048, 1024).is_ok());
    let results: Vec<_> = (0..5).map(|_| read_exact_at(&device, 512, 1024).is_ok()).collect();
    assert_eq!(results, [true, false, false, true, true]);
    assert_eq!(device.counts().faults, 2);
    assert_eq!(device.counts().reads, 7);
}

#[test]
fn corruption_is_confined_and_stays_the_same() {
    let device = device(9);
    let fault = device.inject(Fault::new(FaultKind::CorruptRead).within(1024..3072));
    let read = read_exact_at(&device, 0, SIZE).unwrap();
    let changed: Vec<usize> = read
        .iter()
        .enumerate()
        .filter(|(_, byte)| **byte != 0)
        .map(|(at, _)| at / SECTOR)
        .collect();
    assert_eq!(changed, [2, 3, 4, 5]);
    assert_eq!(*read_exact_at(&device, 0, SIZE).unwrap(), *read);
    assert_eq!(*read_exact_at(&device, 700, 2000).unwrap(), read[700..2700]);
    device.heal(fault);
    assert_eq!(*read_exact_at(&device, 0, SIZE).unwrap(), *vec![0; SIZE]);
}

#[test]
fn writes_can_be_lost_torn_and_misdirected() {
    let device = device(10);
    device.inject(Fault::new(FaultKind::LoseWrite).times(1));
    write(&device, 0, 1, 1);
    assert_eq!(device.content(), vec![0; SIZE]);

    device.inject(Fault::new(FaultKind::MisdirectWrite(SECTOR as i64)).times(1));
    write(&device, 0, 1, 2);
    assert_eq!([at(&device.content(), 0), at(&device.content(), 1)], [0, 2]);

    device.inject(Fault::new(FaultKind::TearWrite(EIO)).times(1));
    let result = perform(&device, write_request(0, 8, 32, 3));
    assert_eq!(result.unwrap_err().errno(), EIO);
    let written = (8..40).filter(|&sector| at(&device.content(), sector) == 3).count();
    assert!(0 < written && written < 32);

    device.inject(Fault::new(FaultKind::FailWrite(EIO)));
    assert!(perform(&device, write_request(0, 60, 1, 4)).is_err());
    assert_eq!(at(&device.content(), 60), 0);
    device.heal_all();
    write(&device, 60, 1, 4);
    assert_eq!(at(&device.content(), 60), 4);
}

#[test]
fn flushes_can_fail_and_lie() {
    let device = device(11);
    write(&device, 0, 1, 1);
    device.inject(Fault::new(FaultKind::FailFlush(EIO)).times(1));
    assert_eq!(perform(&device, flush_request(0)).unwrap_err().errno(), EIO);
    device.inject(Fault::new(FaultKind::LoseFlush).times(1));
    flush(&device);
    assert_eq!(device.history().loose_writes(end(&device)), 1);
    flush(&device);
    assert_eq!(device.history().loose_writes(end(&device)), 0);
}

#[test]
fn flushes_can_take_what_was_written_with_them() {
    let device = device(14);
    write(&device, 0, 1, 1);
    flush(&device);
    write(&device, 0, 1, 2);
    write(&device, 1, 1, 3);
    device.inject(Fault::new(FaultKind::DropOnFlush(EIO)).times(1));
    assert_eq!(perform(&device, flush_request(0)).unwrap_err().errno(), EIO);
    assert_eq!([at(&device.content(), 0), at(&device.content(), 1)], [1, 0]);
    flush(&device);
    let image = device.history().crash_image(end(&device), &Loss::Nothing);
    assert_eq!([at(&image, 0), at(&image, 1)], [1, 0], "nothing brings it back");
    write(&device, 1, 1, 4);
    flush(&device);
    let image = device.history().crash_image(end(&device), &Loss::Everything);
    assert_eq!([at(&image, 0), at(&image, 1)], [1, 4]);
}

#[test]
fn a_detached_device_is_gone_until_it_returns() {
    let device = device(12);
    write(&device, 0, 1, 1);
    device.detach();
    assert_eq!(read_exact_at(&device, 0, 512).unwrap_err().errno(), ENXIO);
    assert_eq!(perform(&device, flush_request(0)).unwrap_err().errno(), ENXIO);
    device.attach();
    assert_eq!(read_exact_at(&device, 0, 1).unwrap()[0], 1);
}

#[test]
fn that_a_reconnected_device_was_away_is_told_once() {
    let device = device(12);
    write(&device, 0, 1, 1);
    for is_seen in [false, true] {
        device.detach();
        if is_seen {
            assert_eq!(perform(&device, flush_request(0)).unwrap_err().errno(), ENXIO);
        }
        device.reconnect();
        let first = read_exact_at(&device, 0, 1);
        assert_eq!(first.map_err(|error| error.errno()).err(), (!is_seen).then_some(ENXIO));
        assert_eq!(read_exact_at(&device, 0, 1).unwrap()[0], 1);
    }
}

#[test]
fn damage_is_durable_and_seen() {
    let device = device(13);
    device.damage(100, vec![7; 3]);
    assert_eq!(*read_exact_at(&device, 99, 5).unwrap(), [0, 7, 7, 7, 0]);
    assert_eq!(device.history().crash_image(end(&device), &Loss::Everything)[100], 7);
}

/// A step of a random workload: a batch of writes (sector, sectors, byte), or a flush.
#[derive(Clone, Debug)]
enum Work {
    Write(Vec<(usize, usize, u8)>),
    Flush,
}

fn work() -> impl Strategy<Value = Work> {
    prop_oneof![
        3 => prop::collection::vec((0..60_usize, 1..4_usize, 1..=255_u8), 1..5)
            .prop_map(Work::Write),
        1 => Just(Work::Flush),
    ]
}

fn run(device: &SimulatedDevice, completions: &Arc<CompletionQueue>, work: &Work) {
    let requests: Vec<_> = match work {
        Work::Flush => vec![flush_request(0)],
        Work::Write(writes) => writes
            .iter()
            .map(|&(sector, sectors, byte)| write_request(0, sector, sectors, byte))
            .collect(),
    };
    let count = requests.len();
    device.submit(requests, completions);
    for _ in 0..count {
        completions.wait().result.unwrap();
    }
}

proptest! {
    /// After any crash each sector holds what it held at the last flush or something written to
    /// it since: never anything else.
    #[test]
    fn every_sector_of_a_crash_image_has_a_reason(
        works in prop::collection::vec(work(), 0..12),
        seed in any::<u64>(),
        shuffled in any::<bool>(),
    ) {
        let device = device(seed);
        if shuffled {
            device.set_order(CompletionOrder::Shuffled);
        }
        let completions = CompletionQueue::new();
        let mut allowed: Vec<Vec<u8>> = vec![vec![0]; 64];
        for work in &works {
            run(&device, &completions, work);
            match work {
                Work::Write(writes) => {
                    for &(sector, sectors, byte) in writes {
                        for allowed in &mut allowed[sector..sector + sectors] {
                            allowed.push(byte);
                        }
                    }
                }
                Work::Flush => {
                    let content = device.content();
                    for (sector, allowed) in allowed.iter_mut().enumerate() {
                        *allowed = vec![at(&content, sector)];
                    }
                }
            }
            let now = end(&device);
            for loss in [Loss::Nothing, Loss::Everything, Loss::Random { seed }] {
                let image = device.history().crash_image(now, &loss);
                for (sector, allowed) in allowed.iter().enumerate() {
                    prop_assert!(allowed.contains(&at(&image, sector)));
                }
            }
            prop_assert_eq!(
                device.history().crash_image(now, &Loss::Nothing), device.content()
            );
        }
    }
}
