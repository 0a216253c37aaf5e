use super::quiesced::Work;
use super::transaction::DEAD_BLOCK;
use super::*;
use rzfs_clock::Passing;
use std::sync::atomic::AtomicBool;

const LONG: Duration = Duration::from_secs(3600);
/// Only a hang takes this long.
const LONGEST: Duration = Duration::from_secs(60);

fn engine(max: u64) -> Arc<TxgEngine> {
    let limits = DirtyLimits { max, ..DirtyLimits::of_memory(1 << 30) };
    let timeout = LONG;
    let options = TxgOptions { limits, timeout, max_frees: 10, history: 10 };
    TxgEngine::new(Txg(7), options, Clock::system())
}

#[test]
fn a_group_frees_no_more_than_its_share() {
    let engine = engine(1 << 20);
    let tx = engine.begin_freeing(&[], Patience::Wait).unwrap();
    assert!(tx.claim_frees(7) && !tx.claim_frees(4) && tx.claim_frees(3) && tx.claim_frees(0));
    assert_eq!(engine.room_for_frees(), (Txg(8), 0));
    drop(tx);
    let quiesced = engine.quiesce().unwrap();
    assert_eq!(engine.room_for_frees(), (Txg(9), 10));
    let tx = engine.begin_freeing(&[], Patience::Wait).unwrap();
    assert!(tx.claim_frees(11), "what cannot be divided");
    assert!(!tx.claim_frees(1));
    drop(tx);
    quiesced.committed();
    assert_eq!(engine.dirty_total(), 11 * DEAD_BLOCK);
}

#[test]
fn removals_wait_while_all_that_may_be_dirty_is() {
    let engine = engine(1000);
    let tx = engine.begin(&[]).unwrap();
    engine.add_dirty(tx.txg(), 1500);
    drop(tx);
    std::thread::scope(|scope| {
        let remover = scope.spawn(|| engine.begin_freeing(&[], Patience::Wait).unwrap().txg());
        assert_eq!(engine.wait_for_work(LONG), Work::Sync);
        let quiesced = engine.quiesce().unwrap();
        assert!(!remover.is_finished());
        quiesced.committed();
        assert_eq!(remover.join().unwrap(), Txg(9));
    });
}

#[test]
fn a_group_quiesces_when_its_transactions_have_left() {
    let engine = engine(1 << 20);
    let first = engine.begin(&[]).unwrap();
    assert_eq!(first.txg(), Txg(8));
    let left = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let syncing = scope.spawn(|| {
            let quiesced = engine.quiesce().unwrap();
            assert!(left.load(Ordering::SeqCst), "quiesced with a transaction inside");
            quiesced
        });
        while engine.open_txg() == Txg(8) {
            std::thread::yield_now();
        }
        assert_eq!(engine.begin(&[]).unwrap().txg(), Txg(9));
        left.store(true, Ordering::SeqCst);
        drop(first);
        let quiesced = syncing.join().unwrap();
        assert_eq!(quiesced.txg(), Txg(8));
        assert_eq!(engine.synced_txg(), Txg(7));
        quiesced.committed();
        assert_eq!(engine.synced_txg(), Txg(8));
    });
}

#[test]
fn writers_wait_when_too_much_is_dirty() {
    let engine = engine(1000);
    let tx = engine.begin(&[]).unwrap();
    engine.add_dirty(tx.txg(), 1500);
    drop(tx);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| engine.begin(&[]).unwrap().txg());
        assert_eq!(engine.wait_for_work(LONG), Work::Sync, "dirty data asks for a sync");
        let quiesced = engine.quiesce().unwrap();
        assert_eq!(quiesced.txg(), Txg(8));
        assert!(!writer.is_finished());
        quiesced.committed();
        assert_eq!(writer.join().unwrap(), Txg(9));
    });
    assert_eq!(engine.dirty_total(), 0);
}

#[test]
fn transactions_are_counted() {
    let engine = engine(10_000);
    let tx = engine.begin(&[]).unwrap();
    assert!(tx.claim_frees(7) && !tx.claim_frees(7));
    engine.add_dirty(tx.txg(), 5000);
    drop(engine.begin(&[]).unwrap());
    engine.count_over_quota();
    engine.suspend(SuspendedPolicy::Wait);
    engine.add_dirty(tx.txg(), 5000);
    assert!(engine.begin_with(&[], Patience::Leave).is_err());
    engine.fail();
    assert!(engine.begin(&[]).is_err());
    let stats = engine.stats();
    assert_eq!((stats.dmu_tx_assigned, stats.dmu_tx_dirty_delay), (2, 1));
    assert_eq!((stats.dmu_tx_dirty_throttle, stats.dmu_tx_dirty_over_max), (1, 0));
    assert_eq!((stats.dmu_tx_dirty_frees_delay, stats.dmu_tx_quota), (1, 1));
    assert_eq!((stats.dmu_tx_suspended, stats.dmu_tx_error), (1, 1));
}

