//! NFSv4 access control lists in intent logs, which are written by systems other than Linux.

use super::records::{Logged, create, find, new_object};
use crate::make;
use rzfs_format::ObjectId;
use rzfs_format::acl::{Ace, Who, trivial};
use rzfs_format::dirent::FileKind;
use rzfs_format::fuid::Fuid;
use rzfs_format::zil::RecordKind;
use rzfs_format::znode::FileFlags;
use rzfs_zpl::live::NewKind;

const OWNER: u16 = 0x1000;
const OWNING_GROUP: u16 = 0x2040;
const EVERYONE: u16 = 0x4000;
const FILE_INHERIT: u16 = 1;
const AUTO_INHERIT: u64 = 0x40;

/// An entry in memory: subject, rights, flags, type.
type Entry = (u32, u32, u16, u16);

/// User 7 may write, all others have the rights of 0644.
const LIST: [Entry; 4] = [
    (7, 0x27, FILE_INHERIT, 0),
    (u32::MAX, 0x1e_019f, OWNER, 0),
    (u32::MAX, 0x12_0089, OWNING_GROUP, 0),
    (u32::MAX, 0x12_0089, EVERYONE, 0),
];

fn packed(list: &[Entry]) -> Vec<u8> {
    let entry = |&(who, mask, flags, kind): &Entry| {
        let mut bytes = [who.to_ne_bytes(), mask.to_ne_bytes()].concat();
        bytes.extend([flags.to_ne_bytes(), kind.to_ne_bytes()].concat());
        bytes
    };
    list.iter().flat_map(entry).collect()
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// The body of a record that sets a list, with this many users of other domains.
fn set_list(file: ObjectId, list: &[Entry], fuids: u64) -> Vec<u8> {
    let list_bytes = packed(list);
    let head = [file.0, list.len() as u64, 0, fuids, list_bytes.len() as u64, AUTO_INHERIT];
    let mut body = words(&head);
    body.extend(list_bytes);
    body.resize(body.len().next_multiple_of(8), 0);
    body.extend(words(&vec![1 << 32 | 5; fuids as usize]));
    body
}

/// The body of a record that creates something with a list.
fn create_with_list(directory: ObjectId, number: u64, mode: u64, name: &str) -> Vec<u8> {
    let list = packed(&LIST);
    let mut body = words(&[directory.0, number, mode, 501, 502, 77, 1_234_567_890, 123, 0]);
    body.extend(words(&[LIST.len() as u64, 0, 0, list.len() as u64, 0]));
    body.extend(list);
    body.resize(body.len().next_multiple_of(8), 0);
    body.extend(name.as_bytes());
    body.push(0);
    body
}

#[test]
fn lists_are_those_of_the_records() {
    let mut logged = Logged::new(|fs| {
        for name in ["listed", "old", "trivial"] {
            make(fs, fs.root(), name, NewKind::Regular);
        }
    });
    let root = logged.root();
    let [listed, old, plain] = ["listed", "old", "trivial"].map(|name| logged.number(name));
    let log = &mut logged.log;
    log.add_bytes(RecordKind::Acl, &set_list(listed, &LIST, 0));
    let mut body = words(&[old.0, 2]);
    body.extend(packed(&[(0, 0x20, OWNER, 1), (0, 0x25, EVERYONE, 0)]));
    log.add_bytes(RecordKind::AclV0, &body);
    log.add_bytes(RecordKind::Acl, &set_list(plain, &LIST[1..], 0));
    log.add_bytes(RecordKind::CreateAcl, &create_with_list(root, 300, 0o100_644, "made"));
    log.add_bytes(RecordKind::MkdirAcl, &create_with_list(root, 301, 0o040_644, "dir"));
    // Users of other domains are unknown here.
    log.add_bytes(RecordKind::Acl, &set_list(old, &LIST, 1));
    log.add(RecordKind::Create, &create(root, new_object(302, 0o100_644), "afterwards"));
    logged.log.write(&logged.image(), 5);
    let session = logged.replay();
    let fs = &session.fs;
    let mode = |file| fs.attributes(file).unwrap().permissions;
    assert_eq!([listed, old, plain].map(mode), [0o644, 0o455, 0o644]);
    let [made, dir] = ["made", "dir"].map(|name| find(fs, name).unwrap());
    assert_eq!((made, mode(made), dir, mode(dir)), (ObjectId(300), 0o644, ObjectId(301), 0o644));
    assert_eq!(find(fs, "afterwards"), None);
    let flags = |file| fs.attributes(file).unwrap().flags;
    let inherit = FileFlags::INHERIT_ACE;
    for (file, expected) in [(listed, inherit), (plain, FileFlags::ACL_TRIVIAL), (made, inherit)] {
        let others = if expected == inherit { FileFlags::ACL_TRIVIAL } else { inherit };
        let flags = flags(file);
        assert!(flags.contains(expected) && !flags.contains(others), "{flags:?}");
    }
    assert!(flags(listed).contains(FileFlags::ACL_AUTO_INHERIT));
    assert!(!flags(made).contains(FileFlags::ACL_AUTO_INHERIT));
    session.export();
    logged.world.judge();
    let fs = logged.world.read();
    let list = |file| fs.acl(file).unwrap();
    for file in [listed, made, dir] {
        let [first, rest @ ..] = &list(file)[..] else { panic!("{file} has no list") };
        assert_eq!((first.who, first.mask.0), (Who::Id(Fuid::posix(7)), 0x27));
        assert_eq!(rest, trivial(FileKind::Regular, 0o644));
    }
    assert_eq!(list(plain), trivial(FileKind::Regular, 0o644));
    let masks: Vec<u32> = list(old).iter().map(|entry: &Ace| entry.mask.0).collect();
    assert_eq!(masks, [0x20, 0x25]);
}
