//! One attempt to open a pool, from its labels to its datasets (spec 01, sections 9.4 to 9.7).

use super::activity::Watch;
use super::discovery::DiscoveredPool;
use super::error::{ImportError, UnsupportedFeature};
use super::indirect;
use super::label_scan::LabelTrust;
use super::options::{ActivityCheck, HostCheck, ImportOptions, LoadVerification, MissingLogs};
use super::uberblock_scan::{FoundUberblock, UberblockScan};
use super::validation::{Rules, Stage, ValidatedLeaves};
use super::verification;
use crate::dataset::DatasetName;
use crate::memory;
use crate::mos::error::MosError;
use crate::mos::packed_list;
use crate::mos::{MosSource, OBJECT_DIRECTORY};
use crate::pool::{
    Attributes, AuxiliaryKind, AuxiliaryVdev, FeatureNeed, FeatureStates, Parts, PoolError,
    RewindInfo, is_supported, read_auxiliary_configs,
};
use rzfs_codec::checksum::Salt;
use rzfs_dmu::{BlockPipeline, Objset, PipelineOptions};
use rzfs_format::config::PoolConfig;
use rzfs_format::features::Feature;
use rzfs_format::nvlist::NvList;
use rzfs_format::pool_state::PoolState;
use rzfs_format::uberblock::{FEATURES_VERSION, Uberblock, is_supported_version};
use rzfs_format::{ObjsetId, Txg};
use rzfs_vdev::{IoTunables, TreeOptions, Vdev, VdevConfig, VdevTree};
use std::sync::Arc;

/// What the pool is opened for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    /// To use it.
    Import,
    /// To show it to the user.
    Examine,
}

/// How far an attempt came: what is known about a pool that cannot be opened.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    pub(super) vdevs: Option<Arc<VdevTree>>,
    pub(super) uberblock: Option<Uberblock>,
    pub(super) config: Option<PoolConfig>,
    pub(super) auxiliary: Vec<AuxiliaryVdev>,
}

/// The newest state that could not be opened, during a rewind.
#[derive(Clone, Debug)]
struct Rewind {
    best: Uberblock,
    safe: Txg,
}

/// One attempt to open a pool.
pub(super) struct Attempt<'a> {
    discovered: &'a DiscoveredPool,
    options: &'a ImportOptions,
    purpose: Purpose,
    seen: Seen,
    watched: bool,
    rewind: Option<Rewind>,
    /// The txg of the best uberblock: younger labels do not count.
    label_limit: Option<Txg>,
}

/// The MOS at an uberblock, with the entry points to everything else.
struct OpenMos {
    pipeline: Arc<BlockPipeline>,
    mos: Objset,
    directory: Attributes,
}

impl<'a> Attempt<'a> {
    pub(super) fn new(
        discovered: &'a DiscoveredPool,
        options: &'a ImportOptions,
        purpose: Purpose,
    ) -> Self {
        let seen = Seen::default();
        Self { discovered, options, purpose, seen, watched: false, rewind: None, label_limit: None }
    }

    /// What is known after an attempt, whether it succeeded or not.
    pub(super) fn seen(&self) -> &Seen {
        &self.seen
    }

    /// Switches to states older than `best`; those before `safe` get a full check.
    pub(super) fn set_rewind(&mut self, best: &Uberblock, safe: Txg) {
        self.rewind = Some(Rewind { best: best.clone(), safe });
    }

    /// Opens the newest state between `oldest` and `limit`.
    pub(super) fn newest(&mut self, limit: Option<Txg>, oldest: Txg) -> Result<Parts, ImportError> {
        self.seen.uberblock = None;
        match self.try_newest(limit, oldest) {
            // The missing data was on the missing vdevs.
            Err(error @ (ImportError::Mos(_) | ImportError::Pool(_))) => {
                let lacking = self.seen.vdevs.as_ref().filter(|tree| lacks_vdevs(tree));
                Err(match lacking {
                    Some(tree) => {
                        ImportError::MissingDevices { devices: names(tree.missing_leaves()) }
                    }
                    None => self.naming_missing(error),
                })
            }
            Err(error) => Err(self.naming_missing(error)),
            result => result,
        }
    }

