//! Every block of encrypted datasets that OpenZFS wrote authenticates and decrypts.
//!
//! The keys are given as `zdb` shows the pools' key objects. A pool's newest state is found
//! without its MOS: every 512 bytes of the image that look like an objset block are tried, and
//! from those that the dataset's portable MAC accepts, the whole tree is read. An old state's
//! blocks may have been overwritten; then their checksums fail, and only then may a tree be left.

use rzfs_codec::checksum::{self, Salt};
use rzfs_codec::compress;
use rzfs_codec::crypto::{
    CryptoVersion, DatasetKey, KeyFormat, Pbkdf2, WrappedKeys, WrappingKey, verify_indirect,
};
use rzfs_format::block_pointer::Protection;
use rzfs_format::dnode::{self, Dnode};
use rzfs_format::encryption::EncryptionSuite;
use rzfs_format::object_type::ObjectType;
use rzfs_format::objset::{ObjsetBlock, ObjsetType, PORTABLE_MAC_OFFSET, TYPE_OFFSET};
use rzfs_format::{BlockPointer, ByteOrder, Guid};
use rzfs_testkit::ReferencePool;
use std::fs;

/// Bytes before the allocatable area of a device.
const LABELS: u64 = 4 << 20;
const SA_MAGIC: [u8; 4] = 0x002f_505a_u32.to_le_bytes();
/// Sizes of an objset block, largest first: with project accounting, without, and without any.
const OBJSET_SIZES: [usize; 3] = [4096, 2048, 1024];

const ZIL_MAGIC: [u8; 8] = 0x0210_da7a_b10c_7a11_u64.to_le_bytes();

/// A key object.
struct Keys {
    pool: &'static str,
    format: u64,
    derivation: Pbkdf2,
    suite: u64,
    version: u64,
    guid: u64,
    iv: &'static str,
    mac: &'static str,
    master: &'static str,
    hmac: &'static str,
}

