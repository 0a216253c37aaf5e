use super::*;

fn write(position: u64, data: &'static [u8]) -> KeptWrite {
    let (data, birth) = (Bytes::from_static(data), Some(Txg(7)));
    KeptWrite { position, data, birth, standing: Standing::Sent }
}

fn lead(unconfirmed: &Unconfirmed) -> FlushLead<'_> {
    match unconfirmed.turn(unconfirmed.ticket()) {
        Turn::FlushLead(lead) => lead,
        other => panic!("{other:?}"),
    }
}

fn flush(unconfirmed: &Unconfirmed) {
    let mut lead = lead(unconfirmed);
    assert!(matches!(lead.begin(), FlushStart::Flush));
    lead.end(Ok(())).unwrap();
}

fn error() -> DeviceError {
    let source = std::sync::Arc::new(std::io::Error::from_raw_os_error(5));
    DeviceError { device: "disk".into(), operation: "flush", offset: 0, len: 0, source }
}

#[test]
fn what_was_written_last_is_written_again() {
    let writes = [
        write(0, b"aaaa"),
        write(4, b"bbbb"),
        write(2, b"cccc"),
        write(20, b"dddddd"),
        write(22, b"ee"),
        write(30, b"f"),
        write(30, b"gg"),
    ];
    let mut image = [b' '; 32];
    for write in &writes {
        let start = write.position as usize;
        image[start..start + write.data.len()].copy_from_slice(&write.data);
    }
    let found = latest(writes.iter());
    let mut again = [b' '; 32];
    let mut end = 0;
    for write in &found {
        assert!(write.position >= end, "{found:?}");
        end = write.end();
        again[write.position as usize..end as usize].copy_from_slice(&write.data);
    }
    assert_eq!(again, image);
}

#[test]
fn readers_find_what_was_written_last_over_what_is_there() {
    let kept = Unconfirmed::default();
    let run = kept.begin();
    kept.keep(run, [write(2, b"aaaa"), write(4, b"bbbb")]);
    let recall = |range, there| kept.recall(&range, there).map(|found| found.to_vec());
    assert_eq!(recall(0..10, Some(b"..........")), Some(b"..aabbbb..".to_vec()));
    assert_eq!(recall(3..7, Some(b"....")), Some(b"abbb".to_vec()));
    assert_eq!(recall(3..7, None), Some(b"abbb".to_vec()));
    assert_eq!(recall(0..4, None), None, "a part of it is nowhere");
    assert_eq!(recall(8..12, Some(b"....")), None);
    kept.end(run, Refused::default());
    flush(&kept);
    assert_eq!(recall(3..7, None), None, "the device has it");
}

#[test]
fn a_flush_confirms_what_was_done_before_it_began() {
    let kept = Unconfirmed::default();
    let (first, second) = (kept.begin(), kept.begin());
    kept.keep(first, [write(0, b"ab")]);
    kept.keep(second, [write(2, b"cd")]);
    kept.end(first, Refused::default());
    assert!(kept.wants_flush(3) && !kept.wants_flush(4));
    let mut lead = lead(&kept);
    assert!(matches!(lead.begin(), FlushStart::Flush));
    kept.end(second, Refused::default());
    lead.end(Ok(())).unwrap();
    assert!(kept.has_sent(), "the second was under way");
    flush(&kept);
    assert!(!kept.has_sent());
}

#[test]
fn a_flush_that_fails_has_everything_written_again_also_what_is_under_way() {
    let kept = Unconfirmed::default();
    let (done, open) = (kept.begin(), kept.begin());
    kept.keep(done, [write(0, b"ab")]);
    kept.end(done, Refused::default());
    kept.keep(open, [write(2, b"cd")]);
    let mut lead = lead(&kept);
    assert!(matches!(lead.begin(), FlushStart::Flush));
    lead.fail();
    let FlushStart::Rewrite(again) = lead.begin() else { panic!("nothing is written again") };
    assert_eq!(again.len(), 2);
    lead.written();
    assert!(lead.is_valid());
    lead.end(Ok(())).unwrap();
    kept.end(open, Refused::default());
    flush(&kept);
    assert!(!kept.has_sent());
}

#[test]
fn a_device_that_was_away_during_a_flush_has_not_confirmed_anything() {
    let kept = Unconfirmed::default();
    let run = kept.begin();
    kept.keep(run, [write(0, b"ab")]);
    kept.end(run, Refused::default());
    let mut lead = lead(&kept);
    assert!(matches!(lead.begin(), FlushStart::Flush));
    kept.suspect();
    assert!(!lead.is_valid());
    assert!(matches!(lead.begin(), FlushStart::Rewrite(_)));
    lead.written();
    lead.end(Ok(())).unwrap();
    assert!(!kept.has_sent());
}