    /// The error, with the names of missing devices that may have the data.
    fn naming_missing(&self, error: ImportError) -> ImportError {
        let tree = self.seen.vdevs.as_ref().filter(|_| error.may_come_back());
        let absent = tree.map(|tree| tree.absent_leaves()).unwrap_or_default();
        if absent.is_empty() {
            return error;
        }
        ImportError::MissingNewer { devices: names(absent), source: Box::new(error) }
    }

    fn try_newest(&mut self, limit: Option<Txg>, oldest: Txg) -> Result<Parts, ImportError> {
        let mut vdevs = self.discovered.vdevs.clone();
        let mut found = self.choose(&vdevs, limit)?;
        if found.uberblock.txg < oldest {
            return Err(ImportError::NoUberblock);
        }
        let (mut list, mut trusted) = self.trusted_config(&vdevs, &found.uberblock)?;
        // Stale labels can hide some devices; the configuration in the MOS may lead to a better
        // uberblock.
        let again = self.choose(&trusted, limit)?;
        if again.uberblock != found.uberblock {
            (found, vdevs) = (again, trusted);
            (list, trusted) = self.trusted_config(&vdevs, &found.uberblock)?;
        }
        self.load(found.uberblock, &list, trusted)
    }

    /// Opens the pool's checkpoint.
    pub(super) fn checkpoint(&mut self) -> Result<Parts, ImportError> {
        let newest = self.newest(None, Txg(0))?;
        let uberblock = newest.checkpoint.ok_or(ImportError::NoCheckpoint)?;
        let vdevs = newest.vdevs.config();
        let (list, trusted) = self.trusted_config(&vdevs, &uberblock)?;
        self.load(uberblock, &list, trusted)
    }

    /// Builds the tree of a configuration, with the devices that validate.
    fn open_tree(
        &mut self,
        config: &VdevConfig,
        stage: Stage,
        uberblock: Option<&Uberblock>,
    ) -> Result<Arc<VdevTree>, ImportError> {
        let rules = Rules {
            pool: self.discovered.guid(),
            stage,
            newest: self.label_limit.filter(|_| uberblock.is_some() && self.rewind.is_none()),
            trust: self.options.labels,
        };
        let leaves = ValidatedLeaves::find(config, &self.discovered.devices, rules);
        let version = uberblock.map_or(self.discovered.label.version, |found| found.version);
        let max_missing_tvds = match stage {
            // Whether the pool can do without them is decided by the trusted configuration.
            Stage::Untrusted => usize::MAX,
            Stage::Trusted => self.options.tunables.zfs_max_missing_tvds,
        };
        let options = TreeOptions {
            version,
            reflow: uberblock.map(|uberblock| uberblock.raidz_reflow).unwrap_or_default(),
            max_missing_tvds,
            tunables: IoTunables::from(&self.options.tunables),
        };
        let tree = Arc::new(VdevTree::open(config.clone(), &leaves, options)?);
        self.seen.vdevs = Some(Arc::clone(&tree));
        Ok(tree)
    }

    /// Finds the best uberblock on the leaves of a configuration (spec 01, section 3.3).
    fn choose(
        &mut self,
        config: &VdevConfig,
        limit: Option<Txg>,
    ) -> Result<FoundUberblock, ImportError> {
        let tree = self.open_tree(config, Stage::Untrusted, None)?;
        let scan = UberblockScan::of_tree(&tree);
        let best = scan.best(limit).ok_or(ImportError::NoUberblock)?;
        let uberblock = &best.uberblock;
        self.seen.uberblock = Some(uberblock.clone());
        let newest = scan.best(None).map(|newest| newest.uberblock.raidz_reflow);
        if newest != Some(uberblock.raidz_reflow) {
            return Err(ImportError::BeforeExpansion { txg: uberblock.txg });
        }
        if !self.watched && self.options.activity == ActivityCheck::Perform {
            let label = &self.discovered.label;
            let watch = Watch {
                host: &self.options.host,
                last: &label.host,
                state: label.state,
                clock: &*self.options.clock,
                tunables: &self.options.tunables,
            };
            let newest = scan.best(None).map_or(uberblock, |newest| &newest.uberblock);
            watch.run(newest, || {
                let scan = UberblockScan::of_tree(&tree);
                scan.best(None).map(|best| best.uberblock.clone())
            })?;
            self.watched = true;
        }
        if !is_supported_version(uberblock.version) {
            return Err(ImportError::UnsupportedVersion { version: uberblock.version });
        }
        self.check_label_features(best)?;
        self.label_limit = Some(uberblock.txg);
        Ok(best.clone())
    }