#[rustfmt::skip]
const KEYS: &[Keys] = &[
    Keys {
        pool: "g10-encrypted",
        format: 3,
        derivation: Pbkdf2 { salt: 1294033491151895317, iterations: 100000 },
        suite: 3,
        version: 1,
        guid: 17005725545695630598,
        iv: "d383eaae13f1e48064ff4505",
        mac: "fd6747a0bcbae41f1fa3d01c7d75f65e",
        master: "a76129963c7693d71aafa2758a87dfdf00000000000000000000000000000000",
        hmac: "977540e46c74f98c08191b4331ec9672e53e4b9d8080df689f71650fda6da3b7ef613488b8d1a7d9ff63f434ddb49f2e1ac663bd6925bc58f47daf74a7dbc60b",
    },
    Keys {
        pool: "g10-encrypted",
        format: 3,
        derivation: Pbkdf2 { salt: 12901541076216862685, iterations: 100000 },
        suite: 4,
        version: 1,
        guid: 16821041963346114215,
        iv: "91c9410c64da5acf29a42f95",
        mac: "aa049e5385fc441e69a6f849510dcb16",
        master: "ce2ed0deb6b60db702700f5a4f79497371b49911e5cea5b50000000000000000",
        hmac: "4f463333796f8ce4ea8af32ebfa6eb81b3cc126d4bee9a3e1e52e72f5490d75cdd9b7d115e143537dc24cc651c26de366584779df34d069a99eb06f2e4203820",
    },
    Keys {
        pool: "g10-encrypted",
        format: 3,
        derivation: Pbkdf2 { salt: 4684780585019016318, iterations: 100000 },
        suite: 5,
        version: 1,
        guid: 3067921128444731876,
        iv: "7901fd764487c3e57c67182c",
        mac: "641a2f4c0c41754931fc287e97f52705",
        master: "95e6b8681cad4e10a41d8e3636afb6dbcbaf338ce2db3739b8e0c90066727438",
        hmac: "beacda8baf81f5fb506c2e183cf77bd95e299dc56f04ffab20d48a3b97782ad4c673634edc801912cc3bccbc1d6f9c445fdf009609876f132032d2184f2353bb",
    },
    Keys {
        pool: "g10-encrypted",
        format: 3,
        derivation: Pbkdf2 { salt: 14577924917931919009, iterations: 100000 },
        suite: 6,
        version: 1,
        guid: 12431309444872089523,
        iv: "bcbb28bf3635e99d6a086ea9",
        mac: "87b7b4409a48347811358cb883155a7e",
        master: "68c392cae7495addc0bc0eed8ba2422500000000000000000000000000000000",
        hmac: "c77461c66ca991e5a5d531816b4f681e19ad79797ce921bedeb19b369d4e0b5704b3975e650da9da739e6f262680821ee161dc3256c4a09ed611f2b8b5896c58",
    },
    Keys {
        pool: "g10-encrypted",
        format: 3,
        derivation: Pbkdf2 { salt: 1950472324199464701, iterations: 100000 },
        suite: 7,
        version: 1,
        guid: 5994565128583096862,
        iv: "d9dfe381b2f125e993d5f91a",
        mac: "fd2a611fdfa7783abd54c73ab74cccd1",
        master: "f7a7b6c7da8f415f2e8bb51e2157a6abed77a72105509d160000000000000000",
        hmac: "d35b9fc55013060a07e6db8e066443c76cf6d92fa2208a85b838d682afef094764ab82f9757e08d8b2ec21a71a3e977512f45fb08b23d21c2bbce19d71740447",
    },
    Keys {
        pool: "g10-encrypted",
        format: 3,
        derivation: Pbkdf2 { salt: 9504573469636863197, iterations: 100000 },
        suite: 8,
        version: 1,
        guid: 1400821058644519324,
        iv: "51594b0aebc0c1cf287ee204",
        mac: "ec7386a0d6187146c030c72324081764",
        master: "add0cc96025a912f36b6c2e603f6994425c722dbcad8b6c7ac7cdd0a84efc114",
        hmac: "d58bae4af165ab92cb824806c9813cbb3ef4652d24e7299fa772813e3d6c988dbc4e98140ec7ee057677537d802b68f7270ab772cca72441675efed02bfbbbdc",
    },
    Keys {
        pool: "g10-encrypted",
        format: 1,
        derivation: Pbkdf2 { salt: 0, iterations: 0 },
        suite: 8,
        version: 1,
        guid: 6637187998979190446,
        iv: "f8398a8e519e035591ef3a10",
        mac: "1fc3555bcfe934eccdab6e41432593a8",
        master: "2fe3aae84ace93c0d7ffbb01efb623504106cc97be8e63967f6d34ce4164d77c",
        hmac: "7c910e924128417a0e151c13a1b449f2e8e723c3a5a6423daec78a706b014a64ee186b2d8d2fdf6ba9b5687db4b30f44ea178724e889a49978821a4f4e0c0187",
    },
    Keys {
        pool: "g10-encrypted",
        format: 1,
        derivation: Pbkdf2 { salt: 0, iterations: 0 },
        suite: 8,
        version: 1,
        guid: 16913064024551466240,
        iv: "00e3ccb45623746ea74b6c3a",
        mac: "5bb296b675934c7d1f675a03403af358",
        master: "a93c49e4898a885d4ce11a8ff068c66308bd4b0e052101e2bbce5237970c4ce5",
        hmac: "8ee758bd3672804d1ceccb330619b9e801dec5068029520334dc7c922ef2805ed594aef6366b204a966720a144dc99dadae53fb2c1e4a5bcaff65dbdd8d3e741",
    },
    Keys {
        pool: "g10-encrypted",
        format: 2,
        derivation: Pbkdf2 { salt: 0, iterations: 0 },
        suite: 8,
        version: 1,
        guid: 18141452724215725682,
        iv: "7a91fc89d103b9b1ab9bfa29",
        mac: "d078e7aef81d5a1f5560d6a48864052d",
        master: "eea1193e1f31a2c6fc5d6c56e3f3ca0b3256629f63d18ac0cf51939bd7b7aeb5",
        hmac: "81c4c9cf78bc680b4f6278379c6747a801c1009425a07b95f5072e5809376fde717bed82ab49e009dbe7b35d69154d43ea4f2e36f8d4642c081d581c6431605c",
    },
    Keys {
        pool: "cryptv0",
        format: 3,
        derivation: Pbkdf2 { salt: 10390210785248070440, iterations: 350000 },
        suite: 5,
        version: 0,
        guid: 7559710735042684890,
        iv: "0dee4938b16dceae68fdbeab",
        mac: "9bff34456291c1d75fcb9fab46a5adfb",
        master: "51f55c5363b83b871ed7738ecd9e0394107591add82d43d2e098faee41b40716",
        hmac: "eee09681c5fb794ff97e9e3740ad7d5f482b3e6a01ee24a73cc6d11d3190d5f85824908bb95da22151a5d604fbf6bc72aba58b8255c867618b0e1ac4e94f638f",
    },
    Keys {
        pool: "cryptv0",
        format: 3,
        derivation: Pbkdf2 { salt: 8500999375703532234, iterations: 350000 },
        suite: 5,
        version: 0,
        guid: 270735702049388686,
        iv: "cc550f5495185092a399ab6b",
        mac: "f52c23dce56d560c920d3f0b1de838fb",
        master: "c575b056f13c2a62d348ac109210736cbe04a501647bbde61fdd8a7f546d1f1e",
        hmac: "0018756cadffad35ebaf5a24be7c352a125de2fc22f642f5ae9dddd8821b5bdc5bb084e8885928df12fe6b607efb27bfb27b638102648a059147bf6cf2cc3e5b",
    },
    Keys {
        pool: "missing_ivset",
        format: 3,
        derivation: Pbkdf2 { salt: 3894760431309898040, iterations: 350000 },
        suite: 5,
        version: 1,
        guid: 18286101957978900457,
        iv: "297c9adb387bcb1982bd80ef",
        mac: "d022f87f2128d1911b62a5b326e3a0ea",
        master: "a3fa4ced67d46f123ae409f3a6560aad85e948ab110f5b8236587687ce331c87",
        hmac: "b411e8a80b594f07a59d06fc533591649cbb96d2a4facd02df9c5d8924c9822aeea94c0dfd6488f61f578fbcde1ade1b5768459afaba405d6cb2d9aaef13dd02",
    },
    Keys {
        pool: "missing_ivset",
        format: 3,
        derivation: Pbkdf2 { salt: 10641452825289628982, iterations: 350000 },
        suite: 5,
        version: 1,
        guid: 12754334860486974434,
        iv: "48f06ea07f751bf54cafd178",
        mac: "4c9cf7c0ed3eb44a10e2a414ccabf506",
        master: "612350fddcefe484be745ca1bb8c1d53e922335749411ce289642b50807f3052",
        hmac: "84a202be34ad71b419b5ef4bf5d84fa56ac1b0e46123be8bd38658b2095b4395d34a33436307bd1d6921ad368da1f2b5ac0f4a24112a13b6e8ba624493250a78",
    },
];

