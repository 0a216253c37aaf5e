//! Parsing the arguments that describe vdevs.

use super::draid_request::{self, DraidError};
use crate::config::{AllocationBias, DraidRecord};
use crate::raidz::RaidzGeometry;

/// The layout of a top-level vdev.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TopLayout {
    /// It is the device.
    Single,
    /// `mirror`.
    Mirror,
    /// `raidz1` to `raidz3`.
    Raidz {
        /// Columns of parity, 1 to 3.
        parity: u8,
    },
    /// `draid...`.
    Draid {
        /// Columns of parity, 1 to 3.
        parity: u8,
        /// The other numbers.
        shape: DraidRecord,
    },
}

/// A requested top-level vdev; `D` describes a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TopSpec<D> {
    /// Its layout.
    pub layout: TopLayout,
    /// Its role; `None`: ordinary data.
    pub bias: Option<AllocationBias>,
    /// Its devices: one for [`TopLayout::Single`], else at least as many as the layout needs.
    pub devices: Vec<D>,
}

/// The requested vdevs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VdevSpec<D = String> {
    /// Top-level vdevs in their order.
    pub tops: Vec<TopSpec<D>>,
    /// Hot spares.
    pub spares: Vec<D>,
    /// Cache devices.
    pub caches: Vec<D>,
}

/// Why arguments do not describe valid vdevs. The messages are OpenZFS's.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SpecError {
    /// No device at all.
    #[error("invalid vdev specification: at least one toplevel vdev must be specified")]
    Nothing,
    /// Only spares, caches and logs for a new pool.
    #[error("invalid vdev specification: at least one general top-level vdev must be specified")]
    NoGeneralVdev,
    /// A keyword that may be given only once.
    #[error("invalid vdev specification: '{0}' can be specified only once")]
    Repeated(&'static str),
    /// A layout that is not possible for log devices.
    #[error("invalid vdev specification: unsupported 'log' device: {0}")]
    LogLayout(String),
    /// Too few devices.
    #[error("invalid vdev specification: {keyword} requires at least {needed} devices")]
    TooFew {
        /// The keyword.
        keyword: String,
        /// Required devices.
        needed: usize,
    },
    /// `log` without a device.
    #[error("invalid vdev specification: log requires at least 1 device")]
    EmptyLog,
    /// Too many devices.
    #[error("invalid vdev specification: {keyword} supports no more than {limit} devices")]
    TooMany {
        /// The keyword.
        keyword: String,
        /// Maximum devices.
        limit: usize,
    },
    /// A RAID-Z with too much parity.
    #[error("invalid vdev specification: {0}: parity must be between 1 and 3")]
    Parity(String),
    /// An invalid dRAID.
    #[error(transparent)]
    Draid(#[from] DraidError),
    /// The name of a distributed spare, which is created with its dRAID.
    #[error("cannot open '{0}': dRAID spares can only be used to replace primary vdevs")]
    DistributedSpare(String),
}

/// A word that begins a group of devices.
enum Keyword {
    Mirror,
    Raidz(u8),
    Draid,
    Bias(AllocationBias),
    Spare,
    Cache,
}

impl Keyword {
    fn of(word: &str) -> Result<Option<Self>, SpecError> {
        Ok(Some(match word {
            "mirror" => Self::Mirror,
            "log" => Self::Bias(AllocationBias::Log),
            "special" => Self::Bias(AllocationBias::Special),
            "dedup" => Self::Bias(AllocationBias::Dedup),
            "spare" => Self::Spare,
            "cache" => Self::Cache,
            "raidz" => Self::Raidz(1),
            _ if is_distributed_spare(word) => {
                return Err(SpecError::DistributedSpare(word.to_owned()));
            }
            _ if word.starts_with("draid") => Self::Draid,
            _ => match word.strip_prefix("raidz").map(str::parse) {
                Some(Ok(parity @ 1..=3)) => Self::Raidz(parity),
                Some(Ok(_)) => return Err(SpecError::Parity(word.to_owned())),
                _ => return Ok(None),
            },
        }))
    }
}

/// Whether a word is the name of a distributed spare, as `draid2-0-1`.
fn is_distributed_spare(word: &str) -> bool {
    let numbers = word.strip_prefix("draid").map(|rest| rest.split('-'));
    numbers.is_some_and(|numbers| {
        let numbers: Vec<&str> = numbers.collect();
        numbers.len() == 3 && numbers.iter().all(|number| number.parse::<u64>().is_ok())
    })
}

impl VdevSpec {
    /// Parses the vdev arguments of `zpool create` or `zpool add`.
    ///
    /// # Errors
    /// [`SpecError`] with OpenZFS's message.
    pub fn parse<W: AsRef<str>>(words: &[W]) -> Result<Self, SpecError> {
        let mut parser = Parser {
            words: words.iter().map(W::as_ref).collect(),
            spec: Self { tops: Vec::new(), spares: Vec::new(), caches: Vec::new() },
            bias: None,
            seen: Vec::new(),
        };
        let mut next = 0;
        while let Some(word) = parser.words.get(next).copied() {
            next = parser.take(word, next + 1)?;
        }
        let Parser { spec, seen, .. } = parser;
        let has_log = spec.tops.iter().any(|top| top.bias == Some(AllocationBias::Log));
        if seen.contains(&"log") && !has_log {
            return Err(SpecError::EmptyLog);
        }
        if spec.tops.is_empty() && spec.spares.is_empty() && spec.caches.is_empty() {
            return Err(SpecError::Nothing);
        }
        Ok(spec)
    }
}

impl<D> VdevSpec<D> {
    /// Checks that it describes a new pool: it has a vdev for ordinary data.
    ///
    /// # Errors
    /// [`SpecError::NoGeneralVdev`].
    pub fn check_new_pool(&self) -> Result<(), SpecError> {
        let is_general = |top: &TopSpec<D>| top.bias.is_none();
        if self.tops.iter().any(is_general) { Ok(()) } else { Err(SpecError::NoGeneralVdev) }
    }

    /// All devices: those of the top-level vdevs, then spares, then caches.
    pub fn devices(&self) -> impl Iterator<Item = &D> {
        let tops = self.tops.iter().flat_map(|top| &top.devices);
        tops.chain(&self.spares).chain(&self.caches)
    }
}

struct Parser<'w> {
    words: Vec<&'w str>,
    spec: VdevSpec,
    /// The role of the next top-level vdevs.
    bias: Option<AllocationBias>,
    /// Keywords already given that may be given only once.
    seen: Vec<&'static str>,
}