#[test]
fn who_comes_during_a_flush_shares_the_next() {
    let kept = Unconfirmed::default();
    let first = lead(&kept);
    let tickets = [kept.ticket(), kept.ticket()];
    assert!(tickets.iter().all(|ticket| matches!(kept.turn(*ticket), Turn::Wait)));
    first.end(Ok(())).unwrap();
    let Turn::FlushLead(second) = kept.turn(tickets[0]) else { panic!("it is nobody's turn") };
    assert!(second.end(Err(error())).is_err());
    assert!(matches!(kept.turn(tickets[1]), Turn::Done(Err(_))));
}

#[test]
fn what_is_given_up_is_told_by_its_births() {
    let kept = Unconfirmed::default();
    let run = kept.begin();
    kept.keep(run, [write(0, b"ab"), KeptWrite { birth: None, ..write(9, b"label") }]);
    assert!(!kept.has_given_up(Txg(1)));
    assert_eq!(given_up(&kept, Portion::All), [Txg(7)]);
    assert!(kept.has_given_up(Txg(7)) && !kept.has_given_up(Txg(8)));
    kept.end(run, Refused::default());
    assert!(!kept.has_sent());
}

#[test]
fn failed_writes_are_not_kept() {
    let kept = Unconfirmed::default();
    let run = kept.begin();
    kept.keep(run, [write(0, b"ab"), write(2, b"cd")]);
    kept.end(run, Refused { forgotten: [0].into(), ..Refused::default() });
    assert!(kept.exceeds(1) && !kept.exceeds(2));
}

/// The births of what is given up of txg 7 and before.
fn given_up(kept: &Unconfirmed, portion: Portion) -> Vec<Txg> {
    let mut births = Vec::new();
    kept.give_up(portion, Txg(7), |birth| births.push(birth));
    births
}

fn owing(writes: &[KeptWrite], positions: &[u64]) -> Unconfirmed {
    let kept = Unconfirmed::default();
    let run = kept.begin();
    kept.keep(run, writes.iter().cloned());
    let owed = positions.iter().copied().collect();
    assert!(kept.end(run, Refused { owed, ..Refused::default() }).is_empty());
    kept
}

fn written_again(lead: &mut FlushLead<'_>) -> Vec<u64> {
    match lead.begin() {
        FlushStart::Flush => Vec::new(),
        FlushStart::Rewrite(writes) => writes.iter().map(|write| write.position).collect(),
    }
}

#[test]
fn what_is_owed_is_written_again_alone_and_confirmed_by_the_flush() {
    let kept = owing(&[write(0, b"ab"), write(2, b"cd")], &[2]);
    assert!(kept.owes(Txg(7)) && !kept.owes(Txg(8)));
    let mut lead = lead(&kept);
    assert_eq!(written_again(&mut lead), [2]);
    lead.written();
    lead.end(Ok(())).unwrap();
    assert!(!kept.has_sent() && !kept.has_debts());
}

#[test]
fn what_is_refused_again_is_owed_still_and_all_else_is_confirmed() {
    let kept = owing(&[write(0, b"ab"), write(2, b"cd")], &[0, 2]);
    let mut flushing = lead(&kept);
    assert_eq!(written_again(&mut flushing), [0, 2]);
    flushing.refused(vec![KeptWrite { standing: Standing::Owed, ..write(2, b"cd") }]);
    flushing.written();
    flushing.end(Ok(())).unwrap();
    assert!(kept.exceeds(1) && !kept.has_sent());
    assert_eq!(written_again(&mut lead(&kept)), [2]);
}

#[test]
fn what_became_owed_during_a_flush_is_not_confirmed_by_it() {
    let kept = owing(&[write(0, b"ab")], &[0]);
    let late = kept.begin();
    kept.keep(late, [write(2, b"cd")]);
    let mut flushing = lead(&kept);
    assert_eq!(written_again(&mut flushing), [0]);
    kept.end(late, Refused { owed: [2].into(), ..Refused::default() });
    flushing.written();
    flushing.end(Ok(())).unwrap();
    assert_eq!(written_again(&mut lead(&kept)), [2]);
}

#[test]
fn what_was_written_to_the_same_place_since_makes_a_debt_good() {
    let kept = owing(&[write(0, b"ab")], &[0]);
    let run = kept.begin();
    kept.keep(run, [write(0, b"cd")]);
    kept.end(run, Refused::default());
    flush(&kept);
    assert!(!kept.has_sent() && !kept.has_debts());
}

#[test]
fn what_is_younger_is_not_given_up() {
    let young = KeptWrite { birth: Some(Txg(8)), ..write(2, b"cd") };
    let kept = owing(&[write(0, b"ab"), young, write(4, b"ef")], &[0]);
    assert_eq!(given_up(&kept, Portion::Owed), [Txg(7)]);
    assert!(!kept.has_given_up(Txg(7)), "nobody relied on it");
    assert_eq!(given_up(&kept, Portion::All), [Txg(7)]);
    assert!(kept.has_given_up(Txg(7)) && kept.has_sent());
}