    /// Checks the features that the label of the uberblock's device requires for the MOS.
    fn check_label_features(&self, found: &FoundUberblock) -> Result<(), ImportError> {
        if found.uberblock.version < FEATURES_VERSION {
            return Ok(());
        }
        let devices = &self.discovered.devices;
        let limit = Some(found.uberblock.txg);
        let any = if self.rewind.is_some() { LabelTrust::Unverified } else { self.options.labels };
        let labels = found.leaves.iter().flat_map(|leaf| devices.with_guid(*leaf));
        let features = labels
            .filter_map(|device| {
                let fitting = device.newest(self.options.labels, limit);
                let label = fitting.or_else(|| device.newest(any, None))?;
                label.member()?.pool.features_for_read.as_ref()
            })
            .next()
            .ok_or(ImportError::NoLabelFeatures)?;
        let unsupported: Vec<_> = features
            .iter()
            .filter(|guid| !Feature::from_guid(guid).is_some_and(is_supported))
            .map(|guid| UnsupportedFeature {
                guid: guid.to_text().into_owned(),
                description: String::new(),
            })
            .collect();
        if unsupported.is_empty() {
            Ok(())
        } else {
            Err(ImportError::UnsupportedFeatures { features: unsupported })
        }
    }

    /// Reads the configuration in the MOS, through the vdevs that the labels give.
    fn trusted_config(
        &mut self,
        vdevs: &VdevConfig,
        uberblock: &Uberblock,
    ) -> Result<(NvList, VdevConfig), ImportError> {
        let tree = self.open_tree(vdevs, Stage::Untrusted, Some(uberblock))?;
        let features = self.discovered.label.features_for_read.as_deref().unwrap_or_default();
        let dynamic_gang_headers =
            features.iter().any(|guid| *guid == Feature::DynamicGangHeader.guid());
        let OpenMos { mos, .. } = self.open_mos(&tree, uberblock, None, dynamic_gang_headers)?;
        let list = packed_list::read(&mos, mos.required_object("config")?)?;
        let config = PoolConfig::from_list(&list).map_err(ImportError::Config)?;
        if config.guid != self.discovered.guid() {
            return Err(ImportError::ForeignPool { found: config.guid });
        }
        let mut trusted =
            VdevConfig::from_nvlist(&config.vdev_tree).map_err(ImportError::Config)?;
        self.discovered.devices.fix_paths(&mut trusted);
        self.seen.config = Some(config);
        Ok((list, trusted))
    }

    fn open_mos(
        &self,
        tree: &Arc<VdevTree>,
        uberblock: &Uberblock,
        salt: Option<&Salt>,
        dynamic_gang_headers: bool,
    ) -> Result<OpenMos, ImportError> {
        let options = PipelineOptions {
            // The MOS uses no keyed checksum; the salt is in it.
            salt: salt.cloned().unwrap_or_else(|| Salt::new([0; Salt::SIZE])),
            dynamic_gang_headers,
            arc_max: memory::cache(&self.options.tunables),
            tunables: self.options.tunables,
            injector: self.options.injector.clone(),
        };
        let pipeline = BlockPipeline::new(Arc::clone(tree), options);
        let mos = Objset::open(&pipeline, ObjsetId::MOS, &uberblock.mos, None)?;
        let directory = Attributes::open(&mos, OBJECT_DIRECTORY)?;
        Ok(OpenMos { pipeline, mos, directory })
    }

