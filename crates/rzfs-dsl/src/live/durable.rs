//! The durable state of a pool.

use super::space::accounts::Accounts;
use super::space::limits::SpaceTier;
use crate::dataset::{DatasetError, DatasetTree, Keyring, Readers, SharedState, UsableSpace};
use crate::mos::MosSource;
use crate::mos::live::LiveMos;
use parking_lot::RwLock;
use rzfs_dmu::Objset;
use rzfs_format::Txg;
use rzfs_format::uberblock::{RaidzReflow, Uberblock};
use rzfs_vdev::VdevTree;
use std::sync::Arc;

/// The last txg on disk that changed anything; reads use it.
#[derive(Debug)]
pub(crate) struct Durable {
    pub(super) pool: String,
    committed: RwLock<Committed>,
    accounts: Arc<Accounts>,
    pub(super) keyring: Arc<Keyring>,
    readers: Arc<Readers>,
}

/// A durable state.
#[derive(Clone, Debug)]
pub(crate) struct Committed {
    pub(crate) uberblock: Uberblock,
    pub(crate) mos: Objset,
    /// The vdevs known to the MOS: vdevs being added hold nothing yet.
    pub(crate) vdevs: Arc<VdevTree>,
}

impl Committed {
    /// The state of a pool that was not written yet.
    pub(crate) fn nothing(mos: &LiveMos, version: u64, txg: Txg) -> Self {
        let mos = mos.objset().synced().kept();
        let uberblock = Uberblock {
            version,
            txg,
            guid_sum: 0,
            timestamp: 0,
            mos: *mos.root(),
            software_version: version,
            multihost: None,
            checkpoint_txg: Txg(0),
            raidz_reflow: RaidzReflow(0),
        };
        let vdevs = mos.pipeline().vdevs();
        Self { uberblock, mos, vdevs }
    }
}

impl Durable {
    pub(crate) fn new(
        pool: &str,
        committed: Committed,
        accounts: &Arc<Accounts>,
        keyring: &Arc<Keyring>,
        readers: &Arc<Readers>,
    ) -> Self {
        let (accounts, keyring) = (Arc::clone(accounts), Arc::clone(keyring));
        let (committed, readers) = (RwLock::new(committed), Arc::clone(readers));
        Self { pool: pool.to_owned(), committed, accounts, keyring, readers }
    }

    pub(crate) fn uberblock(&self) -> Uberblock {
        self.committed.read().uberblock.clone()
    }

    /// The MOS of that uberblock.
    pub(crate) fn mos(&self) -> Objset {
        self.committed.read().mos.clone()
    }

    /// Replaces the durable state by that of a newer txg.
    pub(crate) fn replace(&self, committed: Committed) {
        *self.committed.write() = committed;
    }

    /// Holds the durable state: meanwhile blocks of this txg are not reused.
    pub(crate) fn hold(&self) -> Held {
        // A txg frees blocks only after its uberblock has been stored here.
        let committed = self.committed.read();
        let txg = committed.uberblock.txg;
        let hold = self.accounts.allocator().hold(txg);
        let accounts = Arc::clone(&self.accounts);
        let usable_space = UsableSpace::new(move || {
            let _held = &hold;
            accounts.usable_space(SpaceTier::Normal)
        });
        let keyring = Arc::clone(&self.keyring);
        let surroundings = SharedState::new(keyring, self.readers.view(txg));
        Held { committed: committed.clone(), usable_space, surroundings }
    }

    /// The datasets on disk. Their blocks are held while the tree exists.
    pub(crate) fn dataset_tree(&self) -> Result<DatasetTree, DatasetError> {
        let Held { committed, usable_space, surroundings } = self.hold();
        let mos = committed.mos;
        let root = mos.required_object("root_dataset")?;
        let place = (self.pool.clone(), root);
        Ok(DatasetTree::within(mos, place, usable_space, surroundings))
    }
}

/// A durable state, held for a reader.
pub(crate) struct Held {
    pub(crate) committed: Committed,
    /// Holds the state.
    pub(crate) usable_space: UsableSpace,
    pub(crate) surroundings: SharedState,
}
