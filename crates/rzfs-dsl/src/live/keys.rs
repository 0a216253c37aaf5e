//! The keys of a pool that is open for writing.

use crate::dataset::{DatasetTree, KeyStatus};
use crate::live::administration::{ChangeError, EncryptionProblem};
use crate::live::opening::SYNCS_TO_CLOSE;
use crate::live::pool::{Inner, LivePool};
use rzfs_format::ObjectId;

impl LivePool {
    /// Forgets the key of an encryption root. Nothing that was encrypted with it may be in use.
    ///
    /// # Errors
    /// [`ChangeError`]: it is no encryption root, its key is not loaded, or is in use.
    pub fn unload_key(&self, name: &str) -> Result<(), ChangeError> {
        let root = self.dataset_tree()?.open(name)?;
        let not_root = ChangeError::Encryption(EncryptionProblem::NotRoot);
        match root.key_status()? {
            KeyStatus::None => return Err(EncryptionProblem::NotEncrypted.into()),
            _ if root.encryption_root()?.is_none_or(|above| above.name() != name) => {
                return Err(not_root);
            }
            KeyStatus::Unavailable => return Err(EncryptionProblem::OldKeyNotLoaded.into()),
            KeyStatus::Available => {}
        }
        let inner = self.inner();
        for _ in 0..SYNCS_TO_CLOSE {
            self.sync().map_err(|_| ChangeError::Suspended { reason: self.failure() })?;
            // Nobody opens a head meanwhile.
            let heads = inner.heads.lock();
            let open: Vec<ObjectId> = heads.all().iter().map(|head| head.id()).collect();
            let tree = inner.dataset_tree()?;
            if !Inner::has_key_of(&tree, &open, name)? {
                root.unload_key()?;
                inner.mos.objset().pipeline().cache().clear();
                return Ok(());
            }
        }
        Err(ChangeError::KeyInUse { name: name.to_owned() })
    }
}

impl Inner {
    /// Whether one of these heads has its key from an encryption root.
    fn has_key_of(tree: &DatasetTree, heads: &[ObjectId], root: &str) -> Result<bool, ChangeError> {
        for head in heads {
            let above = tree.by_object(*head)?.encryption_root()?;
            if above.is_some_and(|above| above.name() == root) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