#[test]
fn what_is_given_up_is_owed_until_it_is_known_to_be_lacking() {
    let kept = owing(&[write(0, b"ab")], &[0]);
    let mut told = Vec::new();
    kept.give_up(Portion::Owed, Txg(7), |birth| told.push((birth, kept.owes(birth))));
    assert_eq!(told, [(Txg(7), true)]);
    assert!(!kept.owes(Txg(7)));
}

#[test]
fn what_has_to_be_written_again_counts_as_owed_until_it_is_confirmed() {
    let kept = Unconfirmed::default();
    let run = kept.begin();
    kept.keep(run, [write(0, b"ab")]);
    assert!(!kept.has_debts());
    let mut flushing = lead(&kept);
    assert!(matches!(flushing.begin(), FlushStart::Flush));
    flushing.fail();
    assert!(kept.owes(Txg(7)));
    kept.keep(run, [KeptWrite { birth: Some(Txg(8)), ..write(2, b"cd") }]);
    assert_eq!(kept.debts(), [Txg(7), Txg(8)].into());
    assert!(flushing.end(Err(error())).is_err());
    kept.end(run, Refused::default());
    let mut flushing = lead(&kept);
    assert_eq!(written_again(&mut flushing), [0, 2]);
    assert!(kept.owes(Txg(7)) && kept.owes(Txg(8)));
    flushing.written();
    flushing.end(Ok(())).unwrap();
    assert!(!kept.has_debts() && !kept.owes(Txg(7)));
}

#[test]
fn labels_are_not_given_up_with_blocks() {
    let kept = Unconfirmed::default();
    let run = kept.begin();
    kept.keep(run, [write(0, b"ab"), KeptWrite { birth: None, ..write(9, b"label") }]);
    kept.end(run, Refused::default());
    assert_eq!(given_up(&kept, Portion::Blocks), [Txg(7)]);
    assert!(kept.exceeds(4) && !kept.exceeds(5));
    kept.suspect();
    assert_eq!(written_again(&mut lead(&kept)), [9]);
}

/// Whether there is a witness, and a device with this content has it.
fn is_witnessed(kept: &Unconfirmed, content: &[u8]) -> Option<bool> {
    let witness = kept.witness()?;
    let start = witness.position() as usize;
    Some(witness.is_in(&content[start..start + witness.len()]))
}

#[test]
fn what_was_confirmed_last_is_remembered_until_its_place_is_used_again() {
    let kept = Unconfirmed::default();
    let label = KeptWrite { birth: None, ..write(0, b"labe") };
    let run = kept.begin();
    kept.keep(run, [write(4, b"aaaa"), write(8, b"bbbb"), label.clone()]);
    kept.end(run, Refused::default());
    assert_eq!(is_witnessed(&kept, b"labeaaaabbbb"), None);
    flush(&kept);
    assert_eq!(is_witnessed(&kept, b"    aaaabbbb"), Some(true));
    assert_eq!(is_witnessed(&kept, b"labeaaaacccc"), Some(false));
    let run = kept.begin();
    kept.keep(run, [write(4, b"cccc"), label]);
    kept.end(run, Refused { forgotten: [4].into(), ..Refused::default() });
    flush(&kept);
    assert_eq!(is_witnessed(&kept, b"    aaaabbbb"), Some(true), "labels are no witnesses");
    let run = kept.begin();
    kept.keep(run, [write(8, b"dddd")]);
    assert_eq!(is_witnessed(&kept, b"    aaaabbbb"), None, "the place is being written");
    kept.end(run, Refused::default());
    flush(&kept);
    assert_eq!(is_witnessed(&kept, b"    aaaadddd"), Some(true));
    kept.discards(&(0..8));
    assert_eq!(is_witnessed(&kept, b"    aaaadddd"), Some(true));
    kept.discards(&(0..9));
    assert_eq!(is_witnessed(&kept, b"    aaaadddd"), None);
}

#[test]
fn what_is_being_written_over_when_it_is_confirmed_is_no_witness() {
    let kept = Unconfirmed::default();
    let (done, open) = (kept.begin(), kept.begin());
    kept.keep(done, [write(0, b"aaaa")]);
    kept.end(done, Refused::default());
    kept.keep(open, [write(0, b"bbbb")]);
    flush(&kept);
    assert_eq!(kept.witness(), None);
}

#[test]
fn what_was_not_kept_can_be_owed_all_the_same() {
    let kept = Unconfirmed::default();
    kept.owe([write(4, b"ef")]);
    assert!(kept.owes(Txg(7)) && !kept.has_sent());
    let mut flushing = lead(&kept);
    assert_eq!(written_again(&mut flushing), [4]);
    flushing.written();
    flushing.end(Ok(())).unwrap();
    assert!(!kept.has_debts());
}