#[test]
fn waiters_get_their_group() {
    let engine = engine(1 << 20);
    let txg = engine.begin(&[]).unwrap().txg();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| engine.wait_synced(txg));
        assert_eq!(engine.wait_for_work(LONG), Work::Sync);
        engine.quiesce().unwrap().committed();
        assert_eq!(waiter.join().unwrap(), Ok(()));
    });
    assert_eq!(engine.wait_for_work(Duration::ZERO), Work::Nothing);
    engine.finish();
    assert_eq!(engine.wait_for_work(LONG), Work::Finished);
    assert_eq!(engine.begin(&[]).unwrap_err(), Stopped.into());
}

#[test]
fn waiters_are_told_when_nothing_is_synced_any_more() {
    let engine = engine(1000);
    let tx = engine.begin(&[]).unwrap();
    engine.add_dirty(tx.txg(), 1500);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| engine.wait_synced(tx.txg()));
        let writer = scope.spawn(|| engine.begin(&[]).map(|tx| tx.txg()));
        engine.fail();
        assert_eq!(waiter.join().unwrap(), Err(Stopped));
        assert_eq!(writer.join().unwrap(), Err(Stopped.into()));
    });
}

#[test]
fn whoever_waits_for_a_group_after_the_last_one_is_told() {
    let engine = engine(1000);
    let tx = engine.begin(&[]).unwrap();
    engine.finish();
    assert_eq!(engine.wait_for_work(LONG), Work::Finished);
    let (told, answer) = std::sync::mpsc::channel();
    let (txg, waiting) = (tx.txg(), Arc::clone(&engine));
    std::thread::spawn(move || told.send(waiting.wait_synced(txg)));
    assert_eq!(answer.recv_timeout(LONGEST), Ok(Err(Stopped)));
}

#[test]
fn nobody_waits_for_ever_while_a_pool_is_suspended() {
    let engine = engine(1 << 20);
    let txg = engine.begin(&[]).unwrap().txg();
    engine.suspend(SuspendedPolicy::Refuse);
    assert_eq!(engine.begin(&[]).map(drop), Err(Stopped.into()));
    assert_eq!(engine.begin_freeing(&[], Patience::Wait).map(drop), Err(Stopped.into()));
    assert_eq!(engine.begin_with(&[], Patience::Leave).map(drop), Err(Stopped.into()));
    assert_eq!(engine.wait_synced(txg), Err(Stopped));
    assert!(!engine.is_waiting_allowed());
    engine.wait_while_suspended();
    engine.suspend(SuspendedPolicy::Wait);
    assert!(engine.is_waiting_allowed());
    assert_eq!(engine.wait_synced_unless_suspended(txg), Err(Stopped));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| engine.begin(&[]).map(|tx| tx.txg()));
        let waiter = scope.spawn(|| engine.wait_synced(txg));
        assert!(engine.is_suspended() && !writer.is_finished() && !waiter.is_finished());
        engine.resume();
        assert_eq!(writer.join().unwrap(), Ok(txg));
        engine.quiesce().unwrap().committed();
        assert_eq!(waiter.join().unwrap(), Ok(()));
    });
    engine.suspend(SuspendedPolicy::Wait);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| engine.begin(&[]).map(drop));
        let waiter = scope.spawn(|| engine.wait_while_suspended());
        engine.fail();
        assert_eq!(writer.join().unwrap(), Err(Stopped.into()));
        waiter.join().unwrap();
    });
}

#[test]
fn whoever_holds_locks_goes_on_in_memory_while_a_pool_is_suspended_and_leaves_when_it_is_full() {
    let engine = engine(1000);
    let txg = engine.open_txg();
    engine.suspend(SuspendedPolicy::Wait);
    let begin = || engine.begin_with(&[], Patience::Leave).map(|tx| tx.txg());
    let remove = || engine.begin_freeing(&[], Patience::Leave).map(|tx| tx.txg());
    engine.add_dirty(txg, 1200);
    assert_eq!((begin(), remove()), (Ok(txg), Ok(txg)));
    assert_eq!(engine.wait_synced_with(txg, Patience::Leave), Err(BeginError::Suspended));
    engine.add_dirty(txg, 100);
    let refused = Err(BeginError::Suspended);
    assert_eq!((begin(), remove()), (refused, refused));
    engine.resume();
    engine.quiesce().unwrap().committed();
    assert_eq!((begin(), remove()), (Ok(txg.next()), Ok(txg.next())));
}

