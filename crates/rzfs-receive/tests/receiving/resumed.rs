//! Streams that break off, and the streams that resume them.

use crate::broken::Crashing;
use crate::{
    TARGET, golden, order, receive, receive_as, receive_in_order, records, state, stream,
    wrong_files,
};
use rzfs_dsl::dataset::property::PropertyValue;
use rzfs_dsl::live::{ChangeError, Destruction, LivePool, LocalChanges, ReceiveProblem};
use rzfs_format::ByteOrder;
use rzfs_format::nvlist::{Encoding, NvList, NvValue};
use rzfs_format::stream::{Begin, Record, StreamFeatures, VersionInfo};
use rzfs_proof::ImagePool;
use rzfs_receive::{ReceiveError, Remains};
use rzfs_stream::ResumeToken;
use rzfs_testkit::GoldenStream;
use std::cell::RefCell;
use std::io::Read;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

fn resumable(pool: &LivePool, stream: impl Read) -> Result<(), ReceiveError> {
    let order = order(LocalChanges::Kept, Remains::Kept);
    receive_in_order(pool, stream, &order).map(drop)
}

fn token(pool: &LivePool) -> Option<ResumeToken> {
    pool.dataset_tree().unwrap().open(TARGET).unwrap().resume_token().unwrap()
}

/// The resume token, as the property shows it.
fn text(pool: &LivePool) -> String {
    let dataset = pool.dataset_tree().unwrap().open(TARGET).unwrap();
    let property = dataset.property("receive_resume_token").unwrap();
    match property.and_then(|property| property.value) {
        Some(PropertyValue::Text(text)) => text,
        value => panic!("{value:?}"),
    }
}

/// The BEGIN record of a stream that resumes another one.
fn begin_of_rest(begin: &Begin, object: u64, offset: u64) -> (Record, Vec<u8>) {
    let mut list = NvList::new();
    list.insert("resume_object", NvValue::UInt64(object)).unwrap();
    list.insert("resume_offset", NvValue::UInt64(offset)).unwrap();
    let list = list.encode(Encoding::Native(ByteOrder::NATIVE)).unwrap();
    let version = begin.version;
    let features = version.features().with(StreamFeatures::RESUMING);
    let version = VersionInfo::new(version.kind().unwrap(), features);
    let begin = Begin { version, payload_length: list.len() as u32, ..*begin };
    (Record::Begin(begin), list)
}

/// What a sender makes of a token: the object at that position, its remaining data, and the rest.
fn rest_of(whole: &[u8], token: &ResumeToken) -> Vec<u8> {
    let (mut rest, mut is_behind) = (Vec::new(), false);
    for (record, payload) in records(whole) {
        match &record {
            Record::Begin(begin) => {
                rest.push(begin_of_rest(begin, token.object.get(), token.offset));
                continue;
            }
            Record::Object(object) => is_behind |= object.object >= token.object,
            Record::Write(write) if write.object == token.object && write.offset < token.offset => {
                continue;
            }
            _ => {}
        }
        if is_behind {
            rest.push((record, payload));
        }
    }
    stream(&rest)
}

#[test]
fn what_openzfs_sends_as_the_rest_is_received_where_it_would_have_been() {
    let Some(partial) = GoldenStream::interrupted("partial") else { return };
    let Some(rest) = GoldenStream::interrupted("resumed") else { return };
    let world = ImagePool::new("A");
    let pool = world.create_pool();
    let error = resumable(&pool, partial.bytes().unwrap().as_slice()).unwrap_err();
    assert_eq!(error.errno(), 1040, "{error}");
    let expected = ResumeToken::decode(&partial.token().unwrap()).unwrap();
    assert_eq!(token(&pool), Some(expected.clone()));
    assert_eq!(ResumeToken::decode(&text(&pool)).unwrap(), expected);
    let tree = pool.dataset_tree().unwrap();
    let dataset = tree.open(TARGET).unwrap();
    assert!(dataset.is_inconsistent() && pool.open_dataset(&dataset).is_err());
    drop((dataset, tree));
    pool.export().unwrap();
    world.judge_chains();

    let pool = world.open_pool();
    assert_eq!(token(&pool), Some(expected));
    resumable(&pool, rest.bytes().unwrap().as_slice()).unwrap();
    assert_eq!(token(&pool), None);
    assert_eq!(wrong_files(&pool, TARGET, &rest, "g30/a@1"), Vec::<String>::new());
    pool.export().unwrap();
    world.judge_chains();
}