impl Parser<'_> {
    /// Parses a word and its devices; returns the position of the next word.
    fn take(&mut self, word: &str, next: usize) -> Result<usize, SpecError> {
        let Some(keyword) = Keyword::of(word)? else {
            let devices = vec![word.to_owned()];
            self.spec.tops.push(TopSpec { layout: TopLayout::Single, bias: self.bias, devices });
            return Ok(next);
        };
        if let Keyword::Bias(bias) = keyword {
            if bias == AllocationBias::Log {
                self.only_once("log")?;
            }
            self.bias = Some(bias);
            return Ok(next);
        }
        let (devices, next) = self.devices(next)?;
        let count = devices.len();
        let needs = |needed: usize| {
            if count < needed {
                return Err(SpecError::TooFew { keyword: word.to_owned(), needed });
            }
            Ok(())
        };
        match keyword {
            Keyword::Spare => {
                self.only_once("spare")?;
                needs(1)?;
                (self.spec.spares, self.bias) = (devices, None);
            }
            Keyword::Cache => {
                self.only_once("cache")?;
                needs(1)?;
                (self.spec.caches, self.bias) = (devices, None);
            }
            Keyword::Mirror => {
                needs(2)?;
                self.push(TopLayout::Mirror, devices);
            }
            Keyword::Raidz(parity) => {
                self.refuse_log(word)?;
                needs(usize::from(parity) + 1)?;
                let limit = RaidzGeometry::MAX_CHILDREN;
                if count > limit {
                    return Err(SpecError::TooMany { keyword: word.to_owned(), limit });
                }
                self.push(TopLayout::Raidz { parity }, devices);
            }
            Keyword::Draid | Keyword::Bias(_) => {
                self.refuse_log(word)?;
                let (parity, shape) = draid_request::parse(word, count)?;
                self.push(TopLayout::Draid { parity, shape }, devices);
            }
        }
        Ok(next)
    }

    fn push(&mut self, layout: TopLayout, devices: Vec<String>) {
        self.spec.tops.push(TopSpec { layout, bias: self.bias, devices });
    }

    fn refuse_log(&self, word: &str) -> Result<(), SpecError> {
        match self.bias {
            Some(AllocationBias::Log) => Err(SpecError::LogLayout(word.to_owned())),
            _ => Ok(()),
        }
    }

    fn only_once(&mut self, keyword: &'static str) -> Result<(), SpecError> {
        if self.seen.contains(&keyword) {
            return Err(SpecError::Repeated(keyword));
        }
        self.seen.push(keyword);
        Ok(())
    }

    /// The words up to the next keyword, and its position.
    fn devices(&self, start: usize) -> Result<(Vec<String>, usize), SpecError> {
        let mut devices = Vec::new();
        let mut next = start;
        while let Some(word) = self.words.get(next) {
            if Keyword::of(word)?.is_some() {
                break;
            }
            devices.push((*word).to_owned());
            next += 1;
        }
        Ok((devices, next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> Result<VdevSpec, SpecError> {
        VdevSpec::parse(&words.split_whitespace().collect::<Vec<_>>())
    }

    /// Layout, purpose and devices of all top-level vdevs.
    fn shape(words: &str) -> Vec<(TopLayout, Option<AllocationBias>, String)> {
        let tops = parse(words).unwrap().tops.into_iter();
        tops.map(|top| (top.layout, top.bias, top.devices.join(" "))).collect()
    }

    #[test]
    fn groups_end_at_the_next_keyword() {
        let (log, special) = (Some(AllocationBias::Log), Some(AllocationBias::Special));
        let raidz = |parity| TopLayout::Raidz { parity };
        let expected = [
            (TopLayout::Mirror, None, "a b"),
            (raidz(2), None, "c d e"),
            (TopLayout::Mirror, special, "f g"),
            (TopLayout::Single, log, "h"),
            (TopLayout::Single, log, "i"),
        ];
        let found = shape("mirror a b raidz2 c d e special mirror f g log h i spare s t cache u");
        assert_eq!(found, expected.map(|(layout, bias, devices)| (layout, bias, devices.into())));
        let spec = parse("a spare s t cache u b").unwrap();
        assert_eq!((spec.spares.len(), spec.caches.join(" ")), (2, "u b".to_owned()));
        assert_eq!(shape("raidz a b c")[0].0, raidz(1));
        assert_eq!(shape("special raidz3 a b c d")[0].1, special);
    }

    #[test]
    fn messages_are_those_of_openzfs() {
        for (words, message) in [
            ("", "invalid vdev specification: at least one toplevel vdev must be specified"),
            ("mirror a", "invalid vdev specification: mirror requires at least 2 devices"),
            ("raidz a", "invalid vdev specification: raidz requires at least 2 devices"),
            ("raidz1 a", "invalid vdev specification: raidz1 requires at least 2 devices"),
            ("raidz3 a b c", "invalid vdev specification: raidz3 requires at least 4 devices"),
            ("a log", "invalid vdev specification: log requires at least 1 device"),
            ("a log raidz b c", "invalid vdev specification: unsupported 'log' device: raidz"),
            ("a log b log c", "invalid vdev specification: 'log' can be specified only once"),
            ("a spare b spare c", "invalid vdev specification: 'spare' can be specified only once"),
            ("a cache b cache c", "invalid vdev specification: 'cache' can be specified only once"),
            ("a spare", "invalid vdev specification: spare requires at least 1 devices"),
            (
                "spare draid2-0-0",
                "cannot open 'draid2-0-0': dRAID spares can only be used to replace primary vdevs",
            ),
        ] {
            assert_eq!(parse(words).unwrap_err().to_string(), message, "{words}");
        }
        assert_eq!(parse("raidz4 a b c d e"), Err(SpecError::Parity("raidz4".into())));
        let wide = format!("raidz {}", vec!["x"; 256].join(" "));
        assert!(matches!(parse(&wide), Err(SpecError::TooMany { limit: 255, .. })));
    }

    #[test]
    fn a_pool_needs_a_vdev_for_data() {
        assert!(parse("a").unwrap().check_new_pool().is_ok());
        for words in ["log a", "spare a", "special mirror a b", "cache a"] {
            let error = parse(words).unwrap().check_new_pool();
            assert_eq!(error, Err(SpecError::NoGeneralVdev), "{words}");
        }
    }
}