    /// Opens everything through the trusted configuration.
    fn load(
        &mut self,
        uberblock: Uberblock,
        list: &NvList,
        trusted: VdevConfig,
    ) -> Result<Parts, ImportError> {
        let config = PoolConfig::from_list(list).map_err(ImportError::Config)?;
        self.check_host(&config, &uberblock)?;
        let vdevs = self.open_tree(&trusted, Stage::Trusted, Some(&uberblock))?;
        let in_config = config.features_for_read.as_deref().unwrap_or_default();
        let dynamic = in_config.iter().any(|guid| *guid == Feature::DynamicGangHeader.guid());
        let without_salt = self.open_mos(&vdevs, &uberblock, None, dynamic);
        if let Ok(OpenMos { mos, directory, .. }) = &without_salt {
            self.seen.auxiliary = self.auxiliary(mos, directory, &vdevs)?;
        }
        self.check_vdevs(&vdevs)?;
        check_guid_sum(&vdevs, &uberblock)?;
        let salt = salt(&without_salt?.directory)?;
        let OpenMos { pipeline, mos, directory } =
            self.open_mos(&vdevs, &uberblock, salt.as_ref(), dynamic)?;
        let removal = indirect::load_mappings(&mos, &directory, &vdevs)?;
        let features = FeatureStates::read(&mos, uberblock.version)?;
        check_features(&features)?;
        indirect::load_allocation_biases(&mos, &vdevs)?;
        indirect::load_missing_txgs(&mos, &vdevs);
        let root_dataset = mos.required_object("root_dataset")?;
        let checkpoint = checkpoint(&directory)?;
        let rewound = self.verify(&mos, &uberblock)?;
        // The caller found the pool by its name in the labels, so it keeps that name.
        let name = self.options.name.clone();
        let name = name.unwrap_or_else(|| self.discovered.name().to_owned());
        // One that began otherwise would be an option of a command.
        let begins = name.starts_with(|first: char| first.is_ascii_alphabetic());
        if !begins || !DatasetName::parse(&name).is_some_and(|parsed| parsed.is_pool()) {
            return Err(PoolError::ImpossibleName { name }.into());
        }
        Ok(Parts {
            name,
            config,
            config_list: list.clone(),
            auxiliary: self.seen.auxiliary.clone(),
            uberblock,
            vdevs,
            pipeline,
            mos,
            directory,
            root_dataset,
            features,
            salt,
            checkpoint,
            removal,
            rewound,
        })
    }

    /// Refuses a pool that another host used last and did not export.
    fn check_host(&self, config: &PoolConfig, uberblock: &Uberblock) -> Result<(), ImportError> {
        let asks = self.purpose == Purpose::Import && self.options.host_check == HostCheck::Enforce;
        let exported = self.discovered.state() == PoolState::Exported;
        if !asks || exported || self.options.host.wrote(&config.host) {
            return Ok(());
        }
        let (host, timestamp) = (config.host.clone(), uberblock.timestamp);
        Err(ImportError::LastUsedElsewhere { host, timestamp })
    }

    /// Refuses a pool with missing top-level vdevs.
    fn check_vdevs(&self, vdevs: &VdevTree) -> Result<(), ImportError> {
        let unusable = vdevs.top_levels().filter(|top| !top.health().is_usable());
        let (logs, others): (Vec<_>, Vec<_>) =
            unusable.partition(|top| top.own_config().top.is_log.is_some_and(|log| log != 0));
        if others.len() > self.options.tunables.zfs_max_missing_tvds {
            return Err(ImportError::MissingDevices { devices: names(vdevs.missing_leaves()) });
        }
        if !logs.is_empty() && self.options.missing_logs == MissingLogs::Refuse {
            let logs = logs.into_iter().map(|log| log.config()).collect();
            return Err(ImportError::MissingLogs { logs });
        }
        Ok(())
    }