/// The positions at which streams of this length are cut.
fn cuts(length: usize) -> impl Iterator<Item = usize> {
    (1..6).map(move |part| length * part / 6 + part * 77)
}

#[test]
fn a_stream_that_breaks_off_again_and_again_is_received_in_the_end() {
    let (Some(full), Some(increment)) = (golden("full-c"), golden("incr")) else { return };
    let world = ImagePool::new("A");
    let pool = world.create_pool();
    for (sent, name) in [(&full, "g30/a@1"), (&increment, "g30/a@2")] {
        let whole = sent.bytes().unwrap();
        let error = resumable(&pool, &whole[..whole.len() / 7]).unwrap_err();
        assert_eq!(error.errno(), 1040, "{error}");
        let mut last = token(&pool).unwrap();
        for cut in cuts(whole.len()) {
            let rest = rest_of(&whole, &last);
            // As many bytes as lead to the same position in the whole stream.
            let length = (rest.len() + cut).saturating_sub(whole.len());
            resumable(&pool, &rest[..length.max(500)]).unwrap_err();
            let next = token(&pool).unwrap();
            let place = |token: &ResumeToken| (token.object, token.offset, token.bytes);
            assert!(place(&next) >= place(&last), "{next:?} {last:?}");
            last = next;
        }
        resumable(&pool, rest_of(&whole, &last).as_slice()).unwrap();
        assert_eq!(token(&pool), None);
        assert_eq!(wrong_files(&pool, TARGET, sent, name), Vec::<String>::new());
    }
    pool.export().unwrap();
    world.judge_chains();
}

#[test]
fn after_a_crash_nothing_is_missing_before_the_place_that_is_said() {
    let (Some(full), Some(increment)) = (golden("full"), golden("incr")) else { return };
    let world = ImagePool::new("A");
    let pool = world.create_pool();
    for (sent, name) in [(&full, "g30/a@1"), (&increment, "g30/a@2")] {
        let bytes = sent.bytes().unwrap();
        let copies = RefCell::default();
        let every = bytes.len() / 4 + 1;
        let (pool, world) = (&pool, &world);
        let source = Crashing { stream: &bytes, pool, world, every, read: 0, copies: &copies };
        resumable(pool, source).unwrap();
        let copies = copies.into_inner();
        assert!(copies.len() >= 2);
        for copy in copies {
            let left = copy.open_pool();
            let found = token(&left).unwrap();
            assert!(found.bytes > 0, "{found:?}");
            resumable(&left, rest_of(&bytes, &found).as_slice()).unwrap();
            assert_eq!(wrong_files(&left, TARGET, sent, name), Vec::<String>::new());
            left.export().unwrap();
            copy.judge_chains();
        }
    }
}

#[test]
fn only_what_comes_next_goes_on_with_what_was_kept() {
    let (Some(full), Some(increment)) = (golden("full"), golden("incr")) else { return };
    let world = ImagePool::new("A");
    let pool = world.create_pool();
    let whole = full.bytes().unwrap();
    let problem = |error: ReceiveError| match error {
        ReceiveError::Change(ChangeError::Receive(problem)) => problem,
        error => panic!("{error}"),
    };
    resumable(&pool, &whole[..whole.len() / 2]).unwrap_err();
    let found = token(&pool).unwrap();
    let before = state(&pool);
    let other = ResumeToken { offset: found.offset + 512, ..found.clone() };
    let wrong = problem(resumable(&pool, rest_of(&whole, &other).as_slice()).unwrap_err());
    assert!(matches!(wrong, ReceiveProblem::NotTheRest), "{wrong}");
    let of_other = rest_of(&increment.bytes().unwrap(), &found);
    let wrong = problem(resumable(&pool, of_other.as_slice()).unwrap_err());
    assert!(matches!(wrong, ReceiveProblem::NotTheRest), "{wrong}");
    // Nor can anything else be received there meanwhile.
    let exists = receive(&pool, whole.as_slice()).unwrap_err();
    assert!(matches!(exists, ReceiveError::Change(ChangeError::Exists { .. })), "{exists}");
    let forced = receive_as(&pool, whole.as_slice(), LocalChanges::GivenUp).unwrap_err();
    let forced = problem(forced);
    assert!(matches!(forced, ReceiveProblem::Partial { .. }), "{forced}");
    let partial = problem(receive(&pool, increment.bytes().unwrap().as_slice()).unwrap_err());
    assert!(matches!(partial, ReceiveProblem::Partial { .. }), "{partial}");
    assert_eq!((state(&pool), token(&pool)), (before, Some(found.clone())));
    // A receive that does not keep partial data discards it.
    let rest = rest_of(&whole, &found);
    receive(&pool, &rest[..rest.len() / 2]).unwrap_err();
    assert!(pool.dataset_tree().unwrap().open(TARGET).is_err());
    let gone = receive(&pool, rest.as_slice()).unwrap_err();
    assert!(matches!(gone, ReceiveError::Change(ChangeError::NotFound { .. })), "{gone}");
    receive(&pool, whole.as_slice()).unwrap();
    let complete = problem(receive(&pool, rest.as_slice()).unwrap_err());
    assert!(matches!(complete, ReceiveProblem::NotTheRest), "{complete}");
    pool.export().unwrap();
    world.judge_chains();
}

