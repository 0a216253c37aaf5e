//! Pools and vdevs as JSON (spec 09, section 1.5).

mod activity;

use super::column::PoolColumn;
use super::condition::for_status;
use super::config_tree::{TreeStyle, is_shown, pool_word, spare_word};
use super::status_text::StatusStyle;
use super::vdev_name::NameStyle;
use crate::getopt::Word;
use crate::json::{JSON_FLAT, JSON_GUID, JSON_INT, Numbers, object};
use crate::property::{Precision, Writer};
use crate::quantity::nicenum;
use rzfs_format::property::PoolProperty;
use rzfs_server::protocol::{
    DedupReport, PoolReport, SweepReport, SweepState, VdevReport, VdevRole,
};
use rzfs_vdev::VdevState;
use serde_json::{Map, Value};

/// OpenZFS's newest version of pools, reported whatever the pool's.
const SPA_VERSION: u64 = 5000;

/// OpenZFS's newest version of file systems.
const ZPL_VERSION: u64 = 5;

/// Classes of vdevs and their members, besides `vdevs`.
const CLASSES: [(VdevRole, &str); 3] =
    [(VdevRole::Dedup, "dedup"), (VdevRole::Special, "special"), (VdevRole::Log, "logs")];

/// The placement of special classes of vdevs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Placement {
    /// In members of the pool, as for `status`; ordinary vdevs are below the root vdev.
    Pool,
    /// In members of `vdevs`, as for `list`; there is no root vdev.
    Vdevs,
}

/// The format of pools.
#[derive(Clone, Debug)]
pub(crate) struct PoolJson {
    /// `--json-int`.
    pub(crate) numbers: Numbers,
    /// `--json-pool-key-guid`.
    pub(crate) keyed_by_guid: bool,
    /// `--json-flat-vdevs`.
    pub(crate) flat: bool,
    /// `-p` and the time zone.
    pub(crate) writer: Writer,
    /// `-g`, `-L`, `-P`.
    pub(crate) names: NameStyle,
}

impl PoolJson {
    /// The format for the options of a command.
    pub(crate) fn of(words: &[Word], writer: &Writer) -> Self {
        let flag = |letter| words.contains(&Word::Flag(letter));
        Self {
            numbers: if flag(JSON_INT) { Numbers::Integers } else { Numbers::Strings },
            keyed_by_guid: flag(JSON_GUID),
            flat: flag(JSON_FLAT),
            writer: writer.clone(),
            names: NameStyle::of(words),
        }
    }

    /// The member name of a pool.
    pub(crate) fn key(&self, pool: &PoolReport) -> String {
        if self.keyed_by_guid { pool.guid.to_string() } else { pool.name.clone() }
    }