    /// The spares and cache devices, with those of their devices that were found.
    fn auxiliary(
        &self,
        mos: &Objset,
        directory: &Attributes,
        vdevs: &VdevTree,
    ) -> Result<Vec<AuxiliaryVdev>, PoolError> {
        let devices = &self.discovered.devices;
        let mut auxiliary = Vec::new();
        for kind in [AuxiliaryKind::Spare, AuxiliaryKind::Cache] {
            for mut config in read_auxiliary_configs(mos, directory, kind)? {
                devices.fix_paths(&mut config);
                let path = config.hints.path.as_ref().map(|path| path.as_bytes());
                let device = devices.preferred(config.guid, path);
                let device = device.map(|device| Arc::clone(&device.device));
                auxiliary.push(AuxiliaryVdev::new(kind, config, device, vdevs));
            }
        }
        Ok(auxiliary)
    }

    /// Reads the blocks of the last txgs, and reports the cost of a rewind to this state.
    fn verify(
        &self,
        mos: &Objset,
        uberblock: &Uberblock,
    ) -> Result<Option<RewindInfo>, ImportError> {
        let mut data_errors = 0;
        let wanted = self.options.verification != LoadVerification::None;
        if wanted && self.purpose == Purpose::Import {
            let scope = match &self.rewind {
                None => verification::Scope::Recent,
                Some(rewind) if uberblock.txg >= rewind.safe => verification::Scope::RecentAndData,
                Some(_) => verification::Scope::All,
            };
            let damage = verification::run(mos, uberblock.txg, scope);
            if damage.metadata > 0 {
                let verification::Damage { metadata, data, on_missing } = damage;
                return Err(ImportError::Damaged { metadata, data, on_missing });
            }
            data_errors = damage.data;
        }
        Ok(self.rewind.as_ref().map(|rewind| RewindInfo {
            txg: uberblock.txg,
            timestamp: uberblock.timestamp,
            seconds_lost: rewind.best.timestamp.saturating_sub(uberblock.timestamp),
            data_errors,
        }))
    }
}

fn check_guid_sum(vdevs: &VdevTree, uberblock: &Uberblock) -> Result<(), ImportError> {
    let found = vdevs.vdevs().fold(0_u64, |sum, vdev| sum.wrapping_add(vdev.guid().get()));
    let expected = uberblock.guid_sum;
    if found == expected { Ok(()) } else { Err(ImportError::GuidSum { expected, found }) }
}

fn check_features(features: &FeatureStates) -> Result<(), ImportError> {
    let unsupported: Vec<_> = features
        .unsupported(FeatureNeed::Reading)
        .map(|feature| UnsupportedFeature { guid: feature.guid, description: feature.description })
        .collect();
    if unsupported.is_empty() {
        Ok(())
    } else {
        Err(ImportError::UnsupportedFeatures { features: unsupported })
    }
}

fn salt(directory: &Attributes) -> Result<Option<Salt>, ImportError> {
    let name = "org.illumos:checksum_salt";
    let Some(bytes) = directory.bytes(name)? else { return Ok(None) };
    match <[u8; Salt::SIZE]>::try_from(bytes) {
        Ok(key) => Ok(Some(Salt::new(key))),
        Err(_) => Err(MosError::Entry {
            object: directory.id(),
            name: name.to_owned(),
            problem: "it has not 32 bytes",
        }
        .into()),
    }
}

fn checkpoint(directory: &Attributes) -> Result<Option<Uberblock>, ImportError> {
    let Some(words) = directory.words("com.delphix:zpool_checkpoint")? else { return Ok(None) };
    Ok(Some(Uberblock::from_words(&words).map_err(MosError::corrupt(directory.id()))?))
}

/// Whether top-level vdevs are missing, or have too few working devices.
fn lacks_vdevs(tree: &VdevTree) -> bool {
    tree.top_levels().any(|top| !top.health().is_usable())
}

/// The names of leaves: those of vdevs that no label describes have none.
fn names(leaves: Vec<Vdev<'_>>) -> Vec<String> {
    let names = leaves.into_iter().map(|leaf| leaf.name().to_owned());
    names.filter(|name| !name.is_empty()).collect()
}