#[test]
fn whoever_holds_locks_and_waits_for_room_leaves_when_the_pool_is_suspended() {
    let engine = engine(1000);
    engine.add_dirty(engine.open_txg(), 1500);
    std::thread::scope(|scope| {
        let begin = || engine.begin_with(&[], Patience::Leave).map(drop);
        let writer = scope.spawn(begin);
        engine.suspend(SuspendedPolicy::Wait);
        assert_eq!(writer.join().unwrap(), Err(BeginError::Suspended));
    });
}

#[test]
fn a_group_is_synced_when_it_is_old_enough() {
    let (clock, time) = Clock::simulated(Passing::ByHand);
    let (limits, timeout) = (DirtyLimits::of_memory(1 << 30), Duration::from_secs(5));
    let options = TxgOptions { limits, timeout, max_frees: 10, history: 10 };
    let engine = TxgEngine::new(Txg(7), options, clock);
    time.advance(Duration::from_secs(4));
    assert_eq!(engine.wait_for_work(Duration::ZERO), Work::Nothing);
    time.advance(Duration::from_secs(1));
    assert_eq!(engine.wait_for_work(Duration::ZERO), Work::Sync);
    engine.quiesce().unwrap().committed();
    assert_eq!(engine.wait_for_work(Duration::ZERO), Work::Nothing, "the next one is new");
}

#[test]
fn writers_are_delayed_one_after_the_other() {
    let (clock, time) = Clock::simulated(Passing::WhenIdle);
    let limits = DirtyLimits { max: 1000, ..DirtyLimits::of_memory(1 << 30) };
    let engine = TxgEngine::new(
        Txg(7),
        TxgOptions { limits, timeout: LONG, max_frees: 10, history: 10 },
        clock,
    );
    let tx = engine.begin(&[]).unwrap();
    engine.add_dirty(tx.txg(), 999);
    drop(tx);
    let once = limits.delay.delay(999, 1000).min(limits.delay.max);
    assert!(!once.is_zero());
    for number in 1..=3 {
        drop(engine.begin(&[]).unwrap());
        assert!(time.now() >= once * number, "{:?}", time.now());
    }
}

#[test]
fn transactions_of_many_threads_see_groups_in_order() {
    let engine = engine(1 << 20);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut last = Txg(0);
                for _ in 0..2000 {
                    let tx = engine.begin(&[]).unwrap();
                    assert!(tx.txg() >= last);
                    assert!(engine.synced_txg() < tx.txg());
                    last = tx.txg();
                }
            });
        }
        let syncer = scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                engine.quiesce().unwrap().committed();
            }
        });
        std::thread::sleep(Duration::from_millis(50));
        done.store(true, Ordering::SeqCst);
        syncer.join().unwrap();
    });
}

/// Makes a transaction of the open group panic.
fn panic_in_transaction(engine: &Arc<TxgEngine>) -> Txg {
    let tx = engine.begin(&[]).unwrap();
    let txg = tx.txg();
    let work = std::panic::AssertUnwindSafe(|| {
        let _tx = tx;
        panic!("on purpose");
    });
    std::panic::catch_unwind(work).unwrap_err();
    txg
}

#[test]
fn a_group_with_a_transaction_that_was_broken_off_is_not_synced() {
    let engine = engine(1 << 20);
    let txg = panic_in_transaction(&engine);
    assert_eq!(engine.begin(&[]).unwrap_err(), Stopped.into());
    assert_eq!(engine.wait_synced(txg), Err(Stopped));
    assert_eq!(engine.wait_for_work(Duration::ZERO), Work::Sync, "whoever syncs is to be told");
    assert_eq!(engine.quiesce().unwrap_err(), Torn { txg });
    assert_eq!(engine.quiesce().unwrap_err(), Torn { txg }, "nor is any after it");
}

#[test]
fn a_group_is_synced_that_is_older_than_what_was_broken_off() {
    let engine = engine(1 << 20);
    drop(engine.begin(&[]).unwrap());
    let older = engine.quiesce().unwrap();
    let txg = panic_in_transaction(&engine);
    assert_eq!(txg, older.txg().next());
    older.committed();
    assert_eq!(engine.wait_synced(Txg(8)), Ok(()));
    assert_eq!(engine.quiesce().unwrap_err(), Torn { txg });
}

#[test]
fn transactions_of_who_tidies_up_after_a_panic_are_whole() {
    struct Tidy(Arc<TxgEngine>);
    impl Drop for Tidy {
        fn drop(&mut self) {
            drop(self.0.begin(&[]).unwrap());
        }
    }
    let engine = engine(1 << 20);
    let tidy = Tidy(Arc::clone(&engine));
    let work = std::panic::AssertUnwindSafe(|| {
        let _tidy = tidy;
        panic!("on purpose");
    });
    std::panic::catch_unwind(work).unwrap_err();
    engine.quiesce().unwrap().committed();
}