#[test]
fn what_takes_the_place_of_a_file_system_is_resumed_by_force_only() {
    let Some(full) = golden("full-c") else { return };
    let whole = full.bytes().unwrap();
    let world = ImagePool::new("A");
    let pool = world.create_pool();
    receive(&pool, whole.as_slice()).unwrap();
    let snapshots = ["made/got@1".to_owned()];
    pool.destroy_snapshots(&snapshots, Destruction::AtOnce).unwrap();
    let forced = order(LocalChanges::GivenUp, Remains::Kept);
    receive_in_order(&pool, &whole[..whole.len() / 2], &forced).unwrap_err();
    let rest = rest_of(&whole, &token(&pool).unwrap());
    let refused = resumable(&pool, rest.as_slice()).unwrap_err();
    let ReceiveError::Change(ChangeError::Receive(refused)) = refused else { panic!("{refused}") };
    assert!(matches!(refused, ReceiveProblem::NotForced { .. }), "{refused}");
    receive_in_order(&pool, rest.as_slice(), &forced).unwrap();
    assert_eq!(token(&pool), None);
    assert_eq!(wrong_files(&pool, TARGET, &full, "g30/a@1"), Vec::<String>::new());
    pool.export().unwrap();
    world.judge_chains();
}

#[test]
fn two_do_not_go_on_with_the_same() {
    struct Meanwhile<'a>(&'a [u8], Option<Box<dyn FnOnce() + 'a>>);
    impl Read for Meanwhile<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            if self.0.len() < 1 << 20
                && let Some(act) = self.1.take()
            {
                act();
            }
            self.0.read(buffer)
        }
    }
    let Some(full) = golden("full") else { return };
    let world = ImagePool::new("A");
    let pool = world.create_pool();
    let whole = full.bytes().unwrap();
    resumable(&pool, &whole[..whole.len() / 3]).unwrap_err();
    let rest = rest_of(&whole, &token(&pool).unwrap());
    let second = || {
        let error = resumable(&pool, rest.as_slice()).unwrap_err();
        assert_eq!(error.errno(), 16, "{error}");
    };
    resumable(&pool, Meanwhile(&rest, Some(Box::new(second)))).unwrap();
    assert_eq!(wrong_files(&pool, TARGET, &full, "g30/a@1"), Vec::<String>::new());
    pool.export().unwrap();
    world.judge_chains();
}

/// The first receive may not have finished yet when the rest arrives.
#[test]
fn the_rest_may_come_while_the_beginning_breaks_off() {
    struct Cut<'a>(&'a [u8], Sender<()>, Receiver<()>);
    impl Read for Cut<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            if self.0.is_empty() {
                self.1.send(()).unwrap();
                self.2.recv().unwrap();
            }
            self.0.read(buffer)
        }
    }
    let Some(full) = golden("full") else { return };
    let world = ImagePool::new("A");
    let pool = world.create_pool();
    let whole = full.bytes().unwrap();
    thread::scope(|scope| {
        let ((waits, is_waiting), (cut, is_cut)) = (channel(), channel());
        let stream = Cut(&whole[..whole.len() / 3], waits, is_cut);
        let beginning = scope.spawn(|| resumable(&pool, stream).unwrap_err());
        is_waiting.recv().unwrap();
        pool.sync().unwrap();
        let rest = rest_of(&whole, &token(&pool).unwrap());
        cut.send(()).unwrap();
        resumable(&pool, rest.as_slice()).unwrap();
        beginning.join().unwrap();
    });
    assert_eq!(wrong_files(&pool, TARGET, &full, "g30/a@1"), Vec::<String>::new());
    pool.export().unwrap();
    world.judge_chains();
}