fn hex<const N: usize>(text: &str) -> [u8; N] {
    rzfs_testkit::parse_hex(text.as_bytes()).unwrap().try_into().unwrap()
}

fn unwrap(keys: &Keys, pool: &ReferencePool) -> DatasetKey {
    let format = KeyFormat::from_number(keys.format).unwrap();
    let input = match (format, keys.pool) {
        (KeyFormat::Raw, _) => pool.text("raw.key").unwrap(),
        (KeyFormat::Hex, _) => pool.text("hex.key").unwrap(),
        (KeyFormat::Passphrase, "g10-encrypted") => b"correct horse battery\n".to_vec(),
        (KeyFormat::Passphrase, _) => b"password".to_vec(),
    };
    let wrapping = WrappingKey::from_input(format, &input, keys.derivation).unwrap();
    let wrapped = WrappedKeys {
        suite: EncryptionSuite::from_number(keys.suite).unwrap(),
        version: CryptoVersion::from_number(keys.version).unwrap(),
        guid: Guid(keys.guid),
        iv: hex(keys.iv),
        mac: hex(keys.mac),
        master: hex(keys.master),
        hmac: hex(keys.hmac),
    };
    DatasetKey::unwrap(&wrapping, &wrapped).unwrap()
}

/// What was read of one dataset.
#[derive(Default, Debug)]
struct Seen {
    encrypted: usize,
    authenticated: usize,
    indirect: usize,
    system_attributes: usize,
}

/// Why a tree cannot be read to its end.
#[derive(Debug)]
enum Stop {
    /// A block was overwritten since: an old state.
    Overwritten,
    /// A block is what its pointer wants, and yet wrong.
    Broken(String),
}

struct Reader<'a> {
    image: &'a [u8],
    key: &'a DatasetKey,
    seen: Seen,
}