    /// The common members of a pool.
    pub(crate) fn head(&self, pool: &PoolReport, with_type: bool) -> Map<String, Value> {
        let kind = with_type.then(|| ("type", Value::from("POOL")));
        let members = [("name", Value::from(pool.name.as_str()))].into_iter().chain(kind).chain([
            ("state", pool_word(pool).into()),
            ("pool_guid", self.numbers.exact(pool.guid)),
            ("spa_version", self.numbers.exact(SPA_VERSION)),
            ("zpl_version", self.numbers.exact(ZPL_VERSION)),
        ]);
        members.map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// Properties of a pool.
    pub(crate) fn properties(&self, pool: &PoolReport, columns: &[PoolColumn]) -> Value {
        let wanted = columns.iter().filter(|column| !column.is(PoolProperty::Name));
        let found = wanted.filter_map(|column| {
            let property = pool.properties.iter().find(|one| one.name == column.name())?;
            let value = self.numbers.property(column.values(), property, &self.writer);
            Some((column.name(), value))
        });
        object(found)
    }

    /// The members for a pool's vdevs: each class, with `describe` for every vdev.
    pub(crate) fn vdevs(
        &self,
        pool: &PoolReport,
        placement: Placement,
        describe: &dyn Fn(&VdevReport, &str, usize) -> Map<String, Value>,
    ) -> Vec<(&'static str, Value)> {
        let tops = |role| {
            let is_member = move |top: &&VdevReport| top.role == role && is_shown(top);
            pool.root.children.iter().filter(is_member)
        };
        let tree = |vdev: &VdevReport, depth| self.tree(vdev, depth, &pool.name, describe);
        let class = |vdevs: &mut dyn Iterator<Item = &VdevReport>| {
            let mut members = Map::new();
            let vdevs = vdevs.flat_map(|vdev| tree(vdev, 1));
            members.extend(vdevs.map(|(name, vdev)| (name, vdev.into())));
            members
        };
        let mut normal = class(&mut tops(VdevRole::Normal));
        if placement == Placement::Pool {
            let mut members = describe(&pool.root, &pool.name, 0);
            members.insert("vdevs".to_owned(), normal.clone().into());
            normal.retain(|_, _| self.flat);
            normal.insert(pool.name.clone(), members.into());
        }
        let mut classes = Vec::new();
        for (role, name) in CLASSES {
            classes.push((name, class(&mut tops(role))));
        }
        for (name, vdevs) in [("l2cache", &pool.caches), ("spares", &pool.spares)] {
            classes.push((name, class(&mut vdevs.iter())));
        }
        classes.retain(|(_, members)| !members.is_empty());
        let mut beside = Vec::new();
        for (name, members) in classes {
            match placement {
                Placement::Pool if self.flat => normal.extend(members),
                Placement::Pool => beside.push((name, members.into())),
                Placement::Vdevs => {
                    normal.insert(name.to_owned(), members.into());
                }
            }
        }
        beside.insert(0, ("vdevs", normal.into()));
        beside
    }

    /// A vdev with its children: below it, or beside it with `flat`.
    fn tree(
        &self,
        vdev: &VdevReport,
        depth: usize,
        parent: &str,
        describe: &dyn Fn(&VdevReport, &str, usize) -> Map<String, Value>,
    ) -> Vec<(String, Map<String, Value>)> {
        let name = self.names.name(vdev);
        let mut members = describe(vdev, parent, depth);
        let below: Vec<_> = vdev
            .children
            .iter()
            .flat_map(|child| self.tree(child, depth + 1, &name, describe))
            .collect();
        if !below.is_empty() {
            let children = below.iter().cloned().map(|(name, members)| (name, members.into()));
            members.insert("vdevs".to_owned(), children.collect::<Map<_, _>>().into());
        }
        // A flat list has every vdev beside its parent, which keeps its children nevertheless.
        let beside = if self.flat { below } else { Vec::new() };
        beside.into_iter().chain([(name, members)]).collect()
    }

    /// The common members of a vdev.
    pub(crate) fn vdev_head(&self, vdev: &VdevReport, name: &str) -> Map<String, Value> {
        if vdev.kind == "draid" {
            // OpenZFS does not find a dRAID by its name, and reports no more.
            return [("name".to_owned(), Value::from(name))].into_iter().collect();
        }
        let path = vdev.path.as_deref().filter(|_| vdev.children.is_empty());
        let state = state_name(vdev.health.state);
        let members = [
            ("name", Value::from(name)),
            ("vdev_type", vdev.kind.as_str().into()),
            ("guid", self.numbers.exact(vdev.guid)),
        ];
        let path = path.map(|path| ("path", Value::from(path)));
        let tail = [("class", class_name(vdev.role).into()), ("state", state.into())];
        members
            .into_iter()
            .chain(path)
            .chain(tail)
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }

    /// Bytes, as `240M` or exact.
    fn bytes(&self, bytes: u64) -> Value {
        match (self.numbers, self.writer.precision) {
            (Numbers::Integers, _) => bytes.into(),
            (_, Precision::Exact) => bytes.to_string().into(),
            (_, Precision::Rounded) => nicenum(bytes).into(),
        }
    }

    /// A vdev in `zpool status`.
    pub(crate) fn vdev_status(
        &self,
        vdev: &VdevReport,
        parent: &str,
        depth: usize,
        name: &str,
        style: TreeStyle,
    ) -> Map<String, Value> {
        let mut members = self.vdev_head(vdev, name);
        let counts = &vdev.statistics;
        let mut add = |name: &str, value: Value| {
            members.insert(name.to_owned(), value);
        };
        if vdev.role == VdevRole::Spare {
            add("state", spare_word(vdev).into());
            return members;
        }
        let is_below = depth > 1 || vdev.role == VdevRole::Normal;
        if self.flat && depth > 0 && is_below {
            add("parent", parent.into());
        }
        let sizes = [
            ("alloc_space", counts.allocated),
            ("total_space", counts.space),
            ("def_space", counts.deflated_space),
            ("rep_dev_size", counts.replaceable_size),
            ("phys_space", counts.physical_size),
        ];
        for (name, bytes) in sizes {
            if bytes > 0 && !(depth > 1 && name.ends_with("_space") && name != "phys_space") {
                add(name, self.bytes(bytes));
            }
        }
        let errors = [
            ("read_errors", counts.read_errors),
            ("write_errors", counts.write_errors),
            ("checksum_errors", counts.checksum_errors),
        ];
        errors.into_iter().for_each(|(name, count)| add(name, self.bytes(count)));
        if counts.checkpoint_space > 0 && depth == 1 {
            add("checkpoint_space", self.bytes(counts.checkpoint_space));
        }
        if let Some(slow) = counts.slow_ios.filter(|_| vdev.children.is_empty() && depth > 0) {
            add("slow_ios", self.bytes(slow));
        }
        let is_device = matches!(vdev.kind.as_str(), "disk" | "file") && depth > 0;
        if style.initialize && is_device {
            let names = ["init_state", "initialized", "to_initialize", "init_time", "init_errors"];
            match &vdev.initialize {
                Some(sweep) => self.add_sweep(names, sweep, &mut add),
                None => add("init_state", "UNINITIALIZED".into()),
            }
        }
        if style.trim && is_device {
            let names = ["trim_state", "trimmed", "to_trim", "trim_time", "trim_errors"];
            match &vdev.trim {
                Some(sweep) => self.add_sweep(names, sweep, &mut add),
                None => add("trim_state", "UNTRIMMED".into()),
            }
            add("trim_notsup", self.numbers.exact(vdev.keeps_everything.into()));
        }
        if style.direct {
            add("dio_verify_errors", self.numbers.exact(0));
        }
        if vdev.not_present {
            add("not_present", self.numbers.exact(1));
            add("was", vdev.path.as_deref().unwrap_or_default().into());
        }
        members
    }

    /// Adds the members of a sweep, under given names.
    fn add_sweep(
        &self,
        [state, done, total, time, errors]: [&str; 5],
        sweep: &SweepReport,
        add: &mut dyn FnMut(&str, Value),
    ) {
        let word = match sweep.state {
            SweepState::Active => "ACTIVE",
            SweepState::Never => return,
            SweepState::Cancelled => "CANCELED",
            SweepState::Suspended => "SUSPENDED",
            SweepState::Complete => "COMPLETE",
        };
        add(state, word.into());
        add(done, self.bytes(sweep.done));
        add(total, self.bytes(sweep.total));
        add(time, self.time(sweep.action_time));
        add(errors, self.numbers.exact(0));
    }

    /// A pool in `zpool status`.
    pub(crate) fn status(&self, pool: &PoolReport, style: &StatusStyle) -> Value {
        let mut members = self.head(pool, false);
        let mut add = |name: &str, value: Value| {
            members.insert(name.to_owned(), value);
        };
        if let Some(explanation) = for_status(pool.status) {
            let text = |text: &str| format!("{}\n", text.replace('\n', "\n\t")).into();
            add("status", text(explanation.status));
            add("action", text(explanation.action));
            if let (Some(id), Some(address)) = (explanation.id, explanation.address()) {
                add("msgid", id.into());
                add("moreinfo", address.into());
            }
        }
        self.activities(pool).into_iter().for_each(|(name, value)| add(name, value));
        let names = self.names;
        let describe = |vdev: &VdevReport, parent: &str, depth: usize| {
            let name = if depth == 0 { pool.name.clone() } else { names.name(vdev) };
            self.vdev_status(vdev, parent, depth, &name, style.tree)
        };
        self.vdevs(pool, Placement::Pool, &describe)
            .into_iter()
            .for_each(|(name, value)| add(name, value));
        if let Some(dedup) = pool.dedup.as_ref().filter(|_| style.dedup) {
            add("dedup_stats", self.dedup(dedup));
        }
        add("error_count", self.numbers.exact(pool.damage.len() as u64));
        if !pool.damage.is_empty() {
            let names = pool.damage.iter().map(|file| Value::from(file.name.as_str()));
            add("errlist", names.collect());
        }
        members.into()
    }

    fn dedup(&self, dedup: &DedupReport) -> Value {
        let row = |row: &[u64; 8]| {
            const NAMES: [&str; 8] = [
                "blocks",
                "logical_size",
                "physical_size",
                "deflated_size",
                "ref_blocks",
                "ref_lsize",
                "ref_psize",
                "ref_dsize",
            ];
            object(NAMES.into_iter().zip(row.iter().map(|number| self.bytes(*number))))
        };
        let rows = dedup.histogram.iter().enumerate().filter(|(_, row)| row[0] != 0);
        let histogram: Map<_, _> =
            rows.map(|(power, numbers)| (power.to_string(), row(numbers))).collect();
        let mut total = [0u64; 8];
        for numbers in &dedup.histogram {
            total.iter_mut().zip(numbers).for_each(|(sum, more)| *sum = sum.saturating_add(*more));
        }
        let statistics = [("total", row(&total)), ("histogram", histogram.into())];
        object([
            ("obj_count", self.numbers.exact(dedup.entries)),
            ("dspace", self.bytes(dedup.disk_bytes)),
            ("mspace", self.bytes(dedup.core_bytes)),
            ("cspace", self.bytes(0)),
            ("ddt_stats", object(statistics)),
        ])
    }

    /// A value of a vdev in `zpool list -v`.
    pub(crate) fn cell(&self, text: String) -> Value {
        let none = object([("type", "NONE".into()), ("data", "-".into())]);
        let value = match (self.numbers, text.parse::<u64>()) {
            (Numbers::Integers, Ok(number)) => number.into(),
            _ => text.into(),
        };
        object([("value", value), ("source", none)])
    }
}

/// OpenZFS's word for a state in JSON.
const fn state_name(state: VdevState) -> &'static str {
    match state {
        VdevState::Unknown => "UNKNOWN",
        VdevState::Closed => "CLOSED",
        VdevState::Offline => "OFFLINE",
        VdevState::Removed => "REMOVED",
        VdevState::CantOpen => "CANT_OPEN",
        VdevState::Faulted => "FAULTED",
        VdevState::Degraded => "DEGRADED",
        VdevState::Healthy => "ONLINE",
    }
}

const fn class_name(role: VdevRole) -> &'static str {
    match role {
        VdevRole::Normal => "normal",
        VdevRole::Log => "log",
        VdevRole::Special => "special",
        VdevRole::Dedup => "dedup",
        VdevRole::Spare => "spare",
        VdevRole::Cache => "l2cache",
    }
}
