//! Seeds for fuzz targets: structures of real pools, in the format of each target.
//!
//! A fuzzer that starts with valid structures immediately gets past magic numbers and counts.

use crate::case::Subject;
use rzfs_blockdev::{BlockDevice, OpenOptions, read_exact_at};
use rzfs_dmu::{BlockRequest, Object, Objset};
use rzfs_dsl::Pool;
use rzfs_dsl::import::{DeviceSource, Discovery, HostCheck, ImportOptions};
use rzfs_format::brt::BrtHeader;
use rzfs_format::ddt::DdtKey;
use rzfs_format::dnode::{self, SLOT_SIZE};
use rzfs_format::label::{
    BOOT_ENV_OFFSET, BOOT_ENV_SIZE, CONFIG_OFFSET, CONFIG_SIZE, LabelIndex, LeafSize,
    UberblockRing, decode_config,
};
use rzfs_format::nvlist::{Encoding, NvList};
use rzfs_format::object_type::ObjectType;
use rzfs_format::sa::FIRST_LAYOUT;
use rzfs_format::uberblock::Uberblock;
use rzfs_format::units::Bookmark;
use rzfs_format::zil::ZilHeader;
use rzfs_format::{BlockPointer, ByteOrder};
use rzfs_zap::ZapKey;
use std::collections::BTreeMap;

/// Bytes of a seed; longer structures are left out or cut.
const MAX_SIZE: usize = 48 << 10;
/// Seeds of one target from one pool.
const MAX_SEEDS: usize = 24;
/// Objects of an object set that are looked at.
const OBJECTS: usize = 300;
/// File systems and volumes that are.
const DATASETS: usize = 4;
/// Log blocks of one log.
const LOG_BLOCKS: usize = 8;
/// Bytes of the numbers before the list in the input of `vdev_config`.
const VDEV_CONFIG_NUMBERS: usize = 36;
/// How many entries the table of a random ZAP is asked for.
const ENTRIES: usize = 8;

/// Seeds by target.
#[derive(Debug, Default)]
pub struct Seeds {
    by_target: BTreeMap<&'static str, Vec<Vec<u8>>>,
}

impl Seeds {
    /// The seeds from a pool.
    #[must_use]
    pub fn of(subject: &Subject) -> Self {
        let mut seeds = Self::default();
        for device in subject.devices() {
            seeds.labels(&**device);
        }
        let sources: Vec<_> =
            subject.devices().iter().map(|device| DeviceSource::Device(device.clone())).collect();
        let options = ImportOptions { host_check: HostCheck::Override, ..ImportOptions::default() };
        for found in Discovery::search(&sources, &OpenOptions::new()).pools() {
            if let Ok(pool) = Pool::import(found, &options) {
                seeds.pool(&pool);
            }
        }
        seeds.patches();
        seeds
    }

    /// The seeds from a send stream: its beginning, read in each of the ways supported by
    /// `send_stream`.
    #[must_use]
    pub fn of_stream(stream: &[u8]) -> Self {
        let mut seeds = Self::default();
        let beginning = stream.get(..MAX_SIZE - 1).unwrap_or(stream);
        for how in 0..4 {
            seeds.add("send_stream", &[&[how], beginning].concat());
        }
        seeds
    }