impl Reader<'_> {
    /// Reads, verifies and decrypts a block that is not a hole.
    fn read(&mut self, pointer: &BlockPointer) -> Result<Vec<u8>, Stop> {
        let dva = pointer.dvas().next().ok_or(Stop::Broken(format!("{pointer:?}")))?;
        let start = (dva.offset() + LABELS) as usize;
        let end = start + pointer.physical_size() as usize;
        let mut block = self.image.get(start..end).ok_or(Stop::Overwritten)?.to_vec();
        checksum::verify(pointer, &block, &Salt::default()).map_err(|_| Stop::Overwritten)?;
        let broken = |error: &dyn std::fmt::Display| Stop::Broken(format!("{pointer:?}: {error}"));
        match pointer.protection() {
            Protection::Encrypted => {
                self.key.decrypt_block(pointer, &mut block).map_err(|e| broken(&e))?;
                self.seen.encrypted += 1;
            }
            Protection::Authenticated => {
                self.key.authenticate_block(pointer, &block).map_err(|e| broken(&e))?;
                self.seen.authenticated += 1;
            }
            Protection::IndirectMac => self.seen.indirect += 1,
            other => return Err(broken(&format!("{other:?}"))),
        }
        let mut data = vec![0; pointer.logical_size() as usize];
        let function = pointer.compression().map_err(|e| broken(&e))?;
        compress::decompress(function, &block, &mut data).map_err(|e| broken(&e))?;
        if pointer.protection() == Protection::IndirectMac {
            verify_indirect(pointer, &data).map_err(|e| broken(&e))?;
        }
        Ok(data)
    }

    /// Reads a tree; the level-0 blocks.
    fn read_tree(&mut self, pointer: &BlockPointer) -> Result<Vec<Vec<u8>>, Stop> {
        if pointer.is_hole() {
            return Ok(Vec::new());
        }
        let block = self.read(pointer)?;
        if pointer.level().0 == 0 {
            return Ok(vec![block]);
        }
        let mut blocks = Vec::new();
        for bytes in block.chunks_exact(BlockPointer::SIZE) {
            blocks.extend(self.read_tree(&decode(bytes))?);
        }
        Ok(blocks)
    }

    fn read_object(&mut self, dnode: &Dnode) -> Result<Vec<Vec<u8>>, Stop> {
        let mut blocks = Vec::new();
        for pointer in dnode.pointers.iter().chain(&dnode.spill) {
            blocks.extend(self.read_tree(pointer)?);
        }
        Ok(blocks)
    }

    fn read_objset(&mut self, block: &[u8]) -> Result<(), Stop> {
        let broken = |error: &dyn std::fmt::Display| Stop::Broken(error.to_string());
        let objset = ObjsetBlock::decode(block, ByteOrder::Little).map_err(|e| broken(&e))?;
        for dnode in objset.accounting.iter().flatten() {
            self.read_object(dnode)?;
        }
        let meta = objset.meta_dnode.ok_or(Stop::Broken("no meta-dnode".to_owned()))?;
        for block in self.read_object(&meta)? {
            for (slot, dnode) in dnode::slots(&block, ByteOrder::Little) {
                let dnode = dnode.map_err(|error| broken(&format!("slot {slot}: {error}")))?;
                let Some(dnode) = dnode else { continue };
                if dnode.bonus_type == ObjectType::SA {
                    if dnode.bonus[..4] != SA_MAGIC {
                        return Err(broken(&format!("slot {slot}: no system attributes")));
                    }
                    self.seen.system_attributes += 1;
                }
                self.read_object(&dnode)?;
            }
        }
        Ok(())
    }
}

fn decode(bytes: &[u8]) -> BlockPointer {
    BlockPointer::decode(bytes, ByteOrder::Little).unwrap()
}

/// Places of the image that may be objset blocks of file systems or volumes.
fn candidates(image: &[u8]) -> Vec<&[u8]> {
    let types = [ObjsetType::Zfs, ObjsetType::Zvol].map(|kind| kind.number().to_le_bytes());
    (LABELS as usize..image.len().saturating_sub(OBJSET_SIZES[0]))
        .step_by(512)
        .filter(|offset| image[*offset] == ObjectType::DNODE.number())
        .filter(|offset| types.iter().any(|kind| image[offset + TYPE_OFFSET..].starts_with(kind)))
        .map(|offset| &image[offset..])
        .collect()
}

