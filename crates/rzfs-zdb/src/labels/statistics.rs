//! `zdb -ll`: the space used in a label's configuration.

use rzfs_format::label::{CONFIG_SIZE, TRAILER_SIZE};
use rzfs_format::nvlist::{Encoding, NvList, NvValue};
use std::io::{self, Write};

/// Pairs of one kind and their packed size.
#[derive(Default)]
struct Share {
    pairs: usize,
    bytes: usize,
}

#[derive(Default)]
struct Shares {
    integers: Share,
    strings: Share,
    booleans: Share,
    lists: usize,
    leaf_bytes: Vec<usize>,
}

fn packed_size(list: &NvList) -> usize {
    list.encode(Encoding::Xdr).map_or(0, |bytes| bytes.len())
}

/// Size of a pair in a packed list.
fn pair_size(name: &[u8], value: &NvValue) -> usize {
    let mut alone = NvList::new();
    let empty = packed_size(&alone);
    match alone.insert(name, value.clone()) {
        Ok(()) => packed_size(&alone).saturating_sub(empty),
        Err(_) => 0,
    }
}

impl Shares {
    fn collect(&mut self, list: &NvList) {
        self.lists += 1;
        for pair in list.iter() {
            let name = pair.name().as_bytes();
            let share = match pair.value() {
                NvValue::List(inner) => {
                    self.collect_inner(name, std::slice::from_ref(inner));
                    continue;
                }
                NvValue::ListArray(inner) => {
                    self.collect_inner(name, inner);
                    continue;
                }
                NvValue::String(_) | NvValue::StringArray(_) => &mut self.strings,
                NvValue::Boolean | NvValue::BooleanValue(_) => &mut self.booleans,
                _ => &mut self.integers,
            };
            share.pairs += 1;
            share.bytes += pair_size(name, pair.value());
        }
    }

    fn collect_inner(&mut self, name: &[u8], lists: &[impl std::borrow::Borrow<NvList>]) {
        for list in lists {
            let list = list.borrow();
            if name == b"children" && !list.contains("children") {
                self.leaf_bytes.push(packed_size(list));
            }
            self.collect(list);
        }
    }
}

/// Prints the statistics.
pub(super) fn print(out: &mut dyn Write, config: &NvList) -> io::Result<()> {
    let used = packed_size(config);
    let free = (CONFIG_SIZE - TRAILER_SIZE).saturating_sub(used);
    let mut shares = Shares::default();
    shares.collect(config);
    let known = shares.integers.bytes + shares.strings.bytes + shares.booleans.bytes;
    let lists = Share { pairs: shares.lists, bytes: used.saturating_sub(known) };
    let percent = |part: usize, all: usize| part as f64 * 100.0 / all.max(1) as f64;

    writeln!(out, "\n\nZFS Label NVList Config Stats:")?;
    let share_used = percent(used, used + free);
    writeln!(out, "  {used} bytes used, {free} bytes free (using {share_used:4.1}%)\n")?;
    for (name, share) in [
        ("integers:", &shares.integers),
        ("strings:", &shares.strings),
        ("booleans:", &shares.booleans),
        ("nvlists:", &lists),
    ] {
        let part = percent(share.bytes, used);
        writeln!(out, "{name:>12} {:4} {:6} bytes ({part:5.2}%)", share.pairs, share.bytes)?;
    }
    writeln!(out)?;
    if !shares.leaf_bytes.is_empty() {
        let count = shares.leaf_bytes.len();
        let average = shares.leaf_bytes.iter().sum::<usize>() / count;
        let largest = shares.leaf_bytes.iter().copied().max().unwrap_or(0);
        writeln!(out, "{:>12} {count:4} {average:6} bytes average", "leaf vdevs:")?;
        writeln!(out, "{largest:24} bytes largest")?;
        writeln!(out, "  space for {} additional leaf vdevs", free / largest.max(1))?;
    }
    writeln!(out)
}
