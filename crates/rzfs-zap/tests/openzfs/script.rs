//! Sequences of changes that depend on nothing but their numbers, and their text for `oracle.c`.

use std::fmt;

use rzfs_zap::{IntegerSize, NewZap, Normalization, ZapFlags, ZapKey, ZapValue};

/// What the ZAP of a script is made as.
#[derive(Clone, Copy)]
pub(crate) enum Shape {
    /// A microzap with these normflags, to which only numbers are added.
    Numbers(u64),
    /// A microzap, to which all kinds of names and values are added.
    Names,
    /// A fat ZAP with these flags and blocks of 4 KiB, with words as keys.
    Words(u64),
    /// The same with words that are their own hashes, whatever the salt, and numbers as values.
    Hashes,
}

pub(crate) struct Script {
    pub(crate) shape: Shape,
    pub(crate) seed: u64,
    /// Changes of which three in four add entries.
    pub(crate) grow: usize,
    /// Changes of which three in four remove entries.
    pub(crate) shrink: usize,
    /// Whether at last all entries are removed.
    pub(crate) empty: bool,
}

/// A value of `count` integers that begin with `first` and ascend.
#[derive(Clone, Copy)]
pub(crate) struct Value {
    size: IntegerSize,
    count: u64,
    first: u64,
}

pub(crate) enum Change {
    Insert(ZapKey, Value),
    Update(ZapKey, Value),
    Remove(ZapKey),
    Add(ZapKey, i64),
}

struct Random(u64);

impl Random {
    /// SplitMix64.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

impl Script {
    pub(crate) fn new_zap(&self, salt: u64) -> NewZap {
        let new = NewZap::new(salt);
        match self.shape {
            Shape::Numbers(flags) => new.normalization(Normalization::from_flags(flags).unwrap()),
            Shape::Names => new,
            Shape::Words(flags) => new.fat(ZapFlags(flags), 4096),
            Shape::Hashes => new.fat(ZapFlags(7), 4096),
        }
    }

    /// The line that makes the ZAP: normflags, flags, and log2 of the block size.
    pub(crate) fn creation(&self) -> String {
        match self.shape {
            Shape::Numbers(flags) => format!("C {flags} 0 0"),
            Shape::Names => "C 0 0 0".to_owned(),
            Shape::Words(flags) => format!("C 0 {flags} 12"),
            Shape::Hashes => "C 0 7 12".to_owned(),
        }
    }

    pub(crate) fn changes(&self) -> Vec<Change> {
        let mut random = Random(self.seed);
        let mut keys: Vec<ZapKey> = Vec::new();
        let mut changes = Vec::new();
        for step in 0..self.grow + self.shrink {
            let adds = random.below(4) < if step < self.grow { 3 } else { 1 };
            if !adds && !keys.is_empty() {
                changes.push(Change::Remove(keys.swap_remove(random.below(keys.len()))));
                continue;
            }
            let value = self.value(&mut random);
            match random.below(12) {
                // A full microzap that is asked for a key that is there grows in OpenZFS.
                0 if !keys.is_empty() && !matches!(self.shape, Shape::Numbers(_)) => {
                    let key = keys[random.below(keys.len())].clone();
                    changes.push(Change::Update(key, value));
                }
                1 if !matches!(self.shape, Shape::Words(_) | Shape::Hashes) => {
                    let key = ZapKey::Name(format!("sum-{step}").into_bytes().into());
                    keys.push(key.clone());
                    changes.push(Change::Add(key, random.below(1000) as i64 + 1));
                }
                _ => {
                    let key = self.key(step, &mut random);
                    keys.push(key.clone());
                    changes.push(Change::Insert(key, value));
                }
            }
        }
        if self.empty {
            changes.extend(keys.into_iter().map(Change::Remove));
        }
        changes
    }

    fn key(&self, step: usize, random: &mut Random) -> ZapKey {
        let name = match self.shape {
            Shape::Words(_) | Shape::Hashes => {
                return ZapKey::Words((0..3).map(|_| random.next()).collect());
            }
            Shape::Numbers(0) => format!("entry-number-{step}"),
            Shape::Numbers(_) => {
                format!("{}-{}", ["Name", "name", "NAME"][step % 3], step / 3)
            }
            Shape::Names if random.below(4) == 0 => {
                format!("{}{step}", "x".repeat(random.below(200)))
            }
            Shape::Names => format!("entry-number-{step}"),
        };
        ZapKey::Name(name.into_bytes().into())
    }

    fn value(&self, random: &mut Random) -> Value {
        let first = random.next() >> 24;
        if matches!(self.shape, Shape::Numbers(_) | Shape::Hashes) {
            return Value { size: IntegerSize::Eight, count: 1, first };
        }
        let sizes = [IntegerSize::One, IntegerSize::Two, IntegerSize::Four, IntegerSize::Eight];
        let counts = [0, 1, 1, 2, 5, 20, 100, 300];
        Value { size: sizes[random.below(4)], count: counts[random.below(8)], first }
    }
}

impl From<Value> for ZapValue {
    fn from(value: Value) -> Self {
        let integers = (0..value.count).map(|index| value.first + index);
        Self::new(value.size, &integers.collect::<Vec<_>>())
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.size.bytes(), self.count, self.first)
    }
}

impl fmt::Display for Change {
    /// A letter (small for names, large for words), the value or the number to add, and the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (letter, value, key) = match self {
            Self::Insert(key, value) => ('a', value.to_string(), key),
            Self::Update(key, value) => ('u', value.to_string(), key),
            Self::Remove(key) => ('r', "0 0 0".to_owned(), key),
            Self::Add(key, delta) => ('i', delta.to_string(), key),
        };
        match key {
            ZapKey::Name(name) => {
                write!(f, "{letter} {value} {}", String::from_utf8_lossy(name))
            }
            ZapKey::Words(words) => {
                write!(f, "{} {value} {}", letter.to_ascii_uppercase(), words.len())?;
                words.iter().try_for_each(|word| write!(f, " {word:x}"))
            }
        }
    }
}