/// The objset block at the start of `bytes` if the key's portable MAC accepts it. Its size, which
/// its pointer would tell, is the one with which the local MAC is right.
fn objset_of<'a>(key: &DatasetKey, bytes: &'a [u8]) -> Option<&'a [u8]> {
    let macs = key.objset_macs(&bytes[..OBJSET_SIZES[2]], ByteOrder::Little).ok()?;
    if !bytes[PORTABLE_MAC_OFFSET..].starts_with(&macs.portable) {
        return None;
    }
    let verifies = |block: &&[u8]| key.verify_objset(block, ByteOrder::Little) == Ok(());
    let block = OBJSET_SIZES.iter().map(|size| &bytes[..*size]).find(verifies);
    Some(block.expect("an objset block without a right local MAC"))
}

/// Reads what is left of a dataset's states, and tells what is in the largest whole one.
fn read_dataset(key: &DatasetKey, image: &[u8], candidates: &[&[u8]]) -> Seen {
    let mut best = Seen::default();
    for block in candidates.iter().filter_map(|bytes| objset_of(key, bytes)) {
        let mut reader = Reader { image, key, seen: Seen::default() };
        match reader.read_objset(block) {
            Ok(()) if reader.seen.encrypted >= best.encrypted => best = reader.seen,
            Ok(()) | Err(Stop::Overwritten) => {}
            Err(Stop::Broken(error)) => panic!("{}: {error}", key.suite().name()),
        }
    }
    best
}

fn read_pool(pool: &ReferencePool) -> Vec<(u64, Seen)> {
    let image = fs::read(&pool.images().unwrap()[0]).unwrap();
    let candidates = candidates(&image);
    let keys = KEYS.iter().filter(|keys| keys.pool == pool.name());
    keys.map(|keys| (keys.suite, read_dataset(&unwrap(keys, pool), &image, &candidates))).collect()
}

#[test]
fn golden_datasets_of_every_suite_are_read() {
    let Some(pool) = ReferencePool::golden("g10-encrypted") else { return };
    let datasets = read_pool(&pool);
    assert_eq!(datasets.len(), 9);
    for (suite, seen) in datasets {
        println!("suite {suite}: {seen:?}");
        assert!(seen.encrypted >= 40 && seen.indirect > 1, "{suite}: {seen:?}");
        assert!(seen.authenticated > 0 && seen.system_attributes > 15, "{suite}: {seen:?}");
    }
}

#[test]
fn datasets_of_openzfs_own_images_are_read() {
    for name in ["cryptv0", "missing_ivset"] {
        let Some(pool) = ReferencePool::all_openzfs().into_iter().find(|p| p.name() == name) else {
            return;
        };
        for (suite, seen) in read_pool(&pool) {
            println!("{name}, suite {suite}: {seen:?}");
            assert!(seen.encrypted > 1 && seen.indirect > 4, "{name}: {seen:?}");
            assert!(seen.authenticated > 0, "{name}: {seen:?}");
        }
    }
}

/// The pools whose keys are known, as far as they are there.
fn pools() -> impl Iterator<Item = ReferencePool> {
    let all = ReferencePool::all_golden().into_iter().chain(ReferencePool::all_openzfs());
    all.filter(|pool| KEYS.iter().any(|keys| keys.pool == pool.name()))
}

/// Blocks of logs that were replayed long ago are still in the image, each with the pointer to the
/// next one, which has salt and IV.
#[test]
fn log_blocks_decrypt_with_the_key_of_their_dataset_only() {
    for pool in pools() {
        let image = fs::read(&pool.images().unwrap()[0]).unwrap();
        let keys = KEYS.iter().filter(|keys| keys.pool == pool.name());
        let keys: Vec<DatasetKey> = keys.map(|keys| unwrap(keys, &pool)).collect();
        let mut found = 0;
        for offset in (LABELS as usize..image.len() - 4096).step_by(512) {
            if !image[offset + 144..].starts_with(&ZIL_MAGIC) {
                continue;
            }
            let pointer = decode(&image[offset + 8..]);
            let read = |key| Reader { image: &image, key, seen: Seen::default() }.read(&pointer);
            let results: Vec<_> = keys.iter().map(read).collect();
            if results.iter().any(|result| matches!(result, Err(Stop::Overwritten))) {
                continue;
            }
            let opened = results.iter().filter(|result| result.is_ok()).count();
            assert_eq!(opened, 1, "{}: {pointer:?}", pool.name());
            found += 1;
        }
        assert_eq!(found, if pool.name() == "missing_ivset" { 2 } else { 0 }, "{}", pool.name());
    }
}