    /// The targets and their seeds.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &[Vec<u8>])> {
        self.by_target.iter().map(|(target, seeds)| (*target, seeds.as_slice()))
    }

    fn add(&mut self, target: &'static str, seed: &[u8]) {
        let seeds = self.by_target.entry(target).or_default();
        if seeds.len() < MAX_SEEDS && seed.len() <= MAX_SIZE && !seeds.iter().any(|s| s == seed) {
            seeds.push(seed.to_vec());
        }
    }

    /// Configuration, boot environment and uberblocks, as `label` and others take them.
    fn labels(&mut self, device: &dyn BlockDevice) {
        let Some(size) = LeafSize::of_device(device.geometry().size) else { return };
        let first = size.label_offset(LabelIndex::ALL[0]);
        if let Ok(block) = read_exact_at(device, first + CONFIG_OFFSET, CONFIG_SIZE)
            && let Ok(list) = decode_config(&block)
        {
            self.add("label", trimmed(&block));
            self.list(&list);
        }
        if let Ok(block) = read_exact_at(device, first + BOOT_ENV_OFFSET, BOOT_ENV_SIZE) {
            self.add("label", trimmed(&block));
        }
        for ring in UberblockRing::ALL {
            for slot in 0..ring.slots().min(4) {
                let at = first + ring.slot_offset(slot);
                if let Ok(block) = read_exact_at(device, at, ring.slot_size())
                    && Uberblock::decode(&block).is_ok()
                {
                    self.add("label", trimmed(&block));
                }
            }
        }
    }

    /// A configuration, in both encodings, and what it says of vdevs.
    fn list(&mut self, list: &NvList) {
        for encoding in
            [Encoding::Xdr, Encoding::Native(ByteOrder::Little), Encoding::Native(ByteOrder::Big)]
        {
            if let Ok(bytes) = list.encode(encoding) {
                self.add("nvlist", &bytes);
            }
        }
        if let Ok(tree) = list.list("vdev_tree")
            && let Ok(bytes) = tree.encode(Encoding::Xdr)
        {
            let mut input = vec![0; VDEV_CONFIG_NUMBERS];
            input.extend(bytes);
            self.add("vdev_config", &input);
        }
    }

    fn pool(&mut self, pool: &Pool) {
        self.objset(pool.mos());
        let Ok(root) = pool.datasets().root() else { return };
        let mut datasets = vec![root.clone()];
        datasets.extend(root.descendants().unwrap_or_default());
        for dataset in datasets.iter().take(DATASETS) {
            if let Ok(objset) = dataset.open_objset() {
                self.objset(&objset);
            }
        }
    }

    fn objset(&mut self, objset: &Objset) {
        let root = objset.root();
        let bookmark = Bookmark::root(objset.id());
        let request = BlockRequest { pointer: root, bookmark, key: None };
        if let Ok(block) = objset.pipeline().read(request) {
            self.add("objset", &block.data);
        }
        self.add("block_pointer", &root.encode(ByteOrder::Little));
        self.intent_log(objset);
        if let Some(meta) = objset.meta_object() {
            for block in
                meta.read_blocks(0..meta.dnode().max_block_id.0.min(15) + 1).iter().flatten()
            {
                let starts: Vec<usize> = dnode::slots(&block.data, block.order)
                    .filter(|(_, dnode)| matches!(dnode, Ok(Some(_))))
                    .map(|(slot, _)| slot * SLOT_SIZE)
                    .collect();
                if let (Some(first), Some(last)) = (starts.first(), starts.last()) {
                    let end = (last + 2 * SLOT_SIZE).min(block.data.len());
                    self.add("dnode", block.data.get(*first..end).unwrap_or_default());
                }
            }
        }
        let layouts = self.layouts(objset);
        for entry in objset.objects().take(OBJECTS).flatten() {
            if let Ok(object) = objset.object(entry.id) {
                self.object(&object, &layouts);
            }
        }
    }

    /// The layouts of system attributes, as `system_attributes` takes them.
    fn layouts(&mut self, objset: &Objset) -> Vec<u8> {
        let mut by_number: BTreeMap<u16, Vec<u8>> = BTreeMap::new();
        for entry in objset.objects().take(OBJECTS).flatten() {
            let is_layouts = entry.dnode.object_type == ObjectType::SA_ATTR_LAYOUTS;
            let Some(object) = is_layouts.then(|| objset.object(entry.id)).and_then(Result::ok)
            else {
                continue;
            };
            let Ok(zap) = object.zap() else { continue };
            for entry in zap.entries().flatten() {
                let number = std::str::from_utf8(entry.name()).ok().and_then(|n| n.parse().ok());
                let numbers = entry.value.integers().map(|number| number as u8).collect();
                by_number.extend(number.map(|number| (number, numbers)));
            }
        }
        let mut input = vec![0, by_number.len() as u8];
        for (number, numbers) in (FIRST_LAYOUT..).zip(by_number) {
            debug_assert_eq!(number, numbers.0, "layouts are numbered one after the other");
            input.push(numbers.1.len() as u8);
            input.extend(numbers.1);
        }
        input
    }

    fn object(&mut self, object: &Object, layouts: &[u8]) {
        let dnode = object.dnode();
        let flag = u8::from(object.order() == ByteOrder::Big);
        for pointer in &dnode.pointers {
            self.add("block_pointer", &pointer.encode(ByteOrder::Little));
        }
        match dnode.bonus_type {
            ObjectType::DSL_DIR | ObjectType::DSL_DATASET => self.add("dsl", object.bonus()),
            ObjectType::SA => self.add("system_attributes", &[layouts, object.bonus()].concat()),
            ObjectType::ZNODE => self.add("system_attributes", &[&[0, 0], object.bonus()].concat()),
            _ => {}
        }
        let wanted = (dnode.extent() as usize).min(MAX_SIZE);
        let Ok(data) = object.read_bytes(0, wanted) else { return };
        let data = trimmed(&data);
        match object.object_type() {
            ObjectType::PACKED_NVLIST => {
                if let Ok(list) = NvList::decode(data) {
                    self.list(&list);
                }
            }
            ObjectType::SPACE_MAP => self.space_map(object, flag, data),
            ObjectType::BPOBJ => {
                let head = [flag, object.bonus().len() as u8];
                self.add("bpobj", &[&head, object.bonus(), data].concat());
            }
            ObjectType::SA => self.add("system_attributes", &[layouts, data].concat()),
            kind if kind.is_zap() => self.zap(object, flag),
            // The tables and logs of dedup and cloning have types that describe themselves.
            _ if object.bonus().len() == BrtHeader::SIZE => {
                self.add("brt", &[&[flag], object.bonus(), data].concat());
            }
            _ if object.bonus().len() == 64 => {
                self.add("ddt", &[&[flag | 2], object.bonus()].concat());
                self.add("ddt", &[&[flag | 2], data.get(..4096).unwrap_or(data)].concat());
            }
            _ => {}
        }
    }

    fn space_map(&mut self, object: &Object, flag: u8, data: &[u8]) {
        let flags = flag | if object.bonus().len() < 320 { 2 } else { 0 };
        let input = [&[flags], object.bonus(), data].concat();
        self.add("space_map", &input);
        if let Ok(len) = u16::try_from(input.len()) {
            self.add("log_space_map", &[&len.to_le_bytes(), input.as_slice()].concat());
        }
    }

    /// All blocks of a ZAP, and the entries of tables that are ZAPs.
    fn zap(&mut self, object: &Object, flag: u8) {
        let (size, extent) = (object.block_size(), object.dnode().extent());
        let shift = size.trailing_zeros();
        if size.is_power_of_two() && (9..=14).contains(&shift) && extent <= MAX_SIZE as u64 {
            let mut input = vec![flag | ((shift - 9) << 1) as u8];
            if let Ok(data) = object.read_bytes(0, extent as usize) {
                input.extend_from_slice(&data);
                self.add("zap", &input);
            }
        }
        let Ok(zap) = object.zap() else { return };
        for entry in zap.entries().take(ENTRIES).flatten() {
            let value = entry.value.as_bytes();
            match (&entry.key, value) {
                (ZapKey::Words(words), Some(value)) if words.len() * 8 == DdtKey::SIZE => {
                    let key: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
                    for layout in [0, 2] {
                        self.add("ddt", &[&[layout], key.as_slice(), value].concat());
                    }
                }
                (ZapKey::Name(name), _) => self.add("zap_names", name),
                _ => {}
            }
        }
    }

    fn intent_log(&mut self, objset: &Objset) {
        let order = objset.root().order();
        let Ok(header) = ZilHeader::decode(&objset.block().zil_header, order) else { return };
        let mut pointer: BlockPointer = header.first;
        for _ in 0..LOG_BLOCKS {
            if pointer.is_hole() {
                return;
            }
            let read = objset.pipeline().read_stored(&[&pointer]).pop();
            let Some(Ok(data)) = read else { return };
            self.add("intent_log", data.get(..8192).unwrap_or(&data));
            let next = data.get(8..8 + BlockPointer::SIZE).unwrap_or_default();
            pointer = BlockPointer::decode(next, pointer.order()).unwrap_or_default();
        }
    }

    /// One patch of each kind, in several places.
    fn patches(&mut self) {
        for kind in 0..8_u8 {
            for index in [0_u16, 7, 40] {
                let mut patch = vec![kind, 3];
                patch.extend(index.to_le_bytes());
                patch.extend((u32::from(index) * 8).to_le_bytes());
                patch.extend(u64::from(index).to_le_bytes());
                self.add("whole_image", &patch);
            }
        }
    }
}

/// Without the zeros at the end.
fn trimmed(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    bytes.get(..end.next_multiple_of(8).min(bytes.len())).unwrap_or(bytes)
}
